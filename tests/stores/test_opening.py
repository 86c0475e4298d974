"""A new owner folds the Timeline from its last checkpoint, whatever that is worth, and old code takes nothing."""

import asyncio
from typing import LiteralString

import psycopg
import pytest

from amux.core import codec
from amux.core.errors import Broken, Refused, Stale
from amux.core.events import Cause, Delta, Event, Outcome, TurnFinished, TurnStarted
from amux.core.ids import ItemId, Seq, SessionKey, TurnId
from amux.core.session import State, fold
from amux.ports import Append, Fence, OpenedTimeline
from amux.stores import timeline
from tests.conformance.sides import Side, real_process
from tests.fakes import World

pytestmark = pytest.mark.real
TURN = (TurnStarted(TurnId(1), (), Cause.input), TurnFinished(TurnId(1), Outcome.completed))
NEXT = TurnStarted(TurnId(2), (), Cause.input)


async def opened(side: Side, key: SessionKey, token: str = "a|1") -> OpenedTimeline:
    answer = await side.a.timeline.open(key, token, worker="a", young=False)
    assert answer
    return answer


async def lived(side: Side, *steps: tuple[Event, ...]) -> tuple[SessionKey, State]:
    """A Session with these appends behind it, and the state its owner had."""
    key = await side.session()
    owner = await opened(side, key)
    fence, state = owner.fence, owner.state
    for events in steps:
        state = fold(events, state)
        fence = await side.a.timeline.append(key, fence, Append(events, state))
    return key, state


async def checkpoint(url: str, key: SessionKey) -> tuple[int, int] | None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        found = await db.execute("select seq, version from checkpoints where session = %s", (key,))
        return await found.fetchone()


@pytest.mark.rule("T1")
async def test_state_is_the_fold_from_the_checkpoint_on(side: Side, postgres_url: str) -> None:
    key, state = await lived(side, TURN, (NEXT,))
    assert await checkpoint(postgres_url, key) == (2, codec.CHECKPOINT)
    assert (await opened(side, key, "b|2")).state == state == fold([*TURN, NEXT])


async def test_a_long_turn_has_checkpoints_too(side: Side, postgres_url: str) -> None:
    deltas = tuple(Delta(TurnId(1), ItemId("m"), n, "x") for n in range(999))
    key, state = await lived(side, TURN[:1], deltas, deltas[:1])
    assert await checkpoint(postgres_url, key) == (1_000, codec.CHECKPOINT)
    assert (await opened(side, key, "b|2")).state == state


@pytest.mark.parametrize(
    "spoil",
    [
        'update checkpoints set version = 99, state = \'{"no": "sense"}\' where session = %s',
        "update checkpoints set state = '{\"label\": 7}' where session = %s",
        "delete from checkpoints where session = %s",
    ],
)
async def test_a_checkpoint_that_cannot_be_read_is_folded_anew(
    side: Side, postgres_url: str, spoil: LiteralString
) -> None:
    key, state = await lived(side, TURN, (NEXT,))
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as db:
        await db.execute(spoil, (key,))
    assert (await opened(side, key, "b|2")).state == state


async def test_many_open_at_once_each_its_own(side: Side) -> None:
    lives = [await lived(side, TURN) if n % 2 else await lived(side) for n in range(12)]
    answers = await asyncio.gather(*(opened(side, key, f"b|{n}") for n, (key, _) in enumerate(lives)))
    assert [(a.session.key, a.fence.token, a.state) for a in answers] == [
        (key, f"b|{n}", state) for n, (key, state) in enumerate(lives)
    ]
    assert [a.fence.head for a in answers] == [Seq(2) if n % 2 else Seq(0) for n in range(12)]


async def test_of_two_who_open_one_session_at_once_one_may_write(side: Side) -> None:
    key = await side.session()
    both = await asyncio.gather(*(side.a.timeline.open(key, f"a|{n}", worker="a", young=False) for n in range(2)))
    fences = [owner.fence for owner in both if owner]
    writes = (side.a.timeline.append(key, fence, Append(TURN, fold(TURN))) for fence in fences)
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(answer) for answer in answers if not isinstance(answer, Stale)] == [Fence]


async def test_code_that_is_too_old_takes_nothing(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "CODE", "0.10")
    async with real_process(fresh_database, redis_url, "a") as process:
        side = Side(process, process, World().wipe_redis, asyncio.sleep)  # type: ignore[arg-type]
        key = await side.session()
        async with await psycopg.AsyncConnection.connect(fresh_database, autocommit=True) as db:
            await db.execute("update schema set oldest_code = '0.11'")
            with pytest.raises(Refused, match="update this machine"):
                await process.timeline.open(key, "a|1", worker="a", young=False)
            await db.execute("update schema set oldest_code = '0.9'")  # older than 0.10, whatever the letters say
            assert await process.timeline.open(key, "a|1", worker="a", young=False)
            await db.execute("drop table schema")
            with pytest.raises(Broken):
                await process.timeline.open(key, "a|1", worker="a", young=False)
