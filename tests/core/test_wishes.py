"""Compact and clear: in the queue, in order, each with one outcome (I9, A6, A7, A10)."""

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import InputId
from amux.core.inputs import ContextAction, ContextWish
from amux.core.session import fold
from amux.core.step import CloseConversation, CompactContext, OpenConversation, Phase
from tests.build import said
from tests.core.play import (
    BY_B,
    FIRST,
    ONE,
    T1,
    T2,
    WINDOW,
    A,
    B,
    Play,
    accepted,
    finished,
    idle,
    ids,
    queued,
    running,
    stop,
)
from tests.core.play import started as turn_started

BY_C = said("user_c", "of a third", id="om_c", at=300)
PARTS = ("steering", "compaction")


def wish(what: ContextAction, number: int = 1) -> ContextWish:
    return ContextWish(InputId(f"{what}_{number}"), A, what, "User A")


CLEAR, COMPACT = wish(ContextAction.clear), wish(ContextAction.compact)
CLEARED = e.ContextCleared(CLEAR.id, A, "User A")
REQUESTED, COMPACTED = e.CompactRequested(COMPACT.id, A, "User A"), e.ContextCompacted(COMPACT.id)


def able(play: Play) -> Play:
    """Its agent can compact."""
    play.scratch = replace(play.scratch, phase=Phase.opening)
    play.tell(s.ConversationReady("native", PARTS))
    return play


@pytest.mark.rule("A7", "I9")
def test_a_clear_at_rest_gives_the_conversation_up() -> None:
    play = idle()
    assert play.hear(CLEAR) == [e.ContextQueued(CLEAR), CLEARED]
    assert play.effects == [CloseConversation()]
    play.hear(BY_B)
    assert play.effects == [OpenConversation(None)]


@pytest.mark.rule("A6", "I9")
def test_a_compaction_holds_the_agent_and_what_comes_meanwhile_waits() -> None:
    play = able(idle())
    assert play.hear(COMPACT) == [e.ContextQueued(COMPACT), REQUESTED]
    assert play.effects == [CompactContext(COMPACT.id)]
    assert play.hear(BY_B) == [*accepted(BY_B), queued(e.QueueReason.no_running_turn, BY_B)]
    assert play.tell(s.Compacted(COMPACT.id)) == [COMPACTED, turn_started(T2, BY_B)]


@pytest.mark.rule("I9", "A6", "A7")
def test_they_run_after_what_came_before_and_before_what_comes_after() -> None:
    """I9.a."""
    play = running(FIRST)
    play.hear(BY_B)
    play.hear(CLEAR)
    play.hear(BY_C)
    play.tick(WINDOW)
    assert play.end(T1) == [finished(T1), turn_started(T2, BY_B)]
    assert play.end(T2) == [finished(T2), CLEARED, e.ConversationOpening("codex", None)]
    assert play.ready()[-1].inputs == ids(BY_C)  # type: ignore[union-attr]


@pytest.mark.rule("A6", "I9")
def test_a_running_turn_is_not_cut_and_takes_nothing_that_comes_after_a_wish() -> None:
    """A6.a; a text of its own sender behind the wish waits, for the wish goes first."""
    play = running(FIRST)
    assert play.hear(COMPACT) == [e.ContextQueued(COMPACT)]
    play.hear(ONE)
    assert play.tick(WINDOW) == [*accepted(ONE), queued(e.QueueReason.earlier_input_waiting, ONE)]


@pytest.mark.rule("A10", "A6")
def test_an_agent_that_cannot_compact_refuses_by_name_and_the_queue_goes_on() -> None:
    play = running(FIRST)
    play.hear(COMPACT)
    play.hear(BY_B)
    play.tick(WINDOW)
    refused = e.ControlRefused(COMPACT.id, A, e.Refusal.unavailable)
    assert play.end(T1) == [finished(T1), refused, turn_started(T2, BY_B)]


@pytest.mark.rule("A6")
def test_a_compaction_that_fails_is_told() -> None:
    play = able(idle())
    play.hear(COMPACT)
    assert play.tell(s.Compacted(COMPACT.id, "no luck")) == [e.ContextFailed(COMPACT.id, "no luck")]
    assert play.scratch.phase is Phase.idle


@pytest.mark.rule("A3", "A6")
def test_a_compaction_that_is_stopped_gives_its_agent_up_and_the_queue_goes_on() -> None:
    play = able(idle())
    play.hear(COMPACT)
    assert play.hear(stop(None)) == [e.ContextFailed(COMPACT.id, "User B stopped it.", B, "User B")]
    assert play.effects == [CloseConversation()]
    nothing = e.ControlRefused(InputId("stop_2"), B, e.Refusal.nothing_runs)
    assert play.hear(stop(None, id="stop_2")) == [nothing]
    assert play.tell(s.Compacted(COMPACT.id)) == []
    play.hear(BY_B)
    assert play.effects == [OpenConversation("native")]
    assert play.ready() == [e.ConversationOpened("native", ("steering",)), *accepted(BY_B), turn_started(T2, BY_B)]


@pytest.mark.rule("A3")
def test_a_stop_of_a_turn_that_is_over_stops_no_compaction() -> None:
    play = able(running(FIRST))
    play.end(T1)
    play.hear(COMPACT)
    assert play.hear(stop(T1)) == [e.ControlRefused(stop(T1).id, B, e.Refusal.nothing_runs)]
    assert play.scratch.phase is Phase.context


@pytest.mark.rule("I9")
def test_a_compaction_whose_agent_or_owner_dies_has_its_outcome_once() -> None:
    """I9.b."""
    play = able(idle())
    play.hear(COMPACT)
    assert play.tell(s.Died("exit 9")) == [e.ContextFailed(COMPACT.id, "exit 9")]
    assert play.tell(s.Compacted(COMPACT.id)) == []
    play = able(idle())
    play.hear(COMPACT)
    play.hear(wish(ContextAction.compact, 2))
    assert play.crash()[1] == e.ContextFailed(COMPACT.id, "The worker died meanwhile.")
    assert play.effects == [OpenConversation("native")]
    assert play.tell(s.ConversationReady("native", PARTS))[-1] == e.CompactRequested(InputId("compact_2"), A, "User A")


@pytest.mark.rule("S7")
def test_where_no_agent_opens_a_compaction_fails_and_a_clear_is_done() -> None:
    play = idle()
    play.tell(s.Rested())
    play.hear(COMPACT)
    play.hear(CLEAR)
    detail = "not here"
    assert play.tell(s.OpenFailed(e.FailReason.engine_unavailable, detail)) == [
        e.ConversationFailed(e.FailReason.engine_unavailable, detail),
        e.ContextFailed(COMPACT.id, detail),
        CLEARED,
    ]


@pytest.mark.rule("I6", "A7")
def test_a_fresh_context_is_told_nothing_of_what_was_cancelled_in_the_old_one() -> None:
    play = running(FIRST)
    play.steered(ONE)
    play.hear(stop(T1))
    play.end(T1, e.Outcome.interrupted, ONE)
    play.tell(s.Stopped(T1))
    assert play.state.cancelled == (ONE,)
    play.hear(CLEAR)
    assert fold(play.log).cancelled == ()
    play.hear(BY_B)
    assert play.effects == [OpenConversation(None)]
