"""The two sides of every conformance suite: fakes over one world, and the real stores on real servers.

A Side gives the ports of two processes, makes Sessions, and does to its world what happens to worlds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from amux.core.ids import InputId, Principal, SessionId, SessionKey, SessionRef, TurnId
from amux.core.inputs import Authorization, Input, Interrupt, Place, Said
from amux.core.launch import LaunchSnapshot
from amux.ports import (
    Bells,
    Bindings,
    Cards,
    Draft,
    Inbox,
    Inputs,
    Journaled,
    Leases,
    NewBinding,
    Nudges,
    Sessions,
    Timeline,
    Waker,
)
from amux.stores.bindings import PostgresBindings
from amux.stores.cards import PostgresCards
from amux.stores.hints import CeleryWaker, RedisBells, RedisNudges
from amux.stores.inbox import RedisInbox
from amux.stores.inputs import PostgresInputs
from amux.stores.lease import RedisLeases
from amux.stores.postgres import Postgres
from amux.stores.redis import Redis
from amux.stores.sessions import PostgresSessions
from amux.stores.timeline import PostgresTimeline
from tests.fakes import Worker, World

DEADLINE = 10.0  # seconds
_numbers = count(1)


class Process(Protocol):
    """The ports of one process."""

    @property
    def timeline(self) -> Timeline: ...
    @property
    def inputs(self) -> Inputs: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def bindings(self) -> Bindings: ...
    @property
    def cards(self) -> Cards: ...
    @property
    def inbox(self) -> Inbox: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def waker(self) -> Waker: ...
    @property
    def nudges(self) -> Nudges: ...
    @property
    def bells(self) -> Bells: ...


@dataclass
class Real:
    """One process on real servers."""

    timeline: PostgresTimeline
    inputs: PostgresInputs
    sessions: PostgresSessions
    bindings: PostgresBindings
    cards: PostgresCards
    inbox: RedisInbox
    leases: RedisLeases
    waker: CeleryWaker
    nudges: RedisNudges
    bells: RedisBells
    postgres: Postgres
    redis: Redis


@asynccontextmanager
async def real_process(postgres_url: str, redis_url: str, name: str, *, patience: float = 5.0) -> AsyncIterator[Real]:
    """The stores as an amux process has them."""
    postgres, redis = Postgres(postgres_url), Redis(redis_url)
    nudges = RedisNudges(redis)
    yield Real(
        PostgresTimeline(postgres, nudges.publish, patience=patience),
        PostgresInputs(postgres),
        PostgresSessions(postgres),
        PostgresBindings(postgres),
        PostgresCards(postgres),
        RedisInbox(redis),
        RedisLeases(redis),
        CeleryWaker(redis),
        nudges,
        bells := RedisBells(redis, name),
        postgres,
        redis,
    )
    await nudges.close()
    await bells.close()
    await postgres.close()
    await redis.close()


@dataclass
class Side:
    """One world with two processes. `pass_time` lets at least so many seconds go by."""

    a: Process
    b: Process
    wipe: Callable[[], Awaitable[None]]
    pass_time: Callable[[float], Awaitable[None]]
    _tag: int = field(default_factory=lambda: next(_numbers))

    async def session(self, prefix: str = "") -> SessionKey:
        """A new Session that has one input."""
        return (await self.launch(prefix=prefix)).session

    async def launch(self, said: Said | None = None, binding: NewBinding | None = None, prefix: str = "") -> Journaled:
        draft = Draft(self.ref(prefix), LaunchSnapshot("fake", "/work"), "a title")
        return await self.a.inputs.launch(draft, said or self.said(), binding)

    def ref(self, prefix: str = "") -> SessionRef:
        return SessionRef("local", SessionId(f"{prefix}{self._tag:03}x{next(_numbers):06}"))

    def said(self, text: str = "hello", place: Place | None = None, name: str = "") -> Input:
        id_ = InputId(f"cli:user_a:{self._tag}-{name or next(_numbers)}")
        return Input(id_, text, Principal("cli:user_a"), Authorization(Principal("cli:user_a"), place), 1_000)

    def interrupt(self, turn: int | None = None) -> Interrupt:
        id_ = InputId(f"cli:user_a:{self._tag}-{next(_numbers)}")
        return Interrupt(id_, Principal("cli:user_a"), TurnId(turn) if turn else None)


@asynccontextmanager
async def fake_side() -> AsyncIterator[Side]:
    world = World()

    async def wipe() -> None:
        world.wipe_redis()

    async def pass_time(seconds: float) -> None:
        world.clock.advance(seconds)

    yield Side(Worker(world, "a"), Worker(world, "b"), wipe, pass_time)


@asynccontextmanager
async def real_side(postgres_url: str, redis_url: str) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(real_process(postgres_url, redis_url, "a"))
        b = await stack.enter_async_context(real_process(postgres_url, redis_url, "b"))

        async def wipe() -> None:
            await a.redis.command("FLUSHDB")

        async def pass_time(seconds: float) -> None:
            """By Redis' clock, which counts its leases."""
            await a.redis.command("SET", "hourglass", "1", "PX", round(seconds * 1000) + 1)
            await until(lambda: _gone(a.redis))

        yield Side(a, b, wipe, pass_time)


async def _gone(redis: Redis) -> bool:
    return bool(await redis.command("EXISTS", "hourglass") == 0)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it, up to the deadline."""
    async with asyncio.timeout(DEADLINE):
        while not await holds():  # noqa: ASYNC110 - what is waited for lies in a server
            await asyncio.sleep(0.005)
