"""Where harm is done: what a harm finds there, what it answers, and the few looks that several of them take.

Nothing here harms anything."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from amux.core.events import Outcome
from amux.core.ids import TurnId
from amux.ports import Session
from amux.wiring import Stores
from ops.drills.count import Broken, ends, open_turns
from ops.drills.crowd import Crowd
from ops.drills.far import Far
from ops.drills.stage import Stage
from ops.drills.standby import Pair

LOOK_SECONDS = 0.2
LOOKS = 150

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scene:
    """One round: the how-manieth, with dice that its seed and its number alone decide. `faults` are for what a harm sees
    broken that no count shows. `pair` and `far` are there for the drills that need them; `slots` are those of all workers."""

    stage: Stage
    parts: Stores
    crowd: Crowd
    seed: int
    number: int
    slots: int
    tell: Tell
    pair: Pair | None = None
    far: Far | None = None
    faults: list[str] = field(default_factory=list)

    def dice(self) -> random.Random:
        """The round's, from their start."""
        return random.Random(f"{self.seed} {self.number}")


Harm = Callable[[Scene], Awaitable[Sequence[Broken]]]


def broken_since(turns: Sequence[tuple[Session, TurnId]], at: float) -> list[Broken]:
    """These, as broken since then."""
    return [Broken(session.key, turn, at) for session, turn in turns]


async def owned_by(parts: Stores, pid: int) -> list[tuple[Session, TurnId]]:
    """The Turns that run on the worker of that process; its name ends with its pid."""
    running = await open_turns(parts)
    return [(s, turn) for s, turn in running if s.owner and s.owner.endswith(f"-{pid}")]


async def ended(parts: Stores, broken: Sequence[Broken]) -> bool:
    """Wait until none of these Turns is open, or some time has passed: the next harm would be counted as its."""
    waiting = {(one.session, one.turn) for one in broken}
    for _ in range(LOOKS):
        if not waiting & {(session.key, turn) for session, turn in await open_turns(parts)}:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def lost_among(parts: Stores, broken: Sequence[Broken]) -> int:
    """How many of these Turns ended lost."""
    return sum(end is not None and end.outcome is Outcome.lost for end in await ends(parts, broken))
