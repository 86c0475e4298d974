"""Redis emptied, restarted, gone, or with another clock: hints may be lost, nothing else is."""

import asyncio
from collections.abc import Callable

import pytest

from amux.core.errors import Broken, Unavailable
from amux.core.events import Cause, TurnStarted
from amux.core.ids import Seq, SessionKey, TurnId
from amux.core.session import fold
from amux.ports import Append, Renewal, Rung
from amux.runtime.keeper import Keeper
from amux.stores.redis import Redis, Script
from amux.wiring import SystemClock
from tests.conformance.sides import DEADLINE, Real, Side, until
from tests.stores.conftest import Far

pytestmark = pytest.mark.real
KEY = SessionKey(1)
STARTED = TurnStarted(TurnId(1), (), Cause.input)


def real(process: object) -> Real:
    assert isinstance(process, Real)
    return process


async def rings(process: Real, key: SessionKey = KEY) -> Callable[[], None]:
    """Wait until the bell is heard for the first time; answers how to forget that."""
    rang = asyncio.Event()
    process.bells.register(key, rang.set)
    async with asyncio.timeout(DEADLINE):
        await rang.wait()
    rang.clear()
    return rang.clear


async def test_scripts_come_back_after_redis_forgot_them(side: Side) -> None:
    assert await side.a.leases.take(KEY, "a|1", seconds=60)
    await real(side.a).redis.command("SCRIPT", "FLUSH")
    keys = [SessionKey(n) for n in range(20)]
    answers = await asyncio.gather(*(side.a.inbox.post(key, side.said()) for key in keys))
    assert answers == [Rung(wake=key != KEY) for key in keys]


async def test_a_renewal_under_way_brings_no_lease_back(side: Side) -> None:
    """H68: a Redis that forgot its scripts answers the renewal late, when its owner would have let go."""
    assert await side.a.leases.take(KEY, "a|1", seconds=60)
    keeper = Keeper(side.a.leases, side.a.timeline, SystemClock(), 60.0)
    tenure = keeper.tenure(KEY, "a|1", since=(0.0, 0.0))
    await real(side.a).redis.command("SCRIPT", "FLUSH")

    async def let_go() -> bool:
        await keeper.leave(tenure)
        return await side.a.leases.release_if_drained(KEY, "a|1", last_read="0-0")

    _, released = await asyncio.gather(keeper.renew(), let_go())
    assert released
    assert list(await side.b.leases.held([KEY])) == [False]


async def test_ids_that_stepped_back_are_read(side: Side) -> None:
    """The stream was deleted and Redis' clock is behind (H7)."""
    redis, said = real(side.a).redis, side.said()
    assert await side.a.leases.take(KEY, "a|1", seconds=60)
    await side.b.inbox.post(KEY, said)
    (now,) = await side.a.inbox.read(KEY, "0-0")
    entry = await redis.command("XRANGE", "inbox:{1}", "-", "+")
    await redis.command("DEL", "inbox:{1}")
    _, parts = entry[0]
    await redis.command("XADD", "inbox:{1}", "5-1", *parts)
    (old,) = await side.a.inbox.read(KEY, now.entry)
    assert (old.entry, old.said) == ("5-1", said)
    assert list(await side.a.inbox.read(KEY, old.entry)) == []
    assert await side.a.leases.release_if_drained(KEY, "a|1", last_read=old.entry)


async def test_a_clock_that_was_put_back_is_a_new_birth(side: Side) -> None:
    await real(side.a).redis.command("SET", "born", "99999999999999")
    taken = await side.a.leases.take(KEY, "a|1", seconds=0.2)
    assert taken
    assert taken.young
    await side.pass_time(0.25)
    again = await side.a.leases.take(KEY, "a|2", seconds=0.2)
    assert again
    assert not again.young


async def test_a_take_whose_answer_was_lost_is_ours(side: Side, far: Far) -> None:
    await far.process.leases.held([KEY])  # connected
    far.redis.swallow()
    assert await far.process.leases.take(KEY, "far|1", seconds=60)
    assert await side.a.leases.take(KEY, "a|1", seconds=60) is None


async def test_redis_away_is_unavailable_and_comes_back(side: Side, far: Far) -> None:
    held = [(KEY, "far|1")]
    assert await far.process.leases.take(KEY, "far|1", seconds=60)
    far.redis.go_away()
    for call in (
        far.process.leases.renew(held, seconds=60),
        far.process.inbox.post(KEY, side.said()),
        far.process.inbox.read(KEY, "0-0"),
        far.process.waker.drive(KEY, "local"),
    ):
        with pytest.raises(Unavailable, match="Redis"):
            await call
    assert await far.process.waker.waiting("local") == 0
    far.redis.away = False
    assert list(await far.process.leases.renew(held, seconds=60)) == [Renewal(held=True)]


async def test_appends_go_on_without_redis(side: Side, far: Far) -> None:
    key = await side.session()
    far.redis.go_away()
    owner = await far.process.timeline.open(key, "far|1", worker="far", young=False)
    assert owner
    fence = await far.process.timeline.append(key, owner.fence, Append((STARTED,), fold([STARTED])))
    assert fence.head == 1


async def test_a_bell_that_was_away_rings_for_all(side: Side, far: Far) -> None:
    rang = asyncio.Event()
    far.process.bells.register(KEY, rang.set)
    async with asyncio.timeout(DEADLINE):
        await rang.wait()
    rang.clear()
    far.redis.go_away()
    await side.a.inbox.post(KEY, side.said())
    assert not rang.is_set()
    far.redis.away = False
    async with asyncio.timeout(DEADLINE):
        await rang.wait()


async def test_a_bell_is_kept_awake_however_many_are_registered(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amux.stores.redis.PING_SECONDS", 0.05)
    process = real(side.a)
    await rings(process)

    async def pings() -> bytes:
        return next((x for x in (await process.redis.command("INFO", "commandstats")).split() if b"_ping" in x), b"")

    before, key = await pings(), 1
    async with asyncio.timeout(DEADLINE):
        while await pings() == before:
            key += 1
            process.bells.register(SessionKey(key), lambda: None)


async def test_a_reader_looks_again_after_an_outage(side: Side, far: Far) -> None:
    key = await side.session()
    owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
    assert owner
    live = far.process.nudges.follow(key)
    async with asyncio.timeout(DEADLINE):
        assert list(await anext(live)) == []
    far.redis.go_away()
    await side.a.timeline.append(key, owner.fence, Append((STARTED,), fold([STARTED])))
    far.redis.away = False
    async with asyncio.timeout(DEADLINE):
        assert list(await anext(live)) == []  # it listens again: look for yourself
    assert [r.event for r in await side.b.timeline.read(key, Seq(0), limit=9)] == [STARTED]
    await live.aclose()


async def test_a_silence_is_told(side: Side) -> None:
    key = await side.session()
    owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
    assert owner
    live = side.b.nudges.follow(key)
    await anext(live)
    await side.a.timeline.append(key, owner.fence, Append((STARTED,), fold([STARTED])))
    async with asyncio.timeout(DEADLINE):
        heard = [[r.event for r in await anext(live)] for _ in range(2)]
    assert heard == [[STARTED], []]
    await live.aclose()


async def test_a_post_of_another_release_is_passed_over(side: Side) -> None:
    redis = real(side.a).redis
    await redis.command("XADD", "inbox:{1}", "*", "k", "from_the_future", "p", "{}")
    await redis.command("XADD", "inbox:{1}", "*", "k", "input", "p", "no json")
    said = side.said()
    await side.b.inbox.post(KEY, said)
    await redis.command("XADD", "inbox:{1}", "*", "k", "input", "p", "{}")
    assert await side.a.leases.take(KEY, "a|1", seconds=60)
    (posted,) = await side.a.inbox.read(KEY, "0-0")
    assert posted.said == said
    assert await side.a.leases.release_if_drained(KEY, "a|1", last_read=posted.entry)


async def test_two_databases_of_one_server_hear_their_own_only(redis_url: str, urls: object) -> None:
    here, there = Redis(redis_url), Redis(_other(redis_url))
    heard: list[bytes] = []
    listening = asyncio.Event()
    subscription = here.subscription(lambda _, message: heard.append(message), lambda _: listening.set())
    subscription.listen("live:7")
    async with asyncio.timeout(DEADLINE):
        await listening.wait()
    await there.publish("live:7", "theirs")
    await here.publish("live:7", "ours")

    async def something() -> bool:
        return bool(heard)

    await until(something)
    assert heard == [b"ours"]
    await subscription.close()
    await here.close()
    await there.close()


async def test_a_wrong_command_is_broken_alone(side: Side) -> None:
    redis = real(side.a).redis
    answers = await asyncio.gather(
        redis.command("SET", "x", "1"),
        redis.command("LPUSH", "x", "1"),
        redis.command("GET", "x"),
        redis.run(Script("return redis.call('GET', KEYS[2])"), ("x",)),
        return_exceptions=True,
    )
    assert [answers[0], type(answers[1]), answers[2], answers[3]] == [b"OK", Broken, b"1", b"1"]


async def test_a_sleeping_session_has_no_key(side: Side) -> None:
    await side.b.inbox.post(KEY, side.said())
    await side.b.waker.drive(KEY, "local")
    assert await side.a.leases.take(KEY, "a|1", seconds=60)
    (posted,) = await side.a.inbox.read(KEY, "0-0")
    await side.a.inbox.trim(KEY, posted.entry)
    assert await side.a.leases.release_if_drained(KEY, "a|1", last_read=posted.entry)
    assert set(await real(side.a).redis.command("KEYS", "*")) == {b"born", b"target.local"}


def _other(url: str) -> str:
    head, separator, number = url.rpartition("=") if "db=" in url else url.rpartition("/")
    return f"{head}{separator}{(int(number) + 1) % 16}"
