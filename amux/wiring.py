"""Builds what runs from Settings: the only file that knows every adapter. It decides nothing and keeps nothing.

What takes long to import (agents, Redis, Feishu, the web) is imported where it is wired: a person at the command line
waits for nothing that their command does not use."""

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import structlog

from amux.core.errors import Refused, Unavailable, Uncertain
from amux.core.ids import SessionRef
from amux.core.launch import DEFAULT_PROFILE, NOTHING_ASKED, PLAIN, Asked, LaunchSnapshot, Shortcut, new_launch
from amux.runtime.attach import Attach
from amux.runtime.submit import Submit
from amux.runtime.sweep import Sweep
from amux.settings import FeishuSettings, Settings
from amux.stores.bindings import PostgresBindings
from amux.stores.cards import PostgresCards
from amux.stores.inputs import PostgresInputs
from amux.stores.postgres import Postgres
from amux.stores.sessions import PostgresSessions
from amux.stores.timeline import PostgresTimeline

if TYPE_CHECKING:
    import httpx2

    from amux.core.admission import Access
    from amux.extensions import Provider
    from amux.feishu.openapi import OpenApi
    from amux.packs.loader import Library
    from amux.runtime.deliver import Deliver
    from amux.runtime.host import Host
    from amux.runtime.receive import Receive
    from amux.stores.hints import CeleryWaker, RedisNudges
    from amux.stores.inbox import RedisInbox
    from amux.stores.lease import RedisLeases
    from amux.stores.redis import Redis

log = structlog.stdlib.get_logger()
OPENINGS = min(4, os.cpu_count() or 2)  # agents that start at once in a worker: more would keep it from its Leases


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Stores:
    """Every adapter over this process' connections; those of Redis are made when they are first asked for."""

    def __init__(self, postgres_url: str, redis_url: str, closing: AsyncExitStack) -> None:
        self._redis_url, self._closing = redis_url, closing
        self.postgres = Postgres(postgres_url)
        closing.push_async_callback(self.postgres.close)
        self.inputs = PostgresInputs(self.postgres)
        self.timeline = PostgresTimeline(self.postgres, lambda *news: self.nudges.publish(*news))  # noqa: PLW0108 - later
        self.sessions = PostgresSessions(self.postgres)
        self.bindings = PostgresBindings(self.postgres)
        self.cards = PostgresCards(self.postgres)

    @cached_property
    def redis(self) -> "Redis":
        from amux.stores.redis import Redis

        redis = Redis(self._redis_url)
        self._closing.push_async_callback(redis.close)
        return redis

    @cached_property
    def inbox(self) -> "RedisInbox":
        from amux.stores.inbox import RedisInbox

        return RedisInbox(self.redis)

    @cached_property
    def leases(self) -> "RedisLeases":
        from amux.stores.lease import RedisLeases

        return RedisLeases(self.redis)

    @cached_property
    def nudges(self) -> "RedisNudges":
        from amux.stores.hints import RedisNudges

        nudges = RedisNudges(self.redis)
        self._closing.push_async_callback(nudges.close)
        return nudges

    @cached_property
    def waker(self) -> "CeleryWaker":
        from amux.stores.hints import CeleryWaker

        return CeleryWaker(self.redis)

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
    async with AsyncExitStack() as closing:
        yield Stores(settings.postgres_url, settings.redis_url, closing)


@asynccontextmanager
async def host(settings: Settings, env: Mapping[str, str]) -> AsyncIterator["Host"]:
    """A worker's owners, with their Leases kept while the context is open."""
    from amux.core.watchdog import Limits
    from amux.local.workspaces import Workspaces
    from amux.runtime.host import Host
    from amux.runtime.keeper import Keeper
    from amux.runtime.owner import Pace, Runtime
    from amux.stores.hints import RedisBells

    worker = f"{settings.target}-{socket.gethostname()}-{os.getpid()}"
    async with stores(settings) as parts:
        clock, bells = SystemClock(), RedisBells(parts.redis, worker)
        runtime = Runtime(
            worker=worker,
            pace=Pace(
                settings.lease,
                settings.linger,
                settings.burst_window,
                Limits(settings.silence_limit, settings.turn_limit, settings.answer_limit),
                settings.busy_input,
            ),
            timeline=parts.timeline,
            inputs=parts.inputs,
            inbox=parts.inbox,
            leases=parts.leases,
            bells=bells,
            waker=parts.waker,
            clock=clock,
            keeper=Keeper(parts.leases, parts.timeline, clock, settings.lease),
            providers=providers(env),
            engine=settings.engine,
            profiles=library(settings).experts,
            home=lambda ref: str(settings.home / "sessions" / ref.target / ref.id),
            workspaces=Workspaces(settings.home, settings.workspace_roots),
            opening=asyncio.Semaphore(OPENINGS),
        )
        owners = Host(runtime, settings.target, settings.slots)
        owners.start()
        try:
            yield owners
        finally:
            await owners.stop()
            await bells.close()


def providers(env: Mapping[str, str]) -> "dict[str, Provider]":
    """Every engine by its name: those that ship, and those that plug-ins bring by the entry point `amux.providers`."""
    from amux.providers.claude import Claude
    from amux.providers.codex import Codex
    from amux.providers.scripted import Scripted, ScriptedInWorker

    seconds = float(env.get("AMUX_SCRIPTED_SECONDS") or 1)
    inside = env.get("AMUX_SCRIPTED_IN_WORKER") == "1"  # for benchmarks, where the other side has no agent either
    scripted: Provider = ScriptedInWorker() if inside else Scripted(seconds=seconds, env=env)
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


def library(settings: Settings) -> "Library":
    """The experts and shortcuts that a launch can name now: those that ship, those in the home, those of the workspace."""
    from amux.packs.loader import load

    return load(settings.home / "packs", settings.workspace)


def launch_settings(
    settings: Settings,
    ref: SessionRef,
    asked: Asked = NOTHING_ASKED,
    *,
    expert: str | None = None,
    shortcut: str | None = None,
) -> LaunchSnapshot:
    """What a new Session records, from whichever entrance (S9). Its workspace is looked at by whoever opens its agent.

    Raises Refused for an expert or a shortcut that there is not."""
    from amux.local.workspaces import own_folder

    known = library(settings)
    preset = known.shortcut(shortcut) if shortcut else Shortcut("")
    named = expert or preset.profile
    profile = PLAIN if named == DEFAULT_PROFILE and named not in known.experts else known.expert(named)
    workspace = settings.workspace or own_folder(settings.home, ref)
    return new_launch(
        profile,
        asked,
        engine=settings.engine,
        workspace=str(workspace),
        use=settings.workspace_use,
        preset=preset.asked,
    )


@asynccontextmanager
async def deliverer(settings: Settings, parts: Stores) -> AsyncIterator["Deliver | None"]:
    """What shows Turns in Feishu; None where no bot is set up."""
    if settings.feishu is None:
        yield None
        return
    from amux.feishu.cards import render
    from amux.feishu.messenger import FeishuMessenger
    from amux.feishu.openapi import http_client
    from amux.runtime.deliver import Deliver

    async with http_client() as http:
        messenger = FeishuMessenger({settings.feishu.app_id: _api(settings.feishu, http)})
        yield Deliver(parts.attach, parts.cards, parts.bindings, parts.waker, messenger, render, settings.lease)


def receiver(settings: Settings, parts: Stores, allowed: "Access") -> "Receive":
    """The Bridge's way in: what it launches records what any launch would that names nothing (S9)."""
    from amux.runtime.receive import Receive

    return Receive(parts.submit, parts.bindings, allowed, settings.target, lambda ref: launch_settings(settings, ref))


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
        ear = Ingress(api, await _open_id(api), receiver(settings, parts, allowed), parts.cards, allowed)

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
