"""`rolling`: every process is replaced, one by one, as a deploy does it: told to end, and given time for it."""

import signal
from collections.abc import Sequence

from ops.drills.count import Broken
from ops.drills.scene import Scene

STAY = frozenset({"supervisor", "postgres", "standby", "redis"})  # no deploy of ours touches them


async def rolling(scene: Scene) -> Sequence[Broken]:
    """TERM to each service in turn; the next comes when the one before it is back."""
    for name, pid in scene.stage.pids().items():
        if name not in STAY:
            scene.stage.signal(name, signal.SIGTERM)
            await scene.stage.back(name, pid)
    return ()
