"""The machine, case by case: what is said in mid-Turn, and when; what joins, what waits, what is uncertain."""

import pytest

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import Epoch, TurnId
from amux.core.signals import SteerAnswer
from amux.core.step import OpenConversation, Phase, StartTurn, SteerTurn
from tests.build import said
from tests.core.play import (
    BY_B,
    FIRST,
    IMAGE,
    ONE,
    T1,
    T2,
    T3,
    THREE,
    TWO,
    WINDOW,
    Play,
    accepted,
    finished,
    idle,
    ids,
    queued,
    running,
    started,
    stop,
)


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs."""
    return running(FIRST)


# -- bursts ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I2", "I3", "T2")
def test_texts_of_one_window_are_one_submission(play: Play) -> None:
    """I2.a, T2.a."""
    assert play.hear(ONE) + play.hear(TWO, after=0.9) + play.hear(THREE, after=1.0) == []
    assert play.tick(0.1) == [*accepted(ONE, TWO, THREE), e.SteerRequested(T1, ids(ONE, TWO, THREE))]
    assert play.effects == [SteerTurn(T1, (ONE, TWO, THREE))]


@pytest.mark.rule("I2")
def test_a_text_after_the_window_is_a_burst_of_its_own_also_when_the_owner_looks_late(play: Play) -> None:
    """I2.a. Its window begins when it is heard."""
    play.hear(ONE)
    assert play.hear(TWO, after=2.1) == [*accepted(ONE), e.SteerRequested(T1, ids(ONE))]
    assert play.tick(1.9) == []
    assert play.tick(0.1) == [*accepted(TWO), e.SteerRequested(T1, ids(TWO))]


@pytest.mark.rule("I2")
def test_a_burst_is_in_sending_order(play: Play) -> None:
    """I2.a, H42: whatever order Feishu delivers in."""
    play.hear(TWO)
    play.hear(THREE, ONE)
    assert play.tick(WINDOW) == [*accepted(ONE, TWO, THREE), e.SteerRequested(T1, ids(ONE, TWO, THREE))]


@pytest.mark.rule("I2")
def test_a_late_arrival_goes_last_whenever_it_was_sent(play: Play) -> None:
    """H42: what was accepted is never reordered."""
    play.hear(TWO)
    play.tick(WINDOW)
    play.hear(ONE)
    play.tick(WINDOW)
    assert play.end(T1) == []  # two steers are out
    play.answer_steer(SteerAnswer.refused, TWO)
    assert play.answer_steer(SteerAnswer.refused, ONE)[-1] == started(T2, TWO)
    assert play.end(T2)[-1] == started(T3, ONE)


@pytest.mark.rule("I2", "I4")
def test_anothers_text_closes_the_open_burst_and_goes_behind_it(play: Play) -> None:
    """I2.b."""
    play.hear(ONE)
    assert play.hear(BY_B, after=1.0) == [*accepted(ONE), e.SteerRequested(T1, ids(ONE))]
    assert play.tick(1.0) == []
    assert play.tick(1.0) == [*accepted(BY_B), queued(e.QueueReason.other_sender, BY_B)]


@pytest.mark.rule("I2", "I4", "T1")
def test_the_turns_end_closes_the_burst_which_opens_the_next_turn(play: Play) -> None:
    """I2.c, H41: it is not steered into a Turn that is over, and waits for no window."""
    play.hear(ONE, TWO)
    assert play.tell(s.TurnEnded(T1, e.Outcome.completed), after=1.0) == [
        finished(T1),
        *accepted(ONE, TWO),
        started(T2, ONE, TWO),
    ]
    assert play.effects == [StartTurn(T2, (ONE, TWO), "")]


@pytest.mark.rule("I2", "I5", "S4")
def test_an_open_burst_outlives_its_owner(play: Play) -> None:
    """I2.d, H41: unaccepted, so it is in the journal still; it runs once, in order."""
    play.hear(TWO, ONE)
    play.hear(BY_B)  # which closes it
    assert play.crash() == [
        e.OwnerOpened(Epoch(2), "w2"),
        e.SubmissionFailed(ids(ONE, TWO), e.FailReason.uncertain),
        finished(T1, e.Outcome.lost, "owner_died"),
        e.ConversationOpening("codex", "native"),
    ]
    assert play.ready() == [
        e.ConversationOpened("native", ("steering",)),
        *accepted(BY_B),
        started(T2, BY_B),
    ]


@pytest.mark.rule("I2")
def test_what_was_said_in_one_window_before_the_crash_is_one_submission_after_it(play: Play) -> None:
    play.hear(TWO, ONE)
    play.crash()
    assert play.ready()[1:] == [*accepted(ONE, TWO), started(T2, ONE, TWO)]


@pytest.mark.rule("I2")
def test_an_idle_session_starts_at_once() -> None:
    """I2.e."""
    play = idle()
    assert play.hear(ONE) == [*accepted(ONE), started(T2, ONE)]
    assert play.effects == [StartTurn(T2, (ONE,), "")]


@pytest.mark.rule("I8", "I2", "I4")
def test_material_closes_the_burst_and_queues_and_text_waits_behind_it(play: Play) -> None:
    """I8.a."""
    play.hear(ONE)
    assert play.hear(IMAGE, after=1.0) == [
        *accepted(ONE),
        e.SteerRequested(T1, ids(ONE)),
        *accepted(IMAGE),
        queued(e.QueueReason.has_material, IMAGE),
    ]
    play.hear(TWO)
    assert play.tick(WINDOW) == [*accepted(TWO), queued(e.QueueReason.earlier_input_waiting, TWO)]


# -- steering ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I3")
def test_a_confirmed_steer_starts_no_turn(play: Play) -> None:
    """I3.a."""
    play.hear(ONE)
    play.tick(WINDOW)
    assert play.answer_steer(SteerAnswer.committed, ONE) == [e.InputSteered(T1, ids(ONE))]
    assert play.end(T1) == [finished(T1)]
    assert (play.effects, play.state.queue) == ([], ())


@pytest.mark.rule("I3", "I4")
def test_a_refused_steer_opens_the_next_turn_and_joins_no_other(play: Play) -> None:
    """I3.c: the Turn ended first, and its end waits for the answer, so that each input's fate is told before it."""
    play.hear(ONE)
    play.tick(WINDOW)
    assert play.end(T1) == []
    assert play.answer_steer(SteerAnswer.refused, ONE) == [
        queued(e.QueueReason.refused, ONE),
        finished(T1),
        started(T2, ONE),
    ]


@pytest.mark.rule("I3")
def test_two_bursts_are_steered_in_order_and_the_turn_ends_after_both(play: Play) -> None:
    """I3.e: a steer under way is not something that waits."""
    play.hear(ONE)
    play.tick(WINDOW)
    play.hear(TWO)
    assert play.tick(WINDOW) == [*accepted(TWO), e.SteerRequested(T1, ids(TWO))]
    assert play.answer_steer(SteerAnswer.committed, ONE) + play.end(T1) == [e.InputSteered(T1, ids(ONE))]
    assert play.answer_steer(SteerAnswer.committed, TWO) == [e.InputSteered(T1, ids(TWO)), finished(T1)]


@pytest.mark.rule("I4")
def test_after_a_takeover_no_running_turn_is_known(play: Play) -> None:
    """I4.d: the provider seems busy; nothing is steered."""
    play.hear(ONE)
    play.crash()
    play.hear(TWO)
    assert play.effects == []
    play.ready()
    assert play.effects == [StartTurn(T2, (ONE, TWO), "")]


@pytest.mark.rule("I4", "A3")
def test_what_is_said_during_an_interruption_waits_and_is_not_cancelled(play: Play) -> None:
    """I4.f."""
    play.hear(stop(T1))
    play.hear(ONE)
    assert play.tick(WINDOW) == [*accepted(ONE), queued(e.QueueReason.interrupting, ONE)]
    assert play.end(T1, e.Outcome.interrupted) == [finished(T1, e.Outcome.interrupted)]
    assert play.tell(s.Stopped(T1)) == [started(T2, ONE)]


@pytest.mark.rule("I4", "T1")
def test_ten_queued_texts_keep_their_order_and_interrupt_nothing(play: Play) -> None:
    """I4.j, T1.a: what waits has no number; each gets the next one when it starts."""
    texts = [said(who, id=f"om_{n}", at=n) for n, who in enumerate(["user_b", "user_a"] * 5)]
    for text in texts:
        play.hear(text)
    play.tick(WINDOW)
    assert [x.inputs[0] for x in play.state.queue] == texts
    assert play.state.last_turn == T1
    order = []
    for number in range(1, 11):
        (_, begun) = play.end(TurnId(number))
        assert isinstance(begun, e.TurnStarted)
        order.append((begun.turn, begun.inputs))
    assert order == [(TurnId(n), ids(text)) for n, text in enumerate(texts, start=2)]


@pytest.mark.rule("I5")
def test_an_unconfirmed_steer_fails_and_is_never_queued(play: Play) -> None:
    """I5.a."""
    play.hear(ONE)
    play.tick(WINDOW)
    uncertain = e.SubmissionFailed(ids(ONE), e.FailReason.uncertain)
    assert play.answer_steer(SteerAnswer.unknown, ONE) == [uncertain]
    assert play.answer_steer(SteerAnswer.committed, ONE) == []  # one fate each
    assert play.end(T1) == [finished(T1)]
    assert play.effects == []


@pytest.mark.rule("I5", "S4")
def test_a_crash_after_the_steers_intent_leaves_it_uncertain(play: Play) -> None:
    """I5.c."""
    play.hear(ONE)
    play.tick(WINDOW)
    assert play.crash() == [
        e.OwnerOpened(Epoch(2), "w2"),
        e.SubmissionFailed(ids(ONE), e.FailReason.uncertain),
        finished(T1, e.Outcome.lost, "owner_died"),
    ]
    assert play.effects == []


@pytest.mark.rule("I5")
def test_a_crash_before_the_steers_intent_runs_it_once(play: Play) -> None:
    """I5.c, the other half."""
    play.hear(ONE)
    play.crash()
    assert play.effects == [OpenConversation("native")]
    play.ready()
    assert play.effects == [StartTurn(T2, (ONE,), "")]


@pytest.mark.rule("I5")
def test_a_dead_agent_leaves_its_steers_uncertain_and_runs_nothing_again(play: Play) -> None:
    play.hear(ONE)
    play.tick(WINDOW)
    assert play.tell(s.Died("exit 9")) == [
        e.SubmissionFailed(ids(ONE), e.FailReason.uncertain),
        finished(T1, e.Outcome.lost, "agent_died", "exit 9"),
    ]
    assert (play.effects, play.scratch.phase) == ([], Phase.closed)
