"""A knock where something was left lying, and nowhere else; it may come twice and costs nothing."""

from dataclasses import dataclass, field, replace

import pytest

from amux.core.ids import SessionKey
from amux.runtime.sweep import PATIENCE, Sweep
from tests.build import said
from tests.fake_world import Due
from tests.fakes import Worker, World


@dataclass
class Night:
    """A world, and a sweep of it."""

    world: World = field(default_factory=World)

    async def lies(self, session: SessionKey) -> None:
        """Something was said there, and its post and wake were lost."""
        await Worker(self.world, "ingress").inputs.journal(session, said("user_a"))

    def named(self, session: SessionKey, *, held_until: float = -1.0) -> None:
        """Its row names an owner."""
        row = self.world.rows[session]
        row.session, row.held_until = replace(row.session, owner="w1"), held_until

    def held(self, session: SessionKey) -> None:
        self.world.leases[session] = ("w1|t", self.world.clock.now + 60)

    async def sweep(self) -> int:
        ports = Worker(self.world, "sweep")
        return await Sweep(ports.inputs, ports.sessions, ports.cards, ports.leases, ports.waker).round()


@pytest.fixture
def night() -> Night:
    return Night()


@pytest.fixture
def session(night: Night) -> SessionKey:
    return night.world.session()


async def test_a_quiet_house_is_left_alone(night: Night, session: SessionKey) -> None:
    assert (await night.sweep(), night.world.wakes, night.world.delivers) == (0, [], [])


@pytest.mark.rule("D2")
async def test_input_that_nobody_accepted_is_knocked_for(night: Night, session: SessionKey) -> None:
    await night.lies(session)
    assert await night.sweep() == 0  # its own wake may be on its way
    night.world.clock.advance(PATIENCE + 0.1)
    assert (await night.sweep(), night.world.wakes) == (1, [(session, "local")])


@pytest.mark.rule("D2", "S4")
async def test_an_owner_without_a_lease_is_dead(night: Night, session: SessionKey) -> None:
    """H10: also between two Turns, with nothing said."""
    night.named(session)
    assert (await night.sweep(), night.world.wakes) == (1, [(session, "local")])


async def test_a_living_owner_is_left_alone(night: Night, session: SessionKey) -> None:
    night.named(session)
    night.world.clock.advance(PATIENCE + 0.1)
    night.held(session)
    assert (await night.sweep(), night.world.wakes) == (0, [])


async def test_a_living_owner_that_does_not_hear_is_rung_and_not_woken(night: Night, session: SessionKey) -> None:
    """Who journaled died before it posted: no stream and no bell tells of it (H37)."""
    await night.lies(session)
    night.named(session)
    night.world.clock.advance(PATIENCE + 0.1)
    night.held(session)
    assert (await night.sweep(), night.world.wakes) == (1, [])


async def test_an_owner_that_holds_on_through_postgres_is_left_alone(night: Night, session: SessionKey) -> None:
    """H63: Redis is new, and its owner lives."""
    night.named(session, held_until=60.0)
    assert (await night.sweep(), night.world.wakes) == (0, [])


async def test_a_session_is_knocked_for_once_a_round_and_asked_for_once(night: Night, session: SessionKey) -> None:
    """H9: under overload, one message for each that waits."""
    await night.lies(session)
    night.named(session)
    night.world.clock.advance(PATIENCE + 0.1)
    assert [await night.sweep() for _ in range(3)] == [1, 1, 1]
    assert night.world.wakes == [(session, "local")]


async def test_a_wake_that_was_lost_is_asked_for_again(night: Night, session: SessionKey) -> None:
    night.named(session)
    await night.sweep()
    night.world.wakes.clear()  # its worker died before the Lease (H32)
    await night.sweep()
    assert night.world.wakes == [(session, "local")]


@pytest.mark.rule("T7")
async def test_what_was_not_shown_is_asked_for(night: Night, session: SessionKey) -> None:
    """H11: the deliverer died, its Session sleeps."""
    night.world.dues[session] = Due(open=True, since=0.0)
    night.world.clock.advance(PATIENCE + 0.1)
    assert (await night.sweep(), night.world.delivers, night.world.wakes) == (1, [session], [])
