"""A whole Session's life on real parts: asleep, awake, started anew, archived, with the agent's own memory of it."""

from pathlib import Path

import pytest

from amux.core import events as e
from amux.core.ids import InputId
from amux.core.inputs import Action, ContextAction, ContextWish, Manage
from amux.ports import Session
from tests.sessions.conftest import B, Room, opened

pytestmark = [pytest.mark.real, pytest.mark.agent]


async def manage(room: Room, session: Session, action: Action) -> None:
    await room.say(session, Manage(InputId(f"{B}:{action}"), B, action, "User B"))


async def answer(room: Room, session: Session, turn: int) -> str:
    """What the agent said in that Turn."""
    assert (await room.finished(session, turn)).outcome is e.Outcome.completed
    said = [x for x in await room.log(session) if isinstance(x, e.Item) and x.turn == turn]
    return " ".join(x.text for x in said if x.type is e.ItemType.message)


@pytest.mark.rule("A4", "S4", "S10")
async def test_sleep_ends_the_process_and_the_next_message_finds_the_same_conversation(env: dict[str, str]) -> None:
    async with opened({**env, "AMUX_SCRIPTED_SECONDS": "0.1"}) as room:
        session = await room.begin("Hello")
        assert "I know 0 earlier messages." in await answer(room, session, 1)
        await manage(room, session, Action.sleep)
        await room.seen(session, e.SessionState, lambda state: state.label is e.Label.sleeping)
        await room.quiet(session)
        await room.say(session, "And now?")
        assert "I know 1 earlier message." in await answer(room, session, 2)


@pytest.mark.rule("A4")
async def test_resume_starts_the_process_and_no_turn(env: dict[str, str]) -> None:
    async with opened({**env, "AMUX_LINGER": "0"}) as room:
        session = await room.begin("!say hello")
        await room.seen(session, e.SessionState, lambda state: state.label is e.Label.sleeping)
        await manage(room, session, Action.resume)
        await room.seen(session, e.ActionRequested)
        await room.nth(session, e.ConversationOpened, 2)
        assert sum(isinstance(x, e.TurnStarted) for x in await room.log(session)) == 1


@pytest.mark.rule("A5", "S4", "S5", "T3")
async def test_a_restart_in_mid_turn(env: dict[str, str]) -> None:
    async with opened({**env, "AMUX_SCRIPTED_SECONDS": "0.1"}) as room:
        session = await room.begin("!say hello\n!hang")
        await room.seen(session, e.Item)
        (before, *_) = room.agents(session)
        await room.say(session, "What do you know?", by=B)
        await room.seen(session, e.InputQueued)
        await manage(room, session, Action.restart)
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        assert "I know 1 earlier message." in await answer(room, session, 2)
        assert before not in room.agents(session)


@pytest.mark.rule("A6", "A7", "A11", "I9", "S3")
async def test_compact_keeps_the_conversation_and_clear_gives_it_up(env: dict[str, str]) -> None:
    """A7.a: the same Session and Timeline, another conversation, and the workspace as it was."""
    async with opened({**env, "AMUX_SCRIPTED_SECONDS": "0.1"}) as room:
        session = await room.begin("Hello")
        await answer(room, session, 1)
        (workspace := Path(session.saved.workspace or "") / "kept").write_text("stays")
        await room.say(session, ContextWish(InputId(f"{B}:compact"), B, ContextAction.compact, "User B"))
        await room.seen(session, e.ContextCompacted)
        await room.say(session, "And now?")
        assert "I know 1 earlier message." in await answer(room, session, 2)
        await room.say(session, ContextWish(InputId(f"{B}:clear"), B, ContextAction.clear, "User B"))
        await room.seen(session, e.ContextCleared)
        await room.say(session, "Who am I?")
        assert "I know 0 earlier messages." in await answer(room, session, 3)
        first, second = [x.native_id for x in await room.log(session) if isinstance(x, e.ConversationOpened)]
        assert first != second
        assert workspace.read_text() == "stays"


@pytest.mark.rule("A8", "S10", "A11")
async def test_archive_leaves_no_process_and_takes_nothing_more(env: dict[str, str]) -> None:
    async with opened(env) as room:
        session = await room.begin("!say hello\n!hang")
        await room.seen(session, e.Item)
        await room.say(session, "waits", by=B)
        await room.seen(session, e.InputQueued)
        await manage(room, session, Action.archive)
        await room.seen(session, e.SessionState, lambda state: state.label is e.Label.archived)
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        cancelled = await room.seen(session, e.InputCancelled)
        assert cancelled.reason is e.CancelReason.archived
        await room.quiet(session)
        await room.say(session, "too late", by=B)
        failed = await room.seen(session, e.SubmissionFailed)
        assert (failed.reason, failed.detail) == (e.FailReason.archived, "This Session is archived.")
        row = await room.parts.sessions.find(str(session.ref))
        assert (row.label, row.open_turn) == (e.Label.archived, None)
