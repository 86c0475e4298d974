"""What reaches an owner: what was said, what the provider did, how an effect came out, and the clock.

`ProviderEvent` is the half that a provider tells by itself; plug-ins import it through `amux.extensions`."""

from enum import StrEnum

from msgspec import Struct

from amux.core.events import FailReason, Item, Outcome, Usage
from amux.core.ids import Epoch, InputId, ItemId, RequestId, TurnId
from amux.core.inputs import Said


class SteerAnswer(StrEnum):
    """What became of a steer. `unknown`: it may have happened, so it is told and never repeated (I5)."""

    committed = "committed"
    refused = "refused"
    unknown = "unknown"


ItemSeen = Item  # what an agent is seen to say or do is written as it came


class DeltaSeen(Struct, frozen=True):
    """More text of a message, from `offset` characters on."""

    turn: TurnId
    item: ItemId
    offset: int
    text: str


class Stirred(Struct, frozen=True):
    """The agent gave a sign of life that shows nothing: it is not silent (T8)."""

    turn: TurnId


class PermissionAsked(Struct, frozen=True):
    """The agent waits for a person."""

    turn: TurnId
    request: RequestId
    title: str
    detail: str = ""


class PermissionWithdrawn(Struct, frozen=True):
    """The agent waits for that answer no more; one that was given already is not asked about again."""

    turn: TurnId
    request: RequestId


class TurnEnded(Struct, frozen=True):
    """The Turn's native work is over and its last steered input handled; `unhandled` names those that were not (I6)."""

    turn: TurnId
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    usage: Usage | None = None
    unhandled: tuple[InputId, ...] = ()


class ForeignTurnBegan(Struct, frozen=True):
    """A native turn that nobody asked for began (G7, H55)."""

    native_turn: str
    reason: str


class ForeignTurnEnded(Struct, frozen=True):
    """It is over; the provider is free again."""

    native_turn: str


class Died(Struct, frozen=True):
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


class Opened(Struct, frozen=True):
    """A new owner has folded the Timeline; `journal` is what was said and not yet accepted, in its order."""

    epoch: Epoch
    worker: str
    journal: tuple[Said, ...] = ()


class Heard(Struct, frozen=True):
    """Something was said to the Session."""

    said: Said


class ConversationReady(Struct, frozen=True):
    """The provider opened; `can` names its optional parts."""

    native_id: str
    can: tuple[str, ...] = ()


class OpenFailed(Struct, frozen=True):
    """It did not open, and nothing was said in it."""

    reason: FailReason
    detail: str


class HistoryGone(Struct, frozen=True):
    """The agent no longer has the conversation that was to be resumed; nothing was opened."""


class Steered(Struct, frozen=True):
    """A steer came out, one way or the other."""

    turn: TurnId
    inputs: tuple[InputId, ...]
    answer: SteerAnswer


class Compacted(Struct, frozen=True):
    """The agent has summarised its context, or why not, in words for people."""

    control: InputId
    failed: str | None = None


class Stopped(Struct, frozen=True):
    """The stop procedure of that Turn is quiet: nothing of it can act any more."""

    turn: TurnId


class Rested(Struct, frozen=True):
    """The owner closed the provider because nothing was left to do."""


class Leaving(Struct, frozen=True):
    """The owner is to let go between two Turns; what waits is another's to begin."""


class Tick(Struct, frozen=True):
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
