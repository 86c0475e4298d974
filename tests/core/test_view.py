"""What people see: one card a Turn, a receipt for what could not start one, a request; folded from the Timeline."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core.ids import Epoch, InputId, ItemId, Principal, RequestId, Seq, TurnId
from amux.core.inputs import Input, Verdict
from amux.core.view import AskView, Board, Fate, ItemView, ReceiptView, TurnView
from tests.build import ELSEWHERE, TOPIC, rights, said

T1, T2 = TurnId(1), TurnId(2)
ONE, TWO, THREE = (said("User A", f"text {n}", id=f"om_{n}") for n in (1, 2, 3))
BY_B, BY_C = said("User B", "of another", id="om_b"), said("User C", "of a third", id="om_c")
WHO = Principal("user_a")
START = 1_000.0
TOOL, MESSAGE, M1 = e.ItemType.tool, e.ItemType.message, ItemId("m1")


@dataclass
class Seen:
    """A board whose events come one a second."""

    board: Board = field(default_factory=Board)
    seq: int = 0

    def apply(self, *events: e.Event) -> set[str]:
        """What these changed."""
        self.board.changed.clear()
        for event in events:
            self.seq += 1
            self.board.apply(Seq(self.seq), START + self.seq, event)
        return set(self.board.changed)

    def accept(self, *inputs: Input) -> set[str]:
        return self.apply(*map(e.InputAccepted, inputs))

    def start(self, turn: TurnId, *inputs: Input) -> set[str]:
        rights_ = inputs[0].authorization
        return self.apply(e.TurnStarted(turn, ids(*inputs), e.Cause.input, rights_, (inputs[0].sender,), "codex"))

    def receipt(self, one: Input) -> ReceiptView:
        return self.board.receipts[one.id]


def ids(*inputs: Input) -> tuple[InputId, ...]:
    return tuple(one.id for one in inputs)


@pytest.fixture
def seen() -> Seen:
    """Turn 1 of User A runs; the event numbered 2 began it."""
    seen = Seen()
    seen.accept(ONE)
    assert seen.start(T1, ONE) == {"turn:1"}
    return seen


def queue(*inputs: Input, reason: e.QueueReason = e.QueueReason.other_sender) -> e.Event:
    return e.InputQueued(ids(*inputs), reason)


@pytest.mark.rule("B11")
def test_a_turn_stands_where_it_was_asked(seen: Seen) -> None:
    assert seen.board.turns == {
        T1: TurnView(
            turn=T1,
            place=TOPIC,
            reply_to=ONE.id,
            title="text 1",
            by="User A",
            engine="codex",
            started=START + 2,
            first=Seq(2),
            seq=Seq(2),
            now=START + 2,
        )
    }
    assert not seen.board.settled()


def test_what_it_says_and_does_replaces_what_it_said_before(seen: Seen) -> None:
    started, completed = e.ItemStatus.started, e.ItemStatus.completed
    assert seen.apply(e.Item(T1, ItemId("t1"), TOOL, started, "pytest")) == {"turn:1"}
    turn = seen.board.turns[T1]
    assert turn.doing() == "pytest"
    seen.apply(e.Item(T1, ItemId("t1"), TOOL, completed), e.Item(T1, ItemId("r"), e.ItemType.reasoning, started, "hm"))
    assert (turn.doing(), turn.tools()) == ("", [ItemView(TOOL, completed, "pytest", "")])
    seen.apply(e.Delta(T1, M1, 0, "Hello "), e.Delta(T1, M1, 6, "wor"), e.Delta(T1, M1, 6, "world"))
    assert turn.answer() == "Hello world"
    seen.apply(e.Item(T1, M1, MESSAGE, completed, text="Hello, world."))
    assert turn.answer() == "Hello, world."
    assert (turn.first, turn.seq, turn.now) == (2, 9, START + 9)


def test_the_answer_is_the_newest_message_that_stands(seen: Seen) -> None:
    """H16: what a steer or a retry cut is not part of it."""
    for item, text, status in [
        ("a", "first", e.ItemStatus.completed),
        ("b", "cut", e.ItemStatus.superseded),
        ("c", "", e.ItemStatus.started),
    ]:
        seen.apply(e.Item(T1, ItemId(item), MESSAGE, status, text=text))
    assert seen.board.turns[T1].answer() == "first"


def test_the_first_words_after_an_end_still_belong_to_it(seen: Seen) -> None:
    end = e.TurnFinished(T1, e.Outcome.completed)
    assert seen.apply(end) == {"turn:1"}
    assert seen.board.settled()
    assert seen.apply(e.Item(T1, M1, MESSAGE, e.ItemStatus.completed, text="late")) == {"turn:1"}
    assert (seen.board.turns[T1].finished, seen.board.turns[T1].answer()) == (end, "late")


@pytest.mark.rule("I4", "I7")
def test_the_line_is_the_one_that_the_owner_sees(seen: Seen) -> None:
    """What the agent refused was accepted before, what preempts goes first, and what somebody put first is first."""
    last, refused = said("User D", "last", id="om_d"), said("User A", "refused", id="om_r")
    seen.accept(refused, BY_B, BY_C, last)
    for one in (BY_B, BY_C, last):
        seen.apply(queue(one, reason=e.QueueReason.other_sender))
    seen.apply(queue(refused, reason=e.QueueReason.refused))
    assert [seen.receipt(one).ahead for one in (refused, BY_B, BY_C, last)] == [0, 1, 2, 3]
    seen.apply(e.InputPreferred(ids(last), WHO))
    assert [seen.receipt(one).ahead for one in (last, refused, BY_B, BY_C)] == [0, 1, 2, 3]
    preempts = said("User E", "now", id="om_e")
    seen.accept(preempts)
    seen.apply(queue(preempts, reason=e.QueueReason.preempts))
    assert [seen.receipt(one).ahead for one in (last, refused, preempts, BY_B, BY_C)] == [0, 1, 2, 3, 4]


@pytest.mark.rule("I3")
def test_what_joined_is_on_the_turns_card_and_has_a_receipt(seen: Seen) -> None:
    seen.accept(TWO, THREE)
    assert seen.apply(e.SteerRequested(T1, ids(TWO, THREE))) == set()
    assert not seen.board.settled()
    assert seen.apply(e.InputSteered(T1, ids(TWO, THREE))) == {"turn:1", "receipt:om_3"}
    assert seen.board.turns[T1].joined == [TWO, THREE]
    assert seen.receipt(THREE) == ReceiptView((TWO, THREE), Fate.joined, Seq(6), Seq(6), START + 6, START + 6, T1)
    assert (seen.receipt(THREE).place, seen.receipt(THREE).reply_to) == (TOPIC, THREE.id)


@pytest.mark.rule("I4")
def test_what_waits_knows_its_place_in_line_and_why(seen: Seen) -> None:
    seen.accept(BY_B, BY_C)
    assert seen.apply(queue(BY_B)) == {"receipt:om_b"}
    seen.apply(queue(BY_C, reason=e.QueueReason.earlier_input_waiting))
    waits = seen.receipt(BY_C)
    assert (waits.ahead, waits.turn, waits.owner, waits.reason) == (
        1,
        T1,
        "User A",
        e.QueueReason.earlier_input_waiting,
    )
    seen.apply(e.TurnFinished(T1, e.Outcome.completed))
    assert not seen.board.settled()
    assert seen.start(T2, BY_B) == {"turn:2", "receipt:om_b", "receipt:om_c"}
    begun = seen.receipt(BY_B)
    assert (begun.fate, begun.turn, begun.since, begun.now) == (Fate.started, T2, START + 5, START + 8)
    waits = seen.receipt(BY_C)
    assert (waits.ahead, waits.turn, waits.owner) == (0, T2, "User B")
    assert not seen.board.settled()


@pytest.mark.rule("I4")
def test_a_refused_steer_waits(seen: Seen) -> None:
    seen.accept(TWO)
    seen.apply(e.SteerRequested(T1, ids(TWO)))
    assert seen.apply(queue(TWO, reason=e.QueueReason.refused)) == {"receipt:om_2"}
    assert (seen.receipt(TWO).fate, seen.receipt(TWO).reason) == (Fate.waiting, e.QueueReason.refused)


@pytest.mark.rule("I5")
def test_an_uncertain_one_is_told_and_settles(seen: Seen) -> None:
    seen.accept(TWO)
    seen.apply(e.SteerRequested(T1, ids(TWO)), e.TurnFinished(T1, e.Outcome.lost))
    assert not seen.board.settled()
    assert seen.apply(e.SubmissionFailed(ids(TWO), e.FailReason.uncertain, "no answer")) == {"receipt:om_2"}
    receipt = seen.receipt(TWO)
    assert (receipt.fate, receipt.reason, receipt.detail) == (Fate.failed, e.FailReason.uncertain, "no answer")
    assert seen.board.settled()


@pytest.mark.rule("I6")
def test_what_was_cancelled_is_named_on_the_card_and_told_to_its_sender(seen: Seen) -> None:
    seen.accept(TWO, THREE)
    seen.apply(e.SteerRequested(T1, ids(TWO)), e.InputSteered(T1, ids(TWO)), e.SteerRequested(T1, ids(THREE)))
    assert seen.apply(e.InterruptRequested(T1, WHO, "User B")) == {"turn:1"}
    turn = seen.board.turns[T1]
    assert (turn.stopping, turn.stopped_by) == (True, "User B")
    cancelled = e.InputCancelled(ids(TWO, THREE), e.CancelReason.interrupted)
    assert seen.apply(cancelled) == {"receipt:om_3"}
    assert turn.cancelled == [TWO, THREE]
    assert (seen.receipt(THREE).fate, seen.receipt(THREE).inputs) == (Fate.cancelled, (TWO, THREE))
    seen.apply(e.TurnFinished(T1, e.Outcome.interrupted))
    assert seen.board.settled()


@pytest.mark.rule("B11", "A3")
def test_a_request_stands_in_its_turns_place_until_it_is_closed(seen: Seen) -> None:
    asked = e.PermissionRequested(T1, RequestId("1-1"), "git push", "to main")
    assert seen.apply(asked) == {"turn:1", "ask:1-1"}
    ask = seen.board.asks[RequestId("1-1")]
    assert ask == AskView(T1, RequestId("1-1"), TOPIC, ONE.id, "git push", "to main", Seq(3), Seq(3))
    assert seen.board.turns[T1].asking
    seen.apply(replace(asked, request=RequestId("1-2")))
    answered = e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.answered, Verdict.allow, WHO, "User A")
    assert seen.apply(answered) == {"turn:1", "ask:1-1"}
    assert (ask.how, ask.verdict, ask.name, ask.seq) == (e.Resolution.answered, Verdict.allow, "User A", 5)
    assert seen.board.turns[T1].asking  # the other one is open
    seen.apply(e.PermissionResolved(T1, RequestId("1-2"), e.Resolution.died))
    assert not seen.board.turns[T1].asking


@pytest.mark.rule("B11")
def test_each_place_is_the_inputs_own() -> None:
    seen = Seen()
    there = said("User A", id="om_x", authorization=rights("User A", place=ELSEWHERE))
    nowhere = said("User A", id="cli_1", authorization=rights("User A", place=None))
    seen.accept(there, nowhere)
    seen.start(T1, there)
    seen.apply(queue(nowhere, reason=e.QueueReason.other_authorization))
    assert (seen.board.turns[T1].place, seen.receipt(nowhere).place) == (ELSEWHERE, None)


def test_events_of_a_turn_that_was_shown_long_ago_change_nothing() -> None:
    """A deliverer reads on from where everything was shown; a late item's Turn is not on its board."""
    seen = Seen()
    late: list[e.Event] = [
        e.Item(T1, M1, MESSAGE, e.ItemStatus.completed, text="late"),
        e.Delta(T1, M1, 0, "late"),
        e.InterruptRequested(T1, WHO),
        e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.died),
        e.TurnFinished(T1, e.Outcome.lost),
        e.OwnerOpened(Epoch(2), "w2"),
        e.InputCancelled(ids(ONE), e.CancelReason.interrupted),
    ]
    assert seen.apply(*late) == set()
    assert seen.board.settled()
