"""What is Codex's own in its tests' room."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from amux.core.inputs import Permission
from amux.extensions import LaunchSnapshot
from amux.providers.codex import Codex
from amux.providers.codex_thread import Thread
from amux.providers.codex_turn import Patience
from tests.providers import agent_room

Room = agent_room.Room[Thread, Patience]
SHORT = Patience(opening=20, answer=15, commit=15, stop=10)
LAUNCH = LaunchSnapshot("codex", "", model="loopback")
ASKING = replace(LAUNCH, permission=Permission.ask)
CODEX = agent_room.Kind("Codex", Codex, "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1", SHORT, LAUNCH)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with agent_room.furnished(CODEX, tmp_path) as room:
        yield room
