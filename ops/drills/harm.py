"""The harms, one a drill: each does its damage once and answers which Turns it broke, and since when."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from amux.sandbox import feishu
from amux.wiring import Stores
from ops.drills.count import Broken, open_turns
from ops.drills.stage import Stage


@dataclass(frozen=True, slots=True)
class Scene:
    """Where harm is done, for the how-manieth time."""

    stage: Stage
    parts: Stores
    number: int


Harm = Callable[[Scene], Awaitable[Sequence[Broken]]]


async def kill_worker(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of one of two workers; the other takes over."""
    name = ("worker", "worker-2")[scene.number % 2]
    pid = scene.stage.pids()[name]
    broken = await _owned_by(scene.parts, pid)
    at = scene.stage.signal(name, signal.SIGKILL)
    await scene.stage.back(name, pid)
    return [Broken(b.session, b.turn, at) for b in broken]


async def kill_deliver(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of what shows cards; no Turn notices."""
    pid = scene.stage.pids()["deliver"]
    scene.stage.signal("deliver", signal.SIGKILL)
    await scene.stage.back("deliver", pid)
    return ()


async def kill_ingress(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of what listens to Feishu; what it had not acknowledged comes again."""
    pid = scene.stage.pids()["ingress"]
    scene.stage.signal("ingress", signal.SIGKILL)
    await scene.stage.back("ingress", pid)
    return ()


async def kill_all(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of every process at once; then a start."""
    broken = [(session.key, turn) for session, turn in await open_turns(scene.parts)]
    await scene.stage.kill_all()
    await scene.stage.start()
    return [Broken(key, turn, scene.stage.first_worker_ready()) for key, turn in broken]


async def wipe_redis(scene: Scene) -> Sequence[Broken]:
    """FLUSHALL: queues, leases, streams, marks."""
    await scene.parts.redis.command("FLUSHALL")
    await asyncio.sleep(scene.stage.lease / 2)
    return ()


async def stop_redis(scene: Scene) -> Sequence[Broken]:
    """Redis away for a minute, under load."""
    pid = scene.stage.pids()["redis"]
    scene.stage.signal("redis", signal.SIGSTOP)
    await asyncio.sleep(60)
    os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(scene.stage.lease)
    return ()


async def freeze_worker(scene: Scene) -> Sequence[Broken]:
    """SIGSTOP of a worker past its Lease, then SIGCONT: the stale owner must fall silent, and write nothing."""
    name = ("worker", "worker-2")[scene.number % 2]
    pid = scene.stage.pids()[name]
    broken = await _owned_by(scene.parts, pid)
    at = scene.stage.signal(name, signal.SIGSTOP)
    await asyncio.sleep(scene.stage.lease * 2 + 1)
    scene.stage.signal(name, signal.SIGCONT)
    return [Broken(b.session, b.turn, at) for b in broken]


async def redeliver(scene: Scene) -> Sequence[Broken]:
    """Feishu sends everything again, shuffled."""
    scene.stage.world.courier.redeliver(feishu.CODER)
    await asyncio.sleep(1.0)
    return ()


async def restart_postgres(scene: Scene) -> Sequence[Broken]:
    """Postgres crashes and comes back, in mid-write."""
    pid = scene.stage.pids()["postgres"]
    scene.stage.signal("postgres", signal.SIGKILL)
    await scene.stage.back("postgres", pid)
    return ()


async def _owned_by(parts: Stores, pid: int) -> list[Broken]:
    """The Turns that run on the worker of that process; its name ends with its pid."""
    running = await open_turns(parts)
    return [Broken(s.key, turn, 0.0) for s, turn in running if s.owner and s.owner.endswith(f"-{pid}")]


HARMS: dict[str, Harm] = {
    "kill-worker": kill_worker,
    "kill-ingress": kill_ingress,
    "kill-deliver": kill_deliver,
    "kill-all": kill_all,
    "wipe-redis": wipe_redis,
    "stop-redis": stop_redis,
    "freeze-worker": freeze_worker,
    "redeliver": redeliver,
    "restart-postgres": restart_postgres,
}
NO_LOST_TURNS = frozenset({"wipe-redis", "stop-redis", "kill-deliver", "kill-ingress", "redeliver"})
