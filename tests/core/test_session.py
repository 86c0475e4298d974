"""The fold: what a Session is after these facts, and how little of it stays."""

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core.ids import Epoch, InputId, ItemId, Principal, RequestId, TurnId
from amux.core.session import Conversation, State, Submission, Turn, fold
from tests.build import rights, said

ONE, TWO, THREE, FOUR = (said("user_a", f"text {n}", id=f"om_{n}") for n in (1, 2, 3, 4))
BY_B = said("user_b", "of another", id="om_b")
T1, T2 = TurnId(1), TurnId(2)
A = Principal("user_a")
OPENED: list[e.Event] = [e.OwnerOpened(Epoch(1), "w1"), e.ConversationOpened("native", ("steering",))]
STARTED = e.TurnStarted(T1, (ONE.id,), e.Cause.input, rights("user_a"), (A,), "codex")
RUNNING: list[e.Event] = [*OPENED, e.InputAccepted(ONE), STARTED]
TURN = Turn(T1, (A,), rights("user_a"))
BASE = State(
    label=e.Label.running,
    epoch=Epoch(1),
    turn=TURN,
    last_turn=T1,
    conversation=Conversation("native", ("steering",)),
    native_id="native",
)
ENDED = e.TurnFinished(T1, e.Outcome.completed)
ITEM = e.Item(T2, ItemId("i"), e.ItemType.message, e.ItemStatus.completed, "", "hello")
STEERED: list[e.Event] = [*RUNNING, e.InputAccepted(TWO), e.SteerRequested(T1, (TWO.id,))]
CANCELLED: list[e.Event] = [
    *STEERED,
    e.InputSteered(T1, (TWO.id,)),
    e.InterruptRequested(T1, A),
    e.InputCancelled((TWO.id,), e.CancelReason.interrupted),
    e.TurnFinished(T1, e.Outcome.interrupted),
]
AFTER = replace(BASE, label=e.Label.idle, turn=None, cancelled=(TWO,))
NEXT = e.TurnStarted(T2, (THREE.id,), e.Cause.input, rights("user_a"), (A,), "codex")
NOTED: list[e.Event] = [*CANCELLED, e.InputAccepted(THREE), NEXT]
SECOND = replace(AFTER, label=e.Label.running, turn=replace(TURN, id=T2), last_turn=T2, noted=1)

CASES: dict[str, tuple[list[e.Event], State]] = {
    "nothing": ([], State()),
    "accepted": ([e.InputAccepted(ONE)], State(arriving=(ONE,))),
    "started": (RUNNING, BASE),
    "ended": ([*RUNNING, ENDED], replace(BASE, label=e.Label.idle, turn=None)),
    "two wait as one": (
        [
            *RUNNING,
            e.InputAccepted(TWO),
            e.InputAccepted(THREE),
            e.InputQueued((TWO.id, THREE.id), e.QueueReason.refused),
        ],
        replace(BASE, queue=(Submission((TWO, THREE), refused=True),)),
    ),
    "being steered": (STEERED, replace(BASE, steering=(Submission((TWO,), T1),))),
    "steered": ([*STEERED, e.InputSteered(T1, (TWO.id,))], replace(BASE, turn=replace(TURN, steered=(TWO,)))),
    "refused, so it waits": (
        [*STEERED, e.InputQueued((TWO.id,), e.QueueReason.refused)],
        replace(BASE, queue=(Submission((TWO,), refused=True),)),
    ),
    "a refused one goes before what was accepted since": (
        [
            *STEERED,
            e.InputAccepted(THREE),
            e.InputQueued((THREE.id,), e.QueueReason.other_sender),
            e.InputQueued((TWO.id,), e.QueueReason.refused),
        ],
        replace(BASE, queue=(Submission((TWO,), refused=True), Submission((THREE,)))),
    ),
    "failed": ([*STEERED, e.SubmissionFailed((TWO.id,), e.FailReason.uncertain)], BASE),
    "half of what waits failed": (
        [
            *RUNNING,
            e.InputAccepted(TWO),
            e.InputAccepted(THREE),
            e.InputQueued((TWO.id, THREE.id), e.QueueReason.refused),
            e.SubmissionFailed((TWO.id,), e.FailReason.uncertain),
        ],
        replace(BASE, queue=(Submission((THREE,), refused=True),)),
    ),
    "interrupting": ([*RUNNING, e.InterruptRequested(T1, A)], replace(BASE, turn=replace(TURN, interrupting=True))),
    "cancelled while its answer is out": (
        [*STEERED, e.InputCancelled((TWO.id,), e.CancelReason.interrupted)],
        replace(BASE, cancelled=(TWO,)),
    ),
    "cancelled": (CANCELLED, AFTER),
    "the next Turn carries the note": (NOTED, SECOND),
    "lost with the note, so it is due again (H47)": (
        [*NOTED, e.TurnFinished(T2, e.Outcome.lost)],
        replace(AFTER, last_turn=T2),
    ),
    "seen to hold the note": ([*NOTED, ITEM], replace(SECOND, cancelled=(), noted=0)),
    "a late item of an older Turn tells nothing of the note": ([*NOTED, replace(ITEM, turn=T1)], SECOND),
    "what was cancelled since the note is due in the next": (
        [
            *NOTED,
            e.InputAccepted(FOUR),
            e.SteerRequested(T2, (FOUR.id,)),
            e.InputCancelled((FOUR.id,), e.CancelReason.interrupted),
            e.TurnFinished(T2, e.Outcome.completed),
        ],
        replace(AFTER, last_turn=T2, cancelled=(FOUR,)),
    ),
    "completed, so it held the note": (
        [*NOTED, e.TurnFinished(T2, e.Outcome.completed)],
        replace(AFTER, last_turn=T2, cancelled=()),
    ),
    "asked": ([*RUNNING, e.PermissionRequested(T1, RequestId("r"), "x")], replace(BASE, requests=(RequestId("r"),))),
    "answered": (
        [
            *RUNNING,
            e.PermissionRequested(T1, RequestId("r"), "x"),
            e.PermissionResolved(T1, RequestId("r"), e.Resolution.died),
        ],
        BASE,
    ),
    "a new owner has no conversation yet": (
        [*RUNNING, e.OwnerOpened(Epoch(2), "w2")],
        replace(BASE, epoch=Epoch(2), conversation=None),
    ),
    "opening": ([*RUNNING, e.ConversationOpening("codex", "native")], replace(BASE, conversation=None)),
    "asleep, the handle stays": (
        [*RUNNING, ENDED, e.SessionState(e.Label.sleeping)],
        replace(BASE, label=e.Label.sleeping, turn=None, conversation=None),
    ),
    "a refusal changes nothing": (
        [*RUNNING, e.ControlRefused(InputId("s"), A, e.Refusal.stale), e.NativeTurnQuarantined("n", "goal")],
        BASE,
    ),
}


@pytest.mark.rule("S10", "T1", "I6", "S3")
@pytest.mark.parametrize(("events", "state"), CASES.values(), ids=CASES)
def test_fold(events: list[e.Event], state: State) -> None:
    assert fold(events) == state


def test_the_state_does_not_grow_with_the_timeline() -> None:
    state = State()
    for n in range(1, 301):
        one = said("user_a", "x" * 1_000, id=f"om_{n}")
        started = e.TurnStarted(TurnId(n), (one.id,), e.Cause.input, rights("user_a"), (A,))
        state = fold([e.InputAccepted(one), started, e.TurnFinished(TurnId(n), e.Outcome.completed)], state)
    assert state == State(label=e.Label.idle, last_turn=TurnId(300))


def test_what_is_written_has_happened_and_is_never_judged() -> None:
    """An unknown input, an end without a start, a steer into no Turn: nothing raises."""
    strange = (InputId("unheard"),)
    fold([e.InputSteered(T1, strange), e.InputQueued(strange, e.QueueReason.refused), ENDED, e.InputCancelled(
        strange, e.CancelReason.interrupted), e.InterruptRequested(T1, A), e.SubmissionFailed(strange, e.FailReason.uncertain)])  # fmt: skip
