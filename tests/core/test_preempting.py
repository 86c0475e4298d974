"""The older contract: a person's message interrupts, and is the next one (I7, and I8 in its mode)."""

import dataclasses

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core import signals as s
from amux.core import waiting
from amux.core.ids import Epoch, InputId
from amux.core.inputs import ContextAction, ContextWish, Input, Origin
from amux.core.session import State, Submission, fold
from amux.core.steering import Busy, Decision, Preempt, Queue, Steer, decide
from amux.core.step import InterruptTurn
from tests.build import running as state_of
from tests.build import said
from tests.core.play import (
    FIRST,
    IMAGE,
    ONE,
    T1,
    T2,
    TWO,
    WINDOW,
    A,
    B,
    Play,
    accepted,
    finished,
    ids,
    queued,
    running,
    started,
)

pytestmark = pytest.mark.rule("I7")
ALERT = said("user_a", "an alert", id="om_alert", at=50, origin=Origin.group_watch)
BY_B = said("user_b", "of another", id="om_b", at=100)
INTERRUPTED = e.Outcome.interrupted
CLEAR = ContextWish(InputId("clear_1"), A, ContextAction.clear, "User A")


def asks(turn: int, by: str) -> e.InterruptRequested:
    return e.InterruptRequested(T1 if turn == 1 else T2, A if by == "user_a" else B, by)


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs, where messages interrupt."""
    play = running(FIRST)
    play.scratch = replace(play.scratch, busy=Busy.interrupt)
    return play


def stopped(play: Play, turn: int = 1) -> list[e.Event]:
    number = T1 if turn == 1 else T2
    return [*play.end(number, INTERRUPTED), *play.tell(s.Stopped(number))]


def test_the_first_text_interrupts_at_once_and_the_burst_is_the_next_turn(play: Play) -> None:
    """I7.a."""
    assert play.hear(ONE) == [asks(1, "user_a")]
    assert play.effects == [InterruptTurn(T1)]
    assert play.hear(TWO, after=1.5) == []
    assert stopped(play) == [finished(T1, INTERRUPTED)]
    assert play.tick(0.5) == [*accepted(ONE, TWO), started(T2, ONE, TWO)]


def test_another_ones_burst_comes_after_it_and_both_before_what_does_not_preempt(play: Play) -> None:
    """I7.b."""
    play.hear(ALERT)
    assert play.hear(BY_B) == [asks(1, "user_b")]
    assert play.hear(ONE, after=0.5) == [*accepted(BY_B), queued(e.QueueReason.preempts, BY_B)]
    assert stopped(play) == [finished(T1, INTERRUPTED)]
    assert play.tick(WINDOW) == [*accepted(ONE), queued(e.QueueReason.preempts, ONE), started(T2, BY_B)]
    assert [x.inputs for x in play.state.queue] == [(ONE,), (ALERT,)]


def test_a_turn_that_began_by_what_a_message_closed_is_not_interrupted_by_it(play: Play) -> None:
    """I7.b: B's Turn is not interrupted by A's earlier request."""
    play.hear(BY_B)
    stopped(play)
    assert play.hear(ONE) == [*accepted(BY_B), started(T2, BY_B)]
    assert play.tick(WINDOW) == [*accepted(ONE), queued(e.QueueReason.preempts, ONE)]
    assert play.end(T2)[-1].inputs == ids(ONE)  # type: ignore[union-attr]


def test_a_waiting_clear_goes_first(play: Play) -> None:
    """I7.b, with a `clear` behind the alert."""
    play.hear(ALERT)
    play.hear(CLEAR)
    play.hear(BY_B)
    play.hear(ONE, after=0.5)
    play.tick(WINDOW)
    assert [x.inputs or x.wish for x in play.state.queue] == [(ALERT,), CLEAR, (BY_B,), (ONE,)]


def test_one_that_ended_by_itself_is_not_interrupted_any_more(play: Play) -> None:
    """I7.c."""
    play.hear(ONE)
    assert play.end(T1) == [finished(T1)]
    play.tell(s.Stopped(T1))
    assert play.tick(WINDOW)[-1] == started(T2, ONE)
    assert play.effects != [InterruptTurn(T2)]


@pytest.mark.rule("I8")
def test_material_interrupts_and_goes_alone_without_a_window(play: Play) -> None:
    assert play.hear(IMAGE) == [asks(1, "user_a"), *accepted(IMAGE), queued(e.QueueReason.preempts, IMAGE)]
    assert stopped(play)[-1] == started(T2, IMAGE)


@pytest.mark.rule("I9")
def test_a_clear_interrupts_nothing(play: Play) -> None:
    assert play.hear(CLEAR) == [e.ContextQueued(CLEAR)]
    assert play.effects == []


@pytest.mark.parametrize(
    "quiet", [ALERT, said(None, "of nobody", id="om_n"), said("user_b", "a bot", origin=Origin.bot)]
)
def test_alerts_and_senderless_input_interrupt_nothing(play: Play, quiet: Input) -> None:
    play.hear(quiet)
    play.tick(WINDOW)
    assert not any(isinstance(event, e.InterruptRequested) for event in play.log)


@pytest.mark.rule("D2")
def test_what_its_owner_did_not_live_to_accept_is_still_the_next_one(play: Play) -> None:
    play.hear(ALERT)
    play.hear(ONE)
    play.scratch = replace(play.scratch, burst=None)
    play.epoch += 1
    play.state = fold(play.log)
    play.scratch = replace(type(play.scratch)("codex", WINDOW), busy=Busy.interrupt)
    play.tell(s.Opened(Epoch(play.epoch), "w2", tuple(play.journal.values())))
    assert play.ready()[-1] == started(T2, ONE)


FROM_A_TERMINAL = said("user_a", "typed", authorization=dataclasses.replace(FIRST.authorization, place=None))
DECIDED = {
    "a person's": (said("user_b"), Preempt()),
    "with a file": (IMAGE, Preempt()),
    "an alert": (ALERT, Queue(e.QueueReason.group_watch)),
    "a bot's": (said("user_a", origin=Origin.bot), Queue(e.QueueReason.no_sender)),
    "nobody's": (said(None), Queue(e.QueueReason.no_sender)),
}


@pytest.mark.parametrize(("one", "decision"), DECIDED.values(), ids=DECIDED)
def test_what_preempts_and_that_nothing_steers(one: Input, decision: Decision) -> None:
    assert decide((one,), state_of("user_a"), Busy.interrupt) == decision


def test_what_is_typed_beside_its_own_turn_waits_since_nothing_steers() -> None:
    state = state_of("user_a")
    assert state.turn
    turn = replace(state.turn, authorization=FROM_A_TERMINAL.authorization)
    state = replace(state, turn=turn)
    assert decide((FROM_A_TERMINAL,), state) == Steer(turn.id)
    assert decide((FROM_A_TERMINAL,), state, Busy.interrupt) == Queue(e.QueueReason.nothing_steers)


def test_its_own_senders_earlier_input_goes_first() -> None:
    earlier = said("user_a", "earlier", id="om_e", authorization=dataclasses.replace(FIRST.authorization, place=None))
    waits = State(queue=(Submission((ALERT,)), Submission((earlier,)), Submission((BY_B,))))
    state = fold([e.InputAccepted(ONE), e.InputQueued(ids(ONE), e.QueueReason.preempts)], waits)
    assert [x.inputs[0] for x in state.queue] == [ALERT, earlier, ONE, BY_B]


def test_nothing_is_stopped_for_what_a_full_queue_will_refuse(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST", 1)
    play.hear(ALERT)
    assert play.hear(ONE) == []
    assert play.tick(WINDOW)[-1].reason is e.FailReason.queue_full  # type: ignore[union-attr]
    assert play.effects == []
