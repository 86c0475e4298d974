"""Catch up from a position, then follow live: no gap, no duplicate (T5). One read of Postgres for what was missed;
after that nudges, mended from Postgres by seq whenever one is lost."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from amux.core.ids import Seq, SessionKey
from amux.ports import Head, Nudges, Recorded, Timeline

PAGE = 1_000  # events of one read


@dataclass(frozen=True, slots=True)
class Attach:
    """A reader of Timelines."""

    timeline: Timeline
    nudges: Nudges

    async def head(self, session: SessionKey) -> Head:
        """The head and the active Turn's start, in one atomic read."""
        return await self.timeline.head(session)

    async def follow(self, session: SessionKey, after: Seq) -> AsyncGenerator[Sequence[Recorded], None]:
        """All events behind `after`, in batches, each once and in order, for ever. An empty batch is a silence."""
        async with contextlib.aclosing(self.nudges.follow(session)) as live:  # listens before the first read
            async for grown in live:
                if grown and grown[0].seq <= after + 1:
                    new: Sequence[Recorded] = [r for r in grown if r.seq > after]
                else:
                    new = await self._missed(session, after)
                yield new
                after = new[-1].seq if new else after

    async def _missed(self, session: SessionKey, after: Seq) -> Sequence[Recorded]:
        missed: list[Recorded] = []
        while page := await self.timeline.read(session, Seq(after + len(missed)), limit=PAGE):
            missed += page
            if len(page) < PAGE:
                break
        return missed
