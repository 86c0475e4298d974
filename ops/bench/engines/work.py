"""The work that every engine does: a Turn's rows in one statement, in a closed loop of Sessions. It imports no amux.

Settings come from the environment; what was measured goes to stdout as one line of JSON."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

POSTGRES = os.environ.get("BENCH_POSTGRES_URL", "")
SESSIONS, TURNS = (int(os.environ.get(name, "1")) for name in ("BENCH_SESSIONS", "BENCH_TURNS"))
ROWS = int(os.environ.get("BENCH_ROWS", "23"))
BATCH = "\x1e".join([os.environ.get("BENCH_PAYLOAD", "")] * ROWS)
WARM = 16
WRITE = """
insert into other_turns select %s, %s + n, %s, 'item', 1, payload, now()
from unnest(string_to_array(%s, E'\\x1e')) with ordinality e(payload, n)"""


async def pool() -> Any:
    """Connections, opened when the loop runs."""
    from psycopg_pool import AsyncConnectionPool

    made = AsyncConnectionPool(POSTGRES, min_size=4, max_size=16, kwargs={"autocommit": True}, open=False)
    await made.open(wait=True)
    return made


async def write(connections: Any, session: int, number: int) -> None:
    """One Turn's rows."""
    async with connections.connection() as connection:
        await connection.execute(WRITE, (session, number * ROWS, number, BATCH), prepare=True)


async def measure(turn: Callable[[int, int], Awaitable[object]]) -> None:
    """Warm up on Sessions below zero, then do the work and say how long it took."""
    await asyncio.gather(*(turn(-1 - nth, 0) for nth in range(WARM)))

    async def session(key: int) -> None:
        for number in range(TURNS):
            await turn(key, number)

    began = time.perf_counter()
    await asyncio.gather(*map(session, range(SESSIONS)))
    row = {"turns": SESSIONS * TURNS, "seconds": time.perf_counter() - began}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
