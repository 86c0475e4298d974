"""Sessions from a terminal, on the real house: what is printed, and how each command ends."""

import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from amux.core import events as e
from amux.ports import Session
from tests.whole import House, Said

pytestmark = pytest.mark.real

ESCAPE = "\x1b"
WORK = "!stream 3000 x 0.1"  # minutes of it; what is steered is taken between two words


def rows(said: Said) -> list[dict[str, object]]:
    """What `--json` printed; fails on anything else."""
    found = [json.loads(line) for line in said.lines]
    assert all(isinstance(row, dict) for row in found)
    return found


async def begun(house: House, prompt: str, *words: str) -> Session:
    """A Session that works on that prompt, left to itself."""
    said = await house.cli("run", prompt, "--detach", *words)
    assert (said.code, said.err) == (0, "")
    session = await house.session(said.out.strip())
    await house.told(session, e.TurnStarted)
    return session


@pytest.fixture
async def busy(house: House) -> AsyncIterator[Session]:
    """A Session whose Turn runs until it is interrupted."""
    session = await begun(house, WORK)
    yield session
    await house.cli("interrupt", session.ref.id)
    await house.finished(session, 1)


async def test_run_follows_to_the_end(house: House) -> None:
    said = await house.cli("run", "Hello there")
    assert said.code == 0
    assert said.lines[0].endswith(": Hello there")
    assert said.lines[1].startswith("▸ Turn 1")
    assert said.lines[-1] == "✓ Turn 1 completed"
    assert 'You said "Hello there".' in " ".join(said.out.split())
    assert ESCAPE not in said.out
    assert said.err.startswith("  amux send ")


async def test_run_as_json_prints_events_and_nothing_else(house: House) -> None:
    said = await house.cli("run", "!say hello", "--json")
    assert (said.code, said.err) == (0, "")
    found = rows(said)
    assert [row["seq"] for row in found] == list(range(1, len(found) + 1))
    assert found[-1]["kind"] == "turn_finished"
    assert found[-1]["outcome"] == "completed"
    assert {"session", "target", "turn", "turn_seq", "seq", "kind", "at"} <= found[-1].keys()


async def test_run_that_fails_exits_1(house: House) -> None:
    said = await house.cli("run", "!fail no_luck")
    assert said.code == 1
    assert said.lines[-1] == "✗ Turn 1 failed: The script says so."


@pytest.mark.rule("I3")
async def test_send_says_what_became_of_it(house: House, busy: Session) -> None:
    short = busy.ref.id[:6]
    joined = await house.cli("send", short, "One more thing.")
    assert (joined.code, joined.out, joined.err) == (0, f"steered into turn 1 of {short}\n", "")


async def test_send_starts_a_turn_where_none_runs(house: House) -> None:
    session = await begun(house, "!say hello")
    await house.finished(session, 1)
    short = session.ref.id[:6]
    started = await house.cli("send", short, "!say again")
    assert (started.code, started.out) == (0, f"started turn 2 of {short}\n")
    waited = await house.cli("send", short, "!say and again", "--wait", "--json")
    assert waited.code == 0
    assert rows(waited)[-1]["kind"] == "turn_finished"


async def test_ls_and_show(house: House, busy: Session) -> None:
    (line,) = [
        row for row in rows(await house.cli("ls", "--state", "running", "--json")) if row["session"] == busy.ref.id
    ]
    assert (line["turn"], line["engine"], line["title"]) == (1, "scripted", WORK)
    assert any(found.startswith(busy.ref.id[:8]) for found in (await house.cli("ls")).lines)
    (shown,) = rows(await house.cli("show", busy.ref.id[:8], "--json"))
    assert (shown["session"], shown["state"], shown["turn"], shown["waiting"]) == (busy.ref.id, "running", 1, 0)
    assert (await house.cli("show", busy.ref.id)).out.startswith(f"session      {busy.ref.id}\n")
    assert (await house.cli("ls", "--target", "elsewhere")).code == 0


@pytest.mark.rule("S2")
async def test_show_names_what_a_session_is_given(house: House) -> None:
    pack = Path(house.env["AMUX_HOME"], "packs", "given")
    pack.mkdir(parents=True)
    (pack / "owl.toml").write_text("""environment = ["GH_TOKEN"]
[mcp.owl]
command = ["hoot", "a b"]
environment = ["OWL_KEY"]
""")
    told = await house.cli("run", "!say hello", "--detach", "--expert", "given/owl")
    said = await house.cli("show", told.out.strip())
    assert {"environment  GH_TOKEN", "mcp          owl: hoot 'a b' (given OWL_KEY)"} <= {*said.lines}
    (shown,) = rows(await house.cli("show", told.out.strip(), "--json"))
    assert (shown["environment"], shown["mcp"]) == (["GH_TOKEN"], ["owl: hoot 'a b' (given OWL_KEY)"])


async def test_interrupt(house: House, busy: Session) -> None:
    said = await house.cli("interrupt", busy.ref.id)
    assert (said.code, said.out) == (0, f"Interrupting Turn 1 of {busy.ref.id[:6]}. Finished steps stay.\n")
    assert (await house.finished(busy, 1)).outcome is e.Outcome.interrupted
    again = await house.cli("interrupt", busy.ref.id)
    assert (again.code, again.out) == (1, "")
    assert again.err.startswith("Nothing runs in ")


async def test_answer(house: House) -> None:
    session = await begun(house, "!ask May I?\n!say done")
    asked = await house.told(session, e.PermissionRequested)
    stranger = await house.cli("answer", session.ref.id, "no-such-request", "allow")
    assert (stranger.code, stranger.out) == (1, "")
    assert stranger.err == "That is over: the Turn or the request is gone. Nothing was changed.\n"
    said = await house.cli("answer", session.ref.id, asked.request, "allow")
    assert (said.code, said.out, said.err) == (0, "Answered.\n", "")
    assert (await house.finished(session, 1)).outcome is e.Outcome.completed
    late = await house.cli("answer", session.ref.id, asked.request, "deny")
    assert (late.code, late.err) == (1, "That is over: the Turn or the request is gone. Nothing was changed.\n")


async def test_audit_of_one_session(house: House) -> None:
    session = await begun(house, "!say hello")
    await house.finished(session, 1)
    (count,) = rows(await house.cli("audit", session.ref.id, "--json"))
    assert (count["accepted"], count["dispatched"], count["broken"]) == (1, 1, 0)
    assert (await house.cli("audit", session.ref.id)).lines[0].startswith("1 accepted = 1 started + 0 joined")


@pytest.mark.rule("A2")
async def test_attach_ends_with_130_and_kills_nothing(house: House, busy: Session) -> None:
    words = [sys.executable, "-m", "amux.cli", "attach", busy.ref.id, "--json"]
    async with await anyio.open_process(words, env=house.env, stderr=None) as attached:
        assert attached.stdout is not None
        with anyio.fail_after(60):
            seen = b""
            while b'"turn_started"' not in seen:
                seen += await attached.stdout.receive()
            attached.send_signal(signal.SIGINT)
            assert await attached.wait() == 130
    assert [json.loads(line)["seq"] for line in seen.decode().splitlines()][:3] == [1, 2, 3]
    assert (await house.session(busy.ref.id)).open_turn == 1


@pytest.mark.parametrize("plain", ["", "1"])
async def test_colours_are_for_terminals_without_no_color(house: House, plain: str) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "amux.cli", "run", "!say hello"]
    env = {**house.env, "NO_COLOR": plain, "TERM": "xterm"}
    with anyio.fail_after(60):
        await anyio.run_process(words, env=env, stdout=theirs, stderr=None, check=True)
    os.close(theirs)
    shown = (await to_thread.run_sync(lambda: read(ours))).decode()
    assert "Turn 1 completed" in shown
    assert (f"{ESCAPE}[32m" in shown) is (plain == "")


def read(descriptor: int) -> bytes:
    """All that a terminal shows."""
    shown = b""
    try:
        while more := os.read(descriptor, 65536):
            shown += more
    except OSError:  # nobody writes any more
        pass
    os.close(descriptor)
    return shown


async def test_doctor_finds_nothing_broken(house: House) -> None:
    said = await house.cli("doctor", "--json")
    found = {str(row["what"]): row for row in rows(said)}
    assert said.code == 0, said.out
    assert {name: row["mark"] for name, row in found.items() if row["mark"] != "fine"} == {"feishu": "absent"}
    assert str(found["workers"]["state"]).startswith("deliver@")
    assert found["schema"]["state"] == "version 1"


async def test_a_workspace_that_is_none(house: House, tmp_path: Path) -> None:
    said = await house.cli("run", "hello", "--workspace", str(tmp_path / "none"))
    assert (said.code, said.err) == (1, f"{tmp_path / 'none'} is no folder: give an existing one to work in.\n")
