"""Feishu's cloud on this machine: the routes of its open platform over one World, and a server for them. Bind it to
loopback only: the secrets of its bots are public."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import AF_INET, IPPROTO_TCP, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET
from socket import socket as Socket  # noqa: N812  a type here, as its name should say

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from amux.sandbox import cardkit, reading, sending
from amux.sandbox.gateway import Gateway
from amux.sandbox.pace import FEISHU_LIMITS, FEISHU_PACE, Limits, Pace
from amux.sandbox.records import AppId, Bot, Chat, ChatMode, Hears, Person, PersonId, chat_id
from amux.sandbox.rest import Rest
from amux.sandbox.world import World

USER_A, USER_B, USER_C = PersonId("user_a"), PersonId("user_b"), PersonId("user_c")
CODER = AppId("cli_a1c0de5a4db0c0de")
CODER_SECRET = "loopback-only"  # noqa: S105  a world of its own: it opens nothing but this process
PAYMENTS, OPS = chat_id("payments-api"), chat_id("ops-room")


def routes(world: World) -> list[BaseRoute]:
    """All that lark-oapi may ask for, from the root of whatever host it is given as its domain."""
    table = {**reading.TABLE, **sending.TABLE, **cardkit.TABLE}
    return [*Gateway(world).routes(), *Rest(world, table).routes()]


def platform(world: World) -> Starlette:
    """The platform alone, as an ASGI app; the World is closed with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await world.close()

    return Starlette(routes=routes(world), lifespan=lifespan)


def small_world(
    *,
    pace: Pace = FEISHU_PACE,
    limits: Limits = FEISHU_LIMITS,
    hears: Hears = Hears.all_messages,
    seed: int | None = None,
) -> World:
    """Three people, the bot "Coder", which User A owns, a group with topics, an ordinary group, and everybody's private
    chat with the bot. Everybody is in both groups; whether somebody may drive the bot is not for the cloud to say."""
    people = [Person(USER_A, "User A"), Person(USER_B, "User B"), Person(USER_C, "User C")]
    everybody, bots = frozenset(p.id for p in people), frozenset({CODER})
    return World(
        people=people,
        bots=[Bot(CODER, CODER_SECRET, "Coder", USER_A, hears)],
        chats=[
            Chat(PAYMENTS, "payments-api", ChatMode.topics, everybody, bots),
            Chat(OPS, "ops-room", ChatMode.group, everybody, bots),
        ],
        pace=pace,
        limits=limits,
        seed=seed,
    )


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[Socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serving(app: Starlette, *, port: int = 0) -> AsyncIterator[str]:
    """Serve an app on loopback, on this event loop, and answer its address, `http://127.0.0.1:PORT`; port 0 takes a
    free one. Ends the app's lifespan, open connections too, on leaving. Raises OSError when the port is taken."""
    socket = Socket(AF_INET, SOCK_STREAM, IPPROTO_TCP)  # named in full: asyncio sends at once on such a socket only
    with socket:
        socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        socket.bind(("127.0.0.1", port))
        server = _Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=0))
        running = asyncio.ensure_future(server.serve([socket]))
        await server.listening.wait()
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
