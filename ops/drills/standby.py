"""Two Postgres servers, the second a synchronous standby of the first, and a Redis, for a house that brings none.

Clients find the one that leads at an address that stays: a link which is moved at a failover, as a virtual address is."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGKILL

import psycopg

from amux.core.errors import Refused, Unavailable
from amux.local.binaries import find_binaries
from amux.local.child import spawn
from amux.local.home import Home, hold, socket_path
from amux.local.probes import postgres_answers
from amux.local.restarter import Service
from amux.local.services import Urls, embedded
from amux.local.supervisor import Supervisor

PORT = 5432  # of the address that stays, and of the first server; the second has the next
NAMES = ("postgres-a", "postgres-b")
UP_SECONDS = 60.0
LOOK_SECONDS = 0.05
ATTACHED = "select count(*) from pg_stat_replication where state = 'streaming' and sync_state in ({})"


@dataclass(slots=True)
class Pair:
    """Both servers. `leader` is the number of the one that takes writes."""

    home: Home
    model: Service  # of a Postgres
    redis: Supervisor
    leader: int = 0
    kept: dict[int, Supervisor] = field(default_factory=dict)

    @property
    def urls(self) -> Urls:
        """Where clients find both."""
        return Urls(_url(self._address.parent), f"unix://{self._sockets / 'redis.sock'}")

    def pids(self) -> dict[str, int]:
        """The processes by the names that drills know; what is down is left out."""
        found = {"redis": (self.redis, "redis")}
        for number, kept in self.kept.items():
            found["postgres" if number == self.leader else "standby"] = (kept, NAMES[number])
        pids: dict[str, int] = {}
        for name, (kept, service) in found.items():
            try:
                pids[name] = kept.process(service).pid
            except Unavailable:
                continue
        return pids

    async def up(self) -> None:
        """Wait until the leader takes connections and its standby follows. Raises TimeoutError."""
        await self._until(ATTACHED.format("'sync', 'quorum'"))

    async def fail_over(self) -> None:
        """The leader is killed and stays dead, its standby leads; then the dead one is made anew, as the standby."""
        dead, self.leader = self.leader, 1 - self.leader
        await self.kept[dead].stop(NAMES[dead])
        await self.gone(dead)
        await self._ask("select pg_promote(true, 60)")
        self.point()
        shutil.rmtree(self.data(dead))
        await self.copy()
        await self.kept[dead].start(NAMES[dead])
        await self.attach()

    async def gone(self, number: int) -> None:
        """Wait until none of that server's processes lives: killed, it leaves some for a moment. Raises Unavailable."""
        os.close(await self.home.service_lock(NAMES[number], seconds=UP_SECONDS))

    def point(self) -> None:
        """Let the address lead to the leader."""
        self._address.parent.mkdir(mode=0o700, exist_ok=True)
        new = self._address.with_name("new")
        new.symlink_to(self._sockets / f".s.PGSQL.{PORT + self.leader}")
        new.replace(self._address)

    async def copy(self) -> None:
        """Make the other's data from the leader's, which needs nobody's consent from now until `attach`."""
        await self._ask("alter system reset synchronous_standby_names")
        await self._ask("select pg_reload_conf()")
        data, user = self.data(1 - self.leader), self.model.user
        data.mkdir(mode=0o700)
        if user:
            os.chown(data, user.uid, user.gid)
        program = Path(self.model.argv[0]).with_name("pg_basebackup")
        source = f"host={self._sockets} port={PORT + self.leader} user=amux"
        argv = (str(program), "-D", str(data), "-R", "-X", "stream", "-c", "fast", "-d", source)
        log = self.home.log("basebackup")
        with log.open("wb") as output:
            child = await spawn(argv, self.model.env, output=output.fileno(), death_signal=SIGKILL, user=user)
            if await child.process.wait():
                raise Unavailable(f"the standby could not be made; see {log.read_text()[-300:]!r}")

    async def attach(self) -> None:
        """Let no commit be acknowledged from now on that the standby does not hold."""
        await self._until(ATTACHED.format("'async', 'sync', 'quorum'"))
        await self._ask("alter system set synchronous_standby_names = '*'")
        await self._ask("select pg_reload_conf()")
        await self.up()

    def service(self, number: int) -> Service:
        """That server; stopped as a crash would."""
        port = PORT + number
        ours = ("-D", str(self.data(number)), "-c", f"port={port}", "-c", "wal_retrieve_retry_interval=200ms")
        ready = postgres_answers(self._sockets / f".s.PGSQL.{port}", user="amux", database="postgres")
        return replace(self.model, name=NAMES[number], argv=(*self.model.argv, *ours), ready=ready, stop_signal=SIGKILL)

    def data(self, number: int) -> Path:
        """Where its data lie."""
        return self.home.path / ("pg", "pg-2")[number]

    @property
    def _sockets(self) -> Path:
        return socket_path(self.home.path)

    @property
    def _address(self) -> Path:
        return self._sockets / "at" / f".s.PGSQL.{PORT}"

    async def _until(self, count: str) -> None:
        end = time.monotonic() + UP_SECONDS
        while time.monotonic() < end:
            try:
                if await self._ask(count):
                    return
            except psycopg.OperationalError:  # it is not there yet
                pass
            await asyncio.sleep(LOOK_SECONDS)
        raise TimeoutError("the standby did not follow in time")

    async def _ask(self, statement: str) -> object:
        url = _url(self._sockets, PORT + self.leader)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode())
            row = await cursor.fetchone() if cursor.description else None
            return row[0] if row else None


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Both servers and the Redis in a temporary home; gone after it. Raises Refused where Postgres lacks pg_basebackup."""
    folder = Path(tempfile.mkdtemp(prefix="amux-pair-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        async with hold(folder / "s") as home:
            postgres, redis = await embedded(home, find_binaries(None, None))
            if not Path(postgres.argv[0]).with_name("pg_basebackup").exists():
                raise Refused(
                    f"{postgres.argv[0]} has no pg_basebackup beside it, which a standby needs: set AMUX_PG_BIN."
                )
            async with Supervisor(home, [redis]) as kept:
                one = Pair(home, postgres, kept)
                async with _server(one, 0):
                    one.point()
                    await one.copy()
                    async with _server(one, 1):
                        await kept.ready()
                        await one.attach()
                        yield one
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _server(one: Pair, number: int) -> AsyncIterator[None]:
    async with Supervisor(one.home, [one.service(number)]) as kept:
        one.kept[number] = kept
        await kept.ready()
        yield
    await one.gone(number)


def _url(folder: Path, port: int = PORT) -> str:
    return f"postgresql://amux@/postgres?host={folder}&port={port}"
