"""One amux on this machine as people run it, in processes that a drill may kill; the sandbox's cloud stays outside.

The supervisor is a process of its own, so that it can be killed too. What runs is read from its `run.json`."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amux.core.errors import Unavailable
from amux.local.child import spawn
from amux.providers import guard
from amux.sandbox import feishu
from amux.sandbox.app import create
from amux.sandbox.env import sandbox_env
from amux.sandbox.models import Models
from amux.sandbox.pace import UNLIMITED, Pace
from amux.sandbox.records import MessageId
from amux.sandbox.world import World

START_SECONDS = 120.0
FAST = Pace(scale=0.02)  # what was not acknowledged comes again after 0.3 s, not 15


@dataclass(slots=True)
class Stage:
    """A running amux, its world, and the ways to harm it. `others` names what belongs to it and is kept by the drill."""

    home: Path
    env: Mapping[str, str]
    world: World
    models: Models
    lease: float
    names: Sequence[str]
    others: list[Callable[[], Mapping[str, int]]] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _log: Path = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.home.parent / f"{self.home.name}.log"

    async def start(self) -> None:
        """Start everything and wait until it says that it is up. Raises Unavailable with its last lines."""
        argv = (sys.executable, "-m", "amux.cli", "up", *self.names)
        with self._log.open("wb") as log:
            child = await spawn(argv, self.env, output=log.fileno(), death_signal=signal.SIGTERM)
        self._process = child.process
        end = time.monotonic() + START_SECONDS
        while b"amux is up" not in self._log.read_bytes():
            if self._process.returncode is not None or time.monotonic() > end:
                raise Unavailable(f"amux did not start: {self._log.read_text()[-600:]}")
            await asyncio.sleep(0.05)
        while "ingress" in self.names and not self._connected():
            if time.monotonic() > end:
                raise Unavailable("the bot did not connect in time; see ingress.log of the drill's home.")
            await asyncio.sleep(0.05)

    def _connected(self) -> bool:
        ready = self.home / "ready" / "ingress"
        return ready.exists() and ready.read_text() == str(self.pids().get("ingress"))

    async def stop(self) -> None:
        """End it as Ctrl-C would."""
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(60):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()

    def pids(self) -> dict[str, int]:
        """The processes by service name; "supervisor" is the one that keeps them."""
        try:
            run = json.loads((self.home / "run.json").read_text())
        except (OSError, ValueError):
            run = {"processes": {}}
        kept = {**run["processes"], **({"supervisor": run["supervisor"]} if "supervisor" in run else {})}
        found = {name: int(process["pid"]) for name, process in kept.items()}
        return found | {name: pid for others in self.others for name, pid in others().items()}

    def signal(self, name: str, number: signal.Signals) -> float:
        """Send it, and answer when, in seconds since 1970."""
        os.kill(self.pids()[name], number)
        return time.time()

    async def kill_all(self) -> float:
        """SIGKILL to every process at once, servers and supervisor too; their agents are left to their Guards."""
        for pid in self.pids().values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert self._process
        await self._process.wait()
        for ready in (self.home / "ready").glob("worker*"):
            ready.unlink(missing_ok=True)
        return time.time()

    async def back(self, name: str, old: int) -> float:
        """Wait until the service runs again under another pid and is ready, and answer when."""
        ready, end = self.home / "ready" / name, time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            pid = self.pids().get(name, old)
            if pid != old and (not ready.exists() or ready.read_text() == str(pid)):
                return time.time()
            await asyncio.sleep(0.05)
        raise Unavailable(f"{name} (pid {old}) was not back within {START_SECONDS:g} s.")

    def first_worker_ready(self) -> float:
        """When the first worker of this start was ready, in seconds since 1970."""
        return min(path.stat().st_mtime for path in (self.home / "ready").glob("worker*"))

    def shown(self, message: MessageId) -> Mapping[str, Any]:
        """A card as people see it: an entity's content, where the message names one; {} for what is no card."""
        found = self.world.messages[message]
        if found.msg_type != "interactive":
            return {}
        card: dict[str, Any] = json.loads(found.revisions[-1].content)
        if card.get("type") == "card":
            return self.world.entities[card["data"]["card_id"]].card
        return card

    def orphans(self) -> list[int]:
        """Processes of this home that are still there, by the home's path in their command or environment."""
        mark = str(self.home).encode()
        return [pid for pid in _pids() if pid != os.getpid() and _mentions(pid, mark)]

    def guards(self) -> dict[str, int]:
        """The Guards of all agents, by the ids of their Sessions."""
        found: dict[str, int] = {}
        for pid in _pids():
            words = _words(pid)
            if guard.__file__ in words[:-1]:
                lock = Path(words[words.index(guard.__file__) + 1])
                if lock.is_relative_to(self.home):
                    found[lock.stem] = pid
        return found

    def logs_with(self, words: Sequence[str]) -> list[str]:
        """The logs of the house, and of what the drill keeps beside it, that hold one of these words."""
        logs = [self._log, *self.home.parent.glob("*/logs/*")]
        texts = {log.name: log.read_text(errors="replace") for log in logs if log.is_file()}
        return [name for name, text in texts.items() if any(word in text for word in words)]

    def given(self) -> list[str]:
        """Every input id that an agent was handed, by the agents' own record; what is there twice ran twice."""
        rows: list[str] = []
        for record in self.home.glob("sessions/*/*/**/record.jsonl"):
            rows += [json.loads(line)["input"] for line in record.read_text().splitlines() if line.strip()]
        return rows


@asynccontextmanager
async def stage(
    *,
    engine: str = "scripted",
    lease: float = 3.0,
    names: Sequence[str] = ("worker", "worker", "deliver", "ingress", "beat"),
    extra: Mapping[str, str] | None = None,
    seconds: float = 2.0,
) -> AsyncIterator[Stage]:
    """A stage of its own in a temporary home; everything is gone after it."""
    home = Path(tempfile.mkdtemp(prefix="amux-drill-", dir="/var/tmp"))
    home.chmod(0o755)
    world, models = feishu.small_world(pace=FAST, limits=UNLIMITED), Models(seconds=seconds)
    try:
        async with feishu.serving(create(world, models)) as address:
            kept = {name: value for name, value in os.environ.items() if not name.startswith("AMUX_")}
            env = (
                kept
                | sandbox_env(engine, address, seconds)
                | {
                    "AMUX_FEISHU_CALLS_PER_MINUTE": "600000",
                    "AMUX_HOME": str(home / "h"),
                    "AMUX_LEASE": f"{lease:g}",
                    "AMUX_WEB_PORT": str(free_port()),
                    **(extra or {}),
                }
            )
            one = Stage(home / "h", env, world, models, lease, names)
            try:
                await one.start()
                yield one
            finally:
                await one.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """A port with two free ones behind it, most likely."""
    import socket

    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _mentions(pid: int, mark: bytes) -> bool:
    for name in ("cmdline", "environ"):
        try:
            if mark in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    return False
