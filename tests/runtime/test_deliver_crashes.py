"""A deliverer dies, freezes or is replaced: no second card, nothing older lands last, and it is missed in time."""

import asyncio

import pytest

from amux.core import events as e
from amux.core.errors import Unavailable
from amux.core.ids import RequestId, Seq, SessionKey
from amux.core.inputs import Input
from amux.runtime import failpoints
from amux.runtime.deliver import INTERVAL, STEPS, UUID_HOUR
from amux.runtime.sweep import PATIENCE, Sweep
from tests.build import said
from tests.fakes import Crashed, Worker
from tests.runtime.delivering import (
    BY_B,
    DEADLY,
    LEASE,
    LONG,
    ONE,
    T1,
    T2,
    Room,
    ended,
    over,
    says,
    settled,
    started,
)
from tests.runtime.feishu import Fuse
from tests.runtime.house import until

# -- crashes ----------------------------------------------------------------------------------------------------------


async def crash_at(room: Room, place: str) -> None:
    def die() -> None:
        room.ports.postgres.crashed = True
        raise Crashed

    failpoints.arm(place, die)
    with pytest.raises(Crashed):
        await room.deliver()
    failpoints.disarm()


@pytest.mark.rule("T7")
@pytest.mark.parametrize("place", ["after_card_row", "after_send"])
@pytest.mark.parametrize("entities", [True, False], ids=["entity", "message"])
async def test_a_crash_makes_no_second_card(room: Room, place: str, entities: bool) -> None:
    """T7.b, H12: and the first one shows the end at once."""
    room.entities = entities
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    await crash_at(room, place)
    await room.write(ended())
    task = asyncio.create_task(room.deliver())
    await settled()
    assert room.texts(ONE) == ["hello completed"]
    await over(room, task)
    assert room.texts(ONE) == ["hello completed"]


@pytest.mark.rule("T7", "D2")
@pytest.mark.parametrize("entities", [True, False], ids=["entity", "message"])
@pytest.mark.parametrize("later", [0.0, INTERVAL, 2 * UUID_HOUR], ids=["at once", "soon", "after the uuid's hour"])
async def test_killed_at_any_step_the_next_deliverer_completes_each_card_once(
    room: Room, later: float, entities: bool
) -> None:
    """H12, H13: one message for each part, and the receipt, and the request; each shows its end."""
    ask = e.PermissionRequested(T1, RequestId("1-1"), "git push")
    waits = e.InputQueued((BY_B.id,), e.QueueReason.other_sender)
    for steps in range(1, 500):
        other = Room(room.world, entities)
        await other.begin()
        await other.write(started(T1, ONE_OF(steps)), ask, says(LONG), accepts=[ONE_OF(steps)])
        one, by_b = ONE_OF(steps), said("user_b", id=f"feishu:cli_bot:om_b{steps}")
        await other.write(e.InputQueued((by_b.id,), waits.reason), accepts=[by_b])
        await other.write(e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.ended), ended())
        await other.write(started(T2, by_b), ended(T2))
        died = await killed_at(other, steps)
        room.world.clock.advance(later)
        await over(other, asyncio.create_task(other.deliver()))
        nonce = other.row("ask:1-1").nonce
        assert sorted(map(str, other.texts(one))) == sorted(
            [f"git push ended {nonce}", "x" * 10 + " completed", "x" * 10, "x" * 5]
        ), f"killed at step {steps}"
        assert other.texts(by_b) in ([" completed"], [" completed", "started 0"]), f"killed at step {steps}"
        if not died:
            return
    raise AssertionError("it never came to its end")


async def killed_at(room: Room, step: int) -> bool:
    """Whether its deliverer was killed before it had shown everything."""
    try:
        await over(room, asyncio.create_task(room.deliver(step)))
    except Crashed:
        return True
    return False


def ONE_OF(n: int) -> Input:  # noqa: N802
    return said("user_a", id=f"feishu:cli_bot:om_one{n}", at=n)


@pytest.mark.rule("T7")
async def test_a_thawed_deliverer_stops_and_leaves_the_newer_state(room: Room) -> None:
    """H12: frozen before its update; meanwhile another showed the end."""
    await room.write(started(T1, ONE), accepts=[ONE])
    old = asyncio.create_task(room.deliver())
    await settled()
    frozen, old_messenger = room.ports, room.messenger
    frozen.postgres.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    assert old_messenger.calls[-1][0] == "send"  # it stands before the door
    await room.write(ended())
    await room.deliver()
    assert room.texts(ONE) == ["older completed"]
    frozen.postgres.thawed.set()
    await until(old.done)
    await old
    assert room.texts(ONE) == ["older completed"]
    assert room.row("turn:1").state == "final"
    assert len(room.feishu.messages) == 1
    assert [name for name, *_ in old_messenger.calls].count("send") == 1


# -- cards that are no entities ---------------------------------------------------------------------------------------


def patching(room: Room) -> tuple[asyncio.Task[None], Fuse]:
    """A deliverer whose app may make no entities, and the door between it and Feishu."""
    room.entities = False
    house, door = room.deliverer(), Fuse(room.world)
    door.thawed.set()
    room.messenger.door = door
    return asyncio.create_task(house.deliver(room.session)), door


@pytest.mark.rule("D2")
async def test_an_end_without_an_entity_is_patched_again_after_a_lease(room: Room) -> None:
    """H12: frozen on its way to Feishu, it patched the end over when it thawed, and nobody else could know."""
    await room.write(started(T1, ONE), accepts=[ONE])
    frozen, door = patching(room)
    await settled()
    door.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    await room.write(ended())
    second, _ = patching(room)
    await settled()
    assert room.texts(ONE) == ["older completed"]
    door.thawed.set()
    await until(frozen.done)
    assert room.texts(ONE) == ["older"]
    assert room.owed()
    await over(room, second)
    assert room.texts(ONE) == ["older completed"]
    assert room.updates("turn:1") == [STEPS * 2 + 1, STEPS * 2 + 2]


async def test_who_dies_within_that_lease_leaves_it_to_the_next(room: Room) -> None:
    """H12: and what was patched again is not patched a third time."""
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    for expected in ([STEPS * 2 + 1], []):
        died, _ = patching(room)
        await settled()
        died.cancel()
        await asyncio.wait([died])
        assert (room.updates("turn:1"), room.owed()) == (expected, True)
    last, _ = patching(room)
    await settled()
    await over(room, last)
    assert room.updates("turn:1") == [STEPS * 2 + 2]
    room.world.dues[room.session].position = Seq(0)
    idle, _ = patching(room)
    await until(idle.done)
    assert room.messenger.calls == []


async def test_a_part_that_feishu_never_takes_is_not_patched_again(room: Room) -> None:
    await room.write(started(T1, ONE), says("x" * 15), ended(), accepts=[ONE])
    task, _ = patching(room)
    room.messenger.faults["make"] = [DEADLY["the bot was removed"]]
    await settled()
    await over(room, task)
    assert (room.updates("turn:1"), room.updates("turn:1:2")) == ([], [STEPS * 2 + 1, STEPS * 2 + 2])
    assert (room.row("turn:1").state, room.texts(ONE)) == ("dead", ["x" * 5])


async def test_a_thawed_deliverer_asks_its_fence_before_it_patches(room: Room) -> None:
    """H12: however long it was frozen."""
    await room.write(started(T1, ONE), accepts=[ONE])
    frozen, _ = patching(room)
    await settled()
    ports, its = room.ports, room.messenger
    before = list(its.calls)
    ports.postgres.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    await room.write(ended())
    second, _ = patching(room)
    await settled()
    await over(room, second)
    ports.postgres.thawed.set()
    await until(frozen.done)
    assert its.calls == before
    assert room.texts(ONE) == ["older completed"]


# -- signs of life ----------------------------------------------------------------------------------------------------


async def sweep(room: Room) -> list[SessionKey]:
    """Whom it asks for."""
    ports = Worker(room.world, "sweep")
    await Sweep(ports.inputs, ports.sessions, ports.cards, ports.leases, ports.waker).round()
    asked, room.world.delivers = room.world.delivers, []
    return asked


async def test_a_killed_deliverer_is_missed_when_its_lease_is_over(room: Room) -> None:
    """H11."""
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    killed = asyncio.create_task(room.deliver())
    await settled()
    room.ports.redis.crashed = room.ports.postgres.crashed = True
    killed.cancel()
    with pytest.raises(Crashed):
        await killed
    room.world.clock.advance(LEASE - 0.1)
    assert await sweep(room) == []
    room.world.clock.advance(0.2)
    assert await sweep(room) == [room.session]


@pytest.mark.parametrize("ending", ["cancelled", "busy"])
async def test_a_deliverer_that_ends_by_itself_is_missed_at_once(room: Room, ending: str) -> None:
    """A drained worker, or a Feishu that is flooded: nobody waits for a lease."""
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    house = room.deliverer()
    if ending == "busy":
        room.messenger.faults["send"] = [Unavailable("Feishu is flooded.")]
    task = asyncio.create_task(house.deliver(room.session))
    await settled()
    task.cancel()
    await asyncio.wait([task])
    room.world.clock.advance(PATIENCE + 0.1)
    assert await sweep(room) == [room.session]


async def test_a_deliverer_that_waits_long_for_feishu_is_not_missed(room: Room) -> None:
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    house = room.deliverer(lease=0.03)
    signs: asyncio.Queue[float] = asyncio.Queue()
    told = room.ports.waker.delivering

    async def delivering(session: SessionKey, *, seconds: float) -> None:
        await told(session, seconds=seconds)
        signs.put_nowait(seconds)

    room.ports.waker.delivering = delivering  # type: ignore[method-assign]
    door = room.messenger.door = Fuse(room.world)  # it stands still
    task = asyncio.create_task(house.deliver(room.session))
    async with asyncio.timeout(10):
        assert [await signs.get() for _ in range(4)] == [0.03] * 4
    door.thawed.set()
    await until(task.done)
    await task
    assert room.texts(ONE) == ["hello completed"]


async def test_a_thawed_deliverer_leaves_the_others_sign_of_life(room: Room) -> None:
    """Else the sweep would ask for a third, which would send the second away."""
    await room.write(started(T1, ONE), accepts=[ONE])
    old = asyncio.create_task(room.deliver())
    await settled()
    new = asyncio.create_task(room.deliver())
    await settled()
    room.world.clock.advance(INTERVAL + PATIENCE)
    await room.write(says("hello"))
    await until(old.done)
    await old
    assert await sweep(room) == []
    await room.write(ended())
    await until(new.done)
    await new
