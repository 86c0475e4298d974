"""`idle`: what a Session costs while an owner keeps it, and while it sleeps. A sleeping one holds nothing but its rows."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg

from amux import wiring
from ops.bench.ground import Ground, ground, rss, threads
from ops.bench.report import Report
from ops.bench.sides import check, ours

SESSIONS = 200
WATCHED_SECONDS = 10.0
LINGER_SECONDS = 20.0
KEPT = (b"born", b"_kombu.", b"unacked")  # of all Sessions together, and Celery's own

ROWS = """
select avg(pg_column_size(s.*))::float8, coalesce(avg(pg_column_size(c.*)), 0)::float8
from sessions s left join checkpoints c on c.session = s.key"""


async def idle(report: Report, *, sessions: int = SESSIONS, seconds: float = WATCHED_SECONDS) -> None:
    """Bytes and CPU of owned Sessions, and that sleeping ones hold no Redis key, no process and no thread."""
    linger = {"AMUX_LINGER": f"{max(LINGER_SECONDS, 2 * seconds):g}"}
    async with ground(slots=sessions, extra=linger) as place, wiring.stores(place.settings) as parts:
        async with ours(parts, sessions) as side:  # all have worked once and sleep: threads and pools are there
            before = rss(place.worker)
            await asyncio.gather(*map(side.turn, side.keys))
            keys = await _keys(parts)
            report.ours["owned"] = {
                "worker_bytes": round(max(0, rss(place.worker) - before) / sessions),
                "redis_bytes": round(sum([await _bytes(parts, key) for key in keys]) / sessions),
                "redis_keys": round(len(keys) / sessions, 2),
                "cpu_us_a_second": await _cpu(place, seconds, sessions),
            }
            awake = threads(place.worker)
            await side.rest()
            report.faults += check(place, side, sessions)
        async with ours(parts, sessions):  # as many more, which sleep too
            left = await _keys(parts)
            report.faults += [f"a sleeping Session holds {key.decode()}" for key in left[:5]]
            report.faults += [f"{n} more processes" for n in [_children(place.worker)] if n]
            grown = threads(place.worker) - awake
            report.faults += [f"{grown} more threads for {sessions} more sleeping Sessions"] if grown > 0 else []
        row, checkpoint = _rows(place)
        report.ours["sleeping"] = {
            "redis_keys": len(left),
            "processes": _children(place.worker),
            "threads_for_as_many_more": max(0, grown),
            "postgres_row_bytes": row,
            "postgres_checkpoint_bytes": checkpoint,
            "cpu_us_a_second": await _cpu(place, seconds, 2 * sessions),
        }
    report.shape = {"sessions": sessions, "watched_s": seconds}
    report.limit = {"sleeping": {"redis_keys": 0, "processes": 0, "threads_for_as_many_more": 0}}
    report.due = not report.faults


async def _keys(parts: wiring.Stores) -> list[bytes]:
    """Redis keys that belong to a Session."""
    found: list[bytes] = await parts.redis.command("KEYS", "*")
    return [key for key in found if not key.startswith(KEPT)]


async def _bytes(parts: wiring.Stores, key: bytes) -> int:
    return int(await parts.redis.command("MEMORY", "USAGE", key) or 0)


async def _cpu(place: Ground, seconds: float, sessions: int) -> float:
    """CPU microseconds of the worker a second and Session."""
    before = place.cpu()["worker"]
    await asyncio.sleep(seconds)
    return round((place.cpu()["worker"] - before) / seconds / sessions * 1e6, 1)


def _children(pid: int) -> int:
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _rows(place: Ground) -> tuple[int, int]:
    with psycopg.connect(place.urls.postgres) as connection:
        row: Any = connection.execute(ROWS).fetchone()
    return round(row[0]), round(row[1])
