"""One honest fake per port, over one shared in-memory world: they forget, expire and refuse as the real things do.

`World` is Postgres, Redis and the clock; `Worker(world, name)` is one process with every port. A worker can be frozen,
thawed and crashed; Redis can be wiped or away, Postgres away, and an append's answer lost. The suites in
tests/conformance hold these fakes and the real stores to the same words."""

from tests.fake_postgres import FakeBindings, FakeCards, FakeInputs, FakeSessions, FakeTimeline
from tests.fake_provider import FakeCompaction, FakeConversation, FakeProvider, FakeSteering, FakeWorkspaces
from tests.fake_redis import FakeBells, FakeInbox, FakeLeases, FakeNudges, FakeWaker
from tests.fake_world import BIRTH, Crashed, Door, FakeClock, World

__all__ = [
    "BIRTH",
    "Crashed",
    "FakeClock",
    "FakeCompaction",
    "FakeConversation",
    "FakeProvider",
    "FakeSteering",
    "FakeWorkspaces",
    "Worker",
    "World",
]


class Worker:
    """One process: every port, behind its own doors."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.postgres, self.redis = Door(world), Door(world, redis=True)
        self.bells = FakeBells()
        world.bells[name] = self.bells.rings  # the process of that name before it hears nothing any more
        self.timeline = FakeTimeline(world, self.postgres)
        self.inputs = FakeInputs(world, self.postgres)
        self.sessions = FakeSessions(world, self.postgres)
        self.bindings = FakeBindings(world, self.postgres)
        self.cards = FakeCards(world, self.postgres)
        self.inbox = FakeInbox(world, self.redis)
        self.leases = FakeLeases(world, self.redis)
        self.waker = FakeWaker(world, self.redis)
        self.nudges = FakeNudges(world)
        self.thaw()

    def freeze(self) -> None:
        """SIGSTOP: calls stand still until `thaw`. What it was about to do, it does then."""
        self.postgres.thawed.clear()
        self.redis.thawed.clear()

    def thaw(self) -> None:
        """SIGCONT."""
        self.postgres.thawed.set()
        self.redis.thawed.set()

    def crash(self) -> None:
        """SIGKILL: no call returns, no bell rings. Its Leases and its name in the rows stay."""
        self.postgres.crashed = self.redis.crashed = True
        self.bells.rings.clear()
        self.thaw()
