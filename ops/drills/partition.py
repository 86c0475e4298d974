"""`partition`: a worker cannot reach Redis, then Postgres, then neither, each for longer than its Lease, while all others
can. Whoever reaches one of both keeps what it owns (H63); whoever reaches neither must fall silent and write nothing."""

import asyncio
import time
from collections.abc import Sequence

from amux.core.ids import TurnId
from amux.local.pids import started
from amux.ports import Session
from amux.providers import guard
from ops.drills.count import Broken
from ops.drills.far import FAR
from ops.drills.scene import LOOK_SECONDS, Scene, broken_since, ended, lost_among, owned_by
from ops.drills.wire import Wire

ENDINGS = ("mend", "sever")  # what waited on the wires comes late, or never
TRIES, LOOKS = 8, 25  # to see it at work: five seconds each


async def partition(scene: Scene) -> Sequence[Broken]:
    """Three cuts, one after the other."""
    assert scene.far
    dice, far = scene.dice(), scene.far
    for name, one in (("Redis", far.redis), ("Postgres", far.postgres)):
        kept = await _cut(scene, [one], dice.choice(ENDINGS))
        await ended(scene.parts, kept)
        if lost := await lost_among(scene.parts, kept):
            scene.faults.append(f"{lost} Turns were lost although only {name} could not be reached")
    return await _cut(scene, [far.redis, far.postgres], dice.choice(ENDINGS))


async def _cut(scene: Scene, wires: Sequence[Wire], ending: str) -> list[Broken]:
    """Cut these for two Leases; answers the worker's Turns, as broken since then."""
    turns, at = await _at_work(scene), time.time()
    for one in wires:
        one.cut()
    try:
        await asyncio.sleep(2 * scene.stage.lease + 1)
        if len(wires) > 1 and (left := _acting(scene)):
            scene.faults.append(f"{left} processes of agents lived on under a worker that was cut off")
    finally:
        for one in wires:
            one.mend() if ending == "mend" else one.sever()
    return broken_since(turns, at)


async def _at_work(scene: Scene) -> list[tuple[Session, TurnId]]:
    """What the worker runs, once it runs something; what is owned already stays where it is, so others come for it."""
    for _ in range(TRIES):
        scene.crowd.newcomers(max(2, scene.crowd.sessions // 5))
        for _ in range(LOOKS):
            if turns := await owned_by(scene.parts, scene.stage.pids().get(FAR, 0)):
                return turns
            await asyncio.sleep(LOOK_SECONDS)
    scene.faults.append("the worker that can be cut off took nothing")
    return []


def _acting(scene: Scene) -> int:
    """Agents, Guards and tools below the worker that are alive."""
    return sum(started(pid) != "" for pid in guard.descendants(scene.stage.pids().get(FAR, 0)))
