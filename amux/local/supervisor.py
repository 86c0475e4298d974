"""Runs the services of one home: an ordered start, restarts, an ordered stop, and nothing left behind whatever ends us.

A service starts when those it comes `after` are ready and stops before they do. At first they start in their order, as
many at once as there are cores, so that the first is soon there and a person's command runs beside them. The supervisor
decides nothing about Sessions, and what its services say is theirs: it goes to `<home>/logs/<name>.log`."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import amux
from amux.core.errors import Broken, Refused, Unavailable
from amux.local.home import Home
from amux.local.pids import ProcessId
from amux.local.restarter import Readiness, Restarter, Service, State, Told

TWICE_SECONDS = 1.0  # a launcher passes Ctrl-C on that the terminal has sent us already
TRIED = (State.ready, State.restarting, State.degraded, State.stopped)  # a first start is over
CORE_SECONDS = 5.0  # for so long a first start has a core; who is slower keeps nobody else waiting
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _say_nothing(_: Told) -> None:
    pass


class Supervisor:
    """Keeps `services` alive while its context is open; `tell` hears of every change at once.

    The services stand in order: each after those it names. To be entered in the main thread."""

    def __init__(self, home: Home, services: Sequence[Service], *, tell: Callable[[Told], None] = _say_nothing) -> None:
        self._home = home
        self._restarters: dict[str, Restarter] = {}
        for service in services:
            missing = [name for name in service.after if name not in self._restarters]
            if missing or service.name in self._restarters:
                raise Broken(f"service {service.name}: listed twice, or before {missing}")
            self._restarters[service.name] = Restarter(service, home, tell)
        self._cores = asyncio.Semaphore(_cores())
        self._group = asyncio.TaskGroup()
        self._keeping: list[asyncio.Task[None]] = []
        self._beginning: dict[str, asyncio.Task[None]] = {}
        self._warden: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        for name in self._restarters:
            rotate(self._home, name)
        self._warden = _warden(self._home)
        await self._group.__aenter__()
        for name, restarter in self._restarters.items():
            self._keeping.append(self._group.create_task(restarter.run(), name=f"keep {name}"))
            self._beginning[name] = self._group.create_task(self._begin(restarter), name=f"begin {name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not any(
                task.done() or task.cancelling() for task in self._keeping
            ):  # a bug leaves no restarter to wait for
                await self._stop_all()
        finally:  # when the stop was broken off, too
            for restarter in self._restarters.values():
                restarter.kill_now()
            for task in (*self._keeping, *self._beginning.values()):
                task.cancel()
            try:
                await self._group.__aexit__(None, None, None)  # the body's own error leaves as it is, in no group
            finally:
                self._dismiss_warden()

    @property
    def states(self) -> dict[str, State]:
        """Where every service stands."""
        return {name: restarter.state for name, restarter in self._restarters.items()}

    async def ready(self) -> None:
        """Wait until every awaited service is ready. Raises Unavailable, in one line, when one is degraded."""
        waits = [asyncio.create_task(_ready(restarter)) for restarter in self._awaited()]
        try:
            for wait in asyncio.as_completed(waits):
                await wait
        finally:
            for left in waits:
                left.cancel()

    async def reaches(self, name: str, *states: State) -> State:
        """Wait until the service is in one of `states`, and say which."""
        return await self._of(name).reaches(*states)

    def process(self, name: str) -> ProcessId:
        """The process of a service. Raises Refused when there is no such service, Unavailable when it is down."""
        return self._of(name).process()

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash would end it; it is started again after half a second."""
        self._of(name).kill()

    def freeze(self, name: str) -> None:
        """SIGSTOP to its process, not to what that started."""
        self.process(name).signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT to its process."""
        self.process(name).signal(signal.SIGCONT)

    async def stop(self, name: str) -> None:
        """Stop one service in good order and keep it down; the others go on."""
        restarter = self._of(name)
        self._beginning[name].cancel()
        await restarter.stop()

    async def start(self, name: str) -> None:
        """Start a stopped service, or a degraded one at once. Returns when it is ready; raises Unavailable as `ready`."""
        restarter = self._of(name)
        restarter.start()
        await _ready(restarter)

    async def restart(self, name: str, *, down_seconds: float = 0.0) -> None:
        """Stop a service, leave it down for `down_seconds`, start it; returns when it is ready."""
        await self.stop(name)
        await asyncio.sleep(down_seconds)
        await self.start(name)

    def _dismiss_warden(self) -> None:
        if self._warden is not None:
            self._warden.kill()  # before its input ends
            self._warden.communicate()

    def _of(self, name: str) -> Restarter:
        if name not in self._restarters:
            raise Refused(f"there is no service {name}; there are {', '.join(self._restarters)}.")
        return self._restarters[name]

    async def _begin(self, restarter: Restarter) -> None:
        for name in restarter.service.after:
            await self._of(name).reaches(State.ready)
        async with self._cores:
            restarter.start()
            with suppress(TimeoutError):
                async with asyncio.timeout(CORE_SECONDS):
                    await restarter.reaches(*TRIED)

    def _awaited(self) -> Sequence[Restarter]:
        return [r for r in self._restarters.values() if r.service.readiness is Readiness.awaited]

    async def _stop_all(self) -> None:
        for task in self._beginning.values():
            task.cancel()
        ends: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            for name, restarter in reversed(self._restarters.items()):
                later = [end for other, end in ends.items() if name in self._of(other).service.after]
                ends[name] = group.create_task(_stop_after(restarter, later))


async def _stop_after(restarter: Restarter, later: Sequence[asyncio.Task[None]]) -> None:
    if later:
        await asyncio.wait(later)
    await restarter.stop()


def _cores() -> int:
    """How many we may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _ready(restarter: Restarter) -> None:
    if await restarter.reaches(State.ready, State.degraded) is State.degraded:
        raise Unavailable(f"{restarter.service.name} {restarter.detail}")


def _warden(home: Home) -> subprocess.Popen[bytes]:
    ours = home.run.supervisor
    words = (sys.executable, "-m", "amux.local.warden", str(home.path), str(ours.pid), ours.started)
    env = {**os.environ, "PYTHONPATH": str(Path(amux.__file__).parent.parent)}  # our own code, wherever we stand
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=null, stderr=null, cwd="/", env=env, start_new_session=True)


def rotate(home: Home, name: str) -> None:
    """Put the log of the former run aside, so that two runs are the most that is kept."""
    log = home.log(name)
    if log.exists():
        os.replace(log, log.with_suffix(".log.1"))


@dataclass(slots=True)
class Ending:
    """Which signal ended the body; None when it ended by itself."""

    by: signal.Signals | None = None


@contextmanager
def ending_on_signals() -> Iterator[Ending]:
    """Ctrl-C, TERM and HUP cancel the body, which unwinds in order and ends here; a second one breaks that off, too.

    To be used in the main thread, inside a running loop, around all that must be stopped."""
    loop, task, ending = asyncio.get_running_loop(), asyncio.current_task(), Ending()
    if task is None:
        raise Broken("signals can only end a running task")
    asked: list[float] = []

    def end(number: signal.Signals) -> None:
        if asked and loop.time() - asked[-1] < TWICE_SECONDS:
            return
        asked.append(loop.time())
        ending.by = ending.by or number
        task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        yield ending
    except asyncio.CancelledError:
        for _ in asked:
            task.uncancel()
        if not asked or task.cancelling():
            raise
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
