"""The ports that Redis and Celery serve, over `World`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from amux.core.errors import Unavailable
from amux.core.ids import SessionKey
from amux.core.inputs import Said
from amux.ports import (
    Posted,
    Recorded,
    Renewal,
    Rung,
    Taken,
)
from tests.fake_world import MARK, Door, World


@dataclass
class FakeBells:
    """One worker's bell."""

    rings: dict[SessionKey, Callable[[], None]] = field(default_factory=dict)

    def register(self, session: SessionKey, ring: Callable[[], None]) -> None:
        self.rings[session] = ring

    def unregister(self, session: SessionKey) -> None:
        self.rings.pop(session, None)


@dataclass
class FakeInbox:
    """A Session's stream."""

    world: World
    door: Door

    async def post(self, session: SessionKey, said: Said) -> Rung:
        async with self.door:
            self.world.noticed()
            self.world.streams.setdefault(session, []).append(Posted(self.world.entry(), said))
            if token := self.world.holder(session):
                self.world.ring(token, session)
                return Rung(wake=False)
            if self.world.marks.get(f"wake:{session}", -1) > self.world.clock.now:
                return Rung(wake=False)
            self.world.marks[f"wake:{session}"] = self.world.clock.now + MARK
            return Rung(wake=True)

    async def read(self, session: SessionKey, after: str) -> Sequence[Posted]:
        async with self.door:
            stream = self.world.streams.get(session, [])
            if stream and _number(stream[-1].entry) < _number(after):  # the stream began anew (H7)
                return list(stream)
            return [posted for posted in stream if _number(posted.entry) > _number(after)]

    async def trim(self, session: SessionKey, through: str) -> None:
        async with self.door:
            stream = self.world.streams.get(session, [])
            stream[:] = [posted for posted in stream if _number(posted.entry) > _number(through)]


@dataclass
class FakeLeases:
    """Leases, by the fake clock."""

    world: World
    door: Door

    async def take(self, session: SessionKey, token: str, *, seconds: float) -> Taken | None:
        async with self.door:
            young = self.world.clock.now - self.world.noticed() < seconds
            self.world.marks.pop(f"wake:{session}", None)
            if self.world.holder(session):
                return None
            self.world.leases[session] = (token, self.world.clock.now + seconds)
            stream = self.world.streams.get(session, [])
            return Taken(stream[-1].entry if stream else "0-0", young)

    async def renew(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[Renewal]:
        async with self.door:
            self.world.noticed()
            return [self._renewed(key, token, seconds) for key, token in held]

    def _renewed(self, session: SessionKey, token: str, seconds: float) -> Renewal:
        holder = self.world.holder(session)
        if holder not in (None, token):
            return Renewal(held=False)
        self.world.leases[session] = (token, self.world.clock.now + seconds)
        return Renewal(held=True, anew=holder is None)

    async def held(self, sessions: Sequence[SessionKey]) -> Sequence[bool]:
        async with self.door:
            self.world.noticed()
            return [self.world.holder(key) is not None for key in sessions]

    async def release(self, session: SessionKey, token: str) -> None:
        async with self.door:
            if self.world.holder(session) == token:
                del self.world.leases[session]
                self.world.marks.pop(f"wake:{session}", None)

    async def release_if_drained(self, session: SessionKey, token: str, *, last_read: str) -> bool:
        async with self.door:
            stream = self.world.streams.get(session, [])
            if self.world.holder(session) != token or (stream and stream[-1].entry != last_read):
                return False
            del self.world.leases[session]
            self.world.marks.pop(f"wake:{session}", None)
            self.world.streams.pop(session, None)
            return True


@dataclass
class FakeWaker:
    """Celery: a wake lies in `World.wakes` until a test hands it to a worker, or loses it."""

    world: World
    door: Door

    async def drive(self, session: SessionKey, target: str, *, again: bool = False) -> None:
        async with self.door:
            if token := self.world.holder(session):
                self.world.ring(token, session)
                return
            if again and self._marked(f"wake:{session}") and self.world.wakes:
                return
            self.world.marks[f"wake:{session}"] = self.world.clock.now + MARK
            self.world.wakes.append((session, target))
            self.world.woken.set()

    async def deliver(self, session: SessionKey, *, again: bool = False) -> None:
        async with self.door:
            at_work, asked = self._marked(f"at_work:{session}"), self._marked(f"deliver:{session}")
            if at_work or (asked and (not again or self.world.delivers)):
                return
            self.world.marks[f"deliver:{session}"] = self.world.clock.now + MARK
            self.world.delivers.append(session)
            self.world.woken.set()

    async def delivering(self, session: SessionKey, *, seconds: float) -> None:
        async with self.door:
            self.world.marks.pop(f"deliver:{session}", None)
            self.world.marks[f"at_work:{session}"] = self.world.clock.now + seconds

    async def waiting(self, target: str) -> int:
        try:
            async with self.door:
                return sum(1 for _, where in self.world.wakes if where == target)
        except Unavailable:
            return 0

    def _marked(self, mark: str) -> bool:
        return self.world.marks.get(mark, -1) > self.world.clock.now


@dataclass
class FakeNudges:
    """Live readers. A silence is told once, when nothing is there."""

    world: World

    async def follow(self, session: SessionKey) -> AsyncGenerator[Sequence[Recorded], None]:
        queue: asyncio.Queue[Sequence[Recorded]] = asyncio.Queue()
        queues = self.world.followers.setdefault(session, [])
        queues.append(queue)
        try:
            yield ()
            while True:
                yield await queue.get()
        finally:
            queues.remove(queue)


def _number(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-")))
