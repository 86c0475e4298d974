"""Real agent programs behind real Guards, in homes of their own, and none of them left behind."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from amux.core.ids import SessionId, SessionRef
from amux.core.launch import LaunchSnapshot, WorkspaceUse
from amux.extensions import Extend, Opening
from amux.providers import guard
from amux.providers.process import Limits, Process, boottime


async def eventually(holds: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Return once `holds` does; fail after `seconds`. For what only another process can bring about."""
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.005)


def processes() -> list[int]:
    """Every process there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path: str) -> bytes:
    """What is in that file of a process; nothing when it is gone."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def status(pid: int) -> tuple[bytes, int]:
    """The state letter of a process and its parent; (b"", 0) when there is none."""
    words = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (words[0], int(words[1])) if words else (b"", 0)


def gone(pid: int) -> bool:
    """True when it runs no more, waited for or not."""
    return status(pid)[0] in {b"", b"Z", b"X"}


def carriers(home: Path) -> list[int]:
    """Every living process below a Guard of that home, whatever became of the Guard."""
    mark = f"{guard.MARK}={home}.lock\0".encode()
    return [pid for pid in processes() if mark in read(f"/proc/{pid}/environ") and not gone(pid)]


@dataclass
class World:
    """One Session's home, and the agents that were started in it."""

    home: Path
    workspace: Path
    use: WorkspaceUse = WorkspaceUse.alone
    started: list[Process] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)

    async def run(
        self,
        program: str,
        *,
        env: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        limits: Limits | None = None,
        home: Path | None = None,
    ) -> Process:
        """Start a Python program as the agent."""
        return await self.start(
            [sys.executable, "-I", "-S", "-c", program], env=env, seconds=seconds, limits=limits, home=home
        )

    async def start(
        self,
        argv: list[str],
        *,
        env: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        limits: Limits | None = None,
        home: Path | None = None,
    ) -> Process:
        opening = self.opening(home or self.home, seconds)
        process = await Process.start(argv, opening, env=env or {}, remedy="Install it.", limits=limits or Limits())
        self.started.append(process)
        return process

    def opening(self, home: Path, seconds: float) -> Opening:
        """That home's, for the shared workspace of this world, until so many seconds from now."""
        ref, launch = (
            SessionRef("local", SessionId(home.name)),
            LaunchSnapshot("python", str(self.workspace), use=self.use),
        )
        wanted = lambda: self.wanted.append(home.name)  # noqa: E731
        return Opening(ref, launch, str(home), boottime() + seconds, None, self.extends.append, wanted)

    def file(self, name: str) -> Path:
        return self.workspace / name

    async def written(self, name: str) -> str:
        """What is in that file of the workspace, once something is."""
        path = self.file(name)
        await eventually(lambda: path.exists() and path.read_text())
        return path.read_text()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    world = World(tmp_path / "homes" / "session", workspace)
    yield world
    with anyio.fail_after(30):
        for process in world.started:
            await process.kill()
    await eventually(lambda: not carriers(world.home))


def last_tick(path: Path) -> float:
    """The newest whole line of a clock file, in seconds of CLOCK_BOOTTIME."""
    return float(path.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2] or 0)
