"""The watchdog: what counts as silence, what does not, and that each end comes once (T8, H40)."""

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import ItemId, RequestId
from amux.core.inputs import Verdict
from amux.core.signals import Signal, SteerAnswer
from amux.core.step import AnswerRequest, KillAgent, OpenConversation, Phase, StartTurn
from amux.core.watchdog import Limits, Watch
from tests.core.play import BY_B, FIRST, T1, T2, TWO, A, Play, accepted, answer, finished, ids, queued, running, stop

LIMITS = Limits(silence=60, turn=1_000, answer=300)
ASK = RequestId("ask_1")
ASKED = s.PermissionAsked(T1, ASK, "touch x")
SILENT, TOO_LONG = (s.TurnEnded(T1, e.Outcome.failed, reason) for reason in ("watchdog", "turn_limit"))


def tool(status: e.ItemStatus, kind: e.ItemType = e.ItemType.tool) -> s.ItemSeen:
    return s.ItemSeen(T1, ItemId("t"), kind, status)


STARTED, DONE, FAILED = map(tool, (e.ItemStatus.started, e.ItemStatus.completed, e.ItemStatus.failed))
WORD = s.DeltaSeen(T1, ItemId("m"), 0, "w")

SIGNS: dict[str, tuple[list[Signal], Watch]] = {
    "nothing": ([], Watch(T1, 0, 0)),
    "the clock": ([s.Tick()], Watch(T1, 0, 0)),
    "what another Turn said": ([replace(WORD, turn=T2)], Watch(T1, 0, 0)),
    "a word": ([WORD], Watch(T1, 0, 50)),
    "a steer that was taken": ([s.Steered(T1, ids(TWO), SteerAnswer.committed)], Watch(T1, 0, 50)),
    "a tool": ([STARTED], Watch(T1, 0, 50, frozenset({ItemId("t")}))),
    "a tool, to its end": ([STARTED, DONE], Watch(T1, 0, 50)),
    "a tool that failed": ([STARTED, WORD, FAILED], Watch(T1, 0, 50)),
    "reasoning, which is no tool": ([tool(e.ItemStatus.started, e.ItemType.reasoning)], Watch(T1, 0, 50)),
    "a question": ([ASKED], Watch(T1, 0, 50, asked=((ASK, 50),))),
    "a question, asked twice": ([ASKED, ASKED], Watch(T1, 0, 50, asked=((ASK, 50),))),
}


@pytest.mark.rule("T8")
@pytest.mark.parametrize(("signals", "watch"), SIGNS.values(), ids=SIGNS)
def test_a_sign_of_life(signals: list[Signal], watch: Watch) -> None:
    assert Watch(T1, 0, 0).hear(signals, 50) == watch


@pytest.fixture
def play() -> Play:
    """Turn 1 of User A runs, under limits."""
    play = running(FIRST)
    play.scratch = replace(play.scratch, limits=LIMITS)
    return play


def test_it_looks_again_when_the_next_limit_is_due(play: Play) -> None:
    began = play.now
    assert play.scratch.due(play.state) == began + 60
    play.tell(ASKED, after=10)
    assert play.scratch.due(play.state) == began + 10 + 300
    play.hear(answer(ASK), after=20)
    assert play.scratch.due(play.state) == began + 30 + 60
    play.tell(STARTED, after=1)
    assert play.scratch.due(play.state) == began + 1_000
    play.end(T1)
    assert play.scratch.due(play.state) is None


@pytest.mark.rule("T8")
def test_a_silent_agent_is_ended_once_and_its_prompt_is_not_sent_again(play: Play) -> None:
    """T8.a."""
    play.hear(BY_B)
    play.tick(2)
    assert (play.tick(57), play.effects) == ([], [])
    assert (play.tick(1), play.effects) == ([], [KillAgent(SILENT)])
    assert (play.tick(100), play.effects) == ([], [])
    assert play.tell(s.Died("watchdog", SILENT)) == [
        finished(T1, e.Outcome.failed, "watchdog"),
        e.ConversationOpening("codex", "native"),
    ]
    assert play.effects == [OpenConversation("native")]
    play.ready()
    (effect,) = play.effects
    assert isinstance(effect, StartTurn)
    assert effect.inputs == (BY_B,)


@pytest.mark.rule("T8")
@pytest.mark.parametrize("busy", [STARTED, ASKED], ids=["a tool runs", "a question waits"])
def test_what_is_no_silence(play: Play, busy: Signal) -> None:
    """T8.b."""
    play.tell(busy)
    assert (play.tick(299), play.effects) == ([], [])


@pytest.mark.rule("T8")
def test_a_turn_may_not_last_for_ever(play: Play) -> None:
    play.tell(STARTED)
    assert (play.tick(1_000), play.effects) == ([], [KillAgent(TOO_LONG)])


@pytest.mark.rule("T8", "I5")
def test_what_was_on_its_way_to_a_silent_agent_is_uncertain(play: Play) -> None:
    play.hear(TWO)
    play.tick(2)
    play.tick(60)
    assert play.tell(s.Died("watchdog", SILENT)) == [
        e.SubmissionFailed(ids(TWO), e.FailReason.uncertain),
        finished(T1, e.Outcome.failed, "watchdog"),
    ]


@pytest.mark.rule("T3", "T8")
def test_the_end_of_its_own_that_came_first_counts(play: Play) -> None:
    """T3.c."""
    play.tick(60)
    assert play.end(T1) == [finished(T1, e.Outcome.completed)]
    assert play.tell(s.Died("watchdog", SILENT)) == []
    assert play.scratch.phase is Phase.closed


@pytest.mark.rule("T3", "T8")
def test_an_interrupt_of_what_is_being_ended_is_refused(play: Play) -> None:
    """T3.c."""
    play.tick(60)
    said = stop(T1)
    assert play.hear(said) == [e.ControlRefused(said.id, said.by, e.Refusal.already_interrupting)]
    assert play.effects == []
    assert play.tell(s.Died("watchdog", SILENT)) == [finished(T1, e.Outcome.failed, "watchdog")]


@pytest.mark.rule("T8")
def test_a_question_that_nobody_answers_is_denied_and_a_late_answer_changes_nothing(play: Play) -> None:
    """T8.b: its expiry denies, never allows; and the agent has its usual while to go on."""
    play.tell(ASKED)
    assert play.tick(300) == [e.PermissionResolved(T1, ASK, e.Resolution.expired)]
    assert play.effects == [AnswerRequest(ASK, Verdict.deny)]
    late = answer(ASK)
    assert play.hear(late) == [e.ControlRefused(late.id, A, e.Refusal.stale)]
    assert (play.tick(59), play.effects) == ([], [])
    assert (play.tick(1), play.effects) == ([], [KillAgent(SILENT)])


@pytest.mark.rule("T8", "I3", "I4")
def test_what_comes_while_it_is_being_ended_is_neither_asked_nor_answered_nor_joined(play: Play) -> None:
    play.tell(STARTED, ASKED)
    ended = e.PermissionResolved(T1, ASK, e.Resolution.ended)
    play.scratch = replace(play.scratch, limits=Limits(turn=10))
    assert (play.tick(10), play.effects) == ([ended], [KillAgent(TOO_LONG)])
    late = answer(ASK)
    assert play.hear(late) == [e.ControlRefused(late.id, A, e.Refusal.stale)]
    assert play.tell(replace(ASKED, request=RequestId("ask_2"))) == []
    assert play.effects == [AnswerRequest(RequestId("ask_2"), Verdict.deny)]
    play.hear(TWO)
    assert play.tick(2) == [*accepted(TWO), queued(e.QueueReason.interrupting, TWO)]


@pytest.mark.rule("T8")
def test_a_question_that_the_agent_withdraws_is_closed_and_its_silence_counts_again(play: Play) -> None:
    play.tell(ASKED)
    withdrawn = s.PermissionWithdrawn(T1, ASK)
    assert play.tell(withdrawn, after=100) == [e.PermissionResolved(T1, ASK, e.Resolution.withdrawn)]
    assert play.tell(withdrawn) == []
    assert (play.tick(60), play.effects) == ([], [KillAgent(SILENT)])
