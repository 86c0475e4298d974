"""The machine, case by case: what the provider shows, opening and rest. Any order of it all is the Heart's."""

import pytest

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import Epoch, ItemId
from amux.core.step import OpenConversation
from tests.core.play import (
    BY_B,
    FIRST,
    ONE,
    T1,
    T2,
    T3,
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
)


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs."""
    return running(FIRST)


# -- what the provider shows -------------------------------------------------------------------------------------------


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


# -- opening and rest --------------------------------------------------------------------------------------------------


@pytest.mark.rule("S7")
def test_an_agent_that_does_not_open_fails_what_waits_and_the_next_input_tries_anew() -> None:
    play = Play()
    play.crash()
    assert play.hear(ONE, BY_B) == [e.OwnerOpened(Epoch(1), "w1"), e.ConversationOpening("codex", None)]
    missing = (e.FailReason.engine_unavailable, "not here")
    assert play.tell(s.OpenFailed(*missing)) == [
        e.ConversationFailed(*missing),
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


@pytest.mark.rule("D2")
def test_an_owner_that_leaves_begins_nothing_more(play: Play) -> None:
    """Turn 1 goes on to its end; what waits then, or is said then, is another's to begin."""
    play.hear(BY_B)
    play.tick(WINDOW)
    assert play.tell(s.Leaving()) == []
    assert not play.scratch.at_rest(play.state)
    assert play.end(T1) == [finished(T1)]
    assert play.hear(ONE) == [*accepted(ONE), queued(e.QueueReason.no_running_turn, ONE)]
    assert play.scratch.at_rest(play.state)
    assert play.tell(s.Rested()) == []
    assert play.crash() == [e.OwnerOpened(Epoch(2), "w2"), e.ConversationOpening("codex", "native")]


@pytest.mark.rule("D2")
def test_an_owner_that_leaves_signs_off_where_nothing_waits(play: Play) -> None:
    play.tell(s.Leaving())
    play.end(T1)
    assert play.scratch.at_rest(play.state)
    assert play.tell(s.Rested()) == [e.SessionState(e.Label.sleeping)]


@pytest.mark.rule("D2")
def test_what_is_said_to_an_idle_owner_that_leaves_waits_for_the_next() -> None:
    play = idle()
    play.tell(s.Leaving())
    assert play.hear(ONE) == [*accepted(ONE), queued(e.QueueReason.no_running_turn, ONE)]
    assert play.scratch.at_rest(play.state)
    play.crash()
    assert play.ready()[-1] == started(T2, ONE)
