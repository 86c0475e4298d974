"""Agents that go wrong, on the real house: the Turn ends by its one end, with its reason, and the next input runs."""

import pytest

from amux.core import events as e
from tests.whole import House

pytestmark = pytest.mark.real

WRONG = {
    "prints garbage": ("!garbage\n!hang", "◌ Turn 1 cut off: the worker or its agent died. Nothing was run again"),
    "exits at once": ("!die", "◌ Turn 1 cut off: the worker or its agent died. Nothing was run again"),
    "fails": ("!fail no_luck", "✗ Turn 1 failed: The script says so."),
    "is given no script": ("!dance", "✗ Turn 1 failed: No such step. There are: !ask, !clock, !die, !fail, "),
}


@pytest.mark.rule("T3", "T8")
@pytest.mark.parametrize(("script", "shown"), WRONG.values(), ids=WRONG)
async def test_the_turn_ends_and_the_next_one_runs(house: House, script: str, shown: str) -> None:
    said = await house.cli("run", script)
    assert said.code == 1
    assert said.lines[-1].startswith(shown)
    again = await house.cli("send", said.err.split()[2], "!say all is well", "--wait")
    assert (again.code, again.lines[-1]) == (0, "✓ Turn 2 completed")


@pytest.mark.rule("I6", "T8")
async def test_one_that_never_answers_can_be_interrupted(house: House) -> None:
    begun = await house.cli("run", "!say hello\n!silent", "--detach")
    session = await house.session(begun.out.strip())
    await house.told(session, e.Item)
    assert (await house.cli("interrupt", session.ref.id)).code == 0
    ended = await house.finished(session, 1)
    assert ended.outcome in (e.Outcome.interrupted, e.Outcome.lost)
    again = await house.cli("send", session.ref.id, "!say all is well", "--wait")
    assert (again.code, again.lines[-1]) == (0, "✓ Turn 2 completed")


@pytest.mark.rule("S7")
async def test_an_engine_that_is_not_there(house: House) -> None:
    said = await house.cli("run", "hello", "--engine", "clippy")
    assert said.code == 1
    assert "This Session runs on clippy, which is not here. Install it again" in said.out


@pytest.mark.agent
@pytest.mark.parametrize("engine", ["codex", "claude"])
async def test_a_model_that_there_is_not(house: House, engine: str) -> None:
    said = await house.cli("run", "hello", "--engine", engine, "--model", "no-such-model")
    assert said.code == 1
    assert "no-such-model" in said.lines[-1]


@pytest.mark.agent
@pytest.mark.parametrize("engine", ["codex", "claude"])
async def test_a_real_agent_works(house: House, engine: str) -> None:
    said = await house.cli("run", "Say hello.", "--engine", engine)
    assert said.code == 0, said.out
    assert said.lines[-1] == "✓ Turn 1 completed"
