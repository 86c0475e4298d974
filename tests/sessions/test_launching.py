"""What a Session is woken on, with real rows, real Packs and a real agent: its own record, whatever became of the rest."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from amux import wiring
from amux.core import events as e
from amux.core.errors import Refused
from amux.core.ids import InputId, SessionRef, TurnId
from amux.core.inputs import Action, Manage, Permission
from amux.core.launch import NOTHING_ASKED, Asked, Record
from amux.ports import Draft, Session
from amux.runtime.receive import new_session_id
from tests.providers.conftest import eventually
from tests.sessions.conftest import A, Room, opened

pytestmark = pytest.mark.real


@pytest.fixture
async def room(env: dict[str, str]) -> AsyncIterator[Room]:
    """Its owners let go as soon as nothing is left to do."""
    async with opened({**env, "AMUX_LINGER": "0"}) as room:
        yield room


OWL = '+++\ntitle = "An owl"\n+++\nAnswer like an owl.\n'


async def launch(room: Room, text: str, *, expert: str | None = None, asked: Asked = NOTHING_ASKED) -> Session:
    """A new Session, as an entrance makes it."""
    ref = SessionRef(room.settings.target, new_session_id())
    settings = wiring.launch_settings(room.settings, ref, asked, expert=expert)
    await room.parts.submit.launch(Draft(ref, settings, "title"), room.said(text))
    session = await room.parts.sessions.find(str(ref))
    room.drive(session)
    return session


async def manage(room: Room, session: Session, action: Action) -> None:
    number = len(await room.log(session))
    await room.say(session, Manage(InputId(f"cli:user_a:{session.ref.id}-{action}-{number}"), A, action))
    await room.seen(session, e.ActionRequested, lambda event: event.action is action)


async def asleep(room: Room, session: Session) -> None:
    """Nobody owns it, so the next one to open it has nothing but its row and its Timeline."""
    await eventually(lambda: session.key not in room.host.owners)
    found = await room.parts.sessions.find(str(session.ref))
    assert (found.owner, found.label) == (None, e.Label.sleeping)


async def thoughts(room: Room, session: Session, turn: int) -> list[str]:
    """What the agent was told besides people's words: it thinks it over."""
    items = [x for x in await room.log(session) if isinstance(x, e.Item) and x.type is e.ItemType.reasoning]
    return list(dict.fromkeys(x.text for x in items if x.turn == turn and x.text))


def forget(room: Room, session: Session, *names: str) -> None:
    """These settings are gone from record and snapshot."""
    assert room.settings.postgres_url
    with psycopg.connect(room.settings.postgres_url) as connection:
        (row,) = connection.execute("select snapshot from sessions where key = %s", (session.key,))
        left = json.dumps({name: value for name, value in json.loads(row[0]).items() if name not in names})
        connection.execute("update sessions set snapshot = %s where key = %s", (left, session.key))
        for column in {"profile", "engine"} & {*names}:
            connection.execute(f"update sessions set {column} = null where key = %s", (session.key,))


@pytest.mark.rule("S2", "S5")
async def test_a_session_outlives_the_pack_of_its_expert(room: Room) -> None:
    pack = room.settings.home / "packs" / "team"
    pack.mkdir(parents=True)
    (pack / "owl.md").write_text(OWL)
    session = await launch(room, "!say one", expert="team/owl")
    await room.finished(session, 1)
    (pack / "owl.md").write_text(OWL.replace("an owl.", "a cat."))
    await manage(room, session, Action.restart)
    await room.say(session, "!say two")
    await room.finished(session, 2)
    (pack / "owl.md").unlink()
    await asleep(room, session)
    await room.say(session, "!say three")
    await room.finished(session, 3)
    assert [await thoughts(room, session, n) for n in (1, 2, 3)] == [["Answer like an owl."]] * 3
    with pytest.raises(Refused, match="There is no expert team/owl"):
        await launch(room, "!say four", expert="team/owl")


@pytest.mark.rule("S2", "S5")
async def test_a_session_keeps_its_variables_whatever_its_expert_names_today(env: dict[str, str]) -> None:
    """Names stand in its row and values nowhere: each process has what the worker has then."""
    worker = {**env, "AMUX_LINGER": "0", "OWL_TOKEN": "a-value-of-the-worker"}
    async with opened(worker) as room:
        pack = room.settings.home / "packs" / "team"
        pack.mkdir(parents=True)
        (pack / "owl.toml").write_text('environment = ["OWL_TOKEN"]\n')
        session = await launch(room, "!say one", expert="team/owl")
        await room.finished(session, 1)
        (pack / "owl.toml").write_text('environment = ["GONE"]\n')
        await manage(room, session, Action.restart)
        await room.say(session, "!say two")
        await room.finished(session, 2)
        await asleep(room, session)
        (pack / "owl.toml").unlink()
        del worker["OWL_TOKEN"]
        await room.say(session, "!say three")
        failed = await room.seen(session, e.SubmissionFailed)
        assert failed.detail.startswith("This Session is given OWL_TOKEN, which the worker does not have.")
        found = await room.parts.sessions.find(str(session.ref))
        assert found.saved.environment == ("OWL_TOKEN",)
        assert "a-value-of-the-worker" not in repr((found, await room.log(session)))


@pytest.mark.rule("A10")
async def test_an_expert_with_servers_does_not_run_without_them(room: Room) -> None:
    pack = room.settings.home / "packs" / "team"
    pack.mkdir(parents=True)
    (pack / "owl.toml").write_text('[mcp.owl]\ncommand = ["owl"]\n')
    session = await launch(room, "!say one", expert="team/owl")
    failed = await room.seen(session, e.SubmissionFailed)
    assert failed.detail.startswith("This Session has MCP servers (owl), which scripted gives no agent.")


@pytest.mark.rule("S2")
async def test_sessions_of_one_expert_are_nothing_to_each_other(room: Room) -> None:
    one, other = [await launch(room, "!say hello") for _ in range(2)]
    for session in (one, other):
        await room.finished(session, 1)
        await asleep(room, session)
    before = await room.log(other)
    await manage(room, one, Action.archive)
    await room.seen(one, e.SessionState, lambda event: event.label is e.Label.archived)
    assert await room.log(other) == before
    await room.say(other, "!say again")
    await room.finished(other, 2)


@pytest.mark.rule("S5", "S9", "S1")
async def test_what_was_asked_for_is_recorded_and_stays(room: Room) -> None:
    asked = Asked("scripted", "m1", "high", Permission.ask)
    session = await launch(room, "!say one", asked=asked)
    await room.finished(session, 1)
    await manage(room, session, Action.restart)
    await room.say(session, "!say two")
    await room.finished(session, 2)
    await asleep(room, session)
    await manage(room, session, Action.resume)
    await room.say(session, "!say three")
    await room.finished(session, 3)
    found = await room.parts.sessions.find(str(session.ref))
    assert (found.record, found.saved) == (session.record, session.saved)
    assert (found.saved.model, found.saved.effort, found.saved.permission) == ("m1", "high", Permission.ask)


@pytest.mark.rule("S8", "S3")
async def test_an_engine_lost_from_both_begins_anew_once(room: Room) -> None:
    session = await launch(room, "!say I shall remember 17.")
    await room.finished(session, 1)
    await asleep(room, session)
    forget(room, session, "engine")
    await room.say(session, "!say two")
    await room.finished(session, 2)
    await asleep(room, session)
    await room.say(session, "!say three")
    await room.finished(session, 3)

    opened = [x.native_id for x in await room.log(session) if isinstance(x, e.ConversationOpened)]
    assert opened == [opened[0], opened[1], opened[1]]
    assert opened[0] != opened[1]
    (told,) = await thoughts(room, session, 2)
    assert "> The agent answered: I shall remember 17." in told
    assert await thoughts(room, session, 3) == []
    found = await room.parts.sessions.find(str(session.ref))
    assert found.record == Record("builtin/default", "scripted")


@pytest.mark.rule("A5", "S8")
async def test_a_history_that_was_deleted_begins_anew_with_a_handoff(room: Room) -> None:
    session = await launch(room, "!say I shall remember 17.")
    await room.finished(session, 1)
    await asleep(room, session)
    home = Path(room.settings.home, "sessions", session.ref.target, session.ref.id)
    for file in home.rglob("*.jsonl"):
        file.unlink()
    await room.say(session, "!say two")
    await room.finished(session, 2)
    (told,) = await thoughts(room, session, 2)
    assert "because the agent's own record of it is gone" in told
    assert "I shall remember 17." in told
    gone = [x.fresh for x in await room.log(session) if isinstance(x, e.ConversationOpening)]
    assert gone == [None, None, e.Fresh.history_gone]


@pytest.mark.rule("S3")
async def test_a_native_id_is_no_address(room: Room) -> None:
    session = await launch(room, "!say one")
    native = (await room.seen(session, e.ConversationOpened)).native_id
    await room.finished(session, 1)
    with pytest.raises(Refused, match="no such Session"):
        await room.parts.sessions.find(native)
    assert TurnId(1) == (await room.finished(session, 1)).turn
