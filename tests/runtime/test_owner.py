"""One owner, then several: what is said runs once and ends once, whatever happens to the processes."""

import asyncio
from typing import Any

import anyio.lowlevel
import pytest

from amux.core.errors import Unavailable
from amux.core.events import (
    FailReason,
    InputAccepted,
    Outcome,
    OwnerOpened,
    SubmissionFailed,
    TurnFinished,
    TurnStarted,
)
from amux.core.ids import InputId, Principal, SessionKey, TurnId
from amux.core.inputs import Interrupt
from amux.extensions import Uncertain
from amux.ports import Fence
from amux.runtime.owner import LOOK_SECONDS
from amux.runtime.sweep import PATIENCE
from tests.build import said
from tests.fakes import Worker
from tests.runtime.house import LEASE, LINGER, WINDOW, House, until


@pytest.fixture
async def running(house: House) -> SessionKey:
    """A Session whose Turn 1 of User A runs on w1."""
    session = house.world.session()
    await house.say(session, said("user_a", id="om_1"))
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)
    return session


def finished(house: House, session: SessionKey) -> list[TurnFinished]:
    return [x for x in house.events(session) if isinstance(x, TurnFinished)]


@pytest.mark.rule("D2", "T1", "T3", "I2")
async def test_a_message_becomes_one_turn_with_one_end(house: House, running: SessionKey) -> None:
    house.agent.opened[0].finish()
    await until(lambda: finished(house, running))
    assert house.kinds(running) == [
        "OwnerOpened",
        "ConversationOpening",
        "ConversationOpened",
        "InputAccepted",
        "TurnStarted",
        "TurnFinished",
    ]


@pytest.mark.rule("I3")
async def test_the_senders_follow_up_joins_the_running_turn(house: House, running: SessionKey) -> None:
    agent = house.agent.opened[0]
    await house.say(running, said("user_a", id="om_2"))
    await until(lambda: house.owner(running).scratch.burst)
    house.world.clock.advance(WINDOW)
    await until(lambda: agent.steering and agent.steering.steers)  # type: ignore[attr-defined]
    agent.steering.answered.set()  # type: ignore[union-attr]
    await until(lambda: "InputSteered" in house.kinds(running))
    agent.finish()
    await until(lambda: finished(house, running))
    assert house.kinds(running)[-4:] == ["InputAccepted", "SteerRequested", "InputSteered", "TurnFinished"]
    assert [turn for turn, _ in agent.prompts] == [TurnId(1)]


@pytest.mark.rule("I5")
async def test_a_steer_nobody_confirms_fails_and_is_not_queued(house: House, running: SessionKey) -> None:
    agent = house.agent.opened[0]
    agent.steering.fault = lambda: Uncertain("no answer")  # type: ignore[union-attr]
    agent.steering.answered.set()  # type: ignore[union-attr]
    await house.say(running, said("user_a", id="om_2"))
    await until(lambda: house.owner(running).scratch.burst)
    house.world.clock.advance(WINDOW)
    failed = SubmissionFailed((InputId("om_2"),), FailReason.uncertain)
    await until(lambda: failed in house.events(running))
    agent.finish()
    await until(lambda: finished(house, running))
    assert len(agent.prompts) == 1


@pytest.mark.rule("S4", "D2", "T3")
async def test_a_killed_worker_costs_its_turn_and_nothing_else(house: House, running: SessionKey) -> None:
    await house.say(running, said("user_b", id="om_2"))
    house.crash("w1")
    house.worker("w2")
    house.world.clock.advance(LEASE + 1)
    await house.sweep()
    house.drive("w2")
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)
    events = house.events(running)
    assert TurnFinished(TurnId(1), Outcome.lost, "owner_died") in events
    assert [x.inputs for x in events if isinstance(x, TurnStarted)] == [(InputId("om_1"),), (InputId("om_2"),)]
    assert [x.worker for x in events if isinstance(x, OwnerOpened)] == ["w1", "w2"]


@pytest.mark.rule("T3")
async def test_a_frozen_owner_writes_nothing_when_it_thaws(house: House, running: SessionKey) -> None:
    frozen = house.workers["w1"][0]
    frozen.freeze()
    house.worker("w2")
    house.world.clock.advance(LEASE + 1)
    await house.sweep()
    house.drive("w2")
    await until(lambda: finished(house, running))
    house.agent.opened[0].finish()
    frozen.thaw()
    await until(lambda: house.agent.opened[0].closed)
    assert finished(house, running) == [TurnFinished(TurnId(1), Outcome.lost, "owner_died")]


@pytest.mark.rule("D2")
async def test_a_wiped_redis_disturbs_no_running_turn(house: House, running: SessionKey) -> None:
    house.world.wipe_redis()
    await house.say(running, said("user_b", id="om_2"))
    house.worker("w2")
    house.drive("w2")  # the lease is gone, and yet its owner lives
    await house.renew("w1")
    house.agent.opened[0].finish()
    await until(lambda: len(house.agent.opened[0].prompts) == 2)
    assert [x.outcome for x in finished(house, running)] == [Outcome.completed]
    assert [x.worker for x in house.events(running) if isinstance(x, OwnerOpened)] == ["w1"]


@pytest.mark.rule("D2")
async def test_what_journal_and_new_stream_both_hold_is_heard_once(house: House, running: SessionKey) -> None:
    house.world.wipe_redis()
    await house.say(running, said("user_b", id="om_2"))  # into a stream that its owner does not read yet
    await house.renew("w1")  # now it reads that from its start, and looks in the journal
    await until(lambda: house.owner(running).scratch.burst)
    house.world.clock.advance(WINDOW)
    await until(lambda: "InputQueued" in house.kinds(running))
    house.agent.opened[0].finish()
    await until(lambda: len(house.agent.opened[0].prompts) == 2)
    assert [x.outcome for x in finished(house, running)] == [Outcome.completed]


@pytest.mark.rule("D2")
async def test_input_whose_post_was_lost_is_heard_by_its_living_owner(house: House, running: SessionKey) -> None:
    ports = Worker(house.world, "ingress")
    await ports.inputs.journal(running, said("user_b", id="om_2"))  # and dies before it posts
    house.world.clock.advance(LOOK_SECONDS + PATIENCE)
    await house.sweep()
    await until(lambda: house.owner(running).scratch.burst)
    house.world.clock.advance(WINDOW)
    await until(lambda: "InputQueued" in house.kinds(running))


@pytest.mark.rule("D2")
async def test_redis_may_be_away_for_longer_than_a_lease(house: House, running: SessionKey) -> None:
    house.world.redis_away = True
    await house.say(running, said("user_b", id="om_2"))
    for _ in range(6):
        house.world.clock.advance(LEASE / 3)
        await house.renew("w1")
    house.agent.opened[0].finish()
    await until(lambda: len(house.agent.opened[0].prompts) == 2)
    assert [x.outcome for x in finished(house, running)] == [Outcome.completed]


@pytest.mark.rule("A4", "S3")
async def test_an_idle_owner_lets_go_and_the_next_message_resumes(house: House, running: SessionKey) -> None:
    house.agent.opened[0].finish()
    await until(lambda: finished(house, running))
    await until(lambda: house.owner(running).idle_since is not None)
    for _ in range(6):
        house.world.clock.advance(LINGER / 6)
        await house.renew("w1")
    await until(lambda: house.world.rows[running].session.owner is None)
    assert house.agent.opened[0].closed
    assert house.world.streams.get(running) in (None, [])
    await house.say(running, said("user_a", id="om_2"))
    house.drive()
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)
    assert house.agent.opened[1].native_id == house.agent.opened[0].native_id


@pytest.mark.rule("D2")
async def test_a_wake_that_meets_an_owner_on_its_way_out_is_heard(
    house: House, running: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, door = house.workers["w1"][0].timeline, asyncio.Event()
    sign_off = timeline.sign_off

    async def slowly(session: SessionKey, fence: Fence) -> None:
        await door.wait()
        await sign_off(session, fence)

    monkeypatch.setattr(timeline, "sign_off", slowly)
    house.agent.opened[0].finish()
    await until(lambda: finished(house, running))
    house.owner(running).hurry()
    await until(lambda: house.owner(running).left)
    await house.say(running, said("user_a", id="om_2"))
    house.drive()
    await asyncio.sleep(0)
    door.set()
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)


@pytest.mark.rule("I5", "T3")
async def test_a_start_that_may_have_happened_is_lost_and_not_repeated(house: House) -> None:
    session = house.world.session()
    await house.say(session, said("user_a", id="om_1"))
    house.drive()
    await until(lambda: house.agent.opened)
    house.agent.opened[0].start_fault = lambda: Uncertain("the pipe broke")
    await until(lambda: finished(house, session))
    assert [x.outcome for x in finished(house, session)] == [Outcome.lost]
    assert house.agent.opened[0].closed


@pytest.mark.rule("I5", "T3")
async def test_an_agent_that_takes_nothing_costs_no_second_turn(house: House, running: SessionKey) -> None:
    """What waits behind is not handed to an agent that is being closed."""
    first = house.agent.opened[0]

    async def slowly() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    first.close = slowly  # type: ignore[method-assign]
    first.start_fault = lambda: Unavailable("the pipe is closed")
    for sender, id_ in (("user_b", "om_2"), ("user_c", "om_3")):
        await house.say(running, said(sender, id=id_))
    await until(lambda: house.owner(running).scratch.burst and "InputQueued" in house.kinds(running))
    first.finish()
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)
    ((turn, prompt),) = house.agent.opened[1].prompts
    assert (turn, [one.id for one in prompt.inputs]) == (TurnId(3), [InputId("om_3")])
    assert [x.outcome for x in finished(house, running)] == [Outcome.completed, Outcome.failed]


@pytest.mark.rule("I5", "T3")
async def test_what_was_said_while_an_agent_took_nothing_runs_on_the_next(house: House) -> None:
    """Its window is open still when the Turn ends: it goes to the new agent, and to no dead one."""
    session = house.world.session()
    await house.say(session, said("user_a", id="om_1"))
    house.drive()
    await until(lambda: house.agent.opened)
    first, closing = house.agent.opened[0], asyncio.Event()
    first.close = closing.wait  # type: ignore[method-assign,assignment]
    first.start_fault = lambda: Unavailable("the pipe is closed")
    await until(lambda: "TurnStarted" in house.kinds(session))
    await house.say(session, said("user_a", id="om_2"))
    await until(lambda: house.owner(session).scratch.burst)
    closing.set()
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)
    assert [one.id for one in house.agent.opened[1].prompts[0][1].inputs] == [InputId("om_2")]
    assert [x.outcome for x in finished(house, session)] == [Outcome.failed]


async def test_an_owner_that_ends_by_a_fault_of_ours_is_tried_again_after_its_lease(
    house: House, running: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: at once it would only fail again, with a new epoch and a new agent each time."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    task = next(iter(house.tasks))
    monkeypatch.setattr("amux.core.machine.run", broken)
    house.agent.opened[0].finish()
    await until(task.done)
    assert isinstance(task.exception(), KeyError)
    assert house.world.holder(running)


async def test_an_owner_that_ends_by_an_error_gives_its_lease_back(house: House, running: SessionKey) -> None:
    """Nobody would hear a bell that rings for it."""
    assert house.world.holder(running)
    house.world.postgres_away = True
    house.agent.opened[0].finish()
    await until(lambda: running not in house.workers["w1"][1].owners)
    assert house.world.holder(running) is None


async def test_a_lease_lost_while_the_session_is_opened_opens_no_owner(house: House) -> None:
    session = house.world.session()
    ports, host = house.workers["w1"]
    really = ports.timeline.open

    async def late(*args: Any, **named: Any) -> Any:
        house.world.leases[session] = ("w2|t", house.world.clock.now + LEASE)
        await house.renew("w1")
        return await really(*args, **named)

    ports.timeline.open = late  # type: ignore[method-assign]
    await house.say(session, said("user_a", id="om_1"))
    await host.drive(session)
    assert (host.owners, house.kinds(session), house.agent.opened) == ({}, [], [])


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_names_its_turn_and_stops_it_once(house: House, running: SessionKey) -> None:
    for number in range(2):
        await house.say(running, Interrupt(InputId(f"stop_{number}"), Principal("user_a"), None))
    await until(lambda: finished(house, running))
    assert house.agent.opened[0].interrupts == [TurnId(1)]
    assert [x.outcome for x in finished(house, running)] == [Outcome.interrupted]
    await until(lambda: len(house.world.journal) == 3)


@pytest.mark.rule("D2")
async def test_two_wakes_let_one_owner_in(house: House) -> None:
    session = house.world.session()
    await house.say(session, said("user_a", id="om_1"))
    for name in ("w2", "w3"):
        house.worker(name)
        house.spawn(house.workers[name][1], session)
    house.drive("w1")
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)
    assert len(house.agent.opened) == 1
    assert house.kinds(session).count("OwnerOpened") == 1


@pytest.mark.rule("D2")
async def test_the_same_id_submitted_again_runs_once(house: House, running: SessionKey) -> None:
    await house.say(running, said("user_a", id="om_1"))
    house.agent.opened[0].finish()
    await until(lambda: finished(house, running))
    assert [x.input.id for x in house.events(running) if isinstance(x, InputAccepted)] == [InputId("om_1")]


async def test_an_away_postgres_takes_nothing(house: House) -> None:
    session = house.world.session()
    house.world.postgres_away = True
    with pytest.raises(Unavailable):
        await house.say(session, said("user_a", id="om_1"))
    assert house.world.journal == {}
