"""A provider whose agent says and does what the test tells it to, when the test tells it to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from amux.core.events import ItemStatus, ItemType, Outcome
from amux.core.ids import InputId, ItemId, RequestId, SessionRef, TurnId
from amux.core.inputs import Input, Verdict
from amux.core.launch import LaunchSnapshot
from amux.core.signals import Died, ItemSeen, PermissionAsked, TurnEnded
from amux.extensions import Emit, Extra, Opening, Prompt, Steering

Fault = Callable[[], Exception]


@dataclass
class FakeSteering:
    """Holds each steer until the test answers it; `fault` answers the next ones at once."""

    steers: list[tuple[TurnId, tuple[Input, ...]]] = field(default_factory=list)
    fault: Fault | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        self.steers.append((turn, inputs))
        await self.answered.wait()
        if self.fault:
            raise self.fault()


@dataclass
class FakeCompaction:
    """Is done at once, or fails as the test says."""

    fault: Fault | None = None
    done: int = 0

    async def compact(self) -> None:
        if self.fault:
            raise self.fault()
        self.done += 1


@dataclass
class FakeConversation:
    """One live conversation. `prompts` is what its agent was given, in order: what is there twice ran twice."""

    opening: Opening
    emit: Emit
    native_id: str
    steering: Steering | None
    compaction: "FakeCompaction | None" = None
    prompts: list[tuple[TurnId, Prompt]] = field(default_factory=list)
    answers: list[tuple[RequestId, Verdict]] = field(default_factory=list)
    interrupts: list[TurnId] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    closed: bool = False
    leaving: asyncio.Event | None = None  # it takes until then to be gone
    start_fault: Fault | None = None

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        if self.start_fault:
            raise self.start_fault()
        self.prompts.append((turn, prompt))

    async def interrupt(self, turn: TurnId) -> None:
        self.interrupts.append(turn)
        self.emit(TurnEnded(turn, Outcome.interrupted))

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        self.answers.append((request, verdict))

    async def close(self) -> None:
        self.closed = True
        if self.leaving:
            await self.leaving.wait()

    # -- what the test lets the agent do ------------------------------------------------------------------------------

    def say(self, text: str, *, item: str = "m1") -> None:
        """A whole message in the running Turn."""
        self.emit(ItemSeen(self._turn(), ItemId(item), ItemType.message, ItemStatus.completed, text=text))

    def ask(self, request: str, title: str = "May I?") -> None:
        self.emit(PermissionAsked(self._turn(), RequestId(request), title))

    def finish(self, outcome: Outcome = Outcome.completed, *, unhandled: tuple[InputId, ...] = ()) -> None:
        self.emit(TurnEnded(self._turn(), outcome, unhandled=unhandled))

    def die(self, reason: str = "the agent's process is gone") -> None:
        self.emit(Died(reason))

    def _turn(self) -> TurnId:
        return self.prompts[-1][0]


class FakeWorkspaces:
    """Every folder is there and may be worked in."""

    async def ready(self, session: SessionRef, launch: LaunchSnapshot) -> str:
        return launch.workspace


@dataclass
class FakeProvider:
    """One engine. `opened` are its conversations, the newest last."""

    engine: str = "fake"
    extras: frozenset[Extra] = frozenset(Extra)
    steers: bool = True
    fault: Fault | None = None
    wanted: bool = False  # its workspace is, while it opens
    opened: list[FakeConversation] = field(default_factory=list)

    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        if self.fault:
            raise self.fault()
        if self.wanted:
            opening.wanted()
        native_id = opening.native_id or f"native-{len(self.opened) + 1}"
        steering = FakeSteering() if self.steers else None
        conversation = FakeConversation(opening, emit, native_id, steering)
        opening.guarded(conversation.deadlines.append)
        self.opened.append(conversation)
        return conversation
