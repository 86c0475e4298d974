"""`append` and `attach`: rows through the Fence against COPY, and a Timeline replayed against a raw cursor."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import psycopg

from amux import wiring
from amux.core.events import Item, ItemStatus, ItemType
from amux.core.ids import ItemId, Seq, SessionKey, TurnId
from amux.core.session import State
from amux.ports import Append, Fence
from amux.runtime.attach import PAGE
from ops.bench import other
from ops.bench.ground import Ground, ground, median, new_session, say
from ops.bench.report import Report

WRITERS, SECONDS, ROUNDS = 16, 3.0, 3
BATCHES = (23, 200, 1_000)  # rows of one append, or of one COPY; each side is taken at its best
EVENTS = 100_000  # of the Timeline that is replayed
EVENT = Item(TurnId(1), ItemId("1.10"), ItemType.message, ItemStatus.completed, "", other.TEXT)
RAW = """
select seq, extract(epoch from at)::float8, kind, v, payload from timeline
where session = %s and seq > %s order by seq limit %s"""
COPY = "copy copied (session, seq, turn_seq, kind, v, payload, at) from stdin"

Writer = Callable[[], Awaitable[None]]  # writes one batch


async def append(
    report: Report, *, seconds: float = SECONDS, rounds: int = ROUNDS, batches: Sequence[int] = BATCHES
) -> None:
    """Durable rows a second, both sides with the same writers and the same rows."""
    fenced: dict[int, list[float]] = {size: [] for size in batches}
    copied: dict[int, list[float]] = {size: [] for size in batches}
    async with ground(slots=1, names=()) as place, wiring.stores(place.settings) as parts:
        _prepare(place)
        keys = [await new_session(parts) for _ in range(WRITERS)]
        fences = [await _fence(parts, key) for key in keys]
        links = [await psycopg.AsyncConnection.connect(place.urls.postgres, autocommit=True) for _ in keys]
        for number in range(rounds):
            for size in batches:
                ours = [_Fenced(parts, key, fence, size) for key, fence in zip(keys, fences, strict=True)]
                theirs = [_Copied(link, nth, size) for nth, link in enumerate(links)]
                fenced[size].append(size * await _rate([one.write for one in ours], seconds))
                fences = [one.fence for one in ours]
                copied[size].append(size * await _rate([one.write for one in theirs], seconds))
                _prepare(place)
            say(f"round {number + 1}: {_last(fenced)} of {_last(copied)} rows/s")
        for link in links:
            await link.close()
        report.faults = _gaps(place, [(key, fence.head) for key, fence in zip(keys, fences, strict=True)])
    best = max(batches, key=lambda size: median(copied[size]))
    mine = max(batches, key=lambda size: median(fenced[size]))
    report.shape = {"writers": WRITERS, "seconds": seconds, "rounds": rounds}
    report.ours = {"rows_s": round(median(fenced[mine])), "batch": mine, "by_batch": _medians(fenced)}
    report.limit = {"copy_rows_s": round(median(copied[best])), "batch": best, "by_batch": _medians(copied)}
    report.ratio = round(median(f / c for f, c in zip(fenced[mine], copied[best], strict=True)), 2)
    report.due = report.ratio >= 0.4


class _Fenced:
    """One owner's appends of so many events, one after the other."""

    def __init__(self, parts: wiring.Stores, key: SessionKey, fence: Fence, size: int) -> None:
        self.fence = fence
        self._parts, self._key, self._step = parts, key, Append((EVENT,) * size, State())

    async def write(self) -> None:
        self.fence = await self._parts.timeline.append(self._key, self.fence, self._step)


class _Copied:
    """The same rows into a table of the same shape, by COPY, encoded as it goes like ours."""

    def __init__(self, link: psycopg.AsyncConnection[tuple[object, ...]], writer: int, size: int) -> None:
        self._link, self._writer, self._size, self._head = link, writer, size, 0

    async def write(self) -> None:
        key, first = self._writer, self._head + 1
        self._head += self._size
        rows = "".join(
            [f"{key}\t{seq}\t1\titem\t1\t{other.PAYLOAD}\tnow\n" for seq in range(first, first + self._size)]
        )
        async with self._link.cursor() as cursor, cursor.copy(COPY) as copy:
            await copy.write(rows)


async def _rate(writers: Sequence[Writer], seconds: float) -> float:
    """Batches a second of all writers together."""
    written = 0

    async def work(write: Writer, end: float) -> None:
        nonlocal written
        while time.perf_counter() < end:
            await write()
            written += 1

    began = time.perf_counter()
    await asyncio.gather(*(work(write, began + seconds) for write in writers))
    return written / (time.perf_counter() - began)


async def attach(report: Report, *, events: int = EVENTS, rounds: int = 5) -> None:
    """Events a second that a late viewer reads and decodes, against a raw cursor over the same rows and pages."""
    ours: list[float] = []
    raw: list[float] = []
    async with ground(slots=1, names=()) as place, wiring.stores(place.settings) as parts:
        key = await new_session(parts)
        writer = _Fenced(parts, key, await _fence(parts, key), 1_000)
        for _ in range(events // 1_000):
            await writer.write()
        with psycopg.connect(place.urls.postgres, autocommit=True, prepare_threshold=0) as connection:
            connection.execute("analyze timeline")
            for _ in range(rounds):
                began = time.perf_counter()
                seen = await _replayed(parts, key, events)
                ours.append(seen / (time.perf_counter() - began))
                began = time.perf_counter()
                read = _raw(connection, key)
                raw.append(read / (time.perf_counter() - began))
                report.faults += [] if seen == read == events else [f"{seen} replayed, {read} read, {events} written"]
    report.shape = {"events": events, "page": PAGE, "rounds": rounds}
    report.ours, report.limit = {"events_s": round(median(ours))}, {"raw_cursor_events_s": round(median(raw))}
    report.ratio = round(median(mine / theirs for mine, theirs in zip(ours, raw, strict=True)), 2)
    report.due = report.ratio >= 0.5


async def _replayed(parts: wiring.Stores, key: SessionKey, events: int) -> int:
    """What a viewer from the start has seen when it has caught up; every event decoded, in its order."""
    seen = 0
    async for grown in parts.attach.follow(key, Seq(0)):
        assert [one.seq for one in grown] == list(range(seen + 1, seen + len(grown) + 1))
        seen += sum(isinstance(one.event, Item) for one in grown)
        if seen >= events:
            break
    return seen


def _raw(connection: psycopg.Connection[tuple[object, ...]], key: SessionKey) -> int:
    after = read = 0
    while rows := connection.execute(RAW, (key, after, PAGE)).fetchall():
        after, read = int(str(rows[-1][0])), read + len(rows)
        if len(rows) < PAGE:
            break
    return read


async def _fence(parts: wiring.Stores, key: SessionKey) -> Fence:
    opened = await parts.timeline.open(key, f"bench|{key}", worker="bench", young=False)
    assert opened, "a new Session has no owner"
    return opened.fence


def _prepare(place: Ground) -> None:
    """A table like the Timeline's own, empty."""
    with psycopg.connect(place.urls.postgres, autocommit=True) as connection:
        connection.execute("drop table if exists copied")
        connection.execute("create table copied (like timeline including defaults including indexes)")


def _gaps(place: Ground, heads: Sequence[tuple[SessionKey, int]]) -> list[str]:
    with psycopg.connect(place.urls.postgres) as connection:
        rows = connection.execute("select session, count(*), max(seq) from timeline group by session").fetchall()
    found = {int(key): (int(number), int(last)) for key, number, last in rows}
    return [f"session {key}: {found.get(key)} and not {head}" for key, head in heads if found.get(key) != (head, head)]


def _last(by_batch: dict[int, list[float]]) -> dict[int, int]:
    return {size: round(rates[-1]) for size, rates in by_batch.items()}


def _medians(by_batch: dict[int, list[float]]) -> dict[str, int]:
    return {str(size): round(median(rates)) for size, rates in by_batch.items()}
