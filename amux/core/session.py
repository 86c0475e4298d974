"""What a Session is now: nothing but the fold of its Timeline.

It holds only what is not settled, so it stays small however long the Session lives. It never judges."""

from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from amux.core import events as e
from amux.core.ids import Epoch, InputId, Principal, RequestId, TurnId
from amux.core.inputs import Action, Authorization, ContextWish, Input, Origin

NO_TURN = TurnId(0)
NO_OWNER = Epoch(0)


class Turn(Struct, frozen=True):
    """The running Turn. `steered` is what its provider was shown to hold besides what opened it."""

    id: TurnId
    senders: tuple[Principal | None, ...]  # of all its input, each once
    authorization: Authorization | None
    interrupting: bool = False
    steered: tuple[Input, ...] = ()


class Submission(Struct, frozen=True):
    """Inputs that are one submission: they wait together, or are being steered together. Or, in their midst, a `wish` for
    the context."""

    inputs: tuple[Input, ...]
    turn: TurnId = NO_TURN  # the Turn into which they are being steered
    wish: ContextWish | None = None
    preempts: bool = False  # it goes before what does not (I7)
    refused: bool = False  # the agent did not take it: it was accepted before whatever waits besides


class Conversation(Struct, frozen=True):
    """The owner's live native conversation."""

    native_id: str
    can: tuple[str, ...]


class State(Struct, frozen=True):
    """A Session at one position of its Timeline."""

    label: e.Label = e.Label.created
    epoch: Epoch = NO_OWNER
    turn: Turn | None = None
    last_turn: TurnId = NO_TURN
    queue: tuple[Submission, ...] = ()
    steering: tuple[Submission, ...] = ()
    arriving: tuple[Input, ...] = ()  # accepted, their fate not told yet: empty between two appends
    requests: tuple[RequestId, ...] = ()
    conversation: Conversation | None = None
    native_id: str | None = None  # the resume handle; outlives the conversation
    cancelled: tuple[Input, ...] = ()  # for the note that opens the next Turn (I6)
    handoff: e.Fresh | None = None  # the conversation began anew, and no Turn has been seen to tell the agent (S8)
    compacting: InputId | None = None  # the wish by which the agent summarises its context
    wanted: bool = False  # somebody wants its agent started, until it is or cannot be (A4, A5)
    archiving: bool = False  # it takes nothing any more (A8)
    noted: int = 0  # how many of them the running Turn's note names, until its provider is seen to hold it (H47)

    def can(self, part: str) -> bool:
        """Whether the live provider has that optional part."""
        return self.conversation is not None and part in self.conversation.can


NEW = State()


def apply(state: State, event: e.Event) -> State:  # noqa: C901, PLR0911, PLR0912 - one line a kind of event
    """The state after one fact. Never raises and never judges: what is written has happened."""
    match event:
        case e.Item() | e.Delta():
            return _noted(state, event.turn) if state.noted or state.handoff else state
        case e.InputAccepted(said):
            return replace(state, arriving=(*state.arriving, said))
        case e.TurnStarted():
            return _started(state, event)
        case e.TurnFinished(turn, outcome):
            read = outcome is e.Outcome.completed and (state.noted or state.handoff)
            after = _noted(state, turn) if read else state
            return replace(after, label=e.Label.idle, turn=None, noted=0)
        case e.InputQueued(ids, reason):
            return _queued(*_taken(state, ids), reason)
        case e.SteerRequested(turn, ids):
            inputs, rest = _taken(state, ids)
            return replace(rest, steering=(*rest.steering, Submission(inputs, turn)))
        case e.InputSteered(_, ids):
            return _steered(*_taken(state, ids))
        case e.SubmissionFailed(ids):
            return _taken(state, ids)[1]
        case e.InputCancelled(ids):
            return _cancelled(state, ids)
        case e.InputPreferred(ids):
            return replace(state, queue=_preferred(state.queue, ids))
        case e.PermissionRequested(_, request):
            return replace(state, requests=(*state.requests, request))
        case e.PermissionResolved(_, request):
            return replace(state, requests=tuple(r for r in state.requests if r != request))
        case e.InterruptRequested():
            return replace(state, turn=state.turn and replace(state.turn, interrupting=True))
        case e.SessionState(label):
            return replace(state, label=label, conversation=None)
        case e.OwnerOpened(epoch):
            return replace(state, epoch=epoch, conversation=None)
        case e.ConversationOpened(native_id, can):
            return replace(state, native_id=native_id, conversation=Conversation(native_id, can), wanted=False)
        case e.ConversationOpening(_, _, None):
            return replace(state, conversation=None)
        case e.ConversationOpening(_, _, fresh):
            return replace(state, conversation=None, native_id=None, handoff=fresh)
        case e.ActionRequested(Action.archive):
            return replace(state, archiving=True, wanted=False)
        case e.ActionRequested(Action.resume | Action.restart):
            return replace(state, wanted=True)
        case e.ConversationFailed():
            return replace(state, wanted=False)
        case e.ContextQueued(wish):
            return replace(state, queue=(*state.queue, Submission((), wish=wish)))
        case e.CompactRequested(control):
            return replace(_fulfilled(state, control), compacting=control)
        case e.ContextCompacted(control) | e.ContextFailed(control):
            return replace(_fulfilled(state, control), compacting=None)
        case e.ContextCleared(control):
            return replace(
                _fulfilled(state, control), conversation=None, native_id=None, cancelled=(), noted=0, handoff=None
            )
        case e.ControlRefused(control):
            return _fulfilled(state, control)
        case e.NativeTurnQuarantined() | e.ActionRequested():
            return state
        case _:
            assert_never(event)


def fold(events: Iterable[e.Event], state: State = NEW) -> State:
    """The state after these facts."""
    return reduce(apply, events, state)


def _started(state: State, started: e.TurnStarted) -> State:
    return _taken(
        state,
        started.inputs,
        label=e.Label.running,
        turn=Turn(started.turn, started.senders, started.authorization),
        last_turn=started.turn,
        noted=len(state.cancelled),
    )[1]


def _queued(inputs: tuple[Input, ...], state: State, reason: e.QueueReason) -> State:
    """Order is that of acceptance: nothing waited when a refused one was steered, so it goes before what came since."""
    if reason is e.QueueReason.preempts:
        return _preempted(inputs, state)
    if reason is not e.QueueReason.refused:
        return replace(state, queue=(*state.queue, Submission(inputs)))
    at = max((at for at, waits in enumerate(state.queue, 1) if waits.refused), default=0)
    return replace(state, queue=(*state.queue[:at], Submission(inputs, refused=True), *state.queue[at:]))


def _preempted(inputs: tuple[Input, ...], state: State) -> State:
    """Behind what preempts too, a wish, what the agent refused and its own sender's earlier input; before all else (I7)."""
    senders = {i.sender for i in inputs}

    def stays(waits: Submission) -> bool:
        own = any(i.sender in senders and i.origin is Origin.person for i in waits.inputs)
        return waits.preempts or waits.refused or waits.wish is not None or own

    at = max((at for at, waits in enumerate(state.queue, 1) if stays(waits)), default=0)
    return replace(state, queue=(*state.queue[:at], Submission(inputs, preempts=True), *state.queue[at:]))


def first_place(queue: tuple[Submission, ...], at: int) -> int:
    """Where the one at that place may be put: before what waits besides, and not before a wish that stands before it (I9)."""
    return max((n for n, waits in enumerate(queue[:at], 1) if waits.wish), default=0)


def _preferred(queue: tuple[Submission, ...], ids: tuple[InputId, ...]) -> tuple[Submission, ...]:
    at = next((n for n, waits in enumerate(queue) if any(i.id in ids for i in waits.inputs)), 0)
    to = first_place(queue, at)
    return (*queue[:to], *queue[at : at + 1], *queue[to:at], *queue[at + 1 :])


def _steered(inputs: tuple[Input, ...], state: State) -> State:
    if state.turn is None:
        return state
    return replace(state, turn=replace(state.turn, steered=(*state.turn.steered, *inputs)))


def _cancelled(state: State, ids: tuple[InputId, ...]) -> State:
    """Remembers what was steered into the Turn, or on its way there: the next Turn names it (I6)."""
    held = state.turn.steered if state.turn else ()
    known = (*held, *(i for s in state.steering for i in s.inputs))
    gone = tuple(i for i in known if i.id in ids)
    return replace(_taken(state, ids)[1], cancelled=(*state.cancelled, *gone))


def _fulfilled(state: State, control: InputId) -> State:
    """That wish waits no more."""
    if not any(s.wish for s in state.queue):
        return state
    return replace(state, queue=tuple(s for s in state.queue if s.wish is None or s.wish.id != control))


def _noted(state: State, turn: TurnId) -> State:
    """Its note and handoff are known to be read; what was cancelled since stands in the next note."""
    if state.turn is None or state.turn.id != turn:
        return state
    return replace(state, cancelled=state.cancelled[state.noted :], noted=0, handoff=None)


def _taken(state: State, ids: tuple[InputId, ...], **changes: object) -> tuple[tuple[Input, ...], State]:
    """These inputs, and the state in which they neither arrive, nor wait, nor are being steered, and that changed."""
    held = (*state.arriving, *(i for s in (*state.queue, *state.steering) for i in s.inputs))
    by_id = {i.id: i for i in held}
    rest = replace(
        state,
        arriving=tuple(i for i in state.arriving if i.id not in ids),
        queue=_without(state.queue, ids),
        steering=_without(state.steering, ids),
        **changes,
    )
    return tuple(by_id[i] for i in ids if i in by_id), rest


def _without(submissions: tuple[Submission, ...], ids: tuple[InputId, ...]) -> tuple[Submission, ...]:
    kept = (replace(s, inputs=tuple(i for i in s.inputs if i.id not in ids)) for s in submissions)
    return tuple(s for s in kept if s.inputs or s.wish) if submissions else submissions
