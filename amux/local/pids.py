"""Processes by pid and start, and how to end those of a supervisor that has died. Standard library alone, and quick to
import: the warden is made of it. It signals nothing that it has not recognised."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid together with its start, so that a number used again is never taken for the process that had it."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether that very process still runs; one that has ended and waits to be reaped does not."""
        return started(self.pid) == self.started != ""

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to it alone; nothing happens when it has ended."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL its whole process group, also when the leader has ended, unless its number is another's by now."""
        if started(self.pid) in (self.started, ""):
            kill_group(self.pid)


def world() -> str:
    """Where pids mean what they mean here: the boot of this machine and its namespace of processes."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return sys.platform


def started(pid: int) -> str:
    """When `pid` began, in the kernel's own ticks; empty when there is no such process, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self").exists() else _started_by_ps(pid)
    return "" if fields[0] in "ZX" else fields[19]


def _started_by_ps(pid: int) -> str:
    asked = ("ps", "-o", "lstart=", "-p", str(pid))
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end(processes: Collection[ProcessId], *, seconds: float) -> None:
    """Wait until these have ended, each with all that it forked into its group; kill what has not after `seconds`.

    Their supervisor is dead, and the kernel has told them (Linux); elsewhere nobody has, so they are told here."""
    deadline = time.monotonic() + seconds
    if sys.platform != "linux":
        for process in processes:
            process.signal(signal.SIGTERM)
    left = list(processes)
    while left:
        time.sleep(POLL_SECONDS)
        late = time.monotonic() >= deadline
        for process in [process for process in left if late or not process.alive()]:
            process.kill_group()
            left.remove(process)
