"""`kill-agent`: the agents' own processes die, and their Guards, under owners that live on."""

import os
import signal
import time
from collections.abc import Sequence

from amux.providers import guard
from ops.drills.count import Broken, open_turns
from ops.drills.scene import Scene, broken_since


async def kill_agent(scene: Scene) -> Sequence[Broken]:
    """SIGKILL of half of all agents at once; of some it is the Guard that dies, and the agent with it."""
    dice, guards = scene.dice(), scene.stage.guards()
    chosen = dice.sample(sorted(guards), (len(guards) + 1) // 2)
    running, at = await open_turns(scene.parts), time.time()
    struck = {name for name in chosen if _strike(guards[name], dice.choice(("agent", "guard")))}
    return broken_since([(session, turn) for session, turn in running if session.ref.id in struck], at)


def _strike(guarding: int, whom: str) -> bool:
    """Whether there was still somebody to kill."""
    below = guard.descendants(guarding)
    try:
        os.kill(guarding if whom == "guard" else below[0], signal.SIGKILL)
    except (ProcessLookupError, IndexError):
        return False
    return True
