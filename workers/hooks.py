"""Per process: one asyncio loop in a thread of its own, on which all owners live; and an orderly drain on TERM.

Shared clients start with the worker, not in the first task, so that no two tasks race for them."""

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import structlog
from celery import signals
from celery.worker.consumer import Consumer

from amux import logs
from amux.core.errors import Unavailable
from amux.core.ids import SessionKey
from amux.runtime import failpoints
from amux.runtime.deliver import Deliver
from amux.runtime.host import Host
from amux.settings import Settings
from amux.wiring import Stores, calm_collector, deliverer, host, stores
from workers.app import settings

log = structlog.stdlib.get_logger()
T = TypeVar("T")
DRAIN_SECONDS = 20.0


class Process:
    """This worker process: its loop, its owners, its deliverers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.loop = asyncio.new_event_loop()
        self.host: Host
        self.stores: Stores
        self._stack = AsyncExitStack()
        self._deliverer: Deliver | None = None
        self._looking: Future[None] | None = None
        self._draining = False
        self.consumer: Consumer | None = None
        threading.Thread(target=self.loop.run_forever, name="owners", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the loop, and wait here."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def start(self) -> None:
        """Open everything that tasks share."""
        self.host = await self._stack.enter_async_context(host(self.settings, os.environ))
        self.stores = await self._stack.enter_async_context(stores(self.settings))
        self._deliverer = await self._stack.enter_async_context(deliverer(self.settings, self.stores))
        calm_collector()

    async def deliver(self, session: SessionKey) -> None:
        """Show what is not shown yet. Not when it drains: a wake that came with the TERM would outlast it by a whole Turn, and
        the sweep asks again elsewhere."""
        if self._deliverer and not self._draining:
            await self._deliverer.deliver(session)

    async def sweep(self) -> None:
        """One round; the next one tries again."""
        try:
            await self.stores.sweep.round()
        except Unavailable as why:
            log.warning("sweep_failed", why=str(why))

    def show(self, task: str, name: str) -> None:
        """Let Flower show that task by what it owns. Told in Celery's own thread, with the events that it sends anyway."""
        if consumer := self.consumer:
            consumer.hub.call_soon(_tell, consumer, task, name)

    def look_around(self) -> None:
        """Sweep once, without waiting for it."""
        self._looking = asyncio.run_coroutine_threadsafe(self.sweep(), self.loop)

    def drain(self) -> None:
        """Let Turns end, then end what is left, so that the tasks that wait for it return."""
        asyncio.run_coroutine_threadsafe(self._drain(), self.loop)

    async def _drain(self) -> None:
        self._draining = True
        await self.host.drain(DRAIN_SECONDS)
        me = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not me:
                task.cancel()


def _tell(consumer: Consumer, task: str, name: str) -> None:
    if events := consumer.event_dispatcher:
        events.send("task-started", uuid=task, args=name)


_process: list[Process] = []


def process() -> Process:
    """The one of this process; there once the worker has started."""
    return _process[0]


@signals.setup_logging.connect
def _log(**_: object) -> None:
    logs.configure(os.environ.get("AMUX_SERVICE", "worker"), secrets=settings.secrets())
    for name in ("celery.app.trace", "celery.worker.strategy", "celery.beat"):  # two lines a second that say nothing
        logging.getLogger(name).setLevel(logging.WARNING)


@signals.worker_init.connect
def _start(**_: object) -> None:
    failpoints.arm_from(os.environ.get("AMUX_FAILPOINTS", ""))
    starting = Process(settings)
    try:
        starting.run(starting.start())
    except Exception as why:  # Celery would log it and go on, and eat wakes
        log.exception("worker_not_started")
        raise SystemExit(1) from why
    _process.append(starting)


@signals.worker_ready.connect
def _ready(sender: Consumer, **_: object) -> None:
    process().consumer = sender
    process().look_around()  # beat may be the last of all to start
    if path := os.environ.get("AMUX_READY_FILE"):
        Path(path).write_text(str(os.getpid()))


@signals.worker_shutting_down.connect
def _stop(**_: object) -> None:
    if _process:
        process().drain()
