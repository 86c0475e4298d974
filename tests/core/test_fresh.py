"""A conversation that begins anew: once, with a handoff that is given until an agent is seen to hold it (S8, A5)."""

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import Epoch, ItemId
from amux.core.step import OpenConversation, Phase, StartTurn
from tests.core.play import ONE, T1, T2, T3, THREE, TWO, Play, finished, idle, started

LOST, GONE = e.Fresh.engine_lost, e.Fresh.history_gone


def asleep(fresh: e.Fresh | None = None) -> Play:
    """Turn 1 is over and the agent closed; the next owner has opened."""
    play = idle()
    play.tell(s.Rested())
    play.crash()
    play.scratch = replace(play.scratch, fresh=fresh)
    return play


def anew(native_id: str = "native-2") -> Play:
    """It was opened anew, and Turn 2 runs with the handoff."""
    play = asleep(LOST)
    play.hear(ONE)
    play.tell(s.ConversationReady(native_id, ()))
    assert play.effects == [StartTurn(T2, (ONE,), "", LOST)]
    return play


@pytest.mark.rule("S8")
def test_the_old_handle_is_given_up_with_the_opening() -> None:
    play = asleep(LOST)
    before = play.state
    assert before.native_id == "native"
    assert play.hear(ONE)[-1] == e.ConversationOpening("codex", None, LOST)
    assert play.effects == [OpenConversation(None)]
    assert (play.state.native_id, play.state.handoff) == (None, LOST)


@pytest.mark.rule("S8")
@pytest.mark.parametrize(
    "sign",
    [
        e.Item(T2, ItemId("m"), e.ItemType.message, e.ItemStatus.started),
        s.TurnEnded(T2, e.Outcome.completed),
    ],
    ids=["it says something", "it ends"],
)
def test_a_handoff_that_is_held_is_not_given_again(sign: e.Item | s.TurnEnded) -> None:
    play = anew()
    play.tell(sign)
    play.tell(s.TurnEnded(T2, e.Outcome.failed))
    play.hear(TWO)
    assert play.effects == [StartTurn(T3, (TWO,), "")]


@pytest.mark.rule("S8")
def test_text_that_streams_is_a_sign_too() -> None:
    play = anew()
    play.tell(s.DeltaSeen(T2, ItemId("m"), 0, "w"))
    play.tick(1.0)
    assert play.state.handoff is None


@pytest.mark.rule("S8")
@pytest.mark.parametrize("outcome", [e.Outcome.failed, e.Outcome.lost, e.Outcome.interrupted])
def test_a_handoff_that_may_be_lost_is_given_again_in_the_same_conversation(outcome: e.Outcome) -> None:
    play = anew()
    play.tell(s.Died("exit 9", s.TurnEnded(T2, outcome)))
    assert play.hear(TWO)[-1] == e.ConversationOpening("codex", "native-2")
    play.tell(s.ConversationReady("native-2", ()))
    assert play.effects == [StartTurn(T3, (TWO,), "", LOST)]


@pytest.mark.rule("S8")
def test_a_late_word_of_an_earlier_turn_is_no_sign() -> None:
    play = anew()
    play.tell(e.Item(T1, ItemId("m"), e.ItemType.message, e.ItemStatus.completed))
    assert play.state.handoff is LOST


@pytest.mark.rule("S8", "S4")
def test_an_owner_that_dies_while_it_opens_anew_resumes_nothing_old() -> None:
    play = asleep(LOST)
    play.hear(ONE)
    assert play.crash() == [e.OwnerOpened(Epoch(3), "w3"), e.ConversationOpening("codex", None)]
    play.tell(s.ConversationReady("native-3", ()))
    assert play.effects == [StartTurn(T2, (ONE,), "", LOST)]


@pytest.mark.rule("S8")
def test_it_begins_anew_once() -> None:
    play = anew()
    play.tell(s.TurnEnded(T2, e.Outcome.completed))
    play.tell(s.Died("exit 9"))
    assert play.hear(TWO)[-1] == e.ConversationOpening("codex", "native-2")


@pytest.mark.rule("A5", "S8")
def test_a_history_that_is_gone_begins_anew() -> None:
    play = asleep()
    assert play.hear(ONE)[-1] == e.ConversationOpening("codex", "native")
    assert play.tell(s.HistoryGone()) == [e.ConversationOpening("codex", None, GONE)]
    assert (play.effects, play.scratch.phase) == ([OpenConversation(None)], Phase.opening)
    play.tell(s.ConversationReady("native-2", ()))
    assert play.effects == [StartTurn(T2, (ONE,), "", GONE)]


def test_news_of_a_history_that_comes_too_late_opens_nothing() -> None:
    play = anew()
    assert play.tell(s.HistoryGone()) == []
    assert play.effects == []


@pytest.mark.rule("S8")
def test_what_waits_fails_when_the_new_one_does_not_open_either() -> None:
    play = asleep(LOST)
    play.hear(ONE)
    play.tell(s.OpenFailed(e.FailReason.engine_unavailable, "not here"))
    assert play.log[-1] == e.SubmissionFailed((ONE.id,), e.FailReason.engine_unavailable, "not here")
    assert play.hear(THREE)[-1] == e.ConversationOpening("codex", None)
    play.tell(s.ConversationReady("native-2", ()))
    assert play.effects == [StartTurn(T2, (THREE,), "", LOST)]
    assert started(T2, THREE) in play.log
    assert finished(T2) not in play.log
