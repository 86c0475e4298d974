"""The door of the long connection: where a client asks for an address, and the WebSocket behind it. Turns bytes into
frames and back; who gets which event is for `push`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from itertools import count
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from amux.sandbox import frames
from amux.sandbox.faults import EndpointFault, HandshakeFault
from amux.sandbox.frames import BadFrame
from amux.sandbox.push import Connection
from amux.sandbox.records import AppId, Json
from amux.sandbox.world import World

MAX_CONNECTIONS = 50
SYSTEM_BUSY, FORBIDDEN, AUTH_FAILED, INTERNAL, NO_CREDENTIAL, OVER_LIMIT = (
    1,
    403,
    514,
    1000040343,
    1000040344,
    1000040350,
)
FAULTS = {
    EndpointFault.busy: (SYSTEM_BUSY, "system busy"),
    EndpointFault.forbidden: (FORBIDDEN, "forbidden"),
    EndpointFault.auth_failed: (AUTH_FAILED, "auth failed"),
    EndpointFault.over_limit: (OVER_LIMIT, "the number of connections exceeded the limit"),
}


class Gateway:
    """Addresses handed out and not yet used, by their one-time ticket."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tickets: dict[str, AppId] = {}
        self._services = count(33554678)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/callback/ws/endpoint", self.endpoint, methods=["POST"]),
            WebSocketRoute("/ws/v2", self.connect),
        ]

    async def endpoint(self, request: Request) -> Response:
        """Answer where to connect: an address for one connection."""
        fault = self._world.faults.endpoint()
        if fault is EndpointFault.black_hole:
            await _hang(request)
        if fault in (EndpointFault.status_500, EndpointFault.black_hole):
            return JSONResponse({"code": INTERNAL, "msg": "internal error"}, 500)
        if fault is not None:
            return _refusal(*FAULTS[fault])
        try:
            body: Json = await request.json()
            app, secret = AppId(body["AppID"]), body["AppSecret"]
        except (ValueError, KeyError, TypeError):
            return _refusal(NO_CREDENTIAL, "app_id or app_secret is missing")
        bot = self._world.bots.get(app)
        if bot is None or bot.secret != secret:
            return _refusal(AUTH_FAILED, "app_id or app_secret is invalid")
        if len(self._world.courier.connections(app)) >= MAX_CONNECTIONS:
            return _refusal(*FAULTS[EndpointFault.over_limit])
        return JSONResponse({"code": 0, "msg": "", "data": self._address(app, request)})

    async def connect(self, socket: WebSocket) -> None:
        """Hold one long connection until either side leaves."""
        fault = self._world.faults.handshake()
        app = self._tickets.pop(socket.query_params.get("ticket", ""), None)
        if fault is HandshakeFault.forbidden:
            return await _refuse(socket, FORBIDDEN, "forbidden", INTERNAL)
        if app is None:
            return await _refuse(socket, AUTH_FAILED, "the ticket is unknown or used", INTERNAL)
        if fault is HandshakeFault.over_limit or len(self._world.courier.connections(app)) >= MAX_CONNECTIONS:
            return await _refuse(socket, AUTH_FAILED, "too many connections", OVER_LIMIT)
        await socket.accept()
        query = socket.query_params
        connection = Connection(query["device_id"], app, int(query["service_id"]), _sender(socket))
        self._world.courier.attach(connection)
        try:
            await self._serve(socket, connection)
        finally:
            self._world.courier.detach(connection)

    async def _serve(self, socket: WebSocket, connection: Connection) -> None:
        """Read until the client leaves or the connection is dropped: then return, which cuts it without a word."""
        reading = asyncio.ensure_future(self._read(socket, connection))
        dropped = asyncio.ensure_future(connection.dropped.wait())
        try:
            await asyncio.wait({reading, dropped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, dropped):
                task.cancel()
            await asyncio.gather(reading, dropped, return_exceptions=True)

    async def _read(self, socket: WebSocket, connection: Connection) -> None:
        try:
            while True:
                await self._world.courier.receive(connection, frames.decode(await socket.receive_bytes()))
        except (
            WebSocketDisconnect,
            ConnectionError,
            BadFrame,
            KeyError,
        ):  # KeyError: a text message, which is no frame
            return

    def _address(self, app: AppId, request: Request) -> Json:
        ticket, service = uuid.uuid4().hex, next(self._services)
        self._tickets[ticket] = app
        query = {"fpid": 493, "aid": 552564, "device_id": str(uuid.uuid4().int)[:19], "access_key": uuid.uuid4().hex}
        query |= {"service_id": service, "ticket": ticket}
        url = f"ws://{request.url.netloc}/ws/v2?{urlencode(query)}"
        return {"URL": url, "ClientConfig": self._world.pace.client_config()}


def _refusal(code: int, msg: str) -> Response:
    return JSONResponse({"code": code, "msg": msg, "data": {}})


async def _refuse(socket: WebSocket, status: int, msg: str, auth_code: int) -> None:
    headers = {"handshake-status": str(status), "handshake-msg": msg, "handshake-autherrcode": str(auth_code)}
    await socket.send_denial_response(Response(msg, 403, headers))


async def _hang(request: Request) -> None:
    """Say nothing until the client gives up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _sender(socket: WebSocket) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        if socket.application_state is not WebSocketState.CONNECTED:
            raise ConnectionResetError
        try:
            await socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as e:  # Starlette's words for a socket that has gone
            raise ConnectionResetError from e

    return send
