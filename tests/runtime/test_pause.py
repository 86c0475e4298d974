"""A pause ends by news or by time, and the one timer of many pauses cuts none of them short."""

import asyncio

from amux.runtime.pause import Pause

LONG = 60.0


async def taken(pause: Pause, seconds: float) -> "asyncio.Task[None]":
    """A task that has begun to wait."""
    task = asyncio.get_running_loop().create_task(pause.take(seconds))
    await asyncio.sleep(0)
    return task


async def test_news_ends_it() -> None:
    pause = Pause()
    task = await taken(pause, LONG)
    pause.end()
    async with asyncio.timeout(LONG / 2):
        await task


async def test_news_before_it_is_forgotten() -> None:
    pause = Pause()
    pause.end()
    task = await taken(pause, LONG)
    assert not task.done()
    task.cancel()


async def test_a_timer_set_for_an_earlier_wait_ends_no_longer_one() -> None:
    pause, loop = Pause(), asyncio.get_running_loop()
    earlier = await taken(pause, 0.01)
    pause.end()
    await earlier
    due = loop.time() + 0.05
    await pause.take(0.05)
    assert loop.time() >= due


async def test_a_shorter_wait_after_a_longer_one_ends_in_its_own_time() -> None:
    pause = Pause()
    longer = await taken(pause, LONG)
    pause.end()
    await longer
    async with asyncio.timeout(LONG / 2):
        await pause.take(0.01)
