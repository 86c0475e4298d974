"""The machine's vocabulary: what an owner knows and may forget, what it is to do, and a Step in the making.

Values only; the decisions are in `machine`."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import InputId, ItemId, RequestId, TurnId
from amux.core.inputs import Input, Verdict
from amux.core.session import State, apply
from amux.core.steering import Busy
from amux.core.watchdog import UNLIMITED, Limits, Watch


class Phase(StrEnum):
    """What holds the provider. Only idle dispatches, and not beside a foreign turn."""

    closed = "closed"
    opening = "opening"
    idle = "idle"
    turn = "turn"
    stopping = "stopping"
    context = "context"  # the agent summarises it


class Burst(Struct, frozen=True):
    """Consecutive text of one sender, until its window closes (I2). `closes` is monotonic seconds."""

    inputs: tuple[Input, ...]
    closes: float

    def without(self, gone: tuple[Input, ...]) -> "Burst | None":
        """What is left of it, if anything is."""
        left = tuple(i for i in self.inputs if i not in gone)
        return replace(self, inputs=left) if left else None


class Streaming(Struct, frozen=True):
    """Text of one item that is being joined; `due` is monotonic seconds."""

    turn: TurnId
    item: ItemId
    offset: int
    text: str
    due: float


class Scratch(Struct, frozen=True):
    """What an owner knows and may forget."""

    engine: str
    window: float  # seconds of the burst window
    limits: Limits = UNLIMITED
    busy: Busy = Busy.steer
    fresh: e.Fresh | None = None  # why the next opening must not resume what there is
    phase: Phase = Phase.closed
    herald: e.OwnerOpened | None = None  # goes with this owner's first append
    held: tuple[Input, ...] = ()  # said while the provider was not open: unaccepted still
    burst: Burst | None = None
    streaming: Streaming | None = None
    foreign: str | None = None  # a native turn that nobody asked for runs (H55)
    ended: s.TurnEnded | None = None  # the Turn's end, while an answer to a steer is still out
    leaving: bool = False  # nothing more begins here (D2)
    watch: Watch | None = None  # over the running Turn's agent, until it is being stopped

    def due(self, state: State) -> float | None:
        """When the owner must look again by itself, in monotonic seconds."""
        dues = [x for x in (self.burst and self.burst.closes, self.streaming and self.streaming.due) if x]
        if self.watch:
            dues += [x for x in [self.watch.due(self.limits, state.requests)] if x < inf]
        return min(dues, default=None)

    def at_rest(self, state: State) -> bool:
        """Whether nothing is left to do, so that the owner may let go; what waits is left to another by one who leaves."""
        nothing = not (self.burst or self.streaming or state.turn) and (self.leaving or not self.waits(state))
        return nothing and self.phase in (Phase.closed, Phase.idle)

    def waits(self, state: State) -> bool:
        """Whether there is something to begin."""
        return bool(self.held or state.queue)


class OpenConversation(Struct, frozen=True):
    """Start the provider, or resume `native_id`."""

    native_id: str | None


class StartTurn(Struct, frozen=True):
    """Hand these inputs out as that Turn; `note` goes before them, and before it a handoff where one is due."""

    turn: TurnId
    inputs: tuple[Input, ...]
    note: str
    handoff: e.Fresh | None = None


class SteerTurn(Struct, frozen=True):
    """Put these inputs into that Turn, or into none."""

    turn: TurnId
    inputs: tuple[Input, ...]


class InterruptTurn(Struct, frozen=True):
    """Run the stop procedure of that Turn."""

    turn: TurnId


class AnswerRequest(Struct, frozen=True):
    """Tell the provider what a person said, or deny for nobody."""

    request: RequestId
    verdict: Verdict


class CompactContext(Struct, frozen=True):
    """Let the agent summarise its context."""

    control: InputId


class CloseConversation(Struct, frozen=True):
    """End the agent so that it can be taken up again."""


class KillAgent(Struct, frozen=True):
    """End the agent's process tree; its Turn `ended` so."""

    ended: s.TurnEnded


Effect = (
    OpenConversation
    | StartTurn
    | SteerTurn
    | InterruptTurn
    | AnswerRequest
    | CompactContext
    | CloseConversation
    | KillAgent
)


class Step(Struct, frozen=True):
    """What one batch of signals comes to. `accepts` pairs an input with its event's place in `events`, from 1."""

    state: State
    scratch: Scratch
    events: tuple[e.Event, ...] = ()
    accepts: tuple[tuple[InputId, int], ...] = ()
    effects: tuple[Effect, ...] = ()


@dataclass(slots=True)
class Draft:
    """A Step in the making: the one place in which state and scratch move on."""

    state: State
    scratch: Scratch
    now: float
    events: list[e.Event] = field(default_factory=list)
    accepts: list[tuple[InputId, int]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def write(self, *events: e.Event) -> None:
        if self.scratch.herald:
            events = (self.scratch.herald, *events)
            self.set(herald=None)
        for event in events:
            self.events.append(event)
            self.state = apply(self.state, event)

    def accept(self, control: InputId, event: e.Event) -> None:
        """Write the event by which that input is accepted."""
        self.write(event)
        self.accepts.append((control, len(self.events)))

    def set(self, **changes: object) -> None:
        self.scratch = replace(self.scratch, **changes)
