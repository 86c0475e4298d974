"""The machine, case by case: interrupts and permission, early, late and twice."""

import pytest

from amux.core import events as e
from amux.core import signals as s
from amux.core.context import cancellation_note
from amux.core.ids import InputId, ItemId, RequestId
from amux.core.inputs import Verdict
from amux.core.signals import SteerAnswer
from amux.core.step import AnswerRequest, InterruptTurn, OpenConversation, Phase, StartTurn
from tests.build import said
from tests.core.play import (
    BY_B,
    BY_B2,
    FIRST,
    ONE,
    T1,
    T2,
    T3,
    THREE,
    TWO,
    WINDOW,
    A,
    B,
    Play,
    answer,
    finished,
    idle,
    ids,
    running,
    started,
    stop,
)

ONE_MORE = said("user_a", "one more", id="om_m", at=4)
INTERRUPTED = e.CancelReason.interrupted


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs."""
    return running(FIRST)


# -- interrupting ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I6", "A3", "I5")
@pytest.mark.parametrize(
    ("answer_", "fate"),
    [
        (SteerAnswer.refused, e.InputCancelled(ids(THREE), INTERRUPTED)),
        (SteerAnswer.unknown, e.SubmissionFailed(ids(THREE), e.FailReason.uncertain)),
    ],
)
def test_an_interrupt_cancels_what_was_not_handled(play: Play, answer_: SteerAnswer, fate: e.Event) -> None:
    """I6.a: one handled, one confirmed, one unconfirmed; the handled one is not called cancelled."""
    play.steered(ONE)
    play.steered(TWO)
    play.hear(THREE)
    play.tick(WINDOW)
    assert play.hear(stop(T1)) == [e.InterruptRequested(T1, B, "User B")]
    assert play.effects == [InterruptTurn(T1)]
    assert play.end(T1, e.Outcome.interrupted, TWO) == []
    assert play.answer_steer(answer_, THREE) == [
        fate,
        e.InputCancelled(ids(TWO), INTERRUPTED),
        finished(T1, e.Outcome.interrupted),
    ]


def _interrupted(play: Play) -> None:
    play.steered(ONE)
    play.hear(stop(T1))
    play.end(T1, e.Outcome.interrupted, ONE)
    play.tell(s.Stopped(T1))


def _note(play: Play) -> str:
    (effect,) = play.effects
    assert isinstance(effect, StartTurn)
    return effect.note


@pytest.mark.rule("I6")
def test_the_next_turn_names_what_was_cancelled_and_the_one_after_does_not(play: Play) -> None:
    """I6.b, its half that is ours."""
    _interrupted(play)
    play.hear(BY_B)
    assert '"text 1"' in _note(play)
    play.end(T2)
    play.hear(BY_B2)
    assert _note(play) == ""


@pytest.mark.rule("I6")
def test_the_note_outlives_the_owner(play: Play) -> None:
    """I6.c."""
    _interrupted(play)
    play.crash()
    play.hear(BY_B)
    play.ready()
    assert '"text 1"' in _note(play)


@pytest.mark.rule("I6")
def test_what_a_turn_cancelled_is_named_even_if_it_carried_a_note_itself(play: Play) -> None:
    """It was interrupted too, and completed before it stopped."""
    _interrupted(play)
    play.hear(ONE_MORE)
    assert '"text 1"' in _note(play)
    play.hear(TWO)
    play.tick(WINDOW)
    play.hear(stop(T2))
    play.end(T2)
    play.answer_steer(SteerAnswer.refused, TWO, turn=T2)
    play.tell(s.Stopped(T2))
    play.hear(BY_B)
    assert _note(play) == cancellation_note((TWO,))


@pytest.mark.rule("I6")
def test_a_note_that_went_out_with_a_lost_turn_is_due_again(play: Play) -> None:
    """H47: until a Turn that carried it was seen to be held by the provider."""
    _interrupted(play)
    play.hear(BY_B)
    play.crash()
    play.hear(TWO)
    play.ready()
    assert '"text 1"' in _note(play)
    play.tell(s.ItemSeen(T3, ItemId("i"), e.ItemType.reasoning, e.ItemStatus.started))
    play.crash()
    play.hear(THREE)
    play.ready()
    assert _note(play) == ""


@pytest.mark.rule("I6")
def test_what_another_queued_is_not_cancelled(play: Play) -> None:
    """I6.d."""
    play.hear(BY_B)
    play.tick(WINDOW)
    play.hear(stop(T1))
    play.end(T1, e.Outcome.interrupted)
    assert play.tell(s.Stopped(T1)) == [started(T2, BY_B)]


@pytest.mark.rule("A3")
def test_nothing_runs_so_there_is_nothing_to_interrupt() -> None:
    """A3.a."""
    play = idle()
    nothing = e.ControlRefused(InputId("stop_1"), B, e.Refusal.nothing_runs)
    assert play.hear(stop(None)) == [nothing]
    assert play.effects == []


@pytest.mark.rule("A3")
def test_pressed_twice_is_one_interruption(play: Play) -> None:
    """A3.a."""
    play.hear(stop(T1))
    again = e.ControlRefused(InputId("stop_2"), B, e.Refusal.already_interrupting)
    assert play.hear(stop(T1, id="stop_2")) == [again]
    assert play.effects == []
    assert play.end(T1, e.Outcome.interrupted) + play.tell(s.Stopped(T1)) == [finished(T1, e.Outcome.interrupted)]


@pytest.mark.rule("A3")
def test_a_late_interrupt_touches_no_later_turn(play: Play) -> None:
    """H39."""
    play.end(T1)
    play.hear(ONE)
    stale = e.ControlRefused(InputId("stop_1"), B, e.Refusal.stale)
    assert play.hear(stop(T1)) == [stale]
    assert (play.effects, play.state.turn and play.state.turn.interrupting) == ([], False)


@pytest.mark.rule("A3", "T3")
def test_an_interrupt_that_races_the_end_is_settled_by_it(play: Play) -> None:
    """H45: it ended by itself, so it completed; and nothing starts before the stop procedure is quiet."""
    play.hear(BY_B)
    play.hear(stop(T1), after=WINDOW)
    assert play.end(T1) == [finished(T1)]
    assert (play.effects, play.scratch.phase) == ([], Phase.stopping)
    assert play.tell(s.Stopped(T1)) == [started(T2, BY_B)]
    assert play.tell(s.Stopped(T1)) == []


@pytest.mark.rule("A3")
def test_a_provider_that_is_quiet_and_told_no_end_has_ended(play: Play) -> None:
    play.hear(stop(T1))
    assert play.tell(s.Stopped(T1)) == [finished(T1, e.Outcome.interrupted)]


@pytest.mark.rule("A3", "T3")
def test_a_provider_killed_for_not_obeying_was_interrupted(play: Play) -> None:
    """A3.c."""
    play.hear(stop(T1))
    killed = finished(T1, e.Outcome.interrupted, "agent_died", "killed")
    assert play.tell(s.Died("killed"), s.Stopped(T1)) == [killed]
    play.hear(ONE)
    assert play.effects == [OpenConversation("native")]


# -- permission --------------------------------------------------------------------------------------------------------

ASK = s.PermissionAsked(T1, RequestId("1-1"), "git push")


def _resolved(how: e.Resolution) -> e.Event:
    return e.PermissionResolved(T1, RequestId("1-1"), how)


@pytest.mark.rule("A3")
def test_an_interrupt_closes_the_request_and_a_late_allow_does_nothing(play: Play) -> None:
    """A3.b, H40."""
    assert play.tell(ASK) == [e.PermissionRequested(T1, RequestId("1-1"), "git push")]
    assert play.hear(stop(T1)) == [e.InterruptRequested(T1, B, "User B"), _resolved(e.Resolution.interrupted)]
    assert play.hear(answer("1-1")) == [e.ControlRefused(InputId("answer_1"), A, e.Refusal.stale)]
    assert play.effects == []
    assert play.end(T1, e.Outcome.interrupted) == [finished(T1, e.Outcome.interrupted)]


@pytest.mark.rule("A3")
def test_the_first_answer_counts() -> None:
    """H40."""
    play = running(FIRST)
    play.tell(ASK)
    first, second = answer("1-1", Verdict.deny), answer("1-1", Verdict.allow, id="answer_2", by=B)
    assert play.hear(first, second) == [
        e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.answered, Verdict.deny, A, "User A"),
        e.ControlRefused(InputId("answer_2"), B, e.Refusal.stale),
    ]
    assert play.effects == [AnswerRequest(RequestId("1-1"), Verdict.deny)]


def test_the_turns_end_or_death_closes_the_request_and_silence_never_allows(play: Play) -> None:
    """H40."""
    play.tell(ASK)
    assert play.tick(3_600.0) == []
    assert play.end(T1) == [_resolved(e.Resolution.ended), finished(T1)]
    other = running(FIRST)
    other.tell(ASK)
    assert other.crash()[1] == _resolved(e.Resolution.died)
    third = running(FIRST)
    third.tell(ASK)
    assert third.tell(s.Died("exit 9"))[0] == _resolved(e.Resolution.died)


@pytest.mark.parametrize("when", ["idle", "stopping", "another Turn"])
def test_a_request_that_nobody_can_answer_is_denied(when: str) -> None:
    play = running(FIRST)
    if when == "stopping":
        play.hear(stop(T1))
    else:
        play.end(T1)
        play.hear(*([ONE] if when == "another Turn" else []))
    assert play.tell(ASK) == []
    assert play.effects == [AnswerRequest(RequestId("1-1"), Verdict.deny)]
