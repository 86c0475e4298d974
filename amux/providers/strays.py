"""What an agent's tools have left behind: processes that its own way of stopping a tool does not reach.

A tool that put itself into a session of its own outlives the shell that started it; but all of them stay below the Guard,
so they can be found. Linux only: elsewhere nothing is found, and the Guard's end is what ends them."""

import asyncio
import os
import signal
from pathlib import Path

from amux.providers import guard
from amux.providers.process import Process

PAUSE_SECONDS = 0.01


def below(agent: Process) -> frozenset[int]:
    """Every process below the agent's Guard, the agent itself left out. Empty when they are gone."""
    if not guard.LINUX:
        return frozenset()
    return frozenset(pid for pid in guard.descendants(agent.guard_pid) if pid != agent.pid and _lives(pid))


async def end(agent: Process, *, known: frozenset[int], spared: frozenset[str]) -> None:
    """Kill what was not `known` before, but for programs whose names are `spared`, until nothing of it is left.

    The caller sets the deadline: a process that forks faster than it is killed has none."""
    while left := [pid for pid in below(agent) - known if _name(pid) not in spared]:
        for pid in left:
            _kill(pid)
        await asyncio.sleep(PAUSE_SECONDS)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone, or of another user: the deadline decides
        return


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False
