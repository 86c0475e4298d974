"""A room for one real agent program on the loopback model: what the tests of every agent share.

What is one agent's own, its `Kind`, and what only it can be asked, stands in `claude_room` and `codex_room`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import structs

from amux.core.ids import Principal, SessionId
from amux.core.inputs import Authorization, Input
from amux.extensions import (
    Conversation,
    DeltaSeen,
    Died,
    Emit,
    InputId,
    ItemId,
    ItemSeen,
    ItemType,
    LaunchSnapshot,
    Opening,
    Outcome,
    Prompt,
    ProviderEvent,
    SessionRef,
    Stirred,
    TurnEnded,
    TurnId,
)
from amux.providers.process import boottime
from amux.sandbox.models import Models, serving
from tests.providers.conftest import carriers, eventually

E = TypeVar("E", bound=ProviderEvent)
C = TypeVar("C", bound=Conversation)
C_co = TypeVar("C_co", bound=Conversation, covariant=True)
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
SECONDS = 30  # the longest any single wait may take
KEY = "sk-loopback-0123456789"


class Opens(Protocol[C_co]):
    """A Provider whose conversations are of a known class."""

    async def open(self, opening: Opening, emit: Emit) -> C_co: ...


class Makes(Protocol[C_co, P_contra]):
    """A Provider's class."""

    def __call__(self, env: Mapping[str, str], *, program: Path | None, patience: P_contra) -> Opens[C_co]: ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[C, P]):
    """One agent: its Provider, the names under which it finds its model and its key, how long tests wait for it, how it
    is launched."""

    name: str
    makes: Makes[C, P]
    url_name: str
    key_name: str
    path: str  # of the model server, below its address
    patience: P
    launch: LaunchSnapshot


@dataclass
class Room(Generic[C, P]):
    """One Session's home, a provider, and all that its conversations told."""

    kind: Kind[C, P]
    models: Models
    url: str
    home: Path
    workspace: Path
    events: list[ProviderEvent] = field(default_factory=list)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)  # a sign of life came
    grew: asyncio.Condition = field(default_factory=asyncio.Condition)
    opened: list[C] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # more of the worker's

    def provider(self, *, patience: P | None = None, program: Path | None = None, key: str = KEY) -> Opens[C]:
        kind = self.kind
        env = {kind.url_name: self.url + kind.path, kind.key_name: key, "AMUX_POSTGRES_URL": "postgresql://secret"}
        env |= self.variables
        return kind.makes(env, program=program, patience=patience or kind.patience)

    async def open(
        self, native_id: str | None = None, *, provider: Opens[C] | None = None, launch: LaunchSnapshot | None = None
    ) -> C:
        opening = Opening(
            SessionRef("local", SessionId("s1")),
            replace(launch or self.kind.launch, workspace=str(self.workspace)),
            str(self.home),
            boottime() + 60,
            native_id,
        )
        conversation = await (provider or self.provider()).open(opening, self.hear)
        self.opened.append(conversation)
        return conversation

    def program(self, script: str) -> Path:
        """An executable of that text, to be run in the agent's place."""
        path = self.workspace / self.kind.launch.engine
        path.write_text(script)
        path.chmod(0o755)
        return path

    def hear(self, event: ProviderEvent) -> None:
        if isinstance(event, Stirred):
            self.stirred.set()
        else:
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

    def numbered(self) -> list[ProviderEvent]:
        """What was told, with items named in the order in which they came: item0, item1."""
        names: dict[ItemId, ItemId] = {}
        return [
            structs.replace(e, item=names.setdefault(e.item, ItemId(f"item{len(names)}")))
            if isinstance(e, ItemSeen | DeltaSeen)
            else e
            for e in self.events
        ]

    async def start(self, conversation: C, turn: int, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            await conversation.start_turn(TurnId(turn), Prompt((said(text),)))

    async def play(self, conversation: C, turn: int, text: str) -> TurnEnded:
        """A whole Turn, and how it ended."""
        await self.start(conversation, turn, text)
        return await self.until(TurnEnded, lambda e: e.turn == turn)

    async def interrupted(self, conversation: C, turn: int) -> TurnEnded:
        """How that Turn ended because it was stopped: once, and the agent lives on."""
        async with asyncio.timeout(SECONDS):
            await conversation.interrupt(TurnId(turn))
        (end,) = [e for e in self.all(TurnEnded) if e.turn == turn]
        assert (end.outcome, end.reason, self.all(Died)) == (Outcome.interrupted, "", [])
        return end

    async def tool(self, turn: int) -> ItemSeen:
        return await self.until(ItemSeen, lambda e: e.turn == turn and e.type is ItemType.tool)

    def flag(self, name: str) -> str:
        """A shell command that waits until the file of that name is there."""
        return f"touch {name}.waits; until [ -e {name} ]; do sleep 0.02; done; echo saw {name}"


def said(text: str) -> Input:
    who = Principal("cli:user_a")
    return Input(InputId(f"cli:user_a:{text}"), text, who, Authorization(who), sent_at=0)


@asynccontextmanager
async def furnished(kind: Kind[C, P], place: Path) -> AsyncIterator[Room[C, P]]:
    """A Room below that folder; in the end every conversation is closed, and no process of them is left."""
    workspace = place / "workspace"
    workspace.mkdir()
    models = Models(seconds=0)
    async with serving(models) as url:
        room = Room(kind, models, url, place / "homes" / "session", workspace)
        yield room
        async with asyncio.timeout(SECONDS):
            for conversation in room.opened:
                await conversation.close()
    await eventually(lambda: not carriers(room.home))
