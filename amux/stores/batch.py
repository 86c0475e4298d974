"""Natural batching: while one flush is under way, all that arrives joins the next. No timer, no waiting for company.

It knows nothing of what it carries, and never repeats a flush."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Batch(Generic[Q, A]):
    """One queue and at most one flush at a time. `flush` answers each question in its place, an exception if need be."""

    def __init__(self, flush: Callable[[list[Q]], Awaitable[Sequence[A | Exception]]], *, largest: int = 256) -> None:
        self._flush, self._largest = flush, largest
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._pump: asyncio.Task[None] | None = None

    def ask(self, question: Q) -> asyncio.Future[A]:
        """The answer, or what `flush` raised. Cancelled before its flush begins, a question is not asked."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._pump is None:
            self._pump = asyncio.create_task(self._run(), name="batch")
            self._pump.add_done_callback(self._ended)
        return future

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # all who are ready in this round of the loop come along
            while self._waiting:
                taken, self._waiting = self._waiting[: self._largest], self._waiting[self._largest :]
                if living := [(question, future) for question, future in taken if not future.done()]:
                    await self._answer(living)
        finally:
            self._pump = None

    def _ended(self, pump: asyncio.Task[None]) -> None:
        """Cancelled, perhaps before its first step: nobody waits for it for ever, and the next question has a new one."""
        if self._pump is pump:
            self._pump = None
        if pump.cancelled() and self._pump is None:
            waiting, self._waiting = self._waiting, []
            for _, future in waiting:
                future.cancel()

    async def _answer(self, taken: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._flush([question for question, _ in taken])
        except Exception as fault:  # noqa: BLE001 - it belongs to those who asked, whatever it is
            for _, future in taken:
                if not future.done():
                    future.set_exception(fault)
        except BaseException:
            for _, future in taken:
                future.cancel()
            raise
        else:
            for (_, future), answer in zip(taken, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
