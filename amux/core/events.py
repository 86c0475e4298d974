"""The Timeline's vocabulary: facts in the past tense; an intent ends in Requested, Opening or Started.

An event's kind on the wire is its class' name in snake case (`codec.KINDS`). Nothing here judges or remembers."""

from enum import StrEnum

from msgspec import Struct

from amux.core.ids import Epoch, InputId, ItemId, Principal, RequestId, TurnId
from amux.core.inputs import Action, Authorization, ContextWish, Input, Verdict


class Label(StrEnum):
    """A Session's state (S10). Never ask it about a Turn."""

    created = "created"
    running = "running"
    idle = "idle"
    sleeping = "sleeping"
    archived = "archived"


class Outcome(StrEnum):
    """How a Turn ended (T3). People see `lost` as "cut off"."""

    completed = "completed"
    interrupted = "interrupted"
    failed = "failed"
    lost = "lost"


class Cause(StrEnum):
    """Why a Turn started."""

    input = "input"
    goal = "goal"


class QueueReason(StrEnum):
    """Why input waits for the next Turn: one member per case of I4 and I8; `refused` is the provider's certain no."""

    no_running_turn = "no_running_turn"
    has_material = "has_material"
    group_watch = "group_watch"
    no_sender = "no_sender"
    other_sender = "other_sender"
    interrupting = "interrupting"
    earlier_input_waiting = "earlier_input_waiting"
    other_authorization = "other_authorization"
    cannot_steer = "cannot_steer"
    refused = "refused"
    preempts = "preempts"  # it goes before what does not (I7)
    nothing_steers = "nothing_steers"  # in the mode of I7


class FailReason(StrEnum):
    """Why a submission got no Turn, although it was accepted. Its sender is told."""

    uncertain = "uncertain"  # the provider may hold it (I5)
    engine_unavailable = "engine_unavailable"  # the recorded engine is not there (S7)
    open_failed = "open_failed"  # the engine is there and would not open the conversation
    archived = "archived"  # the Session takes nothing any more
    queue_full = "queue_full"


class Fresh(StrEnum):
    """Why a conversation begins anew although there is an older one: the agent gets a handoff in its place."""

    engine_lost = "engine_lost"  # nobody knows whose history it was (S8)
    history_gone = "history_gone"  # the engine has it no longer (A5)


class CancelReason(StrEnum):
    """Why accepted input will not run."""

    interrupted = "interrupted"
    archived = "archived"
    withdrawn = "withdrawn"


class Refusal(StrEnum):
    """Why a Control changed nothing."""

    nothing_runs = "nothing_runs"
    stale = "stale"
    already_interrupting = "already_interrupting"
    busy = "busy"  # a Turn runs, or input waits (A4)
    already_so = "already_so"
    queue_full = "queue_full"
    unavailable = "unavailable"  # this agent cannot do it (A10)
    not_waiting = "not_waiting"  # it runs, has run, or was never here
    archived = "archived"


class ItemType(StrEnum):
    """What kind of thing an agent said or did."""

    message = "message"
    reasoning = "reasoning"
    tool = "tool"
    file = "file"
    notice = "notice"


class ItemStatus(StrEnum):
    """How far an item is. A superseded one was cut and is not part of the answer (H16)."""

    started = "started"
    completed = "completed"
    failed = "failed"
    superseded = "superseded"


class Resolution(StrEnum):
    """How a permission request ended. None of them but `answered` ever allows (H40)."""

    answered = "answered"
    interrupted = "interrupted"
    ended = "ended"  # its Turn ended first
    died = "died"  # the process that asked is gone
    expired = "expired"  # nobody answered in time
    withdrawn = "withdrawn"  # the agent asks no more


class Usage(Struct, frozen=True):
    """Tokens of one Turn, as the provider counts them."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class SessionState(Struct, frozen=True):
    """The Session took another state (S10). `running` and `idle` follow from its Turns and are not written apart."""

    label: Label


class OwnerOpened(Struct, frozen=True):
    """A new owner reads this Session; it goes with that owner's first append."""

    epoch: Epoch
    worker: str


class ConversationOpening(Struct, frozen=True):
    """Intent: start or resume the provider's conversation. Nothing has been said in it, so it may be done again.

    `fresh`: why a new one takes the place of the one before, whose handle is given up with it."""

    engine: str
    native_id: str | None = None
    fresh: Fresh | None = None


class ConversationOpened(Struct, frozen=True):
    """The provider answers under `native_id` (S3); `can` names the optional parts found on it, live (G3)."""

    native_id: str
    can: tuple[str, ...] = ()


class InputAccepted(Struct, frozen=True):
    """An input is in the Timeline; from here on its order is final."""

    input: Input


class InputQueued(Struct, frozen=True):
    """These inputs are one submission for a next Turn, and wait (I4)."""

    inputs: tuple[InputId, ...]
    reason: QueueReason


class SteerRequested(Struct, frozen=True):
    """Intent: put these inputs into that running Turn, or into none (I3)."""

    turn: TurnId
    inputs: tuple[InputId, ...]


class InputSteered(Struct, frozen=True):
    """The provider has shown that it holds them in that Turn."""

    turn: TurnId
    inputs: tuple[InputId, ...]


class InputCancelled(Struct, frozen=True):
    """They will not run (I6). `by` and `name`: who did not want it, where somebody did."""

    inputs: tuple[InputId, ...]
    reason: CancelReason
    by: Principal | None = None
    name: str = ""


class InputPreferred(Struct, frozen=True):
    """This submission is the next of those that wait; somebody wanted it so."""

    inputs: tuple[InputId, ...]
    by: Principal
    name: str = ""


class SubmissionFailed(Struct, frozen=True):
    """They did not run, or nobody can know (I5); they are not queued again. `detail` is for people."""

    inputs: tuple[InputId, ...]
    reason: FailReason
    detail: str = ""


class TurnStarted(Struct, frozen=True):
    """A submission was handed out as a Turn (T1). An intent: written before the provider is told."""

    turn: TurnId
    inputs: tuple[InputId, ...]
    cause: Cause
    authorization: Authorization | None = None
    senders: tuple[Principal | None, ...] = ()
    engine: str = ""


class Item(Struct, frozen=True):
    """One thing the agent said or did. A later event with the same id replaces the earlier one."""

    turn: TurnId
    item: ItemId
    type: ItemType
    status: ItemStatus
    title: str = ""
    text: str = ""


class Delta(Struct, frozen=True):
    """More text of a message that is being said; `offset` is its place in that item's text, in characters."""

    turn: TurnId
    item: ItemId
    offset: int
    text: str


class PermissionRequested(Struct, frozen=True):
    """The agent asks; nothing but an answer allows."""

    turn: TurnId
    request: RequestId
    title: str
    detail: str = ""


class PermissionResolved(Struct, frozen=True):
    """The request is closed; what comes later answers nothing."""

    turn: TurnId
    request: RequestId
    how: Resolution
    verdict: Verdict | None = None
    by: Principal | None = None
    name: str = ""


class InterruptRequested(Struct, frozen=True):
    """Intent: stop that Turn (A3). It still ends by its own TurnFinished."""

    turn: TurnId
    by: Principal
    name: str = ""


class ActionRequested(Struct, frozen=True):
    """Somebody wants that done to the Session; what comes of it follows (A4, A5, A8)."""

    action: Action
    by: Principal
    name: str = ""


class ConversationFailed(Struct, frozen=True):
    """It did not open; nothing was said in it. `detail` is for people."""

    reason: FailReason
    detail: str = ""


class ContextQueued(Struct, frozen=True):
    """It waits for its turn among the inputs (I9)."""

    wish: ContextWish


class CompactRequested(Struct, frozen=True):
    """Intent: let the agent summarise its context (A6)."""

    control: InputId
    by: Principal
    name: str = ""


class ContextCompacted(Struct, frozen=True):
    """It has."""

    control: InputId


class ContextFailed(Struct, frozen=True):
    """It was not compacted, or nobody can know; the context is what the agent says it is. `detail` is for people."""

    control: InputId
    detail: str = ""
    by: Principal | None = None  # who stopped it, where somebody did
    name: str = ""


class ContextCleared(Struct, frozen=True):
    """The conversation is given up; the next Turn begins with none of it. No file, no memory, no history is gone (A7)."""

    control: InputId
    by: Principal
    name: str = ""


class ControlRefused(Struct, frozen=True):
    """A Control changed nothing, and this is why (A12)."""

    control: InputId
    by: Principal
    reason: Refusal


class NativeTurnQuarantined(Struct, frozen=True):
    """The provider began a turn that nobody asked for: recorded, shown nowhere in Feishu (G7)."""

    native_turn: str
    reason: str


class TurnFinished(Struct, frozen=True):
    """The one end of a Turn (T3), whoever noticed it. `reason` is a word, `detail` a sentence for people."""

    turn: TurnId
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    usage: Usage | None = None


Event = (
    SessionState
    | OwnerOpened
    | ConversationOpening
    | ConversationOpened
    | InputAccepted
    | InputQueued
    | SteerRequested
    | InputSteered
    | InputCancelled
    | InputPreferred
    | SubmissionFailed
    | TurnStarted
    | Item
    | Delta
    | PermissionRequested
    | PermissionResolved
    | InterruptRequested
    | ActionRequested
    | ContextQueued
    | CompactRequested
    | ContextCompacted
    | ContextFailed
    | ContextCleared
    | ConversationFailed
    | ControlRefused
    | NativeTurnQuarantined
    | TurnFinished
)
