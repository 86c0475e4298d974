"""All owners of one process: none twice, room made for those who wait, and an orderly end."""

import asyncio
from dataclasses import replace

import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from amux.core.errors import Refused
from amux.core.events import Outcome, TurnFinished
from amux.core.ids import SessionKey, TurnId
from amux.runtime import host as module
from amux.runtime.host import Host
from amux.runtime.owner import Pace
from tests.build import said
from tests.runtime.house import LINGER, WINDOW, House, until

SOON = 0.03  # of a lease, in seconds of a real clock: room is made every third of it


@pytest.fixture
def host(house: House) -> Host:
    return house.workers["w1"][1]


async def runs(house: House, name: str = "7k3m") -> SessionKey:
    """A Session whose Turn 1 runs on w1."""
    session = house.world.session(name)
    begun = len(house.agent.opened)
    await house.say(session, said("user_a"))
    house.drive()
    await until(lambda: len(house.agent.opened) > begun and house.agent.opened[-1].prompts)
    return session


async def rests(house: House, name: str) -> SessionKey:
    """A Session whose Turn 1 is over; its owner lingers."""
    session = await runs(house, name)
    house.agent.opened[-1].finish()
    await until(lambda: house.owner(session).idle_since is not None)
    return session


async def test_a_session_is_owned_once_in_a_process(house: House, host: Host) -> None:
    session = await runs(house)
    owner = host.owners[session]
    await host.drive(session)  # returns at once
    assert host.owners == {session: owner}
    assert len(house.agent.opened) == 1


@pytest.mark.rule("D2")
async def test_a_drain_lets_turns_end_and_takes_nothing_more(house: House, host: Host) -> None:
    session, other = await runs(house), house.world.session("other")
    drain = asyncio.create_task(host.drain(60.0))
    await anyio.lowlevel.checkpoint()
    await house.say(other, said("user_b"))
    house.drive()
    assert not drain.done()
    house.agent.opened[0].finish()
    await until(drain.done)
    await drain
    assert [x.outcome for x in house.events(session) if isinstance(x, TurnFinished)] == [Outcome.completed]
    assert house.world.rows[session].session.owner is None
    assert (house.kinds(other), house.agent.opened[0].closed) == ([], True)


@pytest.mark.rule("D2")
async def test_what_waits_behind_a_turn_is_left_by_a_drain_to_another_worker(house: House, host: Host) -> None:
    session = await runs(house)
    await house.say(session, said("user_b"))
    await until(lambda: house.owner(session).scratch.burst)
    house.world.clock.advance(WINDOW)
    await until(lambda: "InputQueued" in house.kinds(session))
    drain = asyncio.create_task(host.drain(60.0))
    await anyio.lowlevel.checkpoint()
    house.agent.opened[0].finish()
    await until(drain.done)
    await drain
    assert house.kinds(session).count("TurnStarted") == 1
    assert house.agent.opened[0].closed
    house.worker("w2")
    await house.sweep()
    house.drive("w2")
    await until(lambda: house.kinds(session).count("TurnStarted") == 2)
    ends = [x.outcome for x in house.events(session) if isinstance(x, TurnFinished)]
    assert ends == [Outcome.completed]


async def test_a_drain_waits_no_longer_than_it_is_given(house: House, host: Host) -> None:
    session = await runs(house)
    await host.drain(0.01)
    assert house.world.rows[session].session.open_turn == TurnId(1)


async def test_a_drain_of_nothing_is_over_at_once(host: Host) -> None:
    await host.drain(60.0)


async def test_an_owner_that_opens_while_the_drain_begins_is_hurried_too(house: House, host: Host) -> None:
    session = house.world.session()
    house.workers["w1"][0].postgres.thawed.clear()  # it stands in `open`
    house.spawn(host, session)
    await until(lambda: house.world.leases)
    await host.drain(60.0)
    house.workers["w1"][0].postgres.thawed.set()
    await until(lambda: not house.tasks)  # and not only when it has lingered
    assert house.world.rows[session].session.owner is None


async def test_what_cannot_be_opened_now_can_be_later(house: House, host: Host) -> None:
    session = house.world.session()
    house.world.postgres_away = True
    await host.drive(session)
    assert host.owners == {}
    house.world.postgres_away = False
    house.world.clock.advance(60)
    await house.say(session, said("user_a"))
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)


async def test_a_wake_for_no_session_does_nothing(host: Host) -> None:
    """H29: a forged message is at worst an empty visit."""
    await host.drive(SessionKey(999))
    assert host.owners == {}


async def quick(house: House) -> Host:
    """w1's host, with all its slots taken, making room every hundredth of a second."""
    host = house.workers["w1"][1]
    host.slots = len(host.owners)
    host.rt = replace(host.rt, pace=Pace(SOON, LINGER, WINDOW))
    host.start()
    return host


async def test_the_longest_idle_make_room_for_those_who_wait(house: House) -> None:
    """H46: as many as wait; one that has not worked for long stays."""
    first, second = await rests(house, "first"), None
    house.world.clock.advance(1)
    second = await rests(house, "second")
    busy = await runs(house, "busy")
    waiting = house.world.session("waiting")
    house.world.wakes.append((waiting, "local"))
    host = await quick(house)
    try:
        async with asyncio.timeout(5):
            while first in host.owners:
                await anyio.lowlevel.checkpoint()
        house.world.wakes.clear()
        assert {second, busy} <= set(host.owners)
        assert house.world.rows[first].session.owner is None
    finally:
        await host.stop()


async def test_one_whose_workspace_is_wanted_leaves_when_it_has_had_its_turn(house: House, host: Host) -> None:
    """H77: before that it does not, or two would open and close their agents in turns, for ever."""
    session = house.world.session("first")
    await house.say(session, said("user_a"))
    house.agent.wanted = True  # by another one, as soon as its agent opens
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[-1].prompts)
    assert not host.owners[session].hurried
    house.agent.opened[-1].opening.wanted()
    assert host.owners[session].hurried
    house.agent.opened[-1].finish()
    await until(lambda: session not in host.owners)
    assert [x.outcome for x in house.events(session) if isinstance(x, TurnFinished)] == [Outcome.completed]


async def test_one_that_is_idle_leaves_a_wanted_workspace_at_once(house: House, host: Host) -> None:
    session = await rests(house, "first")
    house.agent.opened[-1].opening.wanted()
    await until(lambda: session not in host.owners)


async def test_one_in_an_endless_turn_is_no_slot_that_will_be_free(house: House) -> None:
    """H46: it was asked to leave, and the next one is asked too."""
    endless = await runs(house, "endless")
    house.world.clock.advance(LINGER)
    idle = await rests(house, "idle")
    house.owner(endless).hurry()
    house.world.wakes.append((house.world.session("waiting"), "local"))
    host = await quick(house)
    try:
        async with asyncio.timeout(5):
            while idle in host.owners:
                await anyio.lowlevel.checkpoint()
    finally:
        await host.stop()


async def test_one_that_is_never_idle_leaves_between_two_turns(house: House) -> None:
    """H46: what waits in its own queue is swept up later, behind those who waited for its slot."""
    busy = await runs(house, "busy")
    await house.say(busy, said("user_b", id="om_next"))
    await until(lambda: "InputQueued" in house.kinds(busy) or house.owner(busy).scratch.burst)
    house.world.clock.advance(LINGER)
    fresh = await runs(house, "fresh")
    house.world.wakes.append((house.world.session("waiting"), "local"))
    host = await quick(house)
    try:
        async with asyncio.timeout(5):
            while not host.owners[busy].hurried:
                await anyio.lowlevel.checkpoint()
        assert not host.owners[fresh].hurried
        house.agent.opened[0].finish()
        async with asyncio.timeout(5):
            while busy in host.owners:
                await anyio.lowlevel.checkpoint()
        assert [len(agent.prompts) for agent in house.agent.opened] == [1, 1]
        assert [x.outcome for x in house.events(busy) if isinstance(x, TurnFinished)] == [Outcome.completed]
        assert house.world.rows[busy].session.owner is not None  # so the sweep knocks for what waits there
    finally:
        await host.stop()


@pytest.mark.parametrize(("target", "free"), [("elsewhere", 0), ("local", 1)])
async def test_a_wake_for_another_target_or_a_free_slot_needs_no_room(house: House, target: str, free: int) -> None:
    session = await rests(house, "first")
    house.world.wakes.append((session, target))
    asked = asyncio.Event()
    host = await quick(house)
    host.slots += free
    waiting = host.rt.waker.waiting

    async def counted(target: str) -> int:
        asked.set()
        return await waiting(target)

    host.rt.waker.waiting = counted  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(5):
            await asked.wait()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert session in host.owners
    finally:
        await host.stop()


async def test_a_task_that_fails_is_begun_again_and_no_other_with_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without renewals every Lease of this process runs out."""
    monkeypatch.setattr(module, "AGAIN", 0.0)
    await rests(house, "first")
    host = house.workers["w1"][1]
    begun = {"keeper": 0, "room": 0}
    keep = host.rt.keeper.run
    asked = asyncio.Event()

    async def run() -> None:
        begun["keeper"] += 1
        await keep()

    async def waiting(target: str) -> int:
        begun["room"] += 1
        if begun["room"] < 3:
            raise Refused("not today")
        asked.set()
        return 0

    monkeypatch.setattr(type(host.rt.keeper), "run", lambda _: run())
    host.rt.waker.waiting = waiting  # type: ignore[method-assign]
    with capture_logs() as logged:
        await quick(house)
        try:
            async with asyncio.timeout(5):
                await asked.wait()
        finally:
            await host.stop()
    assert [(line["event"], line["task"]) for line in logged] == [("host_task_died", "room")] * 2
    assert begun == {"keeper": 1, "room": 3}
