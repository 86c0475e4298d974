"""What waits: withdrawn while it waits, preferred, and never more than the queue takes (H43, I4)."""

import pytest

from amux.core import events as e
from amux.core import waiting
from amux.core.ids import InputId
from amux.core.inputs import ContextAction, ContextWish, Input, Prefer, Withdraw
from amux.core.signals import SteerAnswer
from tests.build import said
from tests.core.play import BY_B, FIRST, ONE, T1, T2, TWO, WINDOW, A, B, Play, accepted, finished, ids, running, started

BY_C = said("user_c", "of a third", id="om_c", at=300)


def withdraw(*inputs: Input) -> Withdraw:
    return Withdraw(InputId("withdraw_1"), A, ids(*inputs), "User A")


def prefer(one: Input) -> Prefer:
    return Prefer(InputId("prefer_1"), A, one.id, "User A")


def withdrawn(*inputs: Input) -> e.InputCancelled:
    return e.InputCancelled(ids(*inputs), e.CancelReason.withdrawn, A, "User A")


NOT_WAITING = e.ControlRefused(InputId("withdraw_1"), A, e.Refusal.not_waiting)


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs; messages of User B and of User C wait."""
    play = running(FIRST)
    for one in (BY_B, BY_C):
        play.hear(one)
        play.tick(WINDOW)
    return play


@pytest.mark.rule("I4", "T1")
def test_what_waits_is_withdrawn_and_uses_up_no_turn(play: Play) -> None:
    """T1.a."""
    assert play.hear(withdraw(BY_B)) == [withdrawn(BY_B)]
    assert play.end(T1) == [finished(T1), started(T2, BY_C)]


def test_text_that_waits_for_its_burst_is_withdrawn_alone(play: Play) -> None:
    play.hear(ONE, TWO)
    assert play.hear(withdraw(ONE)) == [*accepted(ONE), withdrawn(ONE)]
    assert play.tick(WINDOW)[0] == e.InputAccepted(TWO)


def test_what_waits_for_the_agent_to_open_is_withdrawn() -> None:
    play = Play()
    play.crash()
    play.hear(ONE, TWO)
    assert play.hear(withdraw(ONE)) == [*accepted(ONE), withdrawn(ONE)]
    assert play.ready()[1:] == [*accepted(TWO), started(T1, TWO)]


def test_several_submissions_are_told_one_by_one(play: Play) -> None:
    assert play.hear(withdraw(BY_C, BY_B)) == [withdrawn(BY_B), withdrawn(BY_C)]


@pytest.mark.rule("I5", "I6")
def test_what_a_provider_may_hold_is_not_withdrawn(play: Play) -> None:
    assert play.hear(withdraw(FIRST)) == [NOT_WAITING]
    other = running(FIRST)
    other.hear(TWO)
    other.tick(WINDOW)
    assert other.hear(withdraw(TWO)) == [NOT_WAITING]
    other.answer_steer(SteerAnswer.committed, TWO)
    assert other.hear(withdraw(TWO)) == [NOT_WAITING]


def test_the_preferred_one_is_next_and_the_others_keep_their_order(play: Play) -> None:
    assert play.hear(prefer(BY_C)) == [e.InputPreferred(ids(BY_C), A, "User A")]
    assert play.end(T1)[-1] == started(T2, BY_C)


@pytest.mark.rule("I9")
def test_the_preferred_one_goes_before_no_clear_that_was_asked_for_before_it(play: Play) -> None:
    clear = ContextWish(InputId("clear_1"), A, ContextAction.clear, "User A")
    play.hear(clear)
    last = [said(f"user_{name}", "later", id=f"om_{name}", at=900) for name in "de"]
    for one in last:
        play.hear(one)
        play.tick(WINDOW)
    assert play.hear(prefer(last[1])) == [e.InputPreferred(ids(last[1]), A, "User A")]
    assert [s.wish or s.inputs for s in play.state.queue] == [(BY_B,), (BY_C,), clear, (last[1],), (last[0],)]
    again = e.ControlRefused(InputId("prefer_1"), A, e.Refusal.already_so)
    assert play.hear(prefer(last[1])) == [again]


@pytest.mark.parametrize(
    ("one", "why"),
    [(BY_B, e.Refusal.already_so), (FIRST, e.Refusal.not_waiting), (TWO, e.Refusal.not_waiting)],
    ids=["first already", "it runs", "never heard of"],
)
def test_what_cannot_be_preferred(play: Play, one: Input, why: e.Refusal) -> None:
    assert play.hear(prefer(one)) == [e.ControlRefused(InputId("prefer_1"), A, why)]


@pytest.mark.rule("I4")
def test_a_full_queue_refuses_by_name_and_loses_nothing_else(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST", 2)
    late = said("user_b", "one too\nmany " + "x" * 80, id="om_late", at=900)
    detail = f"2 messages wait already, so this one was not queued: one too many {'x' * 47}…"
    play.hear(late)
    assert play.tick(WINDOW) == [*accepted(late), e.SubmissionFailed(ids(late), e.FailReason.queue_full, detail)]
    assert play.end(T1) == [finished(T1), started(T2, BY_B)]


def test_who_did_it_is_on_record(play: Play) -> None:
    play.hear(Withdraw(InputId("withdraw_2"), B, ids(BY_B), "User B"))
    assert play.log[-1] == e.InputCancelled(ids(BY_B), e.CancelReason.withdrawn, B, "User B")


@pytest.mark.rule("I3", "I4", "D2")
def test_what_a_provider_refused_goes_behind_what_it_refused_before_wherever_that_stands() -> None:
    """Also when something was put before it meanwhile: nothing that waits is lost."""
    play = running(FIRST)
    for one in (ONE, TWO):
        play.hear(one)
        play.tick(WINDOW)
    play.answer_steer(SteerAnswer.refused, ONE)
    play.hear(BY_B)
    play.tick(WINDOW)
    play.hear(prefer(BY_B))
    play.answer_steer(SteerAnswer.refused, TWO)
    assert [x.inputs for x in play.state.queue] == [(BY_B,), (ONE,), (TWO,)]


def test_what_is_said_while_the_agent_opens_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST", 2)
    play = Play()
    play.crash()
    play.hear(ONE, BY_B)
    assert play.hear(TWO)[-1].reason is e.FailReason.queue_full  # type: ignore[union-attr]
    assert play.ready()[1] == e.InputAccepted(ONE)
