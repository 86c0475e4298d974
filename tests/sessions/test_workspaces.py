"""Sessions in one folder: their agents work there one after the other, unless all may share it or have trees of their own."""

import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from amux import wiring
from amux.core import events as e
from amux.core.ids import InputId, Seq, SessionRef
from amux.core.inputs import Interrupt
from amux.core.launch import WorkspaceUse
from amux.ports import Draft, Session
from amux.runtime.receive import new_session_id
from tests.providers.conftest import eventually
from tests.sessions.conftest import A, Room, opened

pytestmark = [pytest.mark.real, pytest.mark.agent]


@pytest.fixture
async def room(env: dict[str, str]) -> AsyncIterator[Room]:
    """Its owners keep an idle agent for longer than a test takes."""
    async with opened({**env, "AMUX_LINGER": "600", "AMUX_SCRIPTED_SECONDS": "0.1"}) as room:
        yield room


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


async def begin(room: Room, folder: Path, text: str, use: WorkspaceUse = WorkspaceUse.alone) -> Session:
    """A new Session in that folder."""
    ref = SessionRef(room.settings.target, new_session_id())
    settings = replace(room.settings, workspace=folder, workspace_use=use)
    await room.parts.submit.launch(Draft(ref, wiring.launch_settings(settings, ref), "title"), room.said(text))
    session = await room.parts.sessions.find(str(ref))
    room.drive(session)
    return session


async def first(room: Room, session: Session, kind: type[e.Event]) -> float:
    """When it was written."""
    return next(
        r.at for r in await room.parts.timeline.read(session.key, Seq(0), limit=1_000) if isinstance(r.event, kind)
    )


async def stop(room: Room, session: Session) -> None:
    await room.say(session, Interrupt(InputId("cli:user_a:stop"), A, None))
    assert (await room.finished(session)).outcome is e.Outcome.interrupted


@pytest.mark.rule("S1", "T4")
async def test_a_session_waits_for_a_folder_in_which_another_works(room: Room, folder: Path) -> None:
    one = await begin(room, folder, "!say hello\n!hang")
    await room.seen(one, e.Item)
    two = await begin(room, folder, "!say I am two")
    await room.seen(two, e.ConversationOpening)
    await eventually(lambda: room.host.owners[one.key].hurried)  # it leaves when its Turn is over, and does not linger
    assert not any(isinstance(x, e.TurnStarted) for x in await room.log(two))
    await stop(room, one)
    three = await begin(room, folder, "!say I am three")  # comes while two opens
    assert await room.said_in(two, 1) == "I am two"
    assert await room.said_in(three, 1) == "I am three"
    assert await first(room, one, e.TurnFinished) <= await first(room, two, e.TurnStarted)
    await room.say(one, "!say I am one")
    assert await room.said_in(one, 2) == "I am one"


async def test_sessions_that_may_share_work_side_by_side(room: Room, folder: Path) -> None:
    one = await begin(room, folder, "!say hello\n!hang", WorkspaceUse.shared)
    await room.seen(one, e.Item)
    two = await begin(room, folder, "!say I am two", WorkspaceUse.shared)
    assert await room.said_in(two, 1) == "I am two"
    assert not room.host.owners[one.key].hurried
    await stop(room, one)


async def test_sessions_with_a_worktree_each_work_side_by_side(room: Room, folder: Path) -> None:
    commit = [
        "-c",
        "user.name=User A",
        "-c",
        "user.email=user.a@example.org",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "One",
    ]
    for command in (["init", "-q"], commit):
        subprocess.run(["git", "-C", str(folder), *command], check=True)  # noqa: ASYNC221
    one = await begin(room, folder, "!say hello\n!hang", WorkspaceUse.worktree)
    await room.seen(one, e.Item)
    two = await begin(room, folder, "!say I am two", WorkspaceUse.worktree)
    assert await room.said_in(two, 1) == "I am two"
    trees = [room.settings.home / "workspaces" / session.ref.id for session in (one, two)]
    assert [(tree / ".git").is_file() for tree in trees] == [True, True]
    await stop(room, one)


@pytest.mark.rule("S5")
async def test_a_folder_outside_of_the_roots_fails_its_message_by_name(
    env: dict[str, str], tmp_path: Path, folder: Path
) -> None:
    async with opened({**env, "AMUX_WORKSPACE_ROOTS": str(tmp_path / "elsewhere")}) as room:
        session = await begin(room, folder, "!say hello")
        failed = await room.seen(session, e.SubmissionFailed)
        assert failed.reason is e.FailReason.open_failed
        assert failed.detail.startswith(f"The workspace {folder} lies outside of {tmp_path / 'elsewhere'}, ")
