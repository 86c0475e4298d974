"""What every real agent program does alike: it does not open and says why, it is given up, stopped, closed."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amux.core.inputs import Permission
from amux.extensions import Outcome, PermissionAsked, Refused, Unavailable, Verdict
from amux.sandbox.replies import Ask, Hang, Say, Shell
from tests.providers.agent_room import Kind, furnished
from tests.providers.agent_room import Room as AgentRoom
from tests.providers.claude_room import CLAUDE
from tests.providers.codex_room import CODEX
from tests.providers.conftest import carriers

pytestmark = pytest.mark.agent
Room = AgentRoom[Any, Any]
KINDS: dict[str, Kind[Any, Any]] = {"codex": CODEX, "claude": CLAUDE}


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    async with furnished(request.param, tmp_path) as room:
        yield room


async def test_closing_leaves_nothing_and_tells_nothing(room: Room) -> None:
    room.models.script("RUN", (Shell("tail -f /dev/null"),))
    conversation = await room.open()
    await room.start(conversation, 1, "RUN")
    await room.tool(1)
    before = len(room.events)
    await conversation.close()
    await conversation.close()
    assert (carriers(room.home), room.events[before:]) == ([], [])


async def test_an_interrupt_ends_an_open_question(room: Room) -> None:
    room.models.script("ASK", (Ask("echo outside > outside.txt"),), (Say("thanks"),))
    conversation = await room.open(launch=replace(room.kind.launch, permission=Permission.ask))
    await room.start(conversation, 1, "ASK")
    asked = await room.until(PermissionAsked)
    await room.interrupted(conversation, 1)
    await conversation.answer(asked.request, Verdict.allow)
    assert (await room.play(conversation, 2, "!say well")).outcome is Outcome.completed
    assert not (room.workspace / "outside.txt").exists()


@pytest.mark.rule("T8")
async def test_an_agent_that_works_gives_signs_of_life(room: Room) -> None:
    """Also where it shows nothing: a start, hidden thoughts, a subagent's work."""
    room.models.script("HANGS", (Hang(),))
    conversation = await room.open()
    await room.start(conversation, 1, "HANGS")
    await asyncio.wait_for(room.stirred.wait(), 10)
    await room.interrupted(conversation, 1)


@pytest.mark.rule("S2", "S5")
async def test_an_experts_instructions_reach_the_model_at_the_start_and_after_a_resume(room: Room) -> None:
    launch = replace(room.kind.launch, instructions="--Answer like an OWL.\n# 长 'quoted' $HOME")
    first = await room.open(launch=launch)
    await room.play(first, 1, "ONE")
    await first.close()
    again = await room.open(first.native_id, launch=launch)
    await room.play(again, 2, "TWO")
    for text in ("ONE", "TWO"):
        heard = room.models.requests(text)
        assert [one.instructed.count(launch.instructions) for one in heard] == [1] * len(heard) != []
    assert room.models.times_said("OWL") == 0


@pytest.mark.rule("S5")
async def test_a_model_that_is_no_longer_served_is_named_and_no_other_is_asked(room: Room) -> None:
    first = await room.open()
    await room.play(first, 1, "ONE")
    await first.close()
    again = await room.open(first.native_id, launch=replace(room.kind.launch, model="no-such-model"))
    ended = await room.play(again, 2, "TWO")
    assert ended.outcome is Outcome.failed
    assert "no-such-model" in ended.detail
    assert room.models.requests("TWO") == []  # what no model could be asked is not among them


async def test_a_conversation_that_is_gone_is_named(room: Room) -> None:
    with pytest.raises(Refused) as refused:
        await room.open("9a6d2cd0-2ebc-4862-bbd0-5ef1a07b1e11")
    assert refused.value.key == "no_history"
    assert carriers(room.home) == []


PROGRAMS = {
    "exits at once": ("echo 'no such luck' >&2; exit 3", "ended by itself with code 3. Its last words: no such luck"),
    "prints garbage": ("while :; do echo '%%% no JSON'; done", "wrote 21 lines that are no JSON"),
    "never answers": ("exec tail -f /dev/null", "did not answer initialize within 1 s"),
}


@pytest.mark.parametrize(("script", "told"), PROGRAMS.values(), ids=PROGRAMS)
async def test_a_program_that_is_no_agent(room: Room, script: str, told: str) -> None:
    program = room.program(f"#!/bin/sh\n{script}\n")
    with pytest.raises(Unavailable) as unavailable:
        await room.open(provider=room.provider(program=program, patience=replace(room.kind.patience, opening=1)))
    assert told in str(unavailable.value)
    assert 'pip install "amux[agents]"' in str(unavailable.value)
    assert carriers(room.home) == []


@pytest.mark.rule("S7")
async def test_a_program_or_a_key_that_is_missing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    name, engine = room.kind.name, room.kind.launch.engine
    with pytest.raises(Unavailable, match=f"{name} needs {room.kind.key_name}"):
        await room.open(provider=room.provider(key=""))
    with pytest.raises(Unavailable, match=f"{engine} cannot be run: No such file"):
        await room.open(provider=room.provider(program=Path("/nowhere") / engine))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=rf'{name} program is not installed. .*pip install "amux\[agents\]"'):
        await room.open()
