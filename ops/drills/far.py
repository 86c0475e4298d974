"""A worker that reaches both servers by wires of the drill's, so that it alone can be cut off from either.

It belongs to the house and works in its home; only it is kept by the drill."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from amux.core.errors import Unavailable
from amux.local.home import hold
from amux.local.house import DRAIN_SECONDS, written
from amux.local.restarter import Service
from amux.local.services import Urls
from amux.local.supervisor import Supervisor
from ops.drills.stage import Stage
from ops.drills.wire import Wire, wire

FAR = "worker-3"  # the house has two


@dataclass(frozen=True, slots=True)
class Far:
    """The worker's wires, and what keeps it."""

    postgres: Wire
    redis: Wire
    kept: Supervisor

    def pids(self) -> dict[str, int]:
        """Its process by its name; none while it is down."""
        try:
            return {FAR: self.kept.process(FAR).pid}
        except Unavailable:
            return {}


@asynccontextmanager
async def far_worker(one: Stage, urls: Urls) -> AsyncIterator[Far]:
    """The worker, ready, while the context is open; the stage knows its process."""
    postgres = conninfo_to_dict(urls.postgres)
    port = postgres["port"]
    with (
        wire(Path(str(postgres["host"])) / f".s.PGSQL.{port}") as (to_postgres, by_postgres),
        wire(Path(urlsplit(urls.redis).path)) as (to_redis, by_redis),
    ):
        wired = Urls(f"postgresql://amux@/postgres?host={by_postgres.parent}&port={port}", f"unix://{by_redis}")
        async with (
            hold(one.home.with_name("far")) as home,
            Supervisor(home, [_worker(one, wired)]) as kept,
        ):
            far = Far(to_postgres, to_redis, kept)
            one.others.append(far.pids)
            try:
                await kept.ready()
                yield far
            finally:
                one.others.remove(far.pids)


def _worker(one: Stage, urls: Urls) -> Service:
    ready = one.home / "ready" / FAR
    env = {
        **one.env,
        "AMUX_POSTGRES_URL": urls.postgres,
        "AMUX_REDIS_URL": urls.redis,
        "AMUX_SERVICE": FAR,
        "AMUX_READY_FILE": str(ready),
    }
    argv = (sys.executable, "-m", "amux.cli", "serve", "worker")
    return Service(FAR, argv, env, ready=written(ready), grace_seconds=DRAIN_SECONDS)
