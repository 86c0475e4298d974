"""Leases kept: by Redis, else by Postgres, else not at all; and never longer than was asked for."""

from dataclasses import dataclass, field

import pytest

from amux.core.ids import SessionKey
from amux.runtime.keeper import NEW_STREAM, Keeper, Tenure, margin
from tests.fakes import Worker, World

LEASE = 15.0
ACTING = LEASE - margin(LEASE)


@pytest.mark.parametrize(("lease", "seconds"), [(15.0, 3.0), (3.0, 1.0), (1.0, 0.5), (30.0, 6.0)])
def test_margin(lease: float, seconds: float) -> None:
    """H3: a fifth, at least one second, and never more than half."""
    assert margin(lease) == seconds


@dataclass
class Kept:
    """One process, its keeper, and what it told an owner."""

    world: World = field(default_factory=World)
    lease: float = LEASE
    told: list[tuple[str, object]] = field(default_factory=list)
    ports: Worker = field(init=False)
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.ports = Worker(self.world, "w1")
        self.keeper = Keeper(self.ports.leases, self.ports.timeline, self.world.clock, self.lease)

    async def own(self, token: str = "w1|t") -> Tenure:
        session = self.world.session(f"s{len(self.world.rows)}")
        since = (self.world.clock.now, self.world.clock.now)
        assert await self.ports.leases.take(session, token, seconds=self.lease)
        assert await self.ports.timeline.open(session, token, worker="w1", young=False)
        tenure = self.keeper.tenure(session, token, since=since)
        tenure.lost = lambda: self.told.append(("lost", session))
        tenure.look = lambda cursor: self.told.append(("look", cursor))
        tenure.extend = lambda deadline: self.told.append(("extend", deadline))
        return tenure

    async def renew(self, after: float = 0.0) -> list[tuple[str, object]]:
        """What one renewal told, so many seconds later."""
        self.world.clock.advance(after)
        self.told.clear()
        await self.keeper.renew()
        return list(self.told)

    def steal(self, session: SessionKey) -> None:
        """Somebody else has the key in Redis."""
        self.world.leases[session] = ("w2|t", self.world.clock.now + LEASE)


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def test_a_renewal_counts_from_when_it_was_asked_for(kept: Kept) -> None:
    tenure = await kept.own()
    assert (tenure.until, tenure.deadline) == (ACTING, ACTING)
    assert await kept.renew(after=5.0) == [("extend", 5.0 + ACTING)]
    assert (tenure.until, tenure.deadline) == (5.0 + ACTING, 5.0 + ACTING)
    assert kept.world.leases[tenure.session] == ("w1|t", 5.0 + LEASE)


@pytest.mark.rule("D2")
async def test_a_wiped_redis_is_taken_anew_and_the_stream_read_from_its_start(kept: Kept) -> None:
    """H6, H7."""
    tenure = await kept.own()
    kept.world.wipe_redis()
    assert await kept.renew(after=5.0) == [("extend", 5.0 + ACTING), ("look", NEW_STREAM)]
    assert kept.world.holder(tenure.session) == "w1|t"


@pytest.mark.rule("D2")
async def test_without_redis_postgres_keeps_it_and_the_journal_is_looked_into(kept: Kept) -> None:
    """H63: for as long as it takes."""
    tenure = await kept.own()
    kept.world.redis_away = True
    for n in range(1, 20):
        assert await kept.renew(after=5.0) == [("extend", 5.0 * n + ACTING), ("look", None)]
    assert kept.world.rows[tenure.session].held_until == 95.0 + LEASE


@pytest.mark.rule("D2")
async def test_a_redis_that_does_not_answer_is_not_waited_for(kept: Kept) -> None:
    quick = Kept(lease=0.12)  # of which it waits a sixth, in real time
    await quick.own()
    quick.ports.redis.thawed.clear()
    assert [what for what, _ in await quick.renew()] == ["extend", "look"]


@pytest.mark.rule("T3")
async def test_where_neither_answers_it_is_lost_in_time_and_told_once(kept: Kept) -> None:
    tenure = await kept.own()
    kept.world.redis_away = kept.world.postgres_away = True
    assert await kept.renew(after=ACTING - 0.1) == []
    assert await kept.renew(after=0.1) == [("lost", tenure.session)]
    assert await kept.renew(after=5.0) == []


@pytest.mark.rule("T3", "D2")
async def test_a_foreign_token_in_redis_is_no_proof_while_the_row_is_ours(kept: Kept) -> None:
    """Postgres says who may write; a young Redis may have let another try."""
    tenure = await kept.own()
    kept.steal(tenure.session)
    assert await kept.renew(after=1.0) == [("extend", 1.0 + ACTING), ("look", None)]


@pytest.mark.rule("T3")
async def test_where_the_row_is_anothers_it_is_lost_at_once(kept: Kept) -> None:
    tenure = await kept.own()
    kept.steal(tenure.session)
    await Worker(kept.world, "w2").timeline.open(tenure.session, "w2|t", worker="w2", young=False)
    assert await kept.renew(after=1.0) == [("lost", tenure.session)]


async def test_one_that_is_lost_takes_no_other_along(kept: Kept) -> None:
    lost, living = await kept.own("w1|a"), await kept.own("w1|b")
    kept.steal(lost.session)
    await Worker(kept.world, "w2").timeline.open(lost.session, "w2|t", worker="w2", young=False)
    assert await kept.renew(after=1.0) == [("extend", 1.0 + ACTING), ("lost", lost.session)]
    assert living.until == 1.0 + ACTING


async def test_what_was_dropped_is_renewed_no_more(kept: Kept) -> None:
    old = await kept.own()
    new = kept.keeper.tenure(old.session, "w1|t2", since=(0.0, 0.0))
    kept.keeper.drop(old)  # of the same Session, and over: the new one stays
    kept.world.leases[old.session] = ("w1|t2", LEASE)
    await kept.renew(after=1.0)
    assert (old.until, new.until) == (ACTING, 1.0 + ACTING)
    kept.keeper.drop(new)
    await kept.renew(after=1.0)
    assert new.until == 1.0 + ACTING


async def test_nothing_to_keep_asks_nobody(kept: Kept) -> None:
    kept.world.redis_away = kept.world.postgres_away = True
    assert await kept.renew() == []
