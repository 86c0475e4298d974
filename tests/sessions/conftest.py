"""A worker's owners in this process, on real Postgres, real Redis and the real scripted agent behind its Guard."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from amux import wiring
from amux.core import events as e
from amux.core.ids import InputId, Principal, Seq, SessionId, SessionRef, TurnId
from amux.core.inputs import Authorization, Input, Permission, Said
from amux.ports import Draft, Session
from amux.runtime.host import Host
from amux.runtime.receive import new_session_id
from amux.sandbox.app import create
from amux.sandbox.feishu import serving, small_world
from amux.sandbox.models import Models
from amux.settings import Settings, load
from tests.providers.conftest import carriers, eventually

SECONDS = 60.0  # until what must come has failed to
A, B = Principal("cli:user_a"), Principal("cli:user_b")
E = TypeVar("E", bound=e.Event)


@dataclass
class Room:
    """A target with its worker, and what a test does to a Session of it."""

    settings: Settings
    env: Mapping[str, str]
    parts: wiring.Stores
    host: Host
    _numbers: "count[int]" = field(default_factory=count)
    _driving: set[asyncio.Task[None]] = field(default_factory=set)

    async def begin(self, text: str, *, permission: Permission = Permission.bypass, by: Principal = A) -> Session:
        """A new Session with its first input, driven from now on."""
        ref = SessionRef(self.settings.target, SessionId(new_session_id()))
        launch = wiring.launch_settings(self.settings, ref)
        draft = Draft(ref, replace(launch, permission=permission), text[:20])
        await self.parts.submit.launch(draft, self.said(text, by))
        session = await self.parts.sessions.find(str(ref))
        self.drive(session)
        return session

    def said(self, text: str, by: Principal = A) -> Input:
        id_ = InputId(f"{by}:{os.urandom(4).hex()}-{next(self._numbers)}")
        return Input(id_, text, by, Authorization(by), round(time.time() * 1000), by)

    async def say(self, session: Session, said: str | Said, by: Principal = A) -> None:
        """Post it, and wake a worker for it, as a wake would."""
        await self.parts.submit.to(session.key, self.said(said, by) if isinstance(said, str) else said)
        self.drive(session)

    def drive(self, session: Session) -> None:
        task = asyncio.create_task(self.host.drive(session.key))
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def seen(self, session: Session, kind: type[E], fits: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of that kind that fits, now or later."""
        async with asyncio.timeout(SECONDS), aclosing(self.parts.attach.follow(session.key, Seq(0))) as grown:
            async for batch in grown:
                for recorded in batch:
                    if isinstance(recorded.event, kind) and fits(recorded.event):
                        return recorded.event
        raise AssertionError("the Timeline ended")

    async def nth(self, session: Session, kind: type[E], number: int) -> E:
        """The event of that kind that is the `number`th."""
        numbers = count(1)
        return await self.seen(session, kind, lambda _: next(numbers) == number)

    async def quiet(self, session: Session) -> None:
        """Until no process of its agent is left."""
        await eventually(lambda: not self.agents(session))

    async def finished(self, session: Session, turn: int = 1) -> e.TurnFinished:
        return await self.seen(session, e.TurnFinished, lambda end: end.turn == TurnId(turn))

    async def log(self, session: Session) -> list[e.Event]:
        return [recorded.event for recorded in await self.parts.timeline.read(session.key, Seq(0), limit=1_000)]

    def agents(self, session: Session) -> list[int]:
        """Every process of the Session's agent."""
        return carriers(self.settings.home / "sessions" / session.ref.target / session.ref.id)

    async def said_in(self, session: Session, turn: int) -> str:
        """What the agent said in that Turn, which completed."""
        assert (await self.finished(session, turn)).outcome is e.Outcome.completed
        items = [x for x in await self.log(session) if isinstance(x, e.Item) and x.turn == turn]
        return " ".join(x.text for x in items if x.type is e.ItemType.message)

    async def slept(self, session: Session) -> None:
        """Until it sleeps and its owner has let go."""
        await self.seen(session, e.SessionState, lambda state: state.label is e.Label.sleeping)
        await self.quiet(session)

    async def close(self) -> None:
        await self.host.drain(5)
        await asyncio.gather(*self._driving, return_exceptions=True)


@asynccontextmanager
async def opened(env: Mapping[str, str]) -> AsyncIterator[Room]:
    """A worker by these settings."""
    settings = load(env, Path("/nonexistent/amux.toml"))
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(wiring.stores(settings))
        host = await stack.enter_async_context(wiring.host(settings, env))
        room = Room(settings, env, parts, host)
        stack.push_async_callback(room.close)
        yield room


@pytest.fixture
async def models() -> AsyncIterator[str]:
    """The models of the sandbox, by their address."""
    async with serving(create(small_world(), Models(seconds=0.2))) as address:
        yield address


@pytest.fixture
def env(tmp_path: Path, fresh_database: str, redis_url: str) -> dict[str, str]:
    """Patience of a test: what a person would wait for minutes comes in seconds."""
    path = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    urls = {"AMUX_POSTGRES_URL": fresh_database, "AMUX_REDIS_URL": redis_url, "AMUX_HOME": str(tmp_path)}
    return {**path, **urls, "AMUX_TARGET": f"t{os.urandom(3).hex()}", "AMUX_BURST_WINDOW": "0.2", "AMUX_LEASE": "5"}
