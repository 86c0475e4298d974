"""All owners of one worker process: takes them in, gives slots back when others wait, drains on TERM.

It decides nothing about a Session; losing it at any instant costs no promise."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from amux.core.errors import Broken, Refused, Unavailable
from amux.core.ids import SessionKey, SessionRef
from amux.runtime.owner import Owner, Runtime, own

log = structlog.stdlib.get_logger()
AGAIN = 0.5  # seconds before a task of the host that failed is begun anew


@dataclass(slots=True)
class Host:
    """The owners that live on this process' loop."""

    rt: Runtime
    target: str
    slots: int  # how many Sessions may be owned at once
    owners: dict[SessionKey, Owner] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _draining: bool = False
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        """Begin to renew, and to make room; needs the running loop."""
        for work, name in ((self.rt.keeper.run, "keeper"), (self._make_room, "room")):
            self._tasks.add(asyncio.get_running_loop().create_task(self._for_ever(work, name), name=name))

    async def drive(self, session: SessionKey, owned: Callable[[SessionRef], None] = lambda _: None) -> None:
        """Own this Session until it rests; return at once when that is not ours to do. `owned` hears its name."""
        former = self.owners.get(session)
        if former and former.left:  # this wake came after its Lease, and nobody else will hear it
            await former.gone.wait()
        elif former:
            return
        if self._draining:
            return
        mine: list[Owner] = []

        def register(owner: Owner) -> None:
            mine.append(owner)
            self.owners[session] = owner
            if self._draining:  # it opened while the drain began
                owner.hurry()
            owned(owner.opened.session.ref)

        try:
            await own(session, self.rt, register)
        except (Unavailable, Refused, Broken) as why:  # the sweep knocks again
            log.warning("not_owned", session=session, why=str(why))
        finally:
            if mine and self.owners.get(session) is mine[0]:
                del self.owners[session]
            if not self.owners:
                self._empty.set()

    async def drain(self, seconds: float) -> None:
        """Take nothing more, let Turns end within so many seconds; what is left is the sweep's and recovery's."""
        self._draining = True
        for owner in tuple(self.owners.values()):
            owner.hurry()
        self._empty.clear()
        if self.owners:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    async def stop(self) -> None:
        """End what `start` began."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _make_room(self) -> None:
        """When more wakes wait than slots are free or will be, as many owners leave (H46)."""
        while True:
            await asyncio.sleep(self.rt.pace.lease / 3)
            if leavers := self._leavers():
                leaving = sum(owner.hurried and owner.state.turn is None for owner in self.owners.values())
                free = self.slots - len(self.owners) + leaving
                for owner in leavers[: max(0, await self.rt.waker.waiting(self.target) - free)]:
                    owner.hurry()

    def _leavers(self) -> list[Owner]:
        """Who may be asked to, in this order: the longest idle; then who has worked for longer than an idle one stays, and
        would keep its slot for as long as its people write. It leaves between two Turns."""
        staying = [owner for owner in self.owners.values() if not owner.hurried]
        idle = sorted((o for o in staying if o.idle_since is not None), key=lambda o: o.idle_since or 0)
        since = self.rt.clock.monotonic() - self.rt.pace.linger
        busy = sorted(
            (o for o in staying if o.worked and o.idle_since is None and o.since <= since), key=lambda o: o.since
        )
        return idle + busy

    async def _for_ever(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Neither may end by itself: without renewals every Lease of this process runs out, so it says so loudly."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("host_task_died", task=name)
            await asyncio.sleep(AGAIN)
