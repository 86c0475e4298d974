"""What an agent's life under a conversation asks for, whatever it speaks: it is read to its end, its death is told
once, what has to be done beside is done, and it is closed or killed with its whole process tree.

It knows no protocol and no Turn: a conversation holds one, and decides. The waits of a conversation stand here too."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress

import structlog

from amux.core.errors import Unavailable, Uncertain
from amux.providers.process import Process

log = structlog.get_logger()


class Life:
    """That of one running agent, read from now on: `listen` returns when it says no more, then `died` is told once how
    it ended."""

    def __init__(self, process: Process, listen: Callable[[], Awaitable[None]], *, died: Callable[[str], None]) -> None:
        self._process, self._listen, self._died = process, listen, died
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            await self._listen()
        except Exception:  # a fault of ours: an agent that nobody hears must not go on
            log.exception("agent_unheard", agent=self._process.name)
            await self._process.kill()
        end = await self._process.after_lines()
        log.info("agent_ended", agent=self._process.name, why=end.why, code=end.code)
        self._died(end.said)

    def beside(self, work: Coroutine[object, object, None]) -> None:
        """Do it beside all else. That the agent is gone by then is no fault: its death is told."""
        task = asyncio.get_running_loop().create_task(unless_dead(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def kill(self) -> None:
        """End its whole process tree; return when its death has been told."""
        await self._process.kill()
        await asyncio.shield(self._reading)

    async def close(self, *, seconds: float) -> None:
        """Let it end by itself within so many seconds, else end its tree; nothing is done beside any more. May be
        called again."""
        for task in self._tasks:
            task.cancel()
        await self._process.stop(seconds)
        await asyncio.shield(self._reading)


async def unless_dead(work: Coroutine[object, object, None]) -> None:
    """Do it, unless the process is gone, which is told as its death."""
    with suppress(Unavailable, Uncertain):
        await work


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it was set in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
