"""A room for Claude Code, the real program, on the loopback model: what its tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from amux.core.ids import Principal, SessionId
from amux.core.inputs import Authorization, Input, Permission
from amux.extensions import (
    InputId,
    ItemSeen,
    ItemType,
    LaunchSnapshot,
    Opening,
    Prompt,
    ProviderEvent,
    SessionRef,
    TurnEnded,
    TurnId,
)
from amux.providers.claude import Claude
from amux.providers.claude_dialogue import Dialogue
from amux.providers.claude_turn import Patience
from amux.providers.process import boottime
from amux.sandbox.models import Models, serving
from tests.providers.conftest import carriers, eventually

E = TypeVar("E", bound=ProviderEvent)
SECONDS = 30  # the longest any single wait may take
KEY = "sk-loopback-0123456789"
SHORT = Patience(opening=25, answer=10, receipt=10, commit=15, stop=10)
LAUNCH = LaunchSnapshot("claude", "", model="loopback")
ASKING = replace(LAUNCH, permission=Permission.ask)


@dataclass
class Room:
    """One Session's home, a provider, and all that its conversations told."""

    models: Models
    url: str
    home: Path
    workspace: Path
    events: list[ProviderEvent] = field(default_factory=list)
    grew: asyncio.Condition = field(default_factory=asyncio.Condition)
    opened: list[Dialogue] = field(default_factory=list)

    def provider(self, *, patience: Patience = SHORT, program: Path | None = None, key: str = KEY) -> Claude:
        env = {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": key, "AMUX_POSTGRES_URL": "postgresql://secret"}
        return Claude(env, program=program, patience=patience)

    async def open(
        self, native_id: str | None = None, *, provider: Claude | None = None, launch: LaunchSnapshot = LAUNCH
    ) -> Dialogue:
        opening = Opening(
            SessionRef("local", SessionId("s1")),
            replace(launch, workspace=str(self.workspace)),
            str(self.home),
            boottime() + 60,
            native_id,
        )
        dialogue = await (provider or self.provider()).open(opening, self.hear)
        self.opened.append(dialogue)
        return dialogue

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

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    async def start(self, dialogue: Dialogue, turn: int, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            await dialogue.start_turn(TurnId(turn), Prompt((said(text),)))

    async def play(self, dialogue: Dialogue, turn: int, text: str) -> TurnEnded:
        """A whole Turn, and how it ended."""
        await self.start(dialogue, turn, text)
        return await self.until(TurnEnded, lambda e: e.turn == turn)

    async def tool(self, turn: int) -> ItemSeen:
        return await self.until(ItemSeen, lambda e: e.turn == turn and e.type is ItemType.tool)

    def flag(self, name: str) -> str:
        """A shell command that waits until the file of that name is there."""
        return f"touch {name}.waits; until [ -e {name} ]; do sleep 0.02; done; echo saw {name}"


def said(text: str) -> Input:
    who = Principal("cli:user_a")
    return Input(InputId(f"cli:user_a:{text}"), text, who, Authorization(who), sent_at=0)


async def asked(dialogue: Dialogue) -> None:
    """Return once all that was sent has its receipt."""
    turn = dialogue.told.turn
    assert turn
    async with asyncio.timeout(SECONDS):
        for one in list(turn.said.values()):
            await one.queued.wait()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    models = Models(seconds=0)
    async with serving(models) as url:
        room = Room(models, url, tmp_path / "homes" / "session", workspace)
        yield room
        async with asyncio.timeout(SECONDS):
            for dialogue in room.opened:
                await dialogue.close()
    await eventually(lambda: not carriers(room.home))
