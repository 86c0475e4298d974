"""What reaches an owner: what was said, what the provider did, how an effect came out, and the clock.

`ProviderEvent` is the half that a provider tells by itself; plug-ins import it through `amux.extensions`."""

from dataclasses import dataclass
from enum import StrEnum

from amux.core.events import FailReason, Item, Outcome, Usage
from amux.core.ids import Epoch, InputId, ItemId, RequestId, TurnId
from amux.core.inputs import Said


class SteerAnswer(StrEnum):
    """What became of a steer. `unknown`: it may have happened, so it is told and never repeated (I5)."""

    committed = "committed"
    refused = "refused"
    unknown = "unknown"


ItemSeen = Item  # what an agent is seen to say or do is written as it came


@dataclass(frozen=True, slots=True)
class DeltaSeen:
    """More text of a message, from `offset` characters on."""

    turn: TurnId
    item: ItemId
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Stirred:
    """The agent gave a sign of life that shows nothing: it is not silent (T8)."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """The agent waits for a person."""

    turn: TurnId
    request: RequestId
    title: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    """The agent waits for that answer no more; one that was given already is not asked about again."""

    turn: TurnId
    request: RequestId


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The Turn's native work is over and its last steered input handled; `unhandled` names those that were not (I6)."""

    turn: TurnId
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    usage: Usage | None = None
    unhandled: tuple[InputId, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignTurnBegan:
    """A native turn that nobody asked for began (G7, H55)."""

    native_turn: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForeignTurnEnded:
    """It is over; the provider is free again."""

    native_turn: str


@dataclass(frozen=True, slots=True)
class Died:
    """The agent's process is gone. Nothing more comes from this conversation. `ended`: how its Turn did, where that is
    known: one that it certainly did not take has failed, and is not lost."""

    reason: str
    ended: TurnEnded | None = None


ProviderEvent = (
    ItemSeen
    | DeltaSeen
    | Stirred
    | PermissionAsked
    | PermissionWithdrawn
    | TurnEnded
    | ForeignTurnBegan
    | ForeignTurnEnded
    | Died
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A new owner has folded the Timeline; `journal` is what was said and not yet accepted, in its order."""

    epoch: Epoch
    worker: str
    journal: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """Something was said to the Session."""

    said: Said


@dataclass(frozen=True, slots=True)
class ConversationReady:
    """The provider opened; `can` names its optional parts."""

    native_id: str
    can: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """It did not open, and nothing was said in it."""

    reason: FailReason
    detail: str


@dataclass(frozen=True, slots=True)
class HistoryGone:
    """The agent no longer has the conversation that was to be resumed; nothing was opened."""


@dataclass(frozen=True, slots=True)
class Steered:
    """A steer came out, one way or the other."""

    turn: TurnId
    inputs: tuple[InputId, ...]
    answer: SteerAnswer


@dataclass(frozen=True, slots=True)
class Compacted:
    """The agent has summarised its context, or why not, in words for people."""

    control: InputId
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stop procedure of that Turn is quiet: nothing of it can act any more."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class Rested:
    """The owner closed the provider because nothing was left to do."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The owner is to let go between two Turns; what waits is another's to begin."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; look at what is due."""


Signal = (
    ProviderEvent
    | Opened
    | Heard
    | ConversationReady
    | OpenFailed
    | HistoryGone
    | Steered
    | Compacted
    | Stopped
    | Rested
    | Leaving
    | Tick
)
