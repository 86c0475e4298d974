"""Sleep, resume, restart, archive: at once, by name, and never across a running Turn (S4, S10, A4, A5, A8)."""

import pytest

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import InputId
from amux.core.inputs import Action, ContextAction, ContextWish, Manage
from amux.core.signals import SteerAnswer
from amux.core.step import CloseConversation, InterruptTurn, OpenConversation, Phase
from tests.core.play import (
    BY_B,
    FIRST,
    ONE,
    T1,
    T2,
    TWO,
    WINDOW,
    B,
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

OPENING = e.ConversationOpening("codex", "native")
ARCHIVED = e.SessionState(e.Label.archived)


def manage(action: Action) -> Manage:
    return Manage(InputId(f"{action}_1"), B, action, "User B")


def wanted(action: Action) -> e.ActionRequested:
    return e.ActionRequested(action, B, "User B")


def refused(action: Action, why: e.Refusal) -> list[e.Event]:
    return [e.ControlRefused(manage(action).id, B, why)]


def asleep() -> Play:
    play = idle()
    play.tell(s.Rested())
    return play


def archived() -> Play:
    play = idle()
    play.hear(manage(Action.archive))
    return play


def opening() -> Play:
    play = asleep()
    play.hear(BY_B)
    return play


REFUSED = {
    "sleep while a Turn runs": (lambda: running(FIRST), Action.sleep, e.Refusal.busy),
    "sleep while input waits": (opening, Action.sleep, e.Refusal.busy),
    "sleep of what sleeps": (asleep, Action.sleep, e.Refusal.already_so),
    "resume of what is awake": (idle, Action.resume, e.Refusal.already_so),
    "resume of what is being opened": (opening, Action.resume, e.Refusal.already_so),
    "sleep of what is archived": (archived, Action.sleep, e.Refusal.archived),
    "resume of what is archived": (archived, Action.resume, e.Refusal.archived),
    "restart of what is archived": (archived, Action.restart, e.Refusal.archived),
    "archive of what is archived": (archived, Action.archive, e.Refusal.already_so),
}


@pytest.mark.rule("A4", "A10", "A12")
@pytest.mark.parametrize(("play", "action", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_changes_nothing(play, action: Action, why: e.Refusal) -> None:  # type: ignore[no-untyped-def]
    one: Play = play()
    assert (one.hear(manage(action)), one.effects) == (refused(action, why), [])


@pytest.mark.rule("A4", "S10")
def test_sleep_and_resume() -> None:
    play = idle()
    assert play.hear(manage(Action.sleep)) == [wanted(Action.sleep), e.SessionState(e.Label.sleeping)]
    assert play.effects == [CloseConversation()]
    assert play.hear(manage(Action.resume)) == [wanted(Action.resume), OPENING]
    assert play.effects == [OpenConversation("native")]


@pytest.mark.rule("A4")
def test_a_resume_that_fails_says_so() -> None:
    play = asleep()
    play.hear(manage(Action.resume))
    failed = e.ConversationFailed(e.FailReason.open_failed, "no luck")
    assert play.tell(s.OpenFailed(e.FailReason.open_failed, "no luck")) == [failed]
    assert play.scratch.phase is Phase.closed


@pytest.mark.rule("A5", "S4")
def test_a_restart_at_rest_opens_anew_with_the_same_history() -> None:
    for play in (idle(), asleep()):
        assert play.hear(manage(Action.restart)) == [wanted(Action.restart), OPENING]
        assert play.effects == [OpenConversation("native")]


@pytest.mark.rule("A5", "T3")
def test_a_restart_ends_the_running_turn_once_and_what_waits_runs_after_it() -> None:
    play = running(FIRST)
    play.hear(BY_B)
    play.tick(WINDOW)
    assert play.hear(manage(Action.restart)) == [wanted(Action.restart), e.InterruptRequested(T1, B, "User B")]
    assert play.effects == [InterruptTurn(T1)]
    assert play.end(T1, e.Outcome.interrupted) == [finished(T1, e.Outcome.interrupted)]
    assert play.tell(s.Stopped(T1)) == [OPENING]
    assert play.effects == [OpenConversation("native")]
    assert play.ready()[-1] == started(T2, BY_B)


@pytest.mark.rule("A5")
def test_what_is_wanted_open_is_opened_by_the_next_owner_when_one_dies_meanwhile() -> None:
    play = running(FIRST)
    play.hear(manage(Action.restart))
    assert play.crash()[-2:] == [finished(T1, e.Outcome.lost, "owner_died"), OPENING]
    assert play.crash()[-1] == OPENING
    play.ready()
    assert not any(isinstance(event, e.ConversationOpening) for event in play.crash())
    play = asleep()
    play.hear(manage(Action.resume))
    assert play.crash()[-1] == OPENING
    play.tell(s.OpenFailed(e.FailReason.open_failed, "no luck"))
    assert not any(isinstance(event, e.ConversationOpening) for event in play.crash())


@pytest.mark.rule("A5")
def test_what_is_said_with_a_restart_runs_in_the_new_process() -> None:
    play = idle()
    assert play.hear(manage(Action.restart), BY_B) == [
        wanted(Action.restart),
        *accepted(BY_B),
        queued(e.QueueReason.no_running_turn, BY_B),
        OPENING,
    ]
    assert play.ready()[-1] == started(T2, BY_B)


@pytest.mark.rule("A4")
def test_sleep_while_the_agent_starts_is_refused_and_one_that_nobody_waits_for_starts_nothing() -> None:
    play = asleep()
    play.hear(manage(Action.resume))
    assert (play.hear(manage(Action.sleep)), play.effects) == (refused(Action.sleep, e.Refusal.busy), [])
    play.ready()
    assert play.tell(s.ConversationReady("another", ())) == []
    assert play.tell(s.OpenFailed(e.FailReason.open_failed, "late")) == []
    assert play.scratch.phase is Phase.idle


@pytest.mark.rule("A5", "A6", "A8")
@pytest.mark.parametrize("action", [Action.restart, Action.archive])
def test_a_compaction_does_not_hold_up_who_manages(action: Action) -> None:
    play = asleep()
    play.hear(ContextWish(InputId("compact_1"), B, ContextAction.compact, "User B"))
    play.tell(s.ConversationReady("native", ("compaction",)))
    told = play.hear(manage(action))
    assert told[:2] == [
        wanted(action),
        e.ContextFailed(InputId("compact_1"), "The agent was stopped meanwhile."),
    ]
    assert told[2] in (OPENING, ARCHIVED)
    assert play.tell(s.Compacted(InputId("compact_1"))) == []


@pytest.mark.rule("A8", "S10")
def test_archive_ends_the_turn_cancels_what_waits_by_name_and_takes_nothing_more() -> None:
    play = running(FIRST)
    play.hear(BY_B)
    play.tick(WINDOW)
    play.hear(TWO)
    assert play.hear(manage(Action.archive)) == [
        wanted(Action.archive),
        e.InputCancelled(ids(BY_B), e.CancelReason.archived),
        *accepted(TWO),
        e.InputCancelled(ids(TWO), e.CancelReason.archived),
        e.InterruptRequested(T1, B, "User B"),
    ]
    assert play.effects == [InterruptTurn(T1)]
    late = [*accepted(ONE), e.SubmissionFailed(ids(ONE), e.FailReason.archived, "This Session is archived.")]
    assert play.hear(ONE) == late
    assert play.end(T1, e.Outcome.interrupted) == [finished(T1, e.Outcome.interrupted)]
    assert play.tell(s.Stopped(T1)) == [ARCHIVED]
    assert play.effects == [CloseConversation()]
    assert play.hear(stop(T1)) == [e.ControlRefused(stop(T1).id, B, e.Refusal.nothing_runs)]


@pytest.mark.rule("A8", "I6")
def test_a_steer_that_is_on_its_way_is_cancelled_with_the_turn() -> None:
    play = running(FIRST)
    play.hear(TWO)
    play.tick(WINDOW)
    play.hear(manage(Action.archive))
    assert play.answer_steer(SteerAnswer.refused, TWO) == [e.InputCancelled(ids(TWO), e.CancelReason.interrupted)]
    play.end(T1, e.Outcome.interrupted)
    assert play.tell(s.Stopped(T1)) == [ARCHIVED]


@pytest.mark.rule("A8")
def test_an_archive_goes_on_after_its_owner_died() -> None:
    play = running(FIRST)
    play.hear(manage(Action.archive))
    assert play.crash()[-2:] == [finished(T1, e.Outcome.lost, "owner_died"), ARCHIVED]
    assert play.effects == []


@pytest.mark.rule("A8")
def test_an_archive_while_the_agent_opens_waits_for_that() -> None:
    play = opening()
    cancelled = e.InputCancelled(ids(BY_B), e.CancelReason.archived)
    assert play.hear(manage(Action.archive)) == [wanted(Action.archive), *accepted(BY_B), cancelled]
    assert play.ready()[-1] == ARCHIVED
    assert play.effects == [CloseConversation()]


def test_what_is_archived_never_says_that_it_sleeps() -> None:
    play = archived()
    assert play.tell(s.Rested()) == []
    assert play.state.label is e.Label.archived


def test_what_waits_is_queued_as_ever_while_a_restart_is_under_way() -> None:
    play = running(FIRST)
    play.hear(manage(Action.restart))
    play.hear(BY_B)
    assert play.tick(WINDOW) == [*accepted(BY_B), queued(e.QueueReason.other_sender, BY_B)]
