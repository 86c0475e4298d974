"""This process' few connections to Postgres, what each failure means, and parameters as Postgres reads them fastest.

Every statement stands alone in autocommit, so that nothing here needs a Postgres session and nothing stays open across
an await of anything else (H18). It knows no table."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from amux.core.errors import Broken, Unavailable

SIZE = 4  # connections of a process
LOCK_MS = 1_000  # how long a statement waits for a row that somebody else has locked (H18)
STATEMENT_SECONDS = 15.0
CONNECT_SECONDS = 5
OPTIONS = (
    f"-c lock_timeout={LOCK_MS} -c idle_in_transaction_session_timeout=10000 -c synchronous_commit=on "
    # statements are prepared while tables are still empty: their plans must suit full ones
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
)
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0  # seconds between two attempts
SEPARATOR = "\x1e"  # no JSON text holds it raw

Params = Sequence[Any] | Mapping[str, Any]


class Failure(Enum):
    """What a failed statement means for its caller."""

    away = "away"  # no connection, or it broke: what was sent may have been done
    full = "full"  # disk, memory, connections, a standby: nothing was done, try later
    busy = "busy"  # a deadlock or somebody's lock: nothing was done
    fault = "fault"  # this statement will never do


def judge(fault: Exception) -> Failure:
    """The meaning of what psycopg raised; anything that is not psycopg's is a fault of what was asked."""
    if isinstance(fault, TimeoutError | OSError | psycopg.errors.ConnectionTimeout):
        return Failure.away
    if not isinstance(fault, psycopg.Error):
        return Failure.fault
    state = fault.sqlstate
    if state is None:
        return Failure.away if isinstance(fault, psycopg.OperationalError) else Failure.fault
    if state in ("40P01", "40001", "55P03", "57014"):
        return Failure.busy
    if state.startswith("53") or state in ("57P03", "25006"):
        return Failure.full
    return Failure.away if state.startswith(("08", "57P")) else Failure.fault


def named(fault: Exception) -> str:
    """What it was, for logs and people: its own message may quote what somebody wrote."""
    constraint = fault.diag.constraint_name if isinstance(fault, psycopg.Error) else None
    return f"{type(fault).__name__} {constraint}" if constraint else type(fault).__name__


class NotConnected(psycopg.OperationalError):
    """There was no connection to send it on, so it certainly did not happen."""


class Postgres:
    """A handful of connections, opened when they are needed and dropped when they break."""

    def __init__(self, url: str, *, size: int = SIZE) -> None:
        self._url = url
        self._idle: list[AsyncConnection[TupleRow]] = []  # the last one used is the warmest, and is used next
        self._slots = asyncio.Semaphore(size)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        """One of them for one statement. Raises NotConnected, or what the statement raises."""
        async with self._slots:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            finally:
                if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    if connection.broken:  # so are the others, most likely: Postgres restarted
                        await self.close()
                    await connection.close()

    async def run(self, statement: LiteralString, params: Params = ()) -> list[TupleRow]:
        """Its rows, at the first attempt. Raises psycopg's own errors, for callers who judge them."""
        async with self.connection() as connection, asyncio.timeout(STATEMENT_SECONDS):
            cursor = await connection.execute(statement, params, prepare=True)
            return await cursor.fetchall() if cursor.description else []

    async def ask(self, statement: LiteralString, params: Params = (), *, patience: float = 5.0) -> list[TupleRow]:
        """The same for a statement that may be repeated, for up to `patience` seconds.

        Raises Unavailable when Postgres stays away, Broken when the statement itself is wrong."""
        backoff = Backoff(patience)
        while True:
            try:
                return await self.run(statement, params)
            except Exception as fault:
                if judge(fault) is Failure.fault:
                    raise Broken(f"a statement failed: {named(fault)}") from None
                if not await backoff.wait():
                    raise Unavailable("Postgres does not answer; see `amux doctor`.") from fault

    async def close(self) -> None:
        """Close what is idle; what is in use closes nothing."""
        while self._idle:
            await self._idle.pop().close()

    async def _connect(self) -> AsyncConnection[TupleRow]:
        try:
            return await AsyncConnection.connect(
                self._url, autocommit=True, options=OPTIONS, connect_timeout=CONNECT_SECONDS, application_name="amux"
            )
        except psycopg.OperationalError as why:
            raise NotConnected("no connection to Postgres") from why


class Backoff:
    """Waits between attempts, longer each time, until `patience` seconds are over."""

    def __init__(self, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._end, self._next = self._loop.time() + patience, FIRST_WAIT

    async def wait(self) -> bool:
        """Wait and answer True, or answer False when there is no time left."""
        left = self._end - self._loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(self._next, left))
        self._next = min(self._next * 2, LONGEST_WAIT)
        return True


def numbers(values: Iterable[int | None]) -> str:
    """An array of numbers as Postgres reads it. psycopg's own lists cost a microsecond an element."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of any texts as Postgres reads it."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
