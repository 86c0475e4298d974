"""What all REST calls have in common: the token, the rate limits, the form of answers and errors, and the faults. What a
call does is said in `im` and `cardkit`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amux.sandbox.changes import ChangeKind
from amux.sandbox.faults import RestFault
from amux.sandbox.pace import HOUR_MS
from amux.sandbox.records import AppId, Bot, CardId, ChatId, Json, MessageId, open_id
from amux.sandbox.world import World

TOKEN_MS, RENEWED_MS = 2 * HOUR_MS, HOUR_MS // 2
TOKEN_MISSING, TOKEN_DEAD, TOKEN_MALFORMED, RATE_LIMITED, BAD_FIELD = 99991661, 99991663, 99991668, 99991400, 99992402


@dataclass(frozen=True)
class ApiError(Exception):
    """A call refused, as the platform words it."""

    code: int
    msg: str
    status: int = 400
    headers: Mapping[str, str] = field(default_factory=dict)


def bad_parameter(reason: str) -> ApiError:
    return ApiError(230001, f"Your request contains an invalid request parameter, ext={reason}")


def rate_limited(*, limit: int, seconds: int) -> ApiError:
    headers = {"x-ogw-ratelimit-limit": str(limit), "x-ogw-ratelimit-reset": str(seconds)}
    return ApiError(RATE_LIMITED, "request trigger frequency limit", 429, headers)


@dataclass(frozen=True, slots=True)
class Call:
    """One authorized call: by which bot, and its parts."""

    world: World
    bot: Bot
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json

    def text(self, key: str, default: str | None = None) -> str:
        """A text of the body. Raises ApiError when it is missing, with no default, or no text."""
        value = self.body.get(key, default)
        if not isinstance(value, str):
            raise ApiError(BAD_FIELD, f"field validation failed: {key} is required and must be a string")
        return value


Handler = Callable[[Call], Json]
Table = Mapping[tuple[str, str], Handler]


class Tokens:
    """Tenant tokens. A token is given out again while it has half an hour to live; then a second one is valid beside it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tokens: dict[str, tuple[AppId, int]] = {}

    def issue(self, app: AppId) -> tuple[str, int]:
        """A token and the seconds that it has left."""
        now = self._world.clock.now_ms()
        for token, (owner, ends_ms) in self._tokens.items():
            if owner == app and ends_ms - now >= RENEWED_MS:
                return token, (ends_ms - now) // 1000
        token = "t-" + uuid.uuid4().hex
        self._tokens[token] = app, now + TOKEN_MS
        return token, TOKEN_MS // 1000

    def owner(self, authorization: str) -> Bot:
        """Whose token this header carries. Raises ApiError when it is missing, malformed, unknown or too old."""
        if not authorization:
            raise ApiError(TOKEN_MISSING, "Missing access token for authorization. Please make a request with token.")
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer" or not token.startswith("t-"):
            raise ApiError(TOKEN_MALFORMED, "Invalid access token for authorization.")
        app, ends_ms = self._tokens.get(token, (None, 0))
        if app is None or ends_ms <= self._world.clock.now_ms():
            raise ApiError(
                TOKEN_DEAD, "Invalid access token for authorization. Please make a request with token attached."
            )
        return self._world.bots[app]

    def revoke(self, authorization: str) -> None:
        self._tokens.pop(authorization.partition(" ")[2], None)


class Rest:
    """The REST side of the platform: a table of calls behind one door."""

    def __init__(self, world: World, table: Table) -> None:
        self._world = world
        self._table = table
        self._tokens = Tokens(world)

    def routes(self) -> list[BaseRoute]:
        paths: dict[str, dict[str, Handler]] = {"/bot/v3/info": {"GET": _bot_info}}
        for (method, path), handler in self._table.items():
            paths.setdefault(path, {})[method] = handler
        token = Route("/open-apis/auth/v3/tenant_access_token/internal", self._token, methods=["POST"])
        return [token, *(self._route(path, handlers) for path, handlers in paths.items())]

    def _route(self, path: str, handlers: Mapping[str, Handler]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request, path, handlers[request.method])

        return Route("/open-apis" + path, endpoint, methods=list(handlers))

    async def _token(self, request: Request) -> Response:
        def issue(body: Json) -> Json:
            app = AppId(str(body.get("app_id", "")))
            if app not in self._world.bots:
                raise ApiError(10003, "invalid param", 200)
            if self._world.bots[app].secret != body.get("app_secret"):
                raise ApiError(10014, "app secret invalid", 200)
            token, seconds = self._tokens.issue(app)
            return {"msg": "ok", "tenant_access_token": token, "expire": seconds}

        return await self._through_faults(request, issue)

    async def _answer(self, request: Request, path: str, handler: Handler) -> Response:
        def carry_out(body: Json) -> Json:
            bot = self._tokens.owner(request.headers.get("authorization", ""))
            self._meter(bot, request.method, path)
            call = Call(self._world, bot, request.path_params, request.query_params, body)
            try:
                return handler(call)
            except ApiError as error:
                if request.method != "GET":
                    _note_refusal(call, error)
                raise

        return await self._through_faults(request, carry_out)

    async def _through_faults(self, request: Request, carry_out: Callable[[Json], Json]) -> Response:
        """Carry one call out, unless a fault that is armed for it comes before or after."""
        armed = self._world.faults.rest(request.method, request.url.path)
        fault = armed.fault if armed else None
        match fault:
            case RestFault.bad_gateway:
                return HTMLResponse("<html><body><h1>502 Bad Gateway</h1></body></html>", 502)
            case RestFault.rate_limited:
                return _refusal(rate_limited(limit=50, seconds=1))
            case RestFault.rate_limited_bare:
                return _refusal(ApiError(RATE_LIMITED, "request trigger frequency limit", 429))
            case RestFault.unauthorized:
                self._tokens.revoke(request.headers.get("authorization", ""))
        try:
            answer: Response = _success(carry_out(await _body(request)))
        except ApiError as error:
            answer = _refusal(error)
        if armed and fault is RestFault.slow:
            await asyncio.sleep(armed.seconds)
        return _Lost() if fault is RestFault.answer_lost else answer

    def _meter(self, bot: Bot, method: str, path: str) -> None:
        limits, key = self._world.limits, (bot.app_id, method, path)
        if not self._world.meter.admits("second", *key, limit=limits.calls_per_api):
            raise rate_limited(limit=limits.calls_per_api, seconds=1)
        if not self._world.meter.admits("minute", *key, limit=limits.calls_per_api_minute, seconds=60):
            raise rate_limited(limit=limits.calls_per_api_minute, seconds=60)


class _Lost(Response):
    """An answer that breaks off before its end, with the connection."""

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _body(request: Request) -> Json:
    if request.method in ("GET", "DELETE"):
        return {}
    try:
        body = await request.json()
    except ValueError as e:
        raise ApiError(9499, "Bad Request: the body is no JSON") from e
    if not isinstance(body, dict):
        raise ApiError(9499, "Bad Request: the body is no object")
    return body


def _log_id() -> str:
    return "20260101" + uuid.uuid4().hex[:24].upper()


def _success(answer: Json) -> Response:
    return _json({"code": 0, "msg": "success", **answer}, 200, {"X-Tt-Logid": _log_id()})


def _refusal(error: ApiError) -> Response:
    log_id = _log_id()
    body = {"code": error.code, "msg": error.msg, "error": {"log_id": log_id, "troubleshooter": "look the log id up"}}
    return _json(body, error.status, {"X-Tt-Logid": log_id, **error.headers})


def _json(body: Json, status: int, headers: Mapping[str, str]) -> Response:
    response = JSONResponse(body, status)
    response.raw_headers += [(k.encode(), v.encode()) for k, v in headers.items()]  # lark-oapi minds their case
    return response


def _note_refusal(call: Call, error: ApiError) -> None:
    """Show it where it would have been seen."""
    world = call.world
    entity = world.entities.get(CardId(call.path.get("card_id", "")))
    message = world.messages.get(MessageId(call.path.get("message_id", "")))
    if message is None and entity is not None and entity.message is not None:
        message = world.messages[entity.message]
    chat = message.chat if message else ChatId(str(call.body.get("receive_id", "")))
    world.log.note(
        ChangeKind.send_refused,
        chat=chat if chat in world.chats else None,
        thread=message.thread if message else None,
        message=message.id if message else None,
        app=call.bot.app_id,
        code=error.code,
        reason=error.msg,
    )


def _bot_info(call: Call) -> Json:
    bot = call.bot
    return {
        "bot": {
            "activate_status": 2,
            "app_name": bot.name,
            "avatar_url": "",
            "ip_white_list": [],
            "open_id": open_id(bot.app_id, bot.app_id),
        }
    }
