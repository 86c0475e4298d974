"""All of amux on one machine: servers of its own where none are given, the schema, then its services in order.

It knows processes and their environments; what a service does is its own business."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from amux.local.binaries import Binaries
from amux.local.home import Home, hold
from amux.local.probes import http_answers
from amux.local.restarter import Probe, Readiness, Service, Told
from amux.local.services import Urls, embedded, urls
from amux.local.supervisor import Supervisor

SERVICES = ("worker", "deliver", "ingress", "web", "beat", "flower")
DRAIN_SECONDS = 30.0  # a worker lets its Turns end


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run; a service named twice runs twice. `env` is what every service gets; `ports` are those of `web` and
    `flower`; without `urls` the servers are our own."""

    home: Path
    env: Mapping[str, str]
    binaries: Callable[[], Binaries]
    migrate: Callable[[str], None]
    names: Sequence[str] = SERVICES
    ports: Mapping[str, int] | None = None
    urls: Urls | None = None


@dataclass(frozen=True, slots=True)
class House:
    """It runs. `servers` keeps Postgres and Redis where they are ours."""

    home: Home
    urls: Urls
    servers: Supervisor
    services: Supervisor


@asynccontextmanager
async def run(plan: Plan, tell: Callable[[Told], None]) -> AsyncIterator[House]:
    """Everything started and ready while the context is open; nothing left after it. To be entered in the main thread.

    Raises what `hold`, `embedded` and `Supervisor.ready` raise."""
    async with hold(plan.home) as home:
        ours = () if plan.urls else await embedded(home, plan.binaries())
        async with Supervisor(home, ours, tell=tell) as servers:
            await servers.ready()
            where = plan.urls or urls(plan.home)
            await asyncio.to_thread(plan.migrate, where.postgres)
            home.note(urls={"postgres": where.postgres, "redis": where.redis}, ports=plan.ports or {})
            async with Supervisor(home, list(services(plan, where)), tell=tell) as kept:
                await kept.ready()
                yield House(home, where, servers, kept)


def services(plan: Plan, where: Urls) -> Sequence[Service]:
    """The services of a plan, as processes."""
    return [_service(plan, where, name, plan.names[: at + 1].count(name)) for at, name in enumerate(plan.names)]


def _service(plan: Plan, where: Urls, name: str, number: int) -> Service:
    unique = name if number == 1 else f"{name}-{number}"
    ready_file = plan.home / "ready" / unique
    ready_file.parent.mkdir(parents=True, exist_ok=True)
    ready_file.unlink(missing_ok=True)
    env = {
        **plan.env,
        "AMUX_HOME": str(plan.home),
        "AMUX_POSTGRES_URL": where.postgres,
        "AMUX_REDIS_URL": where.redis,
        "AMUX_SERVICE": unique,
        "AMUX_READY_FILE": str(ready_file),
    }
    port = (plan.ports or {}).get(name)
    aside = name in ("ingress", "flower")  # neither is waited for: one imports for seconds, the other may never matter
    ready: Probe | None = None
    if name in ("worker", "deliver", "ingress"):
        ready = written(ready_file)
    elif port:
        ready = http_answers(f"http://127.0.0.1:{port}/healthz" if name == "web" else f"http://127.0.0.1:{port}/")
    return Service(
        name=unique,
        argv=(sys.executable, "-m", "amux.cli", "serve", name),
        env=env,
        ready=ready,
        grace_seconds=DRAIN_SECONDS if name == "worker" else 10.0,
        readiness=Readiness.aside if aside else Readiness.awaited,
    )


def written(path: Path) -> Probe:
    """A service that writes its pid there when it is ready; what an earlier life wrote does not count."""

    def alive() -> bool:
        try:
            os.kill(int(path.read_text()), 0)
        except (OSError, ValueError):
            return False
        return True

    async def ready() -> bool:
        return alive()

    return ready
