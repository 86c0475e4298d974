"""`sleep`, `resume`, `restart`, `archive` from a terminal, on the real house: each ends in one sentence."""

import pytest

from amux.core import events as e
from tests.whole import House

pytestmark = pytest.mark.real


@pytest.mark.rule("A4", "A5", "A6", "A7", "A8", "A10", "A12", "I10")
async def test_a_life_from_a_terminal(house: House) -> None:
    begun = await house.cli("run", "!say hello", "--detach")
    session = await house.session(begun.out.strip())
    await house.finished(session, 1)
    short = session.ref.id[:6]
    story = [
        ("sleep", 0, f"{short} sleeps. The next message wakes it."),
        ("sleep", 1, f"{short} sleeps already."),
        ("resume", 0, f"{short} is awake."),
        ("resume", 1, f"{short} is awake already."),
        ("restart", 0, f"{short} was started anew. What its tools had done stays done."),
        ("compact", 0, f"The agent of {short} has summarised its context. What its tools had done stays done."),
        ("clear", 0, f"The next Turn of {short} begins with an empty context. What its tools had done stays done."),
        ("archive", 0, f"{short} is archived. Its history stays: amux attach {short}"),
        ("archive", 1, f"{short} is archived already."),
        ("restart", 1, f'{short} is archived and takes nothing any more. Start a new one: amux run "..."'),
    ]
    for action, code, sentence in story:
        said = await house.cli(action, session.ref.id)
        assert (said.code, (said.err or said.out).strip()) == (code, sentence)
    late = await house.cli("send", session.ref.id, "more")
    assert (late.code, late.out.strip()) == (1, "not run: This Session is archived.")


@pytest.mark.rule("A4")
async def test_sleep_is_refused_while_a_turn_runs(house: House) -> None:
    begun = await house.cli("run", "!hang", "--detach")
    session = await house.session(begun.out.strip())
    await house.told(session, e.TurnStarted)
    short = session.ref.id[:6]
    said = await house.cli("sleep", session.ref.id)
    busy = f"A Turn runs or input waits in {short}: wait for its end, or `amux interrupt {short}` first.\n"
    assert (said.code, said.out, said.err) == (1, "", busy)
    assert (await house.cli("archive", session.ref.id)).code == 0


@pytest.mark.rule("A5")
async def test_a_restart_says_when_the_agents_history_is_gone(house: House) -> None:
    begun = await house.cli("run", "!say hello", "--detach")
    session = await house.session(begun.out.strip())
    await house.finished(session, 1)
    assert (await house.cli("sleep", session.ref.id)).code == 0
    home = house.stage.home / "sessions" / session.ref.target / session.ref.id
    for file in home.glob("conversations/*"):
        file.unlink()
    said = await house.cli("restart", session.ref.id)
    assert (said.code, said.lines[1:]) == (
        0,
        ["It begins anew: the agent has its own record of it no longer. With its next Turn it is told what amux has."],
    )
