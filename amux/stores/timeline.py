"""The Timeline in Postgres: opened with a new epoch, appended behind the Fence, read from a position.

State comes from the last checkpoint and the events behind it; what the checkpoint was is never trusted over them."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec
from psycopg.rows import TupleRow

from amux.core import codec
from amux.core.errors import Broken, Refused
from amux.core.events import Event, Label
from amux.core.ids import Epoch, Seq, SessionKey
from amux.core.session import State, fold
from amux.ports import Append, Fence, Head, OpenedTimeline, Recorded
from amux.stores.appends import Appender, Publish
from amux.stores.batch import Batch
from amux.stores.inputs import UNACCEPTED, said_of
from amux.stores.postgres import SEPARATOR, Postgres, numbers, texts
from amux.stores.sessions import COLUMNS, session_of

PATIENCE = 300.0  # seconds for which an append waits for Postgres; its Turn goes on meanwhile, under its Lease in Redis
CHUNK = 500  # events of one statement of a read
CODE = "0.1"  # this release, as `schema.oldest_code` counts

OPEN = f"""
with r as (select * from unnest(%s::bigint[], %s::text[], %s::text[], %s::bool[]) r(sid, token, worker, young)
           order by sid),
 s as (update sessions s set epoch = s.epoch + 1, token = r.token, owner = r.worker, held_until = null from r
       where s.key = r.sid and (s.owner is null or not r.young) and (s.held_until is null or s.held_until < now())
         and exists (select from schema where string_to_array(oldest_code, '.')::int[] <= string_to_array(%s, '.')::int[])
       returning s.*)
select {COLUMNS}, s.epoch, s.token from s"""

LATER = """
select k.sid, c.state, t.kind, t.v, t.payload from unnest(%s::bigint[]) k(sid)
left join checkpoints c on c.session = k.sid and c.version = %s
left join timeline t on t.session = k.sid and t.seq > coalesce(c.seq, 0) order by k.sid, t.seq"""

ALL = "select kind, v, payload from timeline where session = %s order by seq"

WHY_NOT = """
select s.key is not null, string_to_array(o.oldest_code, '.')::int[] <= string_to_array(%s, '.')::int[], o.oldest_code
from schema o left join sessions s on s.key = %s"""

HOLD = """
update sessions s set held_until = now() + %s * interval '1 second'
from unnest(%s::bigint[], %s::text[]) r(sid, token)
where s.key = r.sid and s.token = r.token and s.owner is not null returning s.key, s.token"""

SIGN_OFF = """
update sessions s set owner = null, held_until = null
from unnest(%s::bigint[], %s::bigint[], %s::text[]) r(sid, epoch, token)
where (s.key, s.epoch, s.token) = (r.sid, r.epoch, r.token)"""

# A page comes as one row: as rows it costs three times as much to fetch, and attach is measured against a raw cursor.
READ = """
select string_agg(seq::text, ','), string_agg(date_part('epoch', at)::text, ','), string_agg(kind, ','),
  string_agg(v::text, ','), string_agg(payload, E'\\x1e')
from (select * from timeline where session = %s and seq > %s order by seq limit %s) page"""

HEAD = """
select s.head_seq, s.label, t.seq, date_part('epoch', t.at), t.kind, t.v, t.payload from sessions s
left join timeline t on t.session = s.key and t.seq = s.open_seq where s.key = %s"""


@dataclass(slots=True)
class Found:
    """What Postgres holds of one Session, unread."""

    checkpoint: str | None = None
    events: list[list[Any]] = field(default_factory=list)
    journal: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Opening:
    """One Session to be opened."""

    session: SessionKey
    token: str
    worker: str
    young: str  # as Postgres reads it


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a Timeline, column by column, as they came."""

    seqs: Sequence[str]
    ats: Sequence[str]
    kinds: Sequence[str]
    versions: Sequence[str]
    payloads: Sequence[str]


class PostgresTimeline:
    """The append-only record."""

    def __init__(self, postgres: Postgres, publish: Publish, *, patience: float = PATIENCE) -> None:
        self._postgres = postgres
        self._appender = Appender(postgres, publish, patience=patience)
        self._openings = Batch(self._open)
        self._leavings = Batch(self._sign_off)

    async def open(self, session: SessionKey, token: str, *, worker: str, young: bool) -> OpenedTimeline | None:
        opened = await self._openings.ask(Opening(session, token, worker, "t" if young else "f"))
        if opened is None:
            await self._explain(session)
        return opened

    async def append(self, session: SessionKey, fence: Fence, step: Append) -> Fence:
        return await self._appender.append(session, fence, step)

    async def hold(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[bool]:
        keys, tokens = numbers([key for key, _ in held]), texts([token for _, token in held])
        kept = set(await self._postgres.ask(HOLD, (seconds, keys, tokens)))
        return [tenure in kept for tenure in held]

    async def sign_off(self, session: SessionKey, fence: Fence) -> None:
        await self._leavings.ask((session, fence))

    async def read(self, session: SessionKey, after: Seq, *, limit: int) -> Sequence[Recorded]:
        events: list[Recorded] = []
        page = await self._page(session, after, min(limit, CHUNK))
        while len(page.seqs) == CHUNK and len(events) + CHUNK < limit:
            left = min(limit - len(events) - CHUNK, CHUNK)
            following = asyncio.create_task(self._page(session, Seq(int(page.seqs[-1])), left))
            await asyncio.sleep(0)  # Postgres gathers the next ones while these are decoded
            events += _recorded(page)
            page = await following
        return events + _recorded(page)

    async def _page(self, session: SessionKey, after: Seq, limit: int) -> "Page":
        (row,) = await self._postgres.ask(READ, (session, after, limit))
        if row[0] is None:
            return Page([], [], [], [], [])
        seqs, ats, kinds, versions = (column.split(",") for column in row[:4])
        return Page(seqs, ats, kinds, versions, row[4].split(SEPARATOR))

    async def head(self, session: SessionKey) -> Head:
        rows = await self._postgres.ask(HEAD, (session,))
        if not rows:
            raise Refused(f"no such Session: number {session}")
        seq, label, started, at, kind, version, payload = rows[0]
        start = Recorded(started, at, codec.decode(kind, version, payload)) if started else None
        return Head(seq, Label(label), start)

    async def _open(self, openings: list[Opening]) -> Sequence[OpenedTimeline | Exception | None]:
        columns = (
            numbers([o.session for o in openings]),
            texts([o.token for o in openings]),
            texts([o.worker for o in openings]),
            texts([o.young for o in openings]),
        )
        rows = {row[0]: row for row in await self._postgres.ask(OPEN, (*columns, CODE))}
        mine = {o.session: o for o in openings if o.session in rows and rows[o.session][-1] == o.token}
        # read after the epoch is raised: whatever an old owner could still write is there by now
        found = {key: Found() for key in mine}
        for key, state, *event in await self._postgres.ask(LATER, (numbers(list(mine)), codec.CHECKPOINT)):
            found[key].checkpoint = state
            if event[0]:
                found[key].events.append(event)
        for key, *said in await self._postgres.ask(UNACCEPTED, (numbers(list(mine)),)):
            found[key].journal.append(said)
        opened = {key: await self._opened(rows[key], opening, found[key]) for key, opening in mine.items()}
        return [opened[o.session] if mine.get(o.session) is o else None for o in openings]

    async def _opened(self, row: TupleRow, opening: Opening, found: "Found") -> OpenedTimeline | Exception:
        """One Session as it stands. What this release cannot read costs that Session, not those beside it (H5, H17)."""
        session = session_of(row[:-2])
        try:
            state = await self._state(session.key, found.checkpoint, [codec.decode(*event) for event in found.events])
            journal = tuple(said_of(*said) for said in found.journal)
        except (KeyError, msgspec.MsgspecError) as why:
            return Broken(f"Session {session.ref} holds what this release cannot read: {type(why).__name__}")
        return OpenedTimeline(Fence(Epoch(row[-2]), opening.token, session.head), state, session, journal)

    async def _state(self, session: SessionKey, checkpoint: str | None, later: list[Event]) -> State:
        if checkpoint is None:
            return fold(later)
        try:
            return fold(later, codec.decode_state(checkpoint))
        except msgspec.ValidationError:  # of another release, although it counts as ours: fold anew (H17)
            rows = await self._postgres.ask(ALL, (session,))
            return fold(codec.decode(kind, version, payload) for kind, version, payload in rows)

    async def _explain(self, session: SessionKey) -> None:
        """Nothing, when another owner must be left alone; otherwise what is wrong."""
        rows = await self._postgres.ask(WHY_NOT, (CODE, session))
        if not rows:
            raise Broken("the database has no schema; run `amux up`, which brings it to today's.")
        known, new_enough, oldest = rows[0]
        if not new_enough:
            raise Refused(f"This amux is {CODE} and the database needs {oldest} or newer: update this machine (H17).")
        if not known:
            raise Refused(f"no such Session: number {session}")

    async def _sign_off(self, leaving: list[tuple[SessionKey, Fence]]) -> Sequence[None]:
        keys = numbers([key for key, _ in leaving])
        epochs, tokens = numbers([f.epoch for _, f in leaving]), texts([f.token for _, f in leaving])
        await self._postgres.ask(SIGN_OFF, (keys, epochs, tokens))
        return [None] * len(leaving)


def _recorded(page: Page) -> list[Recorded]:
    """The events of a page. A thousand fresh objects without a cycle among them are nothing for the collector, which
    would look at them again and again: a fifth of the time of a catch-up."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(map(Recorded._make, zip(map(int, page.seqs), map(float, page.ats), _events(page), strict=True)))
    finally:
        if collecting:
            gc.enable()


def _events(page: Page) -> list[Event]:
    """Read run by run: what an agent says comes in many events of one kind."""
    events: list[Event] = []
    for (kind, version), run in groupby(zip(page.kinds, page.versions, strict=True)):
        start = len(events)
        end = start + sum(1 for _ in run)
        events += codec.decode_run(kind, int(version), page.payloads[start:end])
    return events
