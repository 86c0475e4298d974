"""The whole record read back through ports, and held against its rules. Writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from amux.core.audit import Count, Projection, examine
from amux.core.events import Event
from amux.core.ids import Seq
from amux.core.session import State, fold
from amux.ports import Session, Sessions, Timeline

PAGE = 2_000
MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Audit:
    """Counts everything that Postgres holds."""

    sessions: Sessions
    timeline: Timeline

    async def all(self) -> Count:
        """Every Session."""
        total = Count()
        for session in await self.sessions.list(label=None, target=None, limit=MANY):
            total.add(await self.one(session))
        return total

    async def one(self, session: Session) -> Count:
        """One Session, read to the head that its row named; the row is read first, so what came later does not count."""
        log = [(seq, event) for seq, event in await self._log(session) if seq <= session.head]
        row = Projection(session.label, session.head, session.open_turn)
        return examine(str(session.ref), log, row, owned=session.owner)

    async def state(self, session: Session) -> State:
        """The Session as its whole Timeline says, folded anew."""
        return fold(event for _, event in await self._log(session))

    async def _log(self, session: Session) -> Sequence[tuple[Seq, Event]]:
        log: list[tuple[Seq, Event]] = []
        while page := await self.timeline.read(session.key, log[-1][0] if log else Seq(0), limit=PAGE):
            log += [(recorded.seq, recorded.event) for recorded in page]
        return log
