"""Keeps this process' Leases: renews them together, falls back on Postgres, and moves the Guards' deadlines on.

Redis says who may try. While it cannot be reached, or says somebody else, Postgres is asked: the row's token is what
counts (H6, H63). Where neither answers in time, the tenure is lost and its owner stops."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from amux.core.errors import Unavailable
from amux.core.ids import SessionKey
from amux.ports import Clock, Leases, Renewal, Timeline

RENEWALS = 5  # in one Lease
NEW_STREAM = "0-0"  # an entry id before all others
log = structlog.stdlib.get_logger()


@dataclass(slots=True)
class Tenure:
    """One Lease of this process. `until` (monotonic) is how long its owner may act, `deadline` (boottime) its agent."""

    session: SessionKey
    token: str
    until: float
    deadline: float
    lost: Callable[[], None] = lambda: None
    look: Callable[[str | None], None] = lambda _cursor: None  # look in the journal; a new stream is read from there
    extend: Callable[[float], None] = lambda _deadline: None


def margin(lease: float) -> float:
    """How long before its end a Lease is no longer acted under, in seconds (H3)."""
    return min(max(1.0, lease / 5), lease / 2)


@dataclass(slots=True)
class Keeper:
    """All Tenures of one process."""

    leases: Leases
    timeline: Timeline
    clock: Clock
    lease: float  # seconds
    _tenures: dict[SessionKey, Tenure] = field(default_factory=dict)
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tenure(self, session: SessionKey, token: str, *, since: tuple[float, float]) -> Tenure:
        """Keep a Lease taken at `since`: monotonic and boottime, both read before it was asked for."""
        acting = self.lease - margin(self.lease)
        kept = Tenure(session, token, since[0] + acting, since[1] + acting)
        self.keep(kept)
        return kept

    def keep(self, tenure: Tenure) -> None:
        """Renew it from now on."""
        self._tenures[tenure.session] = tenure

    def keeps(self, tenure: Tenure) -> bool:
        """Whether it is still renewed: neither over nor lost."""
        return self._tenures.get(tenure.session) is tenure

    def drop(self, tenure: Tenure) -> None:
        """It is over, one way or the other."""
        if self.keeps(tenure):
            del self._tenures[tenure.session]

    async def leave(self, tenure: Tenure) -> None:
        """The same, before its Lease is given up: a renewal under way would take it anew, for nobody (H68)."""
        self.drop(tenure)
        async with self._renewing:
            pass

    async def run(self) -> None:
        """Renew, for ever, often enough that a late one is no lost one."""
        while True:
            started = self.clock.monotonic()
            await self.renew()
            await asyncio.sleep(max(0.05, self.lease / RENEWALS - (self.clock.monotonic() - started)))

    async def renew(self) -> None:
        """One renewal of all, and the end of those that nobody confirms any more."""
        tenures = list(self._tenures.values())
        if not tenures:
            return
        since = (self.clock.monotonic(), self.clock.boottime())
        doubtful = await self._by_redis(tenures, since)
        if doubtful:
            await self._by_postgres(doubtful, since)
        now = self.clock.monotonic()
        for tenure in tenures:
            if tenure.until <= now and self.keeps(tenure):
                self._lose(tenure)

    async def _by_redis(self, tenures: Sequence[Tenure], since: tuple[float, float]) -> Sequence[Tenure]:
        """Those that Redis did not confirm."""
        try:
            async with asyncio.timeout(self.lease / 6), self._renewing:
                answers = await self.leases.renew([(t.session, t.token) for t in tenures], seconds=self.lease)
        except (Unavailable, TimeoutError):
            return tenures
        for tenure, renewal in zip(tenures, answers, strict=True):
            if renewal.held:
                self._move_on(tenure, renewal, since)
        return [t for t, renewal in zip(tenures, answers, strict=True) if not renewal.held]

    async def _by_postgres(self, tenures: Sequence[Tenure], since: tuple[float, float]) -> None:
        try:
            async with asyncio.timeout(self.lease / 3):
                held = await self.timeline.hold([(t.session, t.token) for t in tenures], seconds=self.lease)
        except (Unavailable, TimeoutError):
            return
        for tenure, still in zip(tenures, held, strict=True):
            if still:
                self._move_on(tenure, Renewal(held=True), since)
                tenure.look(None)  # posts may be lost meanwhile
            else:
                self._lose(tenure)

    def _move_on(self, tenure: Tenure, renewal: Renewal, since: tuple[float, float]) -> None:
        acting = self.lease - margin(self.lease)
        tenure.until, tenure.deadline = since[0] + acting, since[1] + acting
        tenure.extend(tenure.deadline)
        if renewal.anew:
            tenure.look(NEW_STREAM)

    def _lose(self, tenure: Tenure) -> None:
        log.warning("lease_lost", session=tenure.session)
        self.drop(tenure)
        tenure.lost()
