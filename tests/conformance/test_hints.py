"""Wakes are few, readers hear what grew."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from amux.core.events import Cause, TurnStarted
from amux.core.ids import Seq, SessionKey, TurnId
from amux.core.session import fold
from amux.ports import Append, Recorded
from tests.conformance.sides import DEADLINE, Side


async def news(live: AsyncIterator[Sequence[Recorded]]) -> Sequence[Recorded]:
    """What comes next that is no silence."""
    async with asyncio.timeout(DEADLINE):
        async for grown in live:
            if grown:
                return grown
    raise AssertionError


async def test_the_sweep_asks_again_only_when_a_wake_was_lost(side: Side) -> None:
    waker, key, other = side.a.waker, SessionKey(1), SessionKey(2)
    assert await waker.waiting("local") == 0
    await side.a.inbox.post(key, side.said())
    await waker.drive(key, "local")
    assert await waker.waiting("local") == 1
    await waker.drive(key, "local", again=True)  # it is still in the queue
    assert await waker.waiting("local") == 1
    await waker.drive(other, "local", again=True)
    assert await waker.waiting("local") == 2
    assert await waker.waiting("elsewhere") == 0
    await side.wipe()
    await waker.drive(key, "local", again=True)
    assert await waker.waiting("local") == 1


async def test_a_reader_looks_once_and_then_hears_what_grows(side: Side) -> None:
    key = await side.session()
    owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
    assert owner
    live = side.b.nudges.follow(key)
    async with asyncio.timeout(DEADLINE):
        assert list(await anext(live)) == []
    events = (TurnStarted(TurnId(1), (), Cause.input),) * 2
    await side.a.timeline.append(key, owner.fence, Append(events, fold(events)))
    assert list(await news(live)) == list(await side.b.timeline.read(key, Seq(0), limit=9))
    await live.aclose()


async def test_two_readers_of_one_session(side: Side) -> None:
    key = await side.session()
    owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
    assert owner
    first, second = side.b.nudges.follow(key), side.b.nudges.follow(key)
    async with asyncio.timeout(DEADLINE):
        await anext(first)
        await anext(second)
    events = (TurnStarted(TurnId(1), (), Cause.input),)
    fence = await side.a.timeline.append(key, owner.fence, Append(events, fold(events)))
    assert list(await news(first)) == list(await news(second))
    await first.aclose()
    await side.a.timeline.append(key, fence, Append(events, fold(events)))
    assert [recorded.seq for recorded in await news(second)] == [2]
    await second.aclose()
