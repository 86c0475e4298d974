"""`overload`: more Sessions have something to do than there are slots. All of them must come to their turn, and the queue
of wakes may not grow beyond one message for each that waits (H9, H46)."""

import asyncio
import time
from collections.abc import Sequence

from ops.drills.count import MANY, Broken
from ops.drills.scene import LOOK_SECONDS, Scene

PATIENCE_SECONDS = 60.0  # for a Session to be served
LYING_SECONDS = 1.0  # input that lies for so long waits for a slot


async def overload(scene: Scene) -> Sequence[Broken]:
    """Everybody speaks at once, and new topics are opened until there are more Sessions than slots."""
    surplus = scene.slots - len(scene.crowd.topics) + max(2, scene.crowd.sessions // 5)
    scene.crowd.flood()
    scene.crowd.newcomers(max(0, surplus))
    await asyncio.sleep(LYING_SECONDS + LOOK_SECONDS)
    waiting, longest = await _waiting(scene), 0
    end = time.monotonic() + PATIENCE_SECONDS
    while waiting and time.monotonic() < end:
        longest = max(longest, await scene.parts.waker.waiting("local"))
        await asyncio.sleep(LOOK_SECONDS)
        waiting &= await _waiting(scene)
    if waiting:
        scene.faults.append(f"{len(waiting)} Sessions were not served within {PATIENCE_SECONDS:g} s")
    there = len(await scene.parts.sessions.list(label=None, target=None, limit=MANY))
    if longest > there:
        scene.faults.append(f"{longest} wakes lay in the queue for {there} Sessions")
    return ()


async def _waiting(scene: Scene) -> set[int]:
    """Sessions whose input nobody has accepted for a while."""
    return {key for key, _ in await scene.parts.inputs.lying(older_than=LYING_SECONDS)}
