"""H66, H43: a post that stood still reaches an owner that never heard of its input, which another tenure has run already, or
which its sender has taken back."""

import asyncio

import anyio.lowlevel
import pytest

from amux.core.events import CancelReason, InputAccepted, InputCancelled, Outcome, TurnFinished, TurnStarted
from amux.core.ids import InputId, Principal, SessionKey
from amux.core.inputs import Input, Withdraw
from amux.runtime.owner import LOOK_SECONDS
from amux.runtime.submit import Submit
from amux.runtime.sweep import PATIENCE
from tests.build import said
from tests.fakes import Worker
from tests.runtime.house import WINDOW, House, until

OLD = said("user_a", id="om_old", at=-10_000)  # milliseconds before the clock says 0
NEXT = said("user_b", id="om_next")


def stand_still(house: House, session: SessionKey, one: Input) -> tuple[Worker, asyncio.Task[object]]:
    """An ingress that journals it and stands still before it posts."""
    ports = Worker(house.world, "ingress")
    ports.redis.thawed.clear()
    submit = Submit(ports.inputs, ports.inbox, ports.waker)
    return ports, asyncio.create_task(submit.to(session, one))


def ends(house: House, session: SessionKey) -> list[Outcome]:
    return [one.outcome for one in house.events(session) if isinstance(one, TurnFinished)]


def started(house: House, session: SessionKey) -> list[tuple[str, ...]]:
    return [one.inputs for one in house.events(session) if isinstance(one, TurnStarted)]


def heard(house: House, session: SessionKey) -> list[InputId]:
    """What its owner knows of: accepted, or in the open burst."""
    burst = house.owner(session).scratch.burst
    accepted = [e.input.id for e in house.events(session) if isinstance(e, InputAccepted)]
    return [*accepted, *(i.id for i in burst.inputs)] if burst else accepted


async def run(house: House, session: SessionKey, turn: int) -> None:
    """That Turn runs to its end."""
    house.drive()
    await until(lambda: sum(len(agent.prompts) for agent in house.agent.opened) == turn)
    house.agent.opened[-1].finish()
    await until(lambda: len(ends(house, session)) == turn)


async def rested(house: House, session: SessionKey) -> None:
    """Its owner has let go."""
    owner = house.owner(session)
    owner.hurry()
    await until(owner.gone.is_set)
    assert owner.left


@pytest.mark.rule("D2", "T1", "T3")
async def test_a_post_after_another_tenure_ran_the_input_costs_no_turn(house: House) -> None:
    session = house.world.session()
    ingress, posting = stand_still(house, session, OLD)
    await until(lambda: OLD.id in house.world.journal)
    house.world.clock.advance(PATIENCE + 0.1)
    await house.sweep()
    await run(house, session, 1)  # from the journal
    await rested(house, session)

    await house.say(session, NEXT)
    house.drive()
    await until(lambda: sum(len(agent.prompts) for agent in house.agent.opened) == 2)
    ingress.thaw()
    await until(posting.done)
    cursor = house.world.streams[session][-1].entry
    await until(lambda: house.owner(session).cursor == cursor)  # it has read the late post
    house.agent.opened[-1].finish()
    await until(lambda: len(ends(house, session)) == 2)

    assert ends(house, session) == [Outcome.completed] * 2
    assert started(house, session) == [(OLD.id,), (NEXT.id,)]
    assert [e.input.id for e in house.events(session) if isinstance(e, InputAccepted)] == [OLD.id, NEXT.id]


@pytest.mark.rule("D2", "T1", "T3")
async def test_a_journal_that_cannot_be_read_costs_no_turn(house: House) -> None:
    """Postgres is away for longer than a look in the journal waits: the Turn goes on, and the post is heard after it."""
    session = house.world.session()
    await house.say(session, NEXT)
    house.drive()
    await until(lambda: sum(len(agent.prompts) for agent in house.agent.opened) == 1)
    ingress, posting = stand_still(house, session, OLD)
    await until(lambda: OLD.id in house.world.journal)
    house.world.postgres_away = True
    ingress.thaw()
    await until(posting.done)
    cursor = house.world.streams[session][-1].entry
    await until(lambda: house.owner(session).cursor == cursor)
    house.world.postgres_away = False
    house.world.clock.advance(LOOK_SECONDS)
    await until(lambda: house.owner(session).scratch.burst)
    house.world.clock.advance(WINDOW)
    await until(lambda: OLD.id in [e.input.id for e in house.events(session) if isinstance(e, InputAccepted)])
    house.agent.opened[-1].finish()
    await until(lambda: len(ends(house, session)) == 1)
    await run(house, session, 2)
    assert ends(house, session) == [Outcome.completed] * 2
    assert started(house, session) == [(NEXT.id,), (OLD.id,)]


@pytest.mark.rule("D2", "T1")
async def test_a_late_post_does_not_take_the_place_of_a_look_that_is_due(house: House) -> None:
    """What was posted while the journal could not be read is heard with it, and not when a sweep comes by."""
    more = said("user_c", id="om_more")
    session = house.world.session()
    await house.say(session, NEXT)
    house.drive()
    await until(lambda: sum(len(agent.prompts) for agent in house.agent.opened) == 1)
    (late, _), (soon, posted) = stand_still(house, session, OLD), stand_still(house, session, more)
    await until(lambda: {OLD.id, more.id} <= set(house.world.journal))
    house.world.postgres_away = True
    house.owner(session).tenure.look(None)
    soon.thaw()
    await until(posted.done)
    await until(lambda: house.owner(session).cursor == house.world.streams[session][-1].entry)
    for _ in range(50):  # until its look has failed
        await anyio.lowlevel.checkpoint()
    house.world.postgres_away = False
    late.thaw()
    await until(lambda: len(heard(house, session)) == 3)
    assert set(heard(house, session)) == {NEXT.id, OLD.id, more.id}


@pytest.mark.rule("D2", "T1")
async def test_a_post_that_comes_late_and_was_never_run_is_heard(house: House) -> None:
    """Only what was accepted is passed over: an old message on a slow day is none the less said."""
    session = house.world.session()
    await house.say(session, NEXT)
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)
    ingress, posting = stand_still(house, session, OLD)
    await until(lambda: OLD.id in house.world.journal)
    ingress.thaw()
    await until(posting.done)
    house.agent.opened[0].finish()
    await run(house, session, 2)
    assert started(house, session) == [(NEXT.id,), (OLD.id,)]
    assert ends(house, session) == [Outcome.completed] * 2


@pytest.mark.rule("I2", "D2")
async def test_a_recall_that_overtakes_its_message_still_takes_it_back(house: House) -> None:
    """Its message is journaled and its post stands still; the recall is posted by another ingress."""
    session, by = house.world.session(), Principal("user_a")
    await house.say(session, NEXT)
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)
    ingress, posting = stand_still(house, session, OLD)
    await until(lambda: OLD.id in house.world.journal)
    await house.say(session, Withdraw(InputId("om_recall"), by, (OLD.id,)))
    cancelled = InputCancelled((OLD.id,), CancelReason.withdrawn, by)
    await until(lambda: cancelled in house.events(session))
    ingress.thaw()
    await until(posting.done)
    house.agent.opened[0].finish()
    await until(lambda: len(ends(house, session)) == 1)
    await rested(house, session)
    assert started(house, session) == [(NEXT.id,)]
    assert [e.input.id for e in house.events(session) if isinstance(e, InputAccepted)] == [NEXT.id, OLD.id]
