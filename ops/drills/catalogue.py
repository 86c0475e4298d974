"""Every drill by its name: its harm, what its stage needs, and whether a Turn may end lost by it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ops.drills import harm
from ops.drills.agents import kill_agent
from ops.drills.chaos import drawn
from ops.drills.count import Broken
from ops.drills.overload import overload
from ops.drills.partition import partition
from ops.drills.rolling import rolling
from ops.drills.scene import Harm, Scene


class Need(StrEnum):
    """What a stage has beside the house."""

    standby = "standby"
    far = "far"


class Lost(StrEnum):
    """Turns that end lost: `none` where every owner lives on or hands over."""

    none = "none"
    some = "some"


def roomy(sessions: int) -> int:
    """A slot of one worker for each Session."""
    return sessions + 10


def scarce(sessions: int) -> int:
    """Two workers have slots for less than half of the Sessions."""
    return max(1, sessions // 5)


def halved(sessions: int) -> int:
    """Any two workers have slots for all Sessions."""
    return sessions // 2 + 1


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill. `slots` are those of one worker, by the number of Sessions."""

    harm: Harm
    lost: Lost = Lost.some
    needs: frozenset[Need] = frozenset()
    slots: Callable[[int], int] = roomy


HARMS: dict[str, Drill] = {
    "failover": Drill(harm.failover, needs=frozenset({Need.standby})),
    "freeze-worker": Drill(harm.freeze_worker),
    "kill-agent": Drill(kill_agent),
    "kill-all": Drill(harm.kill_all),
    "kill-beat": Drill(harm.kill_beat),
    "kill-deliver": Drill(harm.kill_deliver, Lost.none),
    "kill-ingress": Drill(harm.kill_ingress, Lost.none),
    "kill-worker": Drill(harm.kill_worker),
    "overload": Drill(overload, Lost.none, slots=scarce),
    "partition": Drill(partition, needs=frozenset({Need.far})),
    "redeliver": Drill(harm.redeliver, Lost.none),
    "restart-postgres": Drill(harm.restart_postgres, Lost.none),
    "rolling": Drill(rolling, Lost.none),
    "stop-redis": Drill(harm.stop_redis, Lost.none),
    "wipe-redis": Drill(harm.wipe_redis, Lost.none),
}


async def chaos(scene: Scene) -> Sequence[Broken]:
    """The harm that the seed has drawn for this round."""
    name = drawn(HARMS, scene.seed, scene.number)
    scene.tell(f"round {scene.number + 1} is {name}")
    return await HARMS[name].harm(scene)


DRILLS = {**HARMS, "chaos": Drill(chaos, needs=frozenset(Need), slots=halved)}
