"""`resend` from a terminal, on the real house: what failed is sent again by one command, once, and nothing else is (I5)."""

import os
import signal

import anyio
import pytest

from amux.core import events as e
from amux.ports import Session
from tests.cli.test_session import begun, rows
from tests.providers.conftest import carriers
from tests.whole import House, Said, cli

pytestmark = [pytest.mark.real, pytest.mark.rule("I5")]


@pytest.fixture
async def failed(house: House) -> tuple[Session, Said]:
    """A Session whose agent died while a message was on its way, and what its sender was told."""
    session = await begun(house, "!hang")
    sent: list[Said] = []

    async def send() -> None:
        sent.append(await house.cli("send", session.ref.id, "One more thing."))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await house.told(session, e.SteerRequested)
        for pid in carriers(house.stage.home / "sessions" / session.ref.target / session.ref.id):
            os.kill(pid, signal.SIGKILL)
    await house.finished(session, 1)
    return session, sent[0]


async def test_what_failed_is_sent_again_by_the_command_that_is_named(
    house: House, failed: tuple[Session, Said]
) -> None:
    session, told = failed
    short = session.ref.id[:6]
    assert (told.code, told.out) == (3, "may not have arrived; not sent again\n")
    amux, *command = told.err.partition("   ")[0].split()
    assert (amux, command[:2], told.err.partition("   ")[2]) == ("amux", ["resend", short], "sends it again\n")
    other = {**house.env, "LOGNAME": "user_b"}
    again = await cli(other, *command)
    assert (again.code, again.out, again.err) == (0, f"started turn 2 of {short}\n", "")
    started = await house.told(session, e.TurnStarted, lambda turn: turn.turn == 2)
    assert (started.inputs, started.senders) == ((f"again:{command[2]}",), ("cli:user_b",))
    for words in ((), (command[2].rpartition(":")[2][:6],), ("--wait",)):  # repeated: told of, and not sent
        twin = await house.cli("resend", short, *words)
        assert twin.code == 0
        assert ("--wait" in words) or twin.out == f"sent again before: started turn 2 of {short}\n"
    assert [r["kind"] for r in rows(await house.cli("resend", short, "--json"))] == ["turn_started"]
    assert [r.event.turn for r in await house.log(session) if isinstance(r.event, e.TurnStarted)] == [1, 2]
    ran = await house.cli("resend", short, started.inputs[0])
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("It went to the agent with Turn 2: nothing was sent.")


async def test_an_archived_session_refuses_what_is_sent_again(house: House, failed: tuple[Session, Said]) -> None:
    """And nobody is told to try once more."""
    session, _ = failed
    assert (await house.cli("archive", session.ref.id)).code == 0
    for first in ("", "sent again before: "):
        said = await house.cli("resend", session.ref.id)
        assert (said.code, said.out, said.err) == (1, f"{first}not run: This Session is archived.\n", "")


async def test_where_nothing_failed_nothing_is_sent(house: House) -> None:
    session = await begun(house, "!say hello")
    await house.finished(session, 1)
    none = await house.cli("resend", session.ref.id)
    assert (none.code, none.err.partition(" that")[0]) == (1, "Nothing failed here")
    unknown = await house.cli("resend", session.ref.id, "4f3a")
    assert (unknown.code, unknown.err.partition(":")[0]) == (1, "There is no such message")
