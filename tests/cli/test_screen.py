"""What a terminal is told of one event, where no test of the whole house comes by."""

import pytest

from amux.cli.screen import ANEW, Screen
from amux.core import events as e
from amux.core.ids import InputId, Principal, Seq, SessionId, SessionKey, SessionRef, TurnId
from amux.core.inputs import Action
from amux.core.launch import Record, Saved
from amux.ports import Recorded, Session

SESSION = Session(
    SessionKey(1), SessionRef("local", SessionId("7k3m")), Record(), Saved(), e.Label.idle, Seq(0), None, None, ""
)


@pytest.mark.rule("S8", "A5")
@pytest.mark.parametrize("fresh", [None, *e.Fresh])
def test_a_conversation_that_begins_anew_says_why(fresh: e.Fresh | None, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(SESSION).show(Recorded(Seq(1), 0.0, e.ConversationOpening("codex", None, fresh)))
    told = capsys.readouterr().out
    assert told.partition(" ")[2] == (
        f"begins anew: {ANEW[fresh]}; the agent is told what amux has of it\n" if fresh else ""
    )


A = Principal("cli:user_a")
LINES: dict[str, tuple[e.Event, str]] = {
    "asked": (e.ActionRequested(Action.restart, A, "User A"), "User A asked for: restart"),
    "asleep": (e.SessionState(e.Label.sleeping), "sleeping"),
    "not started": (e.ConversationFailed(e.FailReason.open_failed, "no luck"), "✗ the agent did not start: no luck"),
    "compacted": (e.ContextCompacted(InputId("c")), "✓ the agent has summarised its context"),
    "not compacted": (e.ContextFailed(InputId("c"), "no luck"), "✗ the context was not summarised: no luck"),
    "cleared": (
        e.ContextCleared(InputId("c"), A, "User\x1b A"),
        "✓ context cleared by User A; finished steps stay",
    ),
    "withdrawn": (
        e.InputCancelled((InputId("i"),), e.CancelReason.withdrawn, A, "User A"),
        "✗ withdrawn by User A",
    ),
    "interrupted": (
        e.InputCancelled((InputId("i"),), e.CancelReason.interrupted),
        "✗ cancelled with the interrupted Turn",
    ),
    "archived": (e.InputCancelled((InputId("i"),), e.CancelReason.archived), "✗ cancelled with the Session"),
    "put first": (e.InputPreferred((InputId("i"),), A, "User A"), "⋯ put first by User A"),
    "silent": (
        e.TurnFinished(TurnId(1), e.Outcome.failed, "watchdog"),
        "✗ Turn 1 failed: the agent gave no sign of life for too long; its processes are gone",
    ),
    "too long": (
        e.TurnFinished(TurnId(1), e.Outcome.failed, "turn_limit"),
        "✗ Turn 1 failed: the Turn took longer than is allowed here; its processes are gone",
    ),
}


@pytest.mark.rule("T8", "A4", "A5", "A6", "A7", "A8")
@pytest.mark.parametrize(("event", "line"), LINES.values(), ids=LINES)
def test_what_happens_to_a_session_is_one_line(event: e.Event, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(SESSION).show(Recorded(Seq(1), 0.0, event))
    assert capsys.readouterr().out.strip() == line
