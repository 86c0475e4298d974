"""What the operating system says about a home: who lives in it, and programs to run and to signal there."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from amux.local.home import SOCKETS, Run, running, socket_path

ROOT = Path(__file__).parent.parent.parent
DEADLINE_SECONDS = 20


def inhabitants(home: Path) -> set[int]:
    """The living processes, but us, that have a file of `home` open: whatever a service forks keeps its log and lock."""
    others = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()} - {os.getpid()}
    return {pid for pid in others if any(path.is_relative_to(home) for path in _open_files(Path(f"/proc/{pid}/fd")))}


def newcomers(home: Path, before: set[int]) -> set[int]:
    """Those that came since, but for what the servers that were there have forked meanwhile: a backend, an autovacuum."""
    return {pid for pid in inhabitants(home) - before if _parent(pid) not in before}


def _parent(pid: int) -> int | None:
    with suppress(OSError):  # ended meanwhile
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return None


def _open_files(descriptors: Path) -> Iterator[Path]:
    with suppress(OSError):  # ended meanwhile, a zombie, or another user's
        for link in descriptors.iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield link.readlink()


def until(holds: Callable[[], bool], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for what the outside world brings about, up to a deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


class Program(NamedTuple):
    """A Python to run, by whatever leads to it, and its environment; None is ours."""

    words: tuple[str, ...]
    env: Mapping[str, str] | None


THIS_PYTHON = Program((sys.executable,), None)


@contextmanager
def host(home: Path, python: Program = THIS_PYTHON) -> Iterator[subprocess.Popen[str]]:
    """`tests.local.host` in `home`, killed at the end; that nobody of it stays behind then is part of every test."""
    words = (*python.words, "-m", "tests.local.host", str(home))
    pipe = subprocess.PIPE
    before = inhabitants(home)
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, cwd=ROOT, text=True, env=python.env) as process:
        try:
            yield process
        finally:
            process.kill()
            until(lambda: not newcomers(home, before))
            if not before:  # a killed supervisor leaves its sockets to the next one
                for sockets in SOCKETS.glob(socket_path(home).name.replace(f"-{os.getuid()}-", "-*-")):
                    shutil.rmtree(sockets)


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.stderr.read()


def ran(home: Path) -> Run:
    run = running(home)
    assert run is not None
    return run
