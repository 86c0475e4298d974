"""Watchdogs on real parts: an agent that works on and says nothing, a Turn without end, a question without an answer."""

import pytest
from msgspec.structs import replace

from amux.core import events as e
from amux.core.ids import TurnId
from amux.core.inputs import Permission
from tests.sessions.conftest import B, opened

pytestmark = [pytest.mark.real, pytest.mark.agent]


@pytest.mark.rule("T8")
async def test_a_silent_agent_is_ended_and_what_waits_runs(env: dict[str, str]) -> None:
    """T8.a."""
    async with opened({**env, "AMUX_SILENCE_LIMIT": "1"}) as room:
        session = await room.begin("!say hello\n!hang")
        await room.seen(session, e.Item)
        (agent, *_) = room.agents(session)
        await room.say(session, "!say well", by=B)
        assert await room.finished(session) == e.TurnFinished(TurnId(1), e.Outcome.failed, "watchdog")
        assert (await room.finished(session, 2)).outcome is e.Outcome.completed
        assert agent not in room.agents(session)
        started = [event.inputs for event in await room.log(session) if isinstance(event, e.TurnStarted)]
        assert len({id_ for inputs in started for id_ in inputs}) == sum(map(len, started)) == 2


@pytest.mark.rule("T8")
async def test_a_tool_that_runs_is_no_silence_and_a_turn_has_a_limit(env: dict[str, str]) -> None:
    """T8.b."""
    async with opened(
        {**env, "AMUX_SILENCE_LIMIT": "1", "AMUX_TURN_LIMIT": "3", "AMUX_SCRIPTED_SECONDS": "3000"}
    ) as room:
        session = await room.begin("!tool build")  # for a minute and more
        assert (await room.finished(session)).reason == "turn_limit"


@pytest.mark.rule("T8")
async def test_a_question_that_nobody_answers_is_denied(env: dict[str, str]) -> None:
    """T8.b: it may wait for longer than an agent may be silent, and its expiry never allows."""
    async with opened({**env, "AMUX_SILENCE_LIMIT": "1", "AMUX_ANSWER_LIMIT": "2.5"}) as room:
        session = await room.begin("!ask touch x\n!say on", permission=Permission.ask)
        asked = await room.seen(session, e.PermissionRequested)
        resolved = await room.seen(session, e.PermissionResolved)
        assert resolved == e.PermissionResolved(asked.turn, asked.request, e.Resolution.expired)
        ended = await room.finished(session)
        assert replace(ended, usage=None, detail="") == e.TurnFinished(asked.turn, e.Outcome.completed)
