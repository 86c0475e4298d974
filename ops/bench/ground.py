"""Where a benchmark runs: servers of its own, real worker processes, and how the cost of each part is read.

Everything lies in a temporary home and is gone afterwards. It judges nothing."""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from amux import wiring
from amux.core.ids import InputId, Principal, SessionKey, SessionRef
from amux.core.inputs import Authorization, Input
from amux.core.launch import LaunchSnapshot
from amux.local.binaries import find_binaries
from amux.local.home import hold, running
from amux.local.house import Plan, run
from amux.local.restarter import Service, Told
from amux.local.services import Urls
from amux.local.supervisor import Supervisor
from amux.ports import Draft
from amux.runtime.receive import new_session_id
from amux.settings import Settings, load
from ops.bench.other import DATABASE

TARGET = "bench"
PERSON = Principal("cli:bench")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Ground:
    """A house with one worker or none, and the other side's Redis database beside ours."""

    home: Path
    urls: Urls
    settings: Settings
    env: Mapping[str, str]

    @property
    def other_redis(self) -> str:
        """A database of its own on the same Redis."""
        return f"{self.urls.redis}?db={DATABASE}"

    @property
    def worker(self) -> int:
        """The process that owns Sessions."""
        return int((self.home / "ready" / "worker").read_text())

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each part so far: ourselves, the worker, the servers, the other side's worker if it runs."""
        kept = running(self.home)
        pids = {name: process.pid for name, process in (kept.processes if kept else {}).items()}
        other = running(self.home.parent / "celery")
        pids |= {name: process.pid for name, process in (other.processes if other else {}).items()}
        return {part: _family_cpu(pid) for part, pid in {"driver": os.getpid(), **pids}.items()}


@asynccontextmanager
async def ground(
    *, slots: int, extra: Mapping[str, str] | None = None, names: Sequence[str] = ("worker",)
) -> AsyncIterator[Ground]:
    """The house while the context is open. To be entered in the main thread; raises what `house.run` raises."""
    home = Path(tempfile.mkdtemp(prefix="amux-bench-", dir="/var/tmp"))
    home.chmod(0o755)
    try:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AMUX_")}
        env = kept | {
            "AMUX_HOME": str(home / "h"),
            "AMUX_TARGET": TARGET,
            "AMUX_SLOTS": str(slots),
            "AMUX_SCRIPTED_IN_WORKER": "1",
            **(extra or {}),
        }
        settings = load(env, home / "none.toml")
        plan = Plan(settings.home, env, lambda: find_binaries(None, None), _migrate, names)
        async with run(plan, _quietly) as house:
            urls = house.urls
            full = env | {"AMUX_POSTGRES_URL": urls.postgres, "AMUX_REDIS_URL": urls.redis}
            wiring.calm_collector()  # as every long-lived process of a house does
            yield Ground(settings.home, urls, load(full, home / "none.toml"), full)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def beside(place: Ground, service: Service) -> AsyncIterator[None]:
    """One process of the other side, kept and ended like ours."""
    folder = place.home.parent / service.name
    folder.mkdir(exist_ok=True)
    async with hold(folder) as home, Supervisor(home, [service], tell=_quietly) as kept:
        await kept.ready()
        yield


def _migrate(url: str) -> None:
    from ops.migrations import upgrade

    upgrade(url)


def _quietly(_told: Told) -> None:
    pass


async def new_session(parts: wiring.Stores, said: Input | None = None) -> SessionKey:
    """A Session of the scripted agent, with its first input journaled and nobody woken."""
    ref = SessionRef(TARGET, new_session_id())
    first = said or prompt(InputId(f"bench:{ref.id}:first"), "!say ready")
    made = await parts.inputs.launch(Draft(ref, LaunchSnapshot("scripted", "/"), "benchmark"), first, None)
    return made.session


def prompt(id_: InputId, text: str) -> Input:
    """What one person says now."""
    return Input(id_, text, PERSON, Authorization(PERSON), round(time.time() * 1000))


def rss(pid: int) -> int:
    """Resident bytes."""
    line = next((x for x in _read(Path(f"/proc/{pid}/status")).splitlines() if x.startswith(b"VmRSS")), b"x 0")
    return int(line.split()[1]) * 1024


def threads(pid: int) -> int:
    """How many threads it has."""
    return len(list(Path(f"/proc/{pid}/task").glob("*")))


def _family_cpu(pid: int) -> float:
    """Of a process and its children, those that ended included."""
    children = _read(Path(f"/proc/{pid}/task/{pid}/children")).split() if pid != os.getpid() else []
    return _cpu(pid) + sum(_cpu(int(child)) for child in children)


def _cpu(pid: int) -> float:
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    own = fields[11:13] if pid == os.getpid() else fields[11:15]
    return sum(map(int, own)) / TICKS


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def load_before() -> float:
    """The machine's load over the last minute: above 3 on two cores, only ratios mean anything."""
    return round(os.getloadavg()[0], 2)


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which that share lies; NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def say(line: str) -> None:
    """Drawing goes to stderr; the report alone to stdout."""
    print(line, file=sys.stderr, flush=True)
