"""While one flush is under way, all that arrives joins the next."""

import asyncio

import pytest

from amux.stores.batch import Batch


class Flushes:
    """A flush that waits for the test, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.fault: BaseException | None = None

    async def __call__(self, questions: list[int]) -> list[int | Exception]:
        self.asked.append(questions)
        self.begun.set()
        await self.go.wait()
        if self.fault:
            raise self.fault
        return [ValueError(str(n)) if n < 0 else n * 10 for n in questions]


async def test_what_arrives_meanwhile_goes_together() -> None:
    flush = Flushes()
    batch: Batch[int, int] = Batch(flush)
    first = [batch.ask(1), batch.ask(2)]
    await flush.begun.wait()
    later = [batch.ask(n) for n in (3, 4, 5)]
    flush.go.set()
    assert await asyncio.gather(*first, *later) == [10, 20, 30, 40, 50]
    assert flush.asked == [[1, 2], [3, 4, 5]]


async def test_no_flush_is_larger_than_it_may_be() -> None:
    flush = Flushes()
    flush.go.set()
    batch: Batch[int, int] = Batch(flush, largest=2)
    assert await asyncio.gather(*(batch.ask(n) for n in range(5))) == [0, 10, 20, 30, 40]
    assert flush.asked == [[0, 1], [2, 3], [4]]


async def test_each_has_its_own_answer_or_fault() -> None:
    flush = Flushes()
    flush.go.set()
    batch: Batch[int, int] = Batch(flush)
    good, bad = batch.ask(1), batch.ask(-2)
    assert await good == 10
    with pytest.raises(ValueError, match="-2"):
        await bad


async def test_a_failed_flush_fails_its_own_and_nobody_later() -> None:
    flush = Flushes()
    flush.fault = OSError("away")
    batch: Batch[int, int] = Batch(flush)
    both = [batch.ask(1), batch.ask(2)]
    flush.go.set()
    assert [type(answer) for answer in await asyncio.gather(*both, return_exceptions=True)] == [OSError, OSError]
    flush.fault = None
    assert await batch.ask(3) == 30


async def test_who_gave_up_before_the_flush_is_not_asked() -> None:
    flush = Flushes()
    batch: Batch[int, int] = Batch(flush)
    first = batch.ask(1)
    await flush.begun.wait()
    gave_up, waits = batch.ask(2), batch.ask(3)
    gave_up.cancel()
    flush.go.set()
    assert (await first, await waits) == (10, 30)
    assert flush.asked == [[1], [3]]


async def test_who_gives_up_during_the_flush_spoils_it_for_nobody() -> None:
    flush = Flushes()
    batch: Batch[int, int] = Batch(flush)
    gives_up, waits = batch.ask(1), batch.ask(2)
    await flush.begun.wait()
    gives_up.cancel()
    flush.go.set()
    assert await waits == 20


async def test_a_pump_cancelled_before_its_first_step_leaves_nobody_waiting() -> None:
    """A worker that drains cancels every task, and its owners still give their Leases back."""
    flushes, before = Flushes(), asyncio.all_tasks()
    flushes.go.set()
    batch = Batch(flushes)
    lost = batch.ask(1)
    (pump,) = asyncio.all_tasks() - before
    pump.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await lost
        assert await batch.ask(2) == 20
    assert flushes.asked == [[2]]
