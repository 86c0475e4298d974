"""Both real agent programs summarise their context when they are asked to, and say what came of it (A6)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amux.extensions import Died, ForeignTurnBegan, Outcome, Refused, Unavailable, Uncertain, Usage
from amux.sandbox.replies import Fail, Hang, Part, Say, Script
from tests.providers.agent_room import SECONDS, Kind, furnished
from tests.providers.agent_room import Room as AgentRoom
from tests.providers.claude_room import CLAUDE
from tests.providers.codex_room import CODEX
from tests.providers.conftest import carriers, eventually

pytestmark = [pytest.mark.agent, pytest.mark.rule("A6")]
Room = AgentRoom[Any, Any]
KINDS: dict[str, Kind[Any, Any]] = {"codex": CODEX, "claude": CLAUDE}
OFTEN = 20  # more than any agent asks a model for one summary


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    async with furnished(request.param, tmp_path) as room:
        yield room


async def spoken(room: Room, **patience: float) -> Any:
    """A conversation in which there is something to summarise."""
    conversation = await room.open(provider=room.provider(patience=replace(room.kind.patience, **patience)))
    assert (await room.play(conversation, 1, "ONE\n!say first")).outcome is Outcome.completed
    return conversation


def answered(room: Room, part: Part) -> Script:
    """What the model answers to a request for a summary."""
    return room.models.script("ONE", *((part,),) * OFTEN)


async def compact(conversation: Any) -> None:
    async with asyncio.timeout(SECONDS):
        await conversation.compaction.compact()


async def test_a_summary_shows_nothing_and_the_next_turn_finds_it(room: Room) -> None:
    conversation = await spoken(room)
    native_id, before = conversation.native_id, len(room.events)
    asked = answered(room, Say("OWL was here"))
    await compact(conversation)
    assert (room.events[before:], conversation.native_id) == ([], native_id)
    assert {one.asked for one in asked.heard} == {()}
    asked.replies.clear()
    ended = await room.play(conversation, 2, "!say second")
    assert (ended.outcome, ended.usage) == (Outcome.completed, Usage(100, 20, 10))
    heard = room.models.heard[-1]
    assert (heard.asked, "OWL was here" in heard.instructed) == (("!say second",), True)
    assert (room.all(ForeignTurnBegan), room.models.times_said("!say second")) == ([], 1)


async def test_a_summary_is_still_there_after_a_resume(room: Room) -> None:
    conversation = await spoken(room)
    answered(room, Say("OWL was here"))
    await compact(conversation)
    await conversation.close()
    again = await room.open(conversation.native_id)
    assert (await room.play(again, 2, "TWO")).outcome is Outcome.completed
    assert "OWL was here" in room.models.requests("TWO")[0].instructed


async def test_one_that_fails_is_told_with_its_reason_and_changes_nothing(room: Room) -> None:
    conversation = await spoken(room)
    before = len(room.events)
    asked = answered(room, Fail(400, "no luck"))
    with pytest.raises(Refused, match=f"{room.kind.name} did not summarise its context: .*no luck"):
        await compact(conversation)
    assert room.events[before:] == []
    asked.replies.clear()
    assert (await room.play(conversation, 2, "!say second")).outcome is Outcome.completed
    assert room.models.heard[-1].said == ("ONE\n!say first", "!say second")
    await compact(conversation)


async def test_one_over_which_the_agent_is_silent_is_uncertain(room: Room) -> None:
    conversation = await spoken(room, summary=0.5)
    answered(room, Hang())
    with pytest.raises(Uncertain, match=r"was silent for 0\.5 s while it summarised its context"):
        await compact(conversation)


@pytest.mark.rule("I5")
async def test_one_during_which_the_agent_dies_is_uncertain(room: Room) -> None:
    conversation = await spoken(room)
    asked = answered(room, Hang())
    compacting = asyncio.create_task(compact(conversation))
    await eventually(lambda: asked.heard)
    os.kill(conversation.pid, signal.SIGKILL)
    with pytest.raises(Uncertain, match="was killed by signal 9 before it had summarised its context"):
        await compacting
    assert len(room.all(Died)) == 1
    assert carriers(room.home) == []
    with pytest.raises(Unavailable):
        await compact(conversation)
    asked.replies.clear()
    again = await room.open(conversation.native_id)
    assert (await room.play(again, 2, "!say second")).outcome is Outcome.completed


async def test_closing_in_its_midst_leaves_nothing_and_tells_nothing(room: Room) -> None:
    conversation = await spoken(room)
    before = len(room.events)
    asked = answered(room, Hang())
    compacting = asyncio.create_task(compact(conversation))
    await eventually(lambda: asked.heard)
    await conversation.close()
    with pytest.raises(Uncertain):
        await compacting
    assert (carriers(room.home), room.events[before:]) == ([], [])
