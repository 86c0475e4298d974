"""What a terminal is told of one event, where no test of the whole house comes by."""

import pytest

from amux.cli.screen import ANEW, Screen
from amux.core import events as e
from amux.core.ids import Seq, SessionId, SessionKey, SessionRef
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
