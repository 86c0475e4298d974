"""Redis carries, and decides who may try: no input falls between an owner who leaves and a sender who comes."""

import asyncio

import pytest

from amux.core.ids import SessionKey
from amux.ports import Renewal, Rung, Taken
from tests.conformance.sides import DEADLINE, Side


async def taken(side: Side, key: SessionKey, token: str = "a|1", seconds: float = 60) -> Taken:
    answer = await side.a.leases.take(key, token, seconds=seconds)
    assert answer
    return answer


async def test_one_holder_at_a_time(side: Side) -> None:
    key = SessionKey(1)
    await taken(side, key)
    assert await side.b.leases.take(key, "b|2", seconds=60) is None
    assert list(await side.b.leases.held([key, SessionKey(2)])) == [True, False]
    await side.b.leases.release(key, "b|2")
    assert await side.b.leases.take(key, "b|2", seconds=60) is None
    await side.a.leases.release(key, "a|1")
    assert await side.b.leases.take(key, "b|2", seconds=60)


async def test_a_lease_runs_out(side: Side) -> None:
    key = SessionKey(1)
    await taken(side, key, seconds=0.05)
    await side.pass_time(0.06)
    assert await side.b.leases.take(key, "b|2", seconds=60)
    assert list(await side.a.leases.renew([(key, "a|1")], seconds=60)) == [Renewal(held=False)]


async def test_renewals_keep_it(side: Side) -> None:
    kept, gone = SessionKey(1), SessionKey(2)
    await taken(side, kept, seconds=0.05)
    answers = await side.a.leases.renew([(kept, "a|1"), (gone, "a|9")], seconds=60)
    assert list(answers) == [Renewal(held=True), Renewal(held=True, anew=True)]
    await side.pass_time(0.06)
    assert list(await side.a.leases.held([kept, gone])) == [True, True]


async def test_a_post_asks_for_one_wake(side: Side) -> None:
    key = SessionKey(1)
    assert await side.a.inbox.post(key, side.said()) == Rung(wake=True)
    assert await side.b.inbox.post(key, side.said()) == Rung(wake=False)
    await taken(side, key)
    await side.a.leases.release(key, "a|1")
    assert await side.a.inbox.post(key, side.said()) == Rung(wake=True)


async def test_a_visit_in_vain_takes_the_mark_too(side: Side) -> None:
    """An owner that died has its Lease still: the sweep's next wake may not wait for the mark to lapse."""
    key = SessionKey(1)
    await side.a.inbox.post(key, side.said())
    await taken(side, key, seconds=0.05)
    assert await side.b.leases.take(key, "b|2", seconds=60) is None
    await side.pass_time(0.06)
    assert await side.a.inbox.post(key, side.said()) == Rung(wake=True)


async def test_a_mark_older_than_the_lease_does_not_outlive_it(side: Side) -> None:
    """Redis was wiped, a post asked for a wake, and the owner took its Lease again."""
    key = SessionKey(1)
    for drained in (True, False):
        await taken(side, key)
        await side.wipe()
        assert await side.b.inbox.post(key, side.said()) == Rung(wake=True)
        await side.a.leases.renew([(key, "a|1")], seconds=60)
        (posted,) = await side.a.inbox.read(key, "0-0")
        if drained:
            assert await side.a.leases.release_if_drained(key, "a|1", last_read=posted.entry)
        else:
            await side.a.leases.release(key, "a|1")
        assert await side.b.inbox.post(key, side.said()) == Rung(wake=True)
        await side.wipe()


async def test_a_post_rings_its_owner(side: Side) -> None:
    key = SessionKey(1)
    rang = asyncio.Event()
    await taken(side, key)
    side.a.bells.register(key, rang.set)
    said = side.said()
    assert await side.b.inbox.post(key, said) == Rung(wake=False)
    async with asyncio.timeout(DEADLINE):
        await rang.wait()
    assert [posted.said for posted in await side.a.inbox.read(key, "0-0")] == [said]
    rang.clear()
    await side.b.waker.drive(key, "local")  # a wake for an owned Session needs no message
    async with asyncio.timeout(DEADLINE):
        await rang.wait()
    assert await side.b.waker.waiting("local") == 0


async def test_the_stream_is_read_from_where_one_was(side: Side) -> None:
    key = SessionKey(1)
    said = [side.said(f"{n}") for n in range(3)]
    await side.a.inbox.post(key, said[0])
    tail = (await taken(side, key)).tail
    for one in said[1:]:
        await side.a.inbox.post(key, one)
    read = await side.a.inbox.read(key, tail)
    assert [posted.said for posted in read] == said[1:]
    assert list(await side.a.inbox.read(key, read[-1].entry)) == []
    await side.a.inbox.trim(key, read[0].entry)
    assert [posted.said for posted in await side.a.inbox.read(key, "0-0")] == [said[2]]


async def test_an_empty_stream(side: Side) -> None:
    key = SessionKey(1)
    assert (await taken(side, key)).tail == "0-0"
    assert list(await side.a.inbox.read(key, "0-0")) == []
    assert await side.a.leases.release_if_drained(key, "a|1", last_read="0-0")


@pytest.mark.rule("I9")
async def test_input_that_comes_while_the_owner_leaves_keeps_it(side: Side) -> None:
    key = SessionKey(1)
    await taken(side, key)
    await side.b.inbox.post(key, side.said())
    (read,) = await side.a.inbox.read(key, "0-0")
    await side.b.inbox.post(key, side.said())
    assert not await side.a.leases.release_if_drained(key, "a|1", last_read=read.entry)
    *_, last = await side.a.inbox.read(key, read.entry)
    assert not await side.b.leases.release_if_drained(key, "b|2", last_read=last.entry)
    assert await side.a.leases.release_if_drained(key, "a|1", last_read=last.entry)
    assert list(await side.a.leases.held([key])) == [False]
    assert list(await side.a.inbox.read(key, "0-0")) == []


async def test_a_sender_and_an_owner_who_leaves_never_miss_each_other(side: Side) -> None:
    """Two commands (look, then let go) lost 161 of 600 of these."""
    for n in range(60):
        key = SessionKey(n)
        await taken(side, key)
        left, rung = await asyncio.gather(
            side.a.leases.release_if_drained(key, "a|1", last_read="0-0"), side.b.inbox.post(key, side.said())
        )
        assert left == rung.wake


async def test_wiped_redis_is_young_and_gives_leases_back(side: Side) -> None:
    key = SessionKey(1)
    await taken(side, key, seconds=0.3)
    await side.pass_time(0.35)
    assert (await taken(side, key, "a|2", seconds=0.3)).young is False
    await side.wipe()
    answer = await side.b.leases.take(SessionKey(2), "b|2", seconds=0.3)
    assert answer
    assert answer.young
    assert list(await side.a.leases.renew([(key, "a|2")], seconds=60)) == [Renewal(held=True, anew=True)]
    await side.pass_time(0.35)
    later = await side.b.leases.take(SessionKey(3), "b|3", seconds=0.3)
    assert later
    assert not later.young


async def test_a_wiped_stream_is_read_from_its_new_beginning(side: Side) -> None:
    key = SessionKey(1)
    await side.a.inbox.post(key, side.said())
    await taken(side, key)
    await side.wipe()
    said = side.said()
    await side.b.inbox.post(key, said)
    assert [posted.said for posted in await side.a.inbox.read(key, "0-0")] == [said]
