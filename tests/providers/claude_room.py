"""What is Claude Code's own in its tests' room."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from amux.core.inputs import Permission
from amux.extensions import LaunchSnapshot
from amux.providers.claude import Claude
from amux.providers.claude_dialogue import Dialogue
from amux.providers.claude_turn import Patience
from tests.providers import agent_room

Room = agent_room.Room[Dialogue, Patience]
SHORT = Patience(opening=25, answer=10, receipt=10, commit=15, stop=10)
LAUNCH = LaunchSnapshot("claude", "", model="loopback")
ASKING = replace(LAUNCH, permission=Permission.ask)
CLAUDE = agent_room.Kind("Claude", Claude, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "", SHORT, LAUNCH)


async def asked(dialogue: Dialogue) -> None:
    """Return once all that was sent has its receipt."""
    turn = dialogue.told.turn
    assert turn
    async with asyncio.timeout(agent_room.SECONDS):
        for one in list(turn.said.values()):
            await one.queued.wait()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with agent_room.furnished(CLAUDE, tmp_path) as room:
        yield room
