"""`amux up` and `amux demo`: everything on this machine, in one program that leaves nothing behind."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from amux.cli.common import exits
from amux.core.errors import Refused
from amux.local.binaries import find_binaries
from amux.local.home import running
from amux.local.house import SERVICES, Plan, run
from amux.local.probes import free_or_refuse
from amux.local.restarter import State, Told
from amux.local.services import Urls
from amux.local.supervisor import ending_on_signals
from amux.settings import Settings, environment, load

IMPATIENT = (1.0,) * 30 + (15, 300, 3600, 21600)  # what is said before the bot is there comes soon after
DEMO_LEASE, DEMO_SECONDS = "3", 20.0  # a person waits for the recovery, and wants time to interfere


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up", epilog="Example: amux up worker deliver")(up)
    app.command("demo", epilog="Example: amux demo --engine codex")(demo)


def up(
    service: Annotated[list[str] | None, typer.Argument(help="Only these services of the Procfile.")] = None,
) -> None:
    """Run amux here until Ctrl-C. Without URLs in the settings it brings Postgres and Valkey of its own."""
    with exits():
        settings = load(os.environ)
        names = tuple(service or (n for n in SERVICES if n != "ingress" or settings.feishu))
        if unknown := [name for name in names if name not in SERVICES]:
            raise Refused(f"there is no service {unknown[0]!r}; there are {', '.join(SERVICES)}.")
        asyncio.run(_up(settings, names))


async def _up(settings: Settings, names: Sequence[str]) -> None:
    with ending_on_signals():
        async with run(plan(settings, dict(os.environ), names), progress()):
            print(f"amux is up: http://127.0.0.1:{settings.web_port}. Ctrl-C stops it.", flush=True)
            await asyncio.Event().wait()


def demo(
    once: Annotated[bool, typer.Option("--once", help="Play the tour without a person, and end.")] = False,
    engine: Annotated[str, typer.Option(help="scripted, codex or claude, on a loopback model.")] = "scripted",
) -> None:
    """Try amux on this machine: a Feishu-like chat in the browser, and nothing that leaves the machine."""
    with exits():
        settings = load(os.environ)
        if once:
            from ops.drills.tour import tour

            raise typer.Exit(asyncio.run(tour(settings, engine)))
        asyncio.run(_demo(settings, engine))


async def _demo(settings: Settings, engine: str) -> None:
    with ending_on_signals():
        async with sandbox(settings, engine) as (env, address):
            print(f"The sandbox is at {address}/sandbox", flush=True)
            async with run(plan(load(env), env, SERVICES), progress()):
                print('In another terminal: amux run "Summarise the changelog" · amux ls · Ctrl-C here stops all.')
                sys.stdout.flush()
                await asyncio.Event().wait()


@asynccontextmanager
async def sandbox(settings: Settings, engine: str) -> AsyncIterator[tuple[dict[str, str], str]]:
    """The loopback world with its page: the environment of an amux that lives in it, and its address."""
    from amux.sandbox import feishu
    from amux.sandbox.app import create
    from amux.sandbox.env import sandbox_env
    from amux.sandbox.models import Models
    from amux.sandbox.pace import Pace

    port = free_or_refuse(settings.web_port + 2, host="127.0.0.1", remedy="set AMUX_WEB_PORT to another")
    seconds = float(os.environ.get("AMUX_SCRIPTED_SECONDS") or DEMO_SECONDS)
    world = feishu.small_world(pace=Pace(retry_seconds=IMPATIENT))
    app = create(world, Models(seconds=seconds), lambda *asked: fate_in(settings, *asked))
    async with feishu.serving(app, port=port) as address:
        env = {"AMUX_LEASE": DEMO_LEASE, **os.environ, **sandbox_env(engine, address, seconds)}
        yield env, address


async def fate_in(settings: Settings, person: str, chat: str, topic: str | None, text: str) -> Mapping[str, str] | None:
    """What sending that message would do, from the amux that lives in this home; None while it is not there."""
    from amux.cli.fate import forecast

    found = running(settings.home)
    if found is None or "web" not in found.ports:
        return None
    return await forecast(found.urls["postgres"], settings.busy_input, person, chat, topic, text)


def _migrate(url: str) -> None:
    from ops.migrations import upgrade

    upgrade(url)


def plan(settings: Settings, env: Mapping[str, str], names: Sequence[str]) -> Plan:
    """What to run by these settings."""
    ports = {"web": settings.web_port, "flower": settings.web_port + 1}
    for name in set(names) & set(ports):
        free_or_refuse(ports[name], host="127.0.0.1", remedy="set AMUX_WEB_PORT to another")
    given = settings.postgres_url and settings.redis_url
    return Plan(
        home=settings.home,
        env=environment(env),
        binaries=lambda: find_binaries(settings.pg_bin, settings.redis_bin),
        migrate=_migrate,
        names=names,
        ports=ports,
        urls=Urls(settings.postgres_url or "", settings.redis_url or "") if given else None,
    )


def progress() -> Callable[[Told], None]:
    """One line for each change that people care about, on stderr."""
    print("Starting amux ...", file=sys.stderr, flush=True)

    def tell(told: Told) -> None:
        if told.state in (State.ready, State.restarting, State.degraded):
            detail = f": {told.detail}" if told.detail else ""
            print(f"  {told.name} {told.state}{detail}", file=sys.stderr, flush=True)

    return tell
