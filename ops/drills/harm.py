"""The harms that a signal or a word does: each does its damage once and answers which Turns it broke, and since when."""

import asyncio
import os
import signal
from collections.abc import Sequence

from amux.sandbox import feishu
from ops.drills.count import Broken, open_turns
from ops.drills.scene import Scene, broken_since, owned_by

AWAY_SECONDS = 60.0  # of Redis
STANDING_SECONDS = 30.0  # of Postgres


async def kill_worker(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of one of two workers; the other takes over."""
    name = ("worker", "worker-2")[scene.number % 2]
    pid = scene.stage.pids()[name]
    broken = await owned_by(scene.parts, pid)
    at = scene.stage.signal(name, signal.SIGKILL)
    await scene.stage.back(name, pid)
    return broken_since(broken, at)


async def kill_beat(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of what makes the sweep come, and of a worker: nobody sees that death until it is back, so recovery counts
    from there."""
    name = ("worker", "worker-2")[scene.number % 2]
    pids = scene.stage.pids()
    broken = await owned_by(scene.parts, pids[name])
    for killed in ("beat", name):
        scene.stage.signal(killed, signal.SIGKILL)
    at = await scene.stage.back("beat", pids["beat"])
    await scene.stage.back(name, pids[name])
    return broken_since(broken, at)


async def kill_deliver(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of what shows cards; no Turn notices."""
    return await _kill(scene, "deliver")


async def kill_ingress(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of what listens to Feishu; what it had not acknowledged comes again."""
    return await _kill(scene, "ingress")


async def restart_postgres(scene: Scene) -> Sequence[Broken]:
    """Postgres crashes in mid-write and comes back: at once, or every second time after half a minute (H33). Owners
    wait for it, and no Turn is lost (H80)."""
    await _kill(scene, "postgres")
    if scene.number % 2:
        pid = scene.stage.pids()["postgres"]
        scene.stage.signal("postgres", signal.SIGSTOP)  # before it takes anybody, most likely
        await asyncio.sleep(STANDING_SECONDS)
        os.kill(pid, signal.SIGCONT)
    return ()


async def _kill(scene: Scene, name: str) -> Sequence[Broken]:
    pid = scene.stage.pids()[name]
    scene.stage.signal(name, signal.SIGKILL)
    await scene.stage.back(name, pid)
    return ()


async def kill_all(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of every process at once; then a start."""
    broken = await open_turns(scene.parts)
    await scene.stage.kill_all()
    if scene.pair:
        await scene.pair.up()
    await scene.stage.start()
    return broken_since(broken, scene.stage.first_worker_ready())


async def wipe_redis(scene: Scene) -> Sequence[Broken]:
    """FLUSHALL: queues, leases, streams, marks."""
    await scene.parts.redis.command("FLUSHALL")
    await asyncio.sleep(scene.stage.lease / 2)
    return ()


async def stop_redis(scene: Scene) -> Sequence[Broken]:
    """Redis away for a minute, under load."""
    pid = scene.stage.pids()["redis"]
    scene.stage.signal("redis", signal.SIGSTOP)
    await asyncio.sleep(AWAY_SECONDS)
    os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(scene.stage.lease)
    return ()


async def freeze_worker(scene: Scene) -> Sequence[Broken]:
    """SIGSTOP of a worker past its Lease, then SIGCONT: the stale owner must fall silent, and write nothing."""
    name = ("worker", "worker-2")[scene.number % 2]
    pid = scene.stage.pids()[name]
    broken = await owned_by(scene.parts, pid)
    at = scene.stage.signal(name, signal.SIGSTOP)
    await asyncio.sleep(scene.stage.lease * 2 + 1)
    scene.stage.signal(name, signal.SIGCONT)
    return broken_since(broken, at)


async def redeliver(scene: Scene) -> Sequence[Broken]:
    """Feishu sends everything again, shuffled."""
    scene.stage.world.courier.redeliver(feishu.CODER)
    await asyncio.sleep(1.0)
    return ()


async def failover(scene: Scene) -> Sequence[Broken]:
    """The leading Postgres dies for good, and its synchronous standby takes over (H2, H15)."""
    assert scene.pair
    await scene.pair.fail_over()
    return ()
