"""Keeps one service alive: starts it, asks until it is ready, starts it again when it ends, with longer and longer
pauses. It knows nothing of other services; supervisor.py orders them."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from amux.core.errors import Unavailable
from amux.local.child import Child, User, spawn
from amux.local.home import Home
from amux.local.pids import ProcessId

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)  # before the second, third ... try; after that the service is degraded
DEGRADED_PAUSE_SECONDS = 30.0
CALM_SECONDS = 10.0  # ready for so long, an end is the first of a new row of failures
FORMER_LIFE_SECONDS = 20.0
PROBE_SECONDS = (0.02, 0.2)  # the first pause between two probes, and the longest
TAIL_BYTES = 4096
TAIL_CHARACTERS = 200

Probe = Callable[[], Awaitable[bool]]


class State(StrEnum):
    """Where a service stands. `degraded`: it failed too often in a row, and is tried seldom from now on."""

    waiting = "waiting"
    starting = "starting"
    ready = "ready"
    restarting = "restarting"
    degraded = "degraded"
    stopping = "stopping"
    stopped = "stopped"


class Readiness(StrEnum):
    """Whether a start of the whole waits until the service is ready."""

    awaited = "awaited"
    aside = "aside"


@dataclass(frozen=True, slots=True)
class Service:
    """One process to keep alive. `after` names what must be ready before its first start, and stops later than it.

    `ready` is asked until it says True; without one, a started service is ready. `death_signal` is what it gets when
    the supervisor is killed. `remedy` is told when it is degraded."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: Probe | None = None
    after: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0
    ready_seconds: float = 60.0
    readiness: Readiness = Readiness.awaited
    death_signal: signal.Signals = signal.SIGKILL
    user: User | None = None
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """One change of one service, and in words what came of it, for a line of progress."""

    name: str
    state: State
    detail: str = ""


@dataclass(slots=True)
class Restarter:
    """One service and the life it is in. `run` does the work; the other methods may be called beside it."""

    service: Service
    home: Home
    tell: Callable[[Told], None]
    state: State = State.waiting
    detail: str = ""
    _child: Child | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)  # ends the pause between two tries
    _harmed: int = 0  # lives that `kill` ended: no failures of the service

    async def run(self) -> None:
        """Keep it alive while it is wanted; ends only when cancelled, and then leaves no process."""
        failures = 0
        while True:
            if not self._wanted.is_set():
                failures = 0
                await self._rest()
            harmed = self._harmed
            ready_seconds, why = await self._live()
            if self._wanted.is_set():
                fresh = ready_seconds >= CALM_SECONDS or self._harmed > harmed
                failures = 1 if fresh else failures + 1
                await self._pause(failures, why)

    def start(self) -> None:
        """Want it alive, at once, whatever pause it was in."""
        if self.state in (State.stopped, State.degraded):
            self._become(State.starting)
        self._wanted.set()
        self._wake.set()

    async def stop(self) -> None:
        """Stop it by its own signal, by force after its grace, and keep it down until `start`."""
        if not self._wanted.is_set():
            return
        self._wanted.clear()
        self._wake.set()
        self._become(State.stopping)
        if self._child is not None:
            await self._child.stop(self.service.stop_signal, grace_seconds=self.service.grace_seconds)
        await self.reaches(State.stopped)

    def kill(self) -> None:
        """SIGKILL its process alone, as a crash would; it is started again after the first pause."""
        self.process().signal(signal.SIGKILL)
        self._harmed += 1
        self._become(State.restarting, "killed on demand")

    def kill_now(self) -> None:
        """SIGKILL its whole group, without order or waiting: the last resort of a stop that was broken off."""
        self._wanted.clear()
        if self._child is not None:
            self._child.kill_group()

    async def reaches(self, *states: State) -> State:
        """Wait until it is in one of `states`, and say which."""
        while self.state not in states:
            await self._changed.wait()
        return self.state

    def process(self) -> ProcessId:
        """Its process at this moment. Raises Unavailable when it has none."""
        if self._child is None:
            raise Unavailable(f"{self.service.name} is {self.state}: it has no process.")
        return self._child.id

    async def _rest(self) -> None:
        if self.state is not State.waiting:
            self._become(State.stopped)
        await self._wanted.wait()

    async def _live(self) -> tuple[float, str]:
        """One life, from start to end: for how many seconds it was ready, and in words why it ended."""
        if self._wanted.is_set():
            self._become(State.starting)
        try:
            async with self._born() as child:
                why = await self._answers(child)
                if why:
                    return 0.0, why
                since = time.monotonic()
                if self._wanted.is_set():
                    self._become(State.ready)
                await child.process.wait()
                return time.monotonic() - since, self._ended(child)
        except Unavailable as error:
            return 0.0, str(error)
        except OSError as error:
            return 0.0, f"cannot be started: {error}"

    @asynccontextmanager
    async def _born(self) -> AsyncIterator[Child]:
        child = self._child = await self._spawn()
        try:
            self.home.note_process(self.service.name, child.id)
            if not self._wanted.is_set():  # stopped while it was being spawned
                await child.stop(self.service.stop_signal, grace_seconds=self.service.grace_seconds)
            yield child
        finally:
            child.kill_group()
            self._child = None
            self.home.note_process(self.service.name, None)

    async def _spawn(self) -> Child:
        service = self.service
        with ExitStack() as ours:
            lock = await self.home.service_lock(service.name, seconds=FORMER_LIFE_SECONDS)
            ours.callback(os.close, lock)
            output = os.open(self.home.log(service.name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            ours.callback(os.close, output)
            death, user = service.death_signal, service.user
            return await spawn(service.argv, service.env, output=output, death_signal=death, user=user, keep=(lock,))

    async def _answers(self, child: Child) -> str:
        """Wait until it is ready. Empty when it is; else, in words, why it is not and never will be."""
        if self.service.ready is None:
            return ""
        probing = asyncio.create_task(_until(self.service.ready))
        ending = asyncio.create_task(child.process.wait())
        seconds = self.service.ready_seconds
        try:
            done, _ = await asyncio.wait({probing, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            probing.cancel()
            ending.cancel()
        if ending in done:
            return self._ended(child)
        if probing in done:
            probing.result()  # a bug in a probe is not to be waited out
            return ""
        child.kill_group()
        await child.process.wait()
        return f"was not ready in {seconds:g} s"

    def _ended(self, child: Child) -> str:
        code = child.process.returncode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended (exit {code})"
        return ": ".join(filter(None, (how, last_line(self.home.log(self.service.name)) if code > 0 else "")))

    async def _pause(self, failures: int, why: str) -> None:
        known = failures <= len(PAUSES_SECONDS)
        seconds = PAUSES_SECONDS[failures - 1] if known else DEGRADED_PAUSE_SECONDS
        where = "" if known else f"see {self.home.log(self.service.name)}"
        line = "; ".join(filter(None, (why, f"next try in {seconds:g} s", where, "" if known else self.service.remedy)))
        self._wake.clear()
        self._become(State.restarting if known else State.degraded, line)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _become(self, state: State, detail: str = "") -> None:
        if (state, detail) == (self.state, self.detail):
            return
        self.state, self.detail = state, detail
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self.tell(Told(self.service.name, state, detail))


async def _until(ready: Probe) -> None:
    pause, longest = PROBE_SECONDS
    while not await ready():
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, longest)


def last_line(log: Path) -> str:
    """The last words of a log, short enough for one line of progress; empty when there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    words = ["".join(c for c in line if c.isprintable()).strip() for line in lines]
    return next((line[:TAIL_CHARACTERS] for line in reversed(words) if line), "")
