"""A pause that news ends early, for a loop that waits all its life. It knows nothing of what the news is.

`asyncio.timeout` around an Event makes and cancels a timer each time; here one timer outlives many waits (H20)."""

import asyncio


class Pause:
    """One waits, anybody ends it."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    async def take(self, seconds: float) -> None:
        """Wait until `end`, or for so many seconds."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds
        self._waiter = loop.create_future()
        if self._timer is None or self._timer.when() > self._due:
            self._arm(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def end(self) -> None:
        """Whoever waits goes on; without anybody it is forgotten."""
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = loop.call_at(self._due, self._rang, loop)

    def _rang(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set for an earlier wait it may ring before this one is over."""
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._due:
            self._arm(loop)
        else:
            self.end()
