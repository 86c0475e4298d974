"""The home of one amux: who holds it, what runs in it, and where its sockets are.

Two programs never work in one home: the first holds `<home>/lock`, a second learns from `<home>/run.json` where the
first can be reached. Each service holds a lock of its own besides, inherited by all it forks, so that nothing is
started anew while a part of the former still runs. This module starts nothing and changes no folder above the home."""

import asyncio
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from amux.core.errors import Refused, Unavailable
from amux.local.pids import POLL_SECONDS, ProcessId, end, started, world

SOCKETS = Path("/tmp")  # noqa: S108  not TMPDIR: a socket's path has a limit; the folder is closed to others
LONGEST_SOCKET = "/.s.PGSQL.5432.lock"
MAX_SOCKET_BYTES = 103  # macOS; Linux takes 107
LEFTOVER_SECONDS = 5.0  # what a supervisor's death leaves behind ends by itself in less; then it is killed


@dataclass(frozen=True, slots=True)
class Run:
    """What `run.json` says: the program that holds the home, its processes, and where it can be reached."""

    supervisor: ProcessId
    world: str
    processes: Mapping[str, ProcessId] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


class AlreadyRuns(Refused):
    """Another program holds the home. `run` tells where it can be reached, once it has said so itself."""

    def __init__(self, home: Path, run: Run | None) -> None:
        where = ", ".join(f"{name} {url}" for name, url in run.urls.items() if url.startswith("http")) if run else ""
        who = f"pid {run.supervisor.pid}{', ' + where if where else ''}" if run else "by a program not visible here"
        stop = f"stop it with `kill {run.supervisor.pid}`" if run else "stop it"
        super().__init__(f"amux already runs in {home} ({who}); use it, {stop}, or set AMUX_HOME for another one.")
        self.run = run


@dataclass(slots=True)
class Home:
    """A home while we hold it. `run` is what `run.json` says at this moment."""

    path: Path
    run: Run

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def note_process(self, name: str, process: ProcessId | None) -> None:
        """Record the process of the service `name`; None when it has ended. A full disk keeps the former record."""
        others = {key: value for key, value in self.run.processes.items() if key != name}
        with suppress(Refused):  # a service must not fail for want of a note about it
            self._write(replace(self.run, processes={**others, name: process} if process else others))

    def note(self, *, urls: Mapping[str, str] | None = None, ports: Mapping[str, int] | None = None) -> None:
        """Record where we can be reached, beside what was recorded before. Raises Refused when the disk is full."""
        run = self.run
        self._write(replace(run, urls={**run.urls, **(urls or {})}, ports={**run.ports, **(ports or {})}))

    def _write(self, run: Run) -> None:
        self.run = run
        new = self.path / "run.json.new"
        try:
            new.write_bytes(msgspec.json.encode(run))
            new.chmod(0o600)
            new.rename(self.path / "run.json")
        except OSError as error:
            raise _unwritable(self.path, error) from error

    async def service_lock(self, name: str, *, seconds: float) -> int:
        """A descriptor holding the lock of one service, for its process to inherit; close it after the spawn.

        Waits until every process of the service's former life has ended; raises Unavailable after `seconds`."""
        descriptor = os.open(self.path / "locks" / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if await _lock(descriptor, seconds=seconds):
                return descriptor
            raise Unavailable(f"a former {name} of {self.path} still runs and does not end; end it by hand.")
        except BaseException:
            os.close(descriptor)
            raise


def running(home: Path) -> Run | None:
    """What runs in `home`, for a second program to be its client; None when nothing does."""
    run = _read(home)
    return run if run is not None and run.supervisor.alive() else None


@asynccontextmanager
async def hold(home: Path) -> AsyncIterator[Home]:
    """Hold `home` for as long as the context is open, making the folder when there is none.

    What a killed predecessor left behind is waited for, then killed. Raises AlreadyRuns when another program holds it,
    Refused when the folder cannot be used, or is not given from the root."""
    lock = _open(home)
    try:
        if not await _lock(lock, seconds=0):
            raise AlreadyRuns(home, running(home))
        former = _read(home)
        if former is not None:
            await asyncio.to_thread(end, former.processes.values(), seconds=LEFTOVER_SECONDS)
        ours = Home(home, Run(ProcessId(os.getpid(), started(os.getpid())), world()))
        ours.note()
        try:
            yield ours
        finally:
            (home / "run.json").unlink(missing_ok=True)
            shutil.rmtree(socket_path(home), ignore_errors=True)
    finally:
        os.close(lock)


def socket_path(home: Path, base: Path = SOCKETS) -> Path:
    """The short folder for the home's sockets. Raises Refused when a socket's path would be too long for the system."""
    folder = base / f"amux-{os.getuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"
    if len(os.fsencode(f"{folder}{LONGEST_SOCKET}")) > MAX_SOCKET_BYTES:
        raise Refused(f"sockets below {base} would have paths over {MAX_SOCKET_BYTES} bytes; choose a shorter folder.")
    return folder


def fresh_sockets(home: Path) -> Path:
    """An empty socket folder of mode 0700; what a killed predecessor left in it is removed. Only while holding `home`."""
    folder = socket_path(home)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise Refused(f"the folder {folder} cannot be made ({error.strerror}); remove what stands there.") from error
    return folder


def _open(home: Path) -> int:
    if not home.is_absolute():
        raise Refused(f"the home {home} must be a whole path, from / on.")
    mode = 0o711 if os.getuid() == 0 else 0o700  # root's Postgres runs as another user, who must pass through
    try:
        home.mkdir(mode=mode, parents=True, exist_ok=True)
        for folder in ("logs", "locks"):
            (home / folder).mkdir(mode=0o700, exist_ok=True)
        return os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(home, error) from error


def _unwritable(home: Path, error: OSError) -> Refused:
    why = error.strerror or type(error).__name__
    return Refused(f"the home {home} cannot be written ({why}); set AMUX_HOME to a folder with room that is yours.")


async def _lock(descriptor: int, *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        await asyncio.sleep(POLL_SECONDS)


def _read(home: Path) -> Run | None:
    """What was noted last, if its pids can be looked up here: not after a reboot, nor from another container."""
    try:
        run = msgspec.json.decode((home / "run.json").read_bytes(), type=Run)
    except (OSError, msgspec.MsgspecError):
        return None
    return run if run.world == world() else None
