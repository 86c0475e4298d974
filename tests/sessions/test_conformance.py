"""One suite of what a Session does, unchanged on every agent: scripted, the real Codex, the real Claude.

What an agent cannot do is a capability that it does not announce, and is refused by name."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amux.core import events as e
from amux.core.ids import InputId, TurnId
from amux.core.inputs import Action, Answer, ContextAction, ContextWish, Interrupt, Manage, Permission, Verdict
from amux.ports import Session
from amux.sandbox.env import sandbox_env
from tests.sessions.conftest import A, B, Room, opened

pytestmark = [pytest.mark.real, pytest.mark.agent]
WORKS = "!stream 400 x 0.1"  # for long; what is steered is taken between two words


@pytest.fixture(params=["scripted", "codex", "claude"])
def world(request: pytest.FixtureRequest, env: dict[str, str], models: str) -> dict[str, str]:
    """The environment of a worker whose Sessions run on that agent."""
    mine = {name: value for name, value in sandbox_env(request.param, models, 0.2).items() if "FEISHU" not in name}
    return {**env, **mine}


@asynccontextmanager
async def working(world: dict[str, str], **more: str) -> AsyncIterator[tuple[Room, Session]]:
    """A Session whose first Turn works for long, and is seen to."""
    async with opened({**world, **more}) as room:
        session = await room.begin(WORKS)
        await room.seen(session, e.Delta)
        yield room, session


async def stop(room: Room, session: Session, turn: int = 1) -> None:
    await room.say(session, Interrupt(InputId(f"{B}:stop-{turn}"), B, TurnId(turn), "User B"))


@pytest.mark.rule("T1", "T3", "S1", "S3")
async def test_a_turn_from_its_start_to_its_one_end(world: dict[str, str]) -> None:
    async with opened(world) as room:
        session = await room.begin("!say hello there")
        assert "hello there" in await room.said_in(session, 1)
        log = await room.log(session)
        assert [type(x) for x in log if isinstance(x, e.TurnStarted | e.TurnFinished)] == [
            e.TurnStarted,
            e.TurnFinished,
        ]
        (conversation,) = [x for x in log if isinstance(x, e.ConversationOpened)]
        assert conversation.native_id
        assert conversation.native_id != session.ref.id


@pytest.mark.rule("I3", "T3")
async def test_the_senders_follow_up_joins_the_running_turn(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        await room.say(session, "and more")
        await room.seen(session, e.InputSteered)
        await stop(room, session)
        await room.finished(session)
        assert sum(isinstance(x, e.TurnStarted) for x in await room.log(session)) == 1


@pytest.mark.rule("I1", "I4", "T4")
async def test_another_members_waits_and_runs_next(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        await room.say(session, "!say mine", by=B)
        assert (await room.seen(session, e.InputQueued)).reason is e.QueueReason.other_sender
        await stop(room, session)
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        assert "mine" in await room.said_in(session, 2)


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_ends_it_once_and_cancels_what_was_steered(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        await room.say(session, "and more")
        steered = await room.seen(session, e.SteerRequested)
        await stop(room, session)
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        log = await room.log(session)
        assert sum(isinstance(x, e.TurnFinished) for x in log) == 1
        taken = [x for x in log if isinstance(x, e.InputSteered | e.InputCancelled | e.SubmissionFailed)]
        assert {id_ for x in taken for id_ in x.inputs} == set(steered.inputs)
        await room.say(session, "!say goes on", by=B)
        assert "goes on" in await room.said_in(session, 2)


@pytest.mark.rule("S9", "A12")
@pytest.mark.parametrize("verdict", [Verdict.allow, Verdict.deny])
async def test_a_question_is_answered_by_a_person(world: dict[str, str], verdict: Verdict) -> None:
    async with opened(world) as room:
        session = await room.begin("!ask touch x", permission=Permission.ask)
        asked = await room.seen(session, e.PermissionRequested)
        await room.say(session, Answer(InputId(f"{B}:answer"), B, asked.request, verdict, "User B"))
        resolved = await room.seen(session, e.PermissionResolved)
        assert (resolved.how, resolved.verdict, resolved.by) == (e.Resolution.answered, verdict, B)
        assert (await room.finished(session)).outcome is e.Outcome.completed


@pytest.mark.rule("T3", "S4", "S5")
async def test_an_agent_that_is_killed_ends_its_turn_and_is_resumed(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        for pid in room.agents(session):
            os.kill(pid, signal.SIGKILL)
        assert (await room.finished(session)).outcome is e.Outcome.lost
        await room.say(session, "!say again", by=B)
        assert "again" in await room.said_in(session, 2)
        first, second = [x.native_id for x in await room.log(session) if isinstance(x, e.ConversationOpened)]
        assert first == second


@pytest.mark.rule("A1", "A4", "S3", "S4")
async def test_it_sleeps_and_wakes_in_the_same_conversation(world: dict[str, str]) -> None:
    async with opened(world) as room:
        session = await room.begin("!say one")
        await room.finished(session)
        await room.say(session, Manage(InputId(f"{B}:sleep"), B, Action.sleep, "User B"))
        await room.slept(session)
        await room.say(session, "!say two")
        assert "two" in await room.said_in(session, 2)
        first, second = [x.native_id for x in await room.log(session) if isinstance(x, e.ConversationOpened)]
        assert first == second


@pytest.mark.rule("A5", "S4", "T3")
async def test_a_restart_in_mid_turn(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        before = room.agents(session)
        await room.say(session, Manage(InputId(f"{B}:restart"), B, Action.restart, "User B"))
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        await room.nth(session, e.ConversationOpened, 2)
        await room.say(session, "!say new", by=B)
        assert "new" in await room.said_in(session, 2)
        assert not set(before) & set(room.agents(session))


@pytest.mark.rule("A6", "A7", "A10", "I9")
async def test_the_context_is_compacted_or_that_is_refused_and_cleared(world: dict[str, str]) -> None:
    async with opened(world) as room:
        session = await room.begin("!say one")
        await room.finished(session)
        can = (await room.seen(session, e.ConversationOpened)).can
        await room.say(session, ContextWish(InputId(f"{B}:compact"), B, ContextAction.compact, "User B"))
        if "compaction" in can:
            await room.seen(session, e.ContextCompacted)
        else:
            assert (await room.seen(session, e.ControlRefused)).reason is e.Refusal.unavailable
        await room.say(session, ContextWish(InputId(f"{B}:clear"), B, ContextAction.clear, "User B"))
        await room.seen(session, e.ContextCleared)
        await room.say(session, "!say two")
        assert "two" in await room.said_in(session, 2)
        opened_ = [x.native_id for x in await room.log(session) if isinstance(x, e.ConversationOpened)]
        assert len(set(opened_)) == 2


@pytest.mark.rule("A6", "I9")
async def test_a_compaction_that_is_asked_for_in_mid_turn_cuts_nothing(world: dict[str, str]) -> None:
    """A6.a: it comes after the Turn, in the same conversation, and what waits comes after it."""
    async with opened(world) as room:
        session = await room.begin("!stream 10 x 0.2")
        await room.seen(session, e.Delta)
        await room.say(session, ContextWish(InputId(f"{B}:compact"), B, ContextAction.compact, "User B"))
        await room.say(session, "!say next", by=B)
        assert (await room.finished(session)).outcome is e.Outcome.completed
        assert "next" in await room.said_in(session, 2)
        kinds = (e.ConversationOpened, e.TurnStarted, e.TurnFinished, e.CompactRequested, e.ContextCompacted)
        assert [type(x) for x in await room.log(session) if isinstance(x, kinds)] == [
            e.ConversationOpened,
            e.TurnStarted,
            e.TurnFinished,
            e.CompactRequested,
            e.ContextCompacted,
            e.TurnStarted,
            e.TurnFinished,
        ]


@pytest.mark.rule("T8")
async def test_a_silent_one_is_ended_and_what_waits_runs(world: dict[str, str]) -> None:
    async with opened({**world, "AMUX_SILENCE_LIMIT": "4"}) as room:
        session = await room.begin("!hang")
        await room.seen(session, e.TurnStarted)
        await room.say(session, "!say well", by=B)
        assert await room.finished(session) == e.TurnFinished(TurnId(1), e.Outcome.failed, "watchdog")
        assert "well" in await room.said_in(session, 2)


@pytest.mark.rule("A8", "A11")
async def test_archive_leaves_no_process(world: dict[str, str]) -> None:
    async with working(world) as (room, session):
        await room.say(session, Manage(InputId(f"{A}:archive"), A, Action.archive, "User A"))
        await room.seen(session, e.SessionState, lambda state: state.label is e.Label.archived)
        assert (await room.finished(session)).outcome is e.Outcome.interrupted
        await room.quiet(session)
