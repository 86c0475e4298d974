"""Builds what runs from Settings: the only file that knows every adapter. It decides nothing and keeps nothing.

Feishu's side, the web and SQLAlchemy are imported where they are wired: the command line must not wait for them."""

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from amux.core.errors import Refused, Unavailable, Uncertain
from amux.core.ids import SessionRef
from amux.core.launch import LaunchSnapshot
from amux.extensions import Provider
from amux.providers.claude import Claude
from amux.providers.codex import Codex
from amux.providers.scripted import Scripted, ScriptedInWorker
from amux.runtime.attach import Attach
from amux.runtime.deliver import Deliver
from amux.runtime.host import Host
from amux.runtime.keeper import Keeper
from amux.runtime.owner import Pace, Runtime
from amux.runtime.receive import Receive
from amux.runtime.submit import Submit
from amux.runtime.sweep import Sweep
from amux.settings import FeishuSettings, Settings
from amux.stores.cards import PostgresCards
from amux.stores.hints import CeleryWaker, RedisBells, RedisNudges
from amux.stores.inbox import RedisInbox
from amux.stores.inputs import PostgresInputs
from amux.stores.lease import RedisLeases
from amux.stores.postgres import Postgres
from amux.stores.redis import Redis
from amux.stores.sessions import PostgresSessions
from amux.stores.timeline import PostgresTimeline

if TYPE_CHECKING:
    import httpx2

    from amux.feishu.openapi import OpenApi
    from amux.stores.bindings import PostgresBindings

log = structlog.stdlib.get_logger()
OPENINGS = min(4, os.cpu_count() or 2)  # agents that start at once in a worker: more would keep it from its Leases


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class Stores:
    """Every adapter over this process' connections."""

    postgres: Postgres
    redis: Redis
    inputs: PostgresInputs
    inbox: RedisInbox
    leases: RedisLeases
    timeline: PostgresTimeline
    sessions: PostgresSessions
    cards: PostgresCards
    nudges: RedisNudges
    waker: CeleryWaker

    @property
    def bindings(self) -> "PostgresBindings":
        """Topic Bindings, which only the Bridge reads."""
        from amux.stores.bindings import PostgresBindings

        return PostgresBindings(self.postgres)

    @property
    def submit(self) -> Submit:
        """The one way in."""
        return Submit(self.inputs, self.inbox, self.waker)

    @property
    def attach(self) -> Attach:
        """A reader of Timelines."""
        return Attach(self.timeline, self.nudges)

    @property
    def sweep(self) -> Sweep:
        """Knocks where something was left lying."""
        return Sweep(self.inputs, self.sessions, self.cards, self.leases, self.waker)


def calm_collector() -> None:
    """For a process that lives long, once and after its imports: what is imported stays, and the thousands of small
    events that come and go hold no cycles. Looking at all of them again and again is a sixth of a Turn (H20)."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@asynccontextmanager
async def stores(settings: Settings) -> AsyncIterator[Stores]:
    """Connections that are opened when they are needed, and closed at the end. Raises Refused without URLs."""
    if not (settings.postgres_url and settings.redis_url):
        raise Refused(
            "amux is not running here. Start it with `amux up` or `amux demo`, or set AMUX_POSTGRES_URL and "
            "AMUX_REDIS_URL."
        )
    postgres, redis = Postgres(settings.postgres_url), Redis(settings.redis_url)
    nudges = RedisNudges(redis)
    try:
        yield Stores(
            postgres=postgres,
            redis=redis,
            inputs=PostgresInputs(postgres),
            inbox=RedisInbox(redis),
            leases=RedisLeases(redis),
            timeline=PostgresTimeline(postgres, nudges.publish),
            sessions=PostgresSessions(postgres),
            cards=PostgresCards(postgres),
            nudges=nudges,
            waker=CeleryWaker(redis),
        )
    finally:
        await nudges.close()
        await redis.close()
        await postgres.close()


@asynccontextmanager
async def host(settings: Settings, env: Mapping[str, str]) -> AsyncIterator[Host]:
    """A worker's owners, with their Leases kept while the context is open."""
    worker = f"{settings.target}-{socket.gethostname()}-{os.getpid()}"
    async with stores(settings) as parts:
        clock, bells = SystemClock(), RedisBells(parts.redis, worker)
        runtime = Runtime(
            worker=worker,
            pace=Pace(settings.lease, settings.linger, settings.burst_window),
            timeline=parts.timeline,
            inputs=parts.inputs,
            inbox=parts.inbox,
            leases=parts.leases,
            bells=bells,
            waker=parts.waker,
            clock=clock,
            keeper=Keeper(parts.leases, parts.timeline, clock, settings.lease),
            providers=providers(env),
            home=lambda ref: str(settings.home / "sessions" / ref.target / ref.id),
            opening=asyncio.Semaphore(OPENINGS),
        )
        owners = Host(runtime, settings.target, settings.slots)
        owners.start()
        try:
            yield owners
        finally:
            await owners.stop()
            await bells.close()


def providers(env: Mapping[str, str]) -> dict[str, Provider]:
    """Every engine by its name: those that ship, and those that plug-ins bring by the entry point `amux.providers`."""
    seconds = float(env.get("AMUX_SCRIPTED_SECONDS") or 1)
    inside = env.get("AMUX_SCRIPTED_IN_WORKER") == "1"  # for benchmarks, where the other side has no agent either
    scripted: Provider = ScriptedInWorker() if inside else Scripted(seconds=seconds)
    shipped: list[Provider] = [scripted, Codex(env), Claude(env)]
    found = {provider.engine: provider for provider in shipped}
    for point in entry_points(group="amux.providers"):
        try:
            plugged: Provider = point.load()(env)
        except Exception as why:  # noqa: BLE001 - a plug-in's fault is its own
            log.error("plug_in_failed", name=point.name, why=type(why).__name__)
        else:
            found.setdefault(plugged.engine, plugged)
    return found


def launch_settings(settings: Settings, ref: SessionRef, *, engine: str | None = None) -> LaunchSnapshot:
    """What a new Session records when its launch names nothing else; its workspace is made. Raises Refused when it
    cannot be."""
    workspace = settings.workspace or Path(settings.home) / "workspaces" / ref.id
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise Refused(
            f"No workspace can be made in {workspace.parent} ({why.strerror}): name one with --workspace, or set "
            "AMUX_HOME to a folder that is yours."
        ) from why
    return LaunchSnapshot(engine=engine or settings.engine, workspace=str(workspace))


@asynccontextmanager
async def deliverer(settings: Settings, parts: Stores) -> AsyncIterator[Deliver | None]:
    """What shows Turns in Feishu; None where no bot is set up."""
    if settings.feishu is None:
        yield None
        return
    from amux.feishu.cards import render
    from amux.feishu.messenger import FeishuMessenger
    from amux.feishu.openapi import http_client

    async with http_client() as http:
        messenger = FeishuMessenger({settings.feishu.app_id: _api(settings.feishu, http)})
        yield Deliver(parts.attach, parts.cards, parts.bindings, parts.waker, messenger, render, settings.lease)


async def ingress(settings: Settings, ready: Callable[[], None]) -> None:
    """Hold the bot's long connection until TERM; `ready` is called whenever it is up. Raises Refused where no bot is set
    up, or its secret is wrong."""
    from amux.feishu.ingress import Ingress, access
    from amux.feishu.longconn import Health, Link, LongConnection
    from amux.feishu.openapi import http_client

    calm_collector()
    bot = settings.feishu
    if bot is None:
        raise Refused("There is no bot to listen for: set AMUX_FEISHU_APP_ID and AMUX_FEISHU_APP_SECRET.")
    async with stores(settings) as parts, http_client() as http:
        api = _api(bot, http)
        allowed = access(bot.app_id, bot.owner, bot.drivers)
        receive = Receive(
            parts.submit, parts.bindings, allowed, settings.target, lambda ref: launch_settings(settings, ref)
        )
        ear = Ingress(api, await _open_id(api), receive, parts.cards, allowed)

        def watch(health: Health) -> None:
            if health.link is Link.up:
                ready()

        link = LongConnection(app=bot.app_id, secret=bot.app_secret, domain=bot.domain, handle=ear.handle, watch=watch)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, link.stop)
        await link.run()


async def web(settings: Settings) -> None:
    """Serve the web edge until TERM."""
    import uvicorn

    from amux.web.app import create

    calm_collector()
    async with stores(settings) as parts:
        app = create(parts.sessions, parts.attach)
        config = uvicorn.Config(app, host=settings.web_host, port=settings.web_port, log_config=None, access_log=False)
        await uvicorn.Server(config).serve()


async def _open_id(api: "OpenApi") -> str:
    """The bot's own id; asked again while Feishu cannot be reached."""
    wait = 0.5
    while True:
        try:
            return await api.bot_open_id()
        except (Unavailable, Uncertain) as why:
            log.warning("bot_unknown", why=str(why))
            await asyncio.sleep(wait)
            wait = min(wait * 2, 30.0)


def _api(bot: FeishuSettings, http: "httpx2.AsyncClient") -> "OpenApi":
    from amux.feishu.openapi import OpenApi

    calls = bot.calls_per_minute
    return OpenApi(http, domain=bot.domain, app=bot.app_id, secret=bot.app_secret, calls_per_minute=calls)
