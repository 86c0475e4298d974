"""What outlives every process in the tests: Postgres, Redis and the clock, in memory. Its doors freeze and crash."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from amux.core.errors import Unavailable
from amux.core.events import Label
from amux.core.ids import BindingId, Epoch, InputId, Seq, SessionId, SessionKey, SessionRef
from amux.core.inputs import Said
from amux.core.launch import LaunchSnapshot, Record, saved
from amux.core.session import NO_OWNER
from amux.ports import (
    Binding,
    CardRow,
    Posted,
    Recorded,
    Session,
)

BIRTH = 1_800_000_000.0  # Postgres' clock when the fake clock says 0
FOREVER = 10**9  # seconds
START = Seq(0)
MARK = 60.0  # seconds


class Crashed(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class FakeClock:
    """Stands still until it is moved. `listeners` hear of it, so that a waiter may look at the time again."""

    now: float = 0.0
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for heard in tuple(self.listeners):
            heard()


@dataclass
class Row:
    """A Session's row, with what moves in it."""

    session: Session
    epoch: Epoch = NO_OWNER
    token: str = ""
    held_until: float = -1.0


@dataclass
class Entry:
    """A journal's row. `accepted` is the seq of its acceptance."""

    said: Said
    session: SessionKey
    at: float
    accepted: Seq | None = None


@dataclass
class Due:
    """A deliveries row: `shown` is the newest seq that the deliverer must get to, `since` its last sign of life."""

    fence: int = 0
    position: Seq = START
    open: bool = False
    shown: Seq = START
    since: float = 0.0


@dataclass
class World:
    """What outlives every process. `wakes` and `delivers` are Celery's queues."""

    clock: FakeClock = field(default_factory=FakeClock)
    rows: dict[SessionKey, Row] = field(default_factory=dict)
    timeline: dict[SessionKey, list[Recorded]] = field(default_factory=dict)
    journal: dict[InputId, Entry] = field(default_factory=dict)
    recalled: set[InputId] = field(default_factory=set)  # before they came
    bindings: dict[BindingId, Binding] = field(default_factory=dict)
    aliases: list[tuple[BindingId, str]] = field(default_factory=list)
    dues: dict[SessionKey, Due] = field(default_factory=dict)
    cards: dict[tuple[SessionKey, str], CardRow] = field(default_factory=dict)
    streams: dict[SessionKey, list[Posted]] = field(default_factory=dict)
    leases: dict[SessionKey, tuple[str, float]] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)
    born: float | None = -FOREVER  # None: Redis is empty and nobody has noticed yet
    wakes: list[tuple[SessionKey, str]] = field(default_factory=list)
    delivers: list[SessionKey] = field(default_factory=list)
    redis_away: bool = False
    postgres_away: bool = False
    lost_answers: int = 0  # so many appends are written and then answered Unavailable
    bells: dict[str, dict[SessionKey, Callable[[], None]]] = field(default_factory=dict)  # of each worker by name
    followers: dict[SessionKey, list["asyncio.Queue[Sequence[Recorded]]"]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)  # set at each wake or deliver that is asked for
    entries: int = 0

    def __post_init__(self) -> None:
        self.clock.listeners.append(self.ring_all)

    def session(self, id_: str = "7k3m", *, target: str = "local", engine: str = "fake") -> SessionKey:
        """A Session that is there already."""
        key = SessionKey(len(self.rows) + 1)
        ref, launch = SessionRef(target, SessionId(id_)), LaunchSnapshot(engine, "/work")
        self.rows[key] = Row(
            Session(key, ref, Record(launch.profile, engine), saved(launch), Label.created, Seq(0), None, None, "")
        )
        self.timeline[key] = []
        return key

    def wipe_redis(self) -> None:
        """Everything in Redis is gone: FLUSHALL, or a restart without its file."""
        self.streams.clear()
        self.leases.clear()
        self.marks.clear()
        self.wakes.clear()
        self.delivers.clear()
        self.born = None

    def ring_all(self) -> None:
        """Every owner looks at the time again."""
        for rings in self.bells.values():
            for ring in tuple(rings.values()):
                ring()

    def ring(self, token: str, session: SessionKey) -> None:
        """The bell of the worker that has this Lease, if it hears."""
        if heard := self.bells.get(token.partition("|")[0], {}).get(session):
            heard()

    def noticed(self) -> float:
        """When Redis was first seen empty; every call to it notes that (H6)."""
        if self.born is None or self.born > self.clock.now:
            self.born = self.clock.now
        return self.born

    def entry(self) -> str:
        self.entries += 1
        return f"{self.entries}-0"

    def holder(self, session: SessionKey) -> str | None:
        """The token that has the Lease now."""
        token, until = self.leases.get(session, ("", -1.0))
        return token if until > self.clock.now else None


@dataclass
class Door:
    """Every call of a process goes through here: frozen, it stands still before and after; crashed, it never returns."""

    world: World
    redis: bool = False
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    crashed: bool = False

    async def __aenter__(self) -> None:
        await self._pass()
        if self.world.redis_away if self.redis else self.world.postgres_away:
            raise Unavailable("it is away")

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pass()

    async def _pass(self) -> None:
        await asyncio.sleep(0)  # every port call gives way, as the real ones do
        await self.thawed.wait()
        if self.crashed:
            raise Crashed
