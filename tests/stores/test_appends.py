"""What the append does when Postgres misbehaves: exactly once, and each Session for itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString

import psycopg
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from amux.core.errors import Broken, Stale, Unavailable
from amux.core.events import (
    Cause,
    ConversationOpening,
    Event,
    Fresh,
    InputAccepted,
    Item,
    ItemStatus,
    ItemType,
    Outcome,
    TurnFinished,
    TurnStarted,
)
from amux.core.ids import Epoch, ItemId, Seq, SessionKey, TurnId
from amux.core.launch import Record, Saved
from amux.core.session import State, fold
from amux.ports import Append, Fence, OpenedTimeline
from amux.stores import postgres
from tests.conformance.sides import Process, Side, real_process, until
from tests.stores.conftest import Far

pytestmark = pytest.mark.real
OPENING = ConversationOpening("e2", None, Fresh.engine_lost)
STARTED = TurnStarted(TurnId(1), (), Cause.input)
FINISHED = TurnFinished(TurnId(1), Outcome.completed)


def step(state: State, *events: Event) -> Append:
    return Append(events, fold(events, state))


def item(text: str) -> Item:
    return Item(TurnId(1), ItemId("m"), ItemType.message, ItemStatus.completed, text=text)


async def opened(process: Process, key: SessionKey, token: str = "a|1") -> OpenedTimeline:
    answer = await process.timeline.open(key, token, worker="a", young=False)
    assert answer
    return answer


async def owned(side: Side, process: Process, many: int) -> list[OpenedTimeline]:
    """So many Sessions with that process as their owner."""
    return [await opened(process, await side.session()) for _ in range(many)]


async def events(side: Side, key: SessionKey) -> list[Event]:
    return [r.event for r in await side.a.timeline.read(key, Seq(0), limit=10_000)]


@asynccontextmanager
async def by_hand(url: str, statement: LiteralString, *parameters: object) -> AsyncIterator[psycopg.AsyncConnection]:
    """A client that leaves its transaction open after this statement."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(statement, parameters)
        yield connection
        await connection.rollback()


async def append_all(process: Process, owners: list[OpenedTimeline], *events: Event) -> list[Fence | BaseException]:
    return await asyncio.gather(
        *(process.timeline.append(o.session.key, o.fence, step(o.state, *events)) for o in owners),
        return_exceptions=True,
    )


@pytest.mark.rule("T1")
async def test_a_lost_answer_doubles_nothing(side: Side, far: Far) -> None:
    journaled = await side.launch()
    owner = await opened(far.process, journaled.session)
    said = journaled.said
    live = side.b.nudges.follow(journaled.session)
    await anext(live)
    far.postgres.swallow()
    both = (InputAccepted(said), STARTED)  # type: ignore[arg-type]
    accept = Append(both, fold(both), ((said.id, 1),))
    fence = await far.process.timeline.append(journaled.session, owner.fence, accept)
    assert fence == replace(owner.fence, head=Seq(2))
    assert await events(side, journaled.session) == list(both)
    async with asyncio.timeout(5):
        grown = await anext(live)
    assert list(grown) == list(await side.a.timeline.read(journaled.session, Seq(0), limit=9))
    await far.process.timeline.append(journaled.session, fence, step(accept.state, FINISHED))
    await live.aclose()


async def test_a_lost_answer_of_a_group_doubles_nothing(side: Side, far: Far) -> None:
    owners = await owned(side, far.process, 6)
    far.postgres.swallow(2)  # both lanes
    answers = await append_all(far.process, owners, STARTED)
    assert answers == [replace(o.fence, head=Seq(1)) for o in owners]
    assert [await events(side, o.session.key) for o in owners] == [[STARTED]] * 6


async def test_a_lost_answer_after_a_new_owner_is_stale(side: Side, far: Far) -> None:
    """The head moved, but not by us: an epoch that came back after a failover, with another token (H2)."""
    key = await side.session()
    owner = await opened(far.process, key)
    await side.a.timeline.append(key, owner.fence, step(owner.state, STARTED))
    await side.b.timeline.open(key, "b|2", worker="b", young=False)
    with pytest.raises(Stale):
        await far.process.timeline.append(key, owner.fence, step(owner.state, STARTED))
    with pytest.raises(Stale):
        await side.b.timeline.append(key, Fence(Epoch(2), "a|1", Seq(1)), step(owner.state, FINISHED))
    assert await events(side, key) == [STARTED]


async def test_one_stale_session_of_ten_fails_alone(side: Side) -> None:
    owners = await owned(side, side.a, 10)
    await opened(side.b, owners[4].session.key, "b|2")
    answers = await append_all(side.a, owners, STARTED)
    assert isinstance(answers.pop(4), Stale)
    assert all(isinstance(answer, Fence) for answer in answers)


async def test_poison_in_a_group_of_ten_spoils_itself_alone(side: Side) -> None:
    owners = await owned(side, side.a, 10)
    first = await append_all(side.a, owners, STARTED, FINISHED)
    owners = [replace(o, fence=fence) for o, fence in zip(owners, first, strict=True) if isinstance(fence, Fence)]
    steps = [step(o.state, item("fine")) for o in owners]
    steps[3] = step(owners[3].state, FINISHED)  # a second end: the unique index refuses the whole statement
    steps[7] = replace(steps[7], state=structs.replace(steps[7].state, native_id="\ud800"))  # no client can send this
    answers = await asyncio.gather(
        *(side.a.timeline.append(o.session.key, o.fence, s) for o, s in zip(owners, steps, strict=True)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [Broken if n in (3, 7) else Fence for n in range(10)]
    assert [len(await events(side, o.session.key)) for o in owners] == [2 if n in (3, 7) else 3 for n in range(10)]


IDENTITY = "update sessions set profile = %s, engine = %s where key = %s"


@pytest.mark.rule("S6", "S8")
@pytest.mark.parametrize(
    ("had", "has"),
    [((None, None), ("p2", "e2")), (("p1", None), ("p1", "e2")), ((None, "e1"), ("p2", "e1")), (("p1", "e1"),) * 2],
)
async def test_an_identity_is_written_where_there_is_none(
    side: Side, postgres_url: str, had: tuple[str | None, str | None], has: tuple[str, str]
) -> None:
    key = await side.session()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute(IDENTITY, (*had, key))
    owner = await opened(side.a, key)
    assert owner.session.record == Record(*had)
    settled = replace(step(owner.state, OPENING), record=Record("p2", "e2"))
    fence = await side.a.timeline.append(key, owner.fence, settled)
    assert (await opened(side.b, key, "b|2")).session.record == Record(*has)
    with pytest.raises(Stale):
        await side.a.timeline.append(key, fence, replace(settled, record=Record("p3", "e3")))
    after = await opened(side.b, key, "b|3")
    assert (after.session.record, after.state.native_id) == (Record(*has), None)
    assert await events(side, key) == [OPENING]


@pytest.mark.rule("S8")
async def test_an_identity_whose_answer_is_lost_is_written_once(side: Side, far: Far, postgres_url: str) -> None:
    key = await side.session()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute(IDENTITY, (None, None, key))
    owner = await opened(far.process, key)
    far.postgres.swallow()
    settled = replace(step(owner.state, OPENING), record=Record("p2", "e2"))
    assert await far.process.timeline.append(key, owner.fence, settled) == replace(owner.fence, head=Seq(1))
    assert (await opened(side.b, key, "b|2")).session.record == Record("p2", "e2")
    assert await events(side, key) == [OPENING]


SNAPSHOTS: dict[str, tuple[str, Saved]] = {
    "nothing": ("{}", Saved()),
    "no JSON": ('{"engine": "e', Saved()),
    "no object": ("[1]", Saved()),
    "a setting of another release": (
        '{"engine":"e1","workspace":"/w","permission":"perhaps","model":7,"environment":["A"],"mcp":[{"name":7}],"more":[]}',
        Saved(engine="e1", workspace="/w", environment=("A",)),
    ),
}


@pytest.mark.rule("S6")
@pytest.mark.parametrize(("snapshot", "left"), SNAPSHOTS.values(), ids=SNAPSHOTS)
async def test_what_cannot_be_read_of_a_snapshot_is_lost_and_costs_nobody_else(
    side: Side, postgres_url: str, snapshot: str, left: Saved
) -> None:
    keys = [await side.session() for _ in range(3)]
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute("update sessions set snapshot = %s where key = %s", (snapshot, keys[1]))
    owners = await asyncio.gather(*(opened(side.a, key) for key in keys))
    assert owners[1].session.saved == left
    assert [owner.session.saved.workspace for owner in (owners[0], owners[2])] == ["/work"] * 2
    listed = await side.b.sessions.list(label=None, target=None, limit=9)
    assert {*keys} <= {session.key for session in listed}


async def test_a_state_that_cannot_be_kept_is_broken(side: Side) -> None:
    (owner,) = await owned(side, side.a, 1)
    bad = replace(step(owner.state, STARTED, FINISHED), state=State(native_id="\ud800"))
    with pytest.raises(Broken):
        await side.a.timeline.append(owner.session.key, owner.fence, bad)
    assert await events(side, owner.session.key) == []


async def test_a_row_locked_by_hand_holds_up_nobody_else(
    side: Side, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "OPTIONS", f"{postgres.OPTIONS} -c lock_timeout=100")
    async with real_process(postgres_url, redis_url, "a", patience=30) as process:
        owners = await owned(side, process, 10)
        locked, others = owners[2], owners[:2] + owners[3:]
        with capture_logs() as lines:
            async with by_hand(
                postgres_url, "select from sessions where key = %s for update", locked.session.key
            ) as hand:
                waiting = asyncio.create_task(append_all(process, [locked], STARTED))
                for _ in range(40):
                    fences = await append_all(process, others, item("more"))
                    others = [replace(o, fence=f) for o, f in zip(others, fences, strict=True) if isinstance(f, Fence)]
                    await asyncio.wait([waiting], timeout=0.02)
                assert (len(others), waiting.done()) == (9, False)
                await hand.rollback()
            assert await waiting == [replace(locked.fence, head=Seq(1))]
    groups = [line for line in lines if line["event"] == "append_failed"]
    assert len(groups) == 1  # once found, it is kept out of the groups: nobody waits for it again


async def test_two_processes_that_lock_crosswise_both_finish(side: Side) -> None:
    owners = await owned(side, side.a, 12)
    turned = [
        replace(o, fence=replace(o.fence, token="b|0")) for o in reversed(owners)
    ]  # stale, and locking the same rows
    mine, theirs = await asyncio.gather(append_all(side.a, owners, STARTED), append_all(side.b, turned, STARTED))
    assert all(isinstance(answer, Fence) for answer in mine)
    assert all(isinstance(answer, Stale) for answer in theirs)


async def test_postgres_away_for_a_moment_costs_only_time(side: Side, far: Far) -> None:
    owners = await owned(side, far.process, 4)
    far.postgres.go_away()
    waiting = asyncio.create_task(append_all(far.process, owners, STARTED))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    far.postgres.away = False
    assert await waiting == [replace(o.fence, head=Seq(1)) for o in owners]


async def test_postgres_away_for_long_is_unavailable(side: Side, far: Far) -> None:
    (owner,) = await owned(side, far.process, 1)
    far.postgres.go_away()
    (answer,) = await append_all(far.process, [owner], STARTED)
    assert isinstance(answer, Unavailable)
    far.postgres.away = False
    assert await append_all(far.process, [owner], STARTED) == [replace(owner.fence, head=Seq(1))]


async def test_an_unavailable_append_that_was_written_is_found(side: Side, far: Far) -> None:
    """Its answer was lost and Postgres stayed away: the owner kept the events and asks again later."""
    (owner,) = await owned(side, far.process, 1)
    await side.a.timeline.append(owner.session.key, owner.fence, step(owner.state, STARTED))
    assert await append_all(far.process, [owner], STARTED) == [replace(owner.fence, head=Seq(1))]
    assert await events(side, owner.session.key) == [STARTED]


@asynccontextmanager
async def full_disk(url: str, table: LiteralString) -> AsyncIterator[None]:
    """Every insert into that table fails as on a full disk."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "create function full_disk() returns trigger language plpgsql as "
            "$$ begin raise exception 'no space left on device' using errcode = '53100'; end $$"
        )
        await connection.execute(f"create trigger full_disk before insert on {table} execute function full_disk()")
        try:
            yield
        finally:
            await connection.execute("drop function full_disk cascade")


async def test_a_full_disk_costs_time_and_then_nothing(side: Side, postgres_url: str) -> None:
    owners = await owned(side, side.a, 3)
    async with full_disk(postgres_url, "timeline"):
        waiting = asyncio.create_task(append_all(side.a, owners, STARTED))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
    assert await waiting == [replace(o.fence, head=Seq(1)) for o in owners]


async def test_a_journal_that_is_full_refuses_at_once(side: Side, postgres_url: str) -> None:
    key = await side.session()
    async with full_disk(postgres_url, "inputs"):
        with pytest.raises(Unavailable, match="nothing was taken"):
            await side.a.inputs.journal(key, said := side.said())
        with pytest.raises(Unavailable, match="nothing was taken"):
            await side.launch(side.said())
    assert (await side.a.inputs.journal(key, said)).fresh


async def test_an_accepted_input_keeps_its_id_and_loses_its_text(side: Side, postgres_url: str) -> None:
    journaled = await side.launch(side.said("a secret"))
    owner = await opened(side.a, journaled.session)
    accepted = (InputAccepted(journaled.said),)  # type: ignore[arg-type]
    one = Append((STARTED, *accepted), fold(accepted), ((journaled.said.id, 2),))
    await side.a.timeline.append(journaled.session, owner.fence, one)
    async with await psycopg.AsyncConnection.connect(postgres_url) as db:
        query = "select payload, accepted_seq from inputs where input_id = %s"
        assert await (await db.execute(query, (journaled.said.id,))).fetchone() == (None, 2)


async def test_an_appended_row_stays_where_its_index_points(side: Side, postgres_url: str) -> None:
    """Appends are HOT updates (H19)."""
    (owner,) = await owned(side, side.a, 1)
    key, fence, state = owner.session.key, owner.fence, owner.state
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as db:
        before = await _updates(db)
        for turn in range(1, 41):
            one = step(state, TurnStarted(TurnId(turn), (), Cause.input), TurnFinished(TurnId(turn), Outcome.completed))
            fence, state = await side.a.timeline.append(key, fence, one), one.state
        await side.a.postgres.close()  # type: ignore[attr-defined]  # a backend reports its figures as it ends

        async def reported() -> bool:
            return (await _updates(db))[0] - before[0] >= 40

        await until(reported)
        after = await _updates(db)
    assert after[1] - before[1] >= 0.9 * (after[0] - before[0])


async def _updates(db: psycopg.AsyncConnection) -> tuple[int, int]:
    await db.execute("select pg_stat_clear_snapshot()")
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'sessions'"
    row = await (await db.execute(query)).fetchone()
    assert row
    return row[0], row[1]
