"""What many tests of the runtime begin with: owners in a house, or a deliverer in its room."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from amux.runtime import deliver, failpoints
from amux.runtime.deliver import INTERVAL
from tests.runtime.delivering import ONE, T1, Now, Room, ended, settled, started
from tests.runtime.house import House, until


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """One world with one worker."""
    house = House()
    house.worker("w1")
    yield house
    await house.close()


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    room = Room()
    monkeypatch.setattr(deliver, "time", Now(room.world.clock))
    await room.begin()
    yield room
    failpoints.disarm()


@pytest.fixture
async def live(room: Room) -> AsyncIterator[Room]:
    """Turn 1 runs and its card is shown; a deliverer follows."""
    await room.write(started(T1, ONE), accepts=[ONE])
    task = asyncio.create_task(room.deliver())
    await settled()
    assert room.texts(ONE) == [""]
    yield room
    if open_ := room.state().turn:
        await room.write(ended(open_.id))
    room.world.clock.advance(INTERVAL)
    room.silence()
    await until(task.done)
    await task
    assert not room.owed()
