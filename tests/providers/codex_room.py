"""One Session's home with Codex in it, on a loopback model of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from amux.core.ids import Principal, SessionId
from amux.core.inputs import Authorization, Input
from amux.extensions import (
    Died,
    InputId,
    ItemSeen,
    ItemType,
    LaunchSnapshot,
    Opening,
    Outcome,
    Prompt,
    ProviderEvent,
    SessionRef,
    TurnEnded,
    TurnId,
)
from amux.providers.codex import Codex
from amux.providers.codex_thread import Thread
from amux.providers.codex_turn import Patience
from amux.providers.process import boottime
from amux.sandbox.models import Models, serving
from tests.providers.conftest import carriers, eventually

E = TypeVar("E", bound=ProviderEvent)
SECONDS = 20  # the longest any single wait may take
KEY = "sk-loopback-0123456789"
SHORT = Patience(opening=20, answer=15, commit=15, stop=10)


@dataclass
class Room:
    """One Session's home, a provider, and all that its conversations told."""

    models: Models
    url: str
    home: Path
    workspace: Path
    events: list[ProviderEvent] = field(default_factory=list)
    grew: asyncio.Condition = field(default_factory=asyncio.Condition)
    opened: list[Thread] = field(default_factory=list)

    def provider(self, *, patience: Patience = SHORT, program: Path | None = None, key: str = KEY) -> Codex:
        env = {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": key, "AMUX_POSTGRES_URL": "postgresql://secret"}
        return Codex(env, program=program, patience=patience)

    async def open(
        self, native_id: str | None = None, *, provider: Codex | None = None, launch: LaunchSnapshot | None = None
    ) -> Thread:
        opening = Opening(
            SessionRef("local", SessionId("s1")),
            replace(launch or LaunchSnapshot("codex", "", model="loopback"), workspace=str(self.workspace)),
            str(self.home),
            boottime() + 60,
            native_id,
        )
        thread = await (provider or self.provider()).open(opening, self.hear)
        self.opened.append(thread)
        return thread

    def hear(self, event: ProviderEvent) -> None:
        self.events.append(event)
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self.grew:
            self.grew.notify_all()

    async def until(self, kind: type[E], fits: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of that kind that fits, now or later."""
        async with asyncio.timeout(SECONDS), self.grew:
            await self.grew.wait_for(lambda: any(isinstance(e, kind) and fits(e) for e in self.events))
        return next(e for e in self.events if isinstance(e, kind) and fits(e))

    async def count(self, turn: int, events: int) -> None:
        """Wait until that Turn has told so much."""
        async with asyncio.timeout(SECONDS), self.grew:
            await self.grew.wait_for(lambda: sum(getattr(e, "turn", 0) == turn for e in self.events) >= events)

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    async def start(self, thread: Thread, turn: int, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            await thread.start_turn(TurnId(turn), Prompt((said(text),)))

    async def play(self, thread: Thread, turn: int, text: str) -> TurnEnded:
        """A whole Turn, and how it ended."""
        await self.start(thread, turn, text)
        return await self.until(TurnEnded, lambda e: e.turn == turn)

    async def tool(self, turn: int) -> ItemSeen:
        return await self.until(ItemSeen, lambda e: e.turn == turn and e.type is ItemType.tool)

    def flag(self, name: str) -> str:
        """A shell command that waits until the file of that name is there."""
        return f"touch {name}.waits; until [ -e {name} ]; do sleep 0.02; done; echo saw {name}"


def said(text: str, name: str | None = None) -> Input:
    who = Principal("cli:user_a")
    return Input(InputId(name or f"cli:user_a:{text}"), text, who, Authorization(who), sent_at=0)


async def interrupted(room: Room, thread: Thread, turn: int) -> None:
    async with asyncio.timeout(SECONDS):
        await thread.interrupt(TurnId(turn))
    ends = [e.outcome for e in room.all(TurnEnded) if e.turn == turn]
    assert ends == [Outcome.interrupted]
    assert room.all(Died) == []


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    models = Models(seconds=0)
    async with serving(models) as url:
        room = Room(models, url, tmp_path / "homes" / "session", workspace)
        yield room
        async with asyncio.timeout(SECONDS):
            for thread in room.opened:
                await thread.close()
    await eventually(lambda: not carriers(room.home))
