"""The machine, case by case: what is heard or seen, and when; what is written and done. Any order of it is the Heart's."""

import pytest

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import Epoch, InputId, ItemId, RequestId, TurnId
from amux.core.inputs import Verdict
from amux.core.signals import SteerAnswer
from amux.core.step import AnswerRequest, InterruptTurn, OpenConversation, Phase, StartTurn, SteerTurn
from tests.build import said
from tests.core.play import (
    T1,
    T2,
    T3,
    WINDOW,
    A,
    B,
    Play,
    accepted,
    answer,
    finished,
    idle,
    ids,
    queued,
    running,
    started,
    stop,
)

FIRST = said("user_a", "first", id="om_1", at=1)
ONE, TWO, THREE, FOUR = (said("user_a", f"text {n}", id=f"om_a{n}", at=n * 100) for n in (1, 2, 3, 4))
BY_B, BY_B2 = (said("user_b", "of another", id=f"om_b{n}", at=n * 100) for n in (1, 2))
IMAGE = said("user_a", "look", id="om_i", at=150, material=["a.png"])
INTERRUPTED = e.CancelReason.interrupted


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs."""
    return running(FIRST)


# -- bursts -----------------------------------------------------------------------------------------------------------


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


# -- steering ---------------------------------------------------------------------------------------------------------


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


# -- interrupting -----------------------------------------------------------------------------------------------------


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


# -- permission -------------------------------------------------------------------------------------------------------

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


# -- what the provider shows ------------------------------------------------------------------------------------------


def test_streamed_words_are_joined_for_a_moment(play: Play) -> None:
    m = ItemId("m")
    assert play.tell(s.DeltaSeen(T1, m, 0, "Hel")) + play.tell(s.DeltaSeen(T1, m, 3, "lo"), after=0.1) == []
    assert play.tick(0.15) == [e.Delta(T1, m, 0, "Hello")]
    play.tell(s.DeltaSeen(T1, m, 5, "!"))
    done = s.ItemSeen(T1, m, e.ItemType.message, e.ItemStatus.completed, text="Hello!")
    assert play.tell(done) == [
        e.Delta(T1, m, 5, "!"),
        e.Item(T1, m, e.ItemType.message, e.ItemStatus.completed, text="Hello!"),
    ]


def test_words_that_do_not_follow_are_an_event_of_their_own(play: Play) -> None:
    m = ItemId("m")
    gap = play.tell(s.DeltaSeen(T1, m, 0, "a"), s.DeltaSeen(T1, m, 9, "z"), s.DeltaSeen(T1, ItemId("n"), 0, "n"))
    assert gap == [e.Delta(T1, m, 0, "a"), e.Delta(T1, m, 9, "z")]
    assert play.end(T1) == [e.Delta(T1, ItemId("n"), 0, "n"), finished(T1)]


@pytest.mark.rule("T3")
def test_a_late_item_is_kept_and_reopens_nothing(play: Play) -> None:
    """H55."""
    play.end(T1)
    late = s.ItemSeen(T1, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed, "pytest")
    assert play.tell(late) == [e.Item(T1, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed, "pytest")]
    assert play.state.turn is None
    never_begun = s.ItemSeen(T2, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed)
    assert play.tell(never_begun) == []


@pytest.mark.rule("T3")
def test_an_end_told_twice_or_of_another_turn_ends_nothing(play: Play) -> None:
    play.hear(BY_B)
    play.tick(WINDOW)
    play.end(T1)
    assert play.end(T1) + play.end(T3) == []
    assert play.state.turn and play.state.turn.id == T2


@pytest.mark.rule("G7")
def test_nothing_starts_beside_a_native_turn_that_nobody_asked_for() -> None:
    """H55."""
    play = idle()
    assert play.tell(s.ForeignTurnBegan("n1", "goal")) == [e.NativeTurnQuarantined("n1", "goal")]
    assert play.hear(ONE) == [*accepted(ONE), queued(e.QueueReason.no_running_turn, ONE)]
    assert play.tell(s.ForeignTurnEnded("n1")) == [started(T2, ONE)]


# -- opening and rest -------------------------------------------------------------------------------------------------


@pytest.mark.rule("S7")
def test_an_agent_that_does_not_open_fails_what_waits_and_the_next_input_tries_anew() -> None:
    play = Play()
    play.crash()
    assert play.hear(ONE, BY_B) == [e.OwnerOpened(Epoch(1), "w1"), e.ConversationOpening("codex", None)]
    missing = (e.FailReason.engine_unavailable, "not here")
    assert play.tell(s.OpenFailed(*missing)) == [
        *accepted(ONE),
        e.SubmissionFailed(ids(ONE), *missing),
        *accepted(BY_B),
        e.SubmissionFailed(ids(BY_B), *missing),
    ]
    assert play.effects == []
    play.hear(TWO)
    assert play.effects == [OpenConversation(None)]


@pytest.mark.rule("A4")
def test_at_rest_it_sleeps_once_and_is_opened_by_what_is_said() -> None:
    play = idle()
    assert play.tell(s.Rested()) + play.tell(s.Rested()) == [e.SessionState(e.Label.sleeping)]
    assert play.hear(ONE) == [e.ConversationOpening("codex", "native")]
    assert play.ready()[1:] == [*accepted(ONE), started(T2, ONE)]


def test_an_owner_that_finds_nothing_to_do_writes_nothing() -> None:
    """So that a sweep's empty visits leave no trace in a million Timelines."""
    play = Play()
    assert play.crash() == []
    assert play.scratch.at_rest(play.state)
