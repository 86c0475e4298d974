"""What a launch gives a real agent, variables by their names and MCP servers: to whom it was promised and to nobody else."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amux.core.inputs import Permission
from amux.core.launch import NOTHING_ASKED, Installed, Record, Resolved, new_launch, resolve
from amux.extensions import (
    Extra,
    ItemSeen,
    ItemStatus,
    LaunchSnapshot,
    McpServer,
    Outcome,
    PermissionAsked,
    Refused,
    TurnEnded,
    TurnId,
    Unavailable,
    Verdict,
)
from amux.packs.loader import load
from amux.providers import mcp_start
from amux.providers.claude import servers
from amux.providers.given import harmless
from amux.sandbox.replies import Call, Reply, Say, Shell
from amux.stores.sessions import saved_of
from tests.providers.agent_room import KEY, Kind, furnished
from tests.providers.agent_room import Room as AgentRoom
from tests.providers.claude_room import CLAUDE
from tests.providers.codex_room import CODEX
from tests.providers.conftest import carriers, eventually, read

pytestmark = pytest.mark.agent
Room = AgentRoom[Any, Any]
KINDS: dict[str, Kind[Any, Any]] = {"codex": CODEX, "claude": CLAUDE}
FOR_THE_AGENT, FOR_THE_OWL = "token-for-the-agent", "key-for-the-owl"
VARIABLES = {"GH_TOKEN": FOR_THE_AGENT, "OWL_KEY": FOR_THE_OWL, "AWS_SECRET_ACCESS_KEY": "for-nobody"}
OWL = """\
import json, os, sys
with open(sys.argv[1] + ".new", "w") as file:
    json.dump({"arguments": sys.argv[2:], "env": dict(os.environ)}, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
TOOL = {"name": "hoot", "description": "Hoots.", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    answers = {
        "initialize": lambda: {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "owl", "version": "1"},
        },
        "tools/list": lambda: {"tools": [TOOL]},
        "tools/call": lambda: {"content": [{"type": "text", "text": "hoo"}]},
    }
    if "id" in asked:
        result = answers.get(asked["method"], dict)()
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
FILLED_IN = ("${OPENAI_API_KEY}", "${ANTHROPIC_API_KEY}", "$HOME", 'it\'s "quoted"\n长')


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    (tmp_path / "owl.py").write_text(OWL)
    async with furnished(request.param, tmp_path) as room:
        room.variables.update(VARIABLES)
        yield room


def owl(room: Room) -> McpServer:
    """A server that leaves what it was started with in the workspace."""
    script = str(room.workspace.parent / "owl.py")
    command = (sys.executable, "-IS", script, str(room.workspace / "owl.json"), *FILLED_IN)
    return McpServer("owl", command, environment=("OWL_KEY",))


async def seen(room: Room) -> dict[str, Any]:
    """What the server was started with, once it was."""
    path = room.workspace / "owl.json"
    await eventually(path.exists)
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return found


def hoot(room: Room) -> Reply:
    return (Call("mcp__owl__hoot", {}) if room.kind is CLAUDE else Call("hoot", {}, namespace="mcp__owl"),)


def promised(env: dict[str, str]) -> dict[str, str]:
    """Without what every agent has."""
    return {name: env[name] for name in env if name not in harmless(()) and not name.startswith("LC_")}


@pytest.mark.rule("S2", "S5")
async def test_a_server_has_what_it_was_promised_and_so_has_the_agent(room: Room) -> None:
    room.models.script("GO", hoot(room), (Shell("env"),), (Say("done"),))
    launch = replace(room.kind.launch, environment=("GH_TOKEN",), mcp=(owl(room),))
    conversation = await room.open(launch=launch)
    started = await seen(room)
    assert (tuple(started["arguments"]), promised(started["env"])) == (FILLED_IN, {"OWL_KEY": FOR_THE_OWL})
    assert started["env"]["HOME"] == str(room.home)
    lines = [read(f"/proc/{pid}/cmdline").decode() for pid in carriers(room.home)]
    assert (any("owl.py" in line for line in lines), len(lines) > 1) == (True, True)
    assert [line for line in lines if FOR_THE_AGENT in line or FOR_THE_OWL in line or KEY in line] == []

    assert (await room.play(conversation, 1, "GO")).outcome is Outcome.completed
    done = {e.title: e.text for e in room.all(ItemSeen) if e.status is ItemStatus.completed and e.title}
    tools = dict(line.partition("=")[::2] for line in done["env"].splitlines())
    assert (done["owl.hoot"], tools["GH_TOKEN"]) == ("hoo", FOR_THE_AGENT)
    assert {*VARIABLES} & {*tools} == {"GH_TOKEN"}
    assert [text for text in (FOR_THE_OWL, KEY, "for-nobody", "postgresql://") if text in done["env"]] == []
    await conversation.close()
    kept = [path for path in room.home.rglob("*") if path.is_file() and FOR_THE_OWL.encode() in path.read_bytes()]
    assert kept == []


@pytest.mark.rule("S2", "S5")
@pytest.mark.parametrize("becomes", ["edited", "deleted"])
async def test_a_restart_after_the_pack_has_changed_has_the_same_servers(room: Room, becomes: str) -> None:
    packs = room.workspace.parent / "packs"
    (packs / "team").mkdir(parents=True)
    file = packs / "team" / "keeper.toml"
    file.write_text(f'[mcp.owl]\ncommand = {json.dumps(owl(room).command)}\nenvironment = ["OWL_KEY"]\n')
    profile = load(packs).expert("team/keeper")
    engine, workspace = room.kind.launch.engine, str(room.workspace)
    launch = replace(new_launch(profile, NOTHING_ASKED, engine=engine, workspace=workspace), model="loopback")
    row = json.dumps({**json.loads(msgspec.json.encode(launch)), "more": "of another release"})
    first = await room.open(launch=launch)
    before = await seen(room)
    assert (await room.play(first, 1, "!say one")).outcome is Outcome.completed
    await first.close()
    file.write_text('environment = ["GH_TOKEN"]') if becomes == "edited" else file.unlink()
    today = Installed(frozenset({engine}), engine, load(packs).experts, {engine: frozenset(Extra)})
    runs = resolve(Record("team/keeper", engine), saved_of(row), today)
    assert isinstance(runs, Resolved)
    again = await room.open(first.native_id, launch=runs.launch)
    after = await seen(room)
    assert (after["arguments"], promised(after["env"])) == (before["arguments"], promised(before["env"]))
    room.models.script("GO", hoot(room), (Say("done"),))
    assert (await room.play(again, 2, "GO")).outcome is Outcome.completed
    assert "hoo" in [e.text for e in room.all(ItemSeen) if e.turn == 2]


Changed = Callable[[LaunchSnapshot], LaunchSnapshot]
REFUSED: dict[str, tuple[Changed, str]] = {
    "not set": (
        lambda x: replace(x, environment=("GH_TOKEN", "GONE", "ALSO_GONE")),
        "This Session is given GONE, ALSO_GONE, which the worker does not have. Set it in the environment of the worker",
    ),
    "not set, of a server": (
        lambda x: replace(x, mcp=(replace(x.mcp[0], environment=("GONE",)),)),
        "This Session is given GONE, which the worker does not have.",
    ),
    "of amux": (
        lambda x: replace(x, environment=("AMUX_POSTGRES_URL",)),
        "AMUX_POSTGRES_URL cannot be given to this agent",
    ),
    "set anew": (lambda x: replace(x, environment=("HOME",)), "HOME cannot be given to this agent"),
    "no program": (
        lambda x: replace(x, mcp=(McpServer("owl", ("no-such-owl",)),)),
        "The MCP server owl cannot be started: there is no program no-such-owl. Install it again",
    ),
    "no program at its path": (
        lambda x: replace(x, mcp=(McpServer("owl", ("./no/owl",)),)),
        "The MCP server owl cannot be started: there is no program ./no/owl.",
    ),
}


@pytest.mark.rule("S5")
@pytest.mark.parametrize(("changed", "told"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_given_any_more_is_named(room: Room, changed: Changed, told: str) -> None:
    launch = changed(replace(room.kind.launch, mcp=(owl(room),)))
    with pytest.raises(Refused) as refused:
        await room.open(launch=launch)
    assert str(refused.value).startswith(told)
    assert carriers(room.home) == []


@pytest.mark.rule("S5")
async def test_the_agents_own_key_is_given_to_nobody(room: Room) -> None:
    for launch in (
        replace(room.kind.launch, environment=(room.kind.key_name,)),
        replace(room.kind.launch, mcp=(replace(owl(room), environment=(room.kind.key_name,)),)),
    ):
        with pytest.raises(Refused, match=f"{room.kind.key_name} cannot be given to this agent"):
            await room.open(launch=launch)


@pytest.mark.rule("S5")
async def test_a_program_in_the_workspace_is_found_there(room: Room) -> None:
    path = room.workspace / "owl"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -IS {room.workspace.parent}/owl.py owl.json\n")
    path.chmod(0o755)
    await room.open(launch=replace(room.kind.launch, mcp=(McpServer("owl", ("./owl",)),)))
    assert promised((await seen(room))["env"]).keys() - {"PWD", "SHLVL", "_", "OLDPWD"} == set()


async def test_last_words_hold_no_value(room: Room) -> None:
    program = room.program('#!/bin/sh\necho "I was told $PLAIN_NAME" >&2; exit 3\n')
    room.variables["PLAIN_NAME"] = "a-value-of-the-worker"
    launch = replace(room.kind.launch, environment=("PLAIN_NAME",))
    with pytest.raises(Unavailable, match=r"Its last words: I was told \[secret\]"):
        await room.open(launch=launch, provider=room.provider(program=program))


@pytest.mark.parametrize("verdict", [Verdict.allow, Verdict.always, Verdict.deny])
async def test_a_server_is_asked_for_when_the_agent_asks(room: Room, verdict: Verdict) -> None:
    room.models.script("GO", hoot(room), (Say("done"),), hoot(room), (Say("done"),))
    launch = replace(room.kind.launch, permission=Permission.ask, mcp=(owl(room),))
    conversation = await room.open(launch=launch)
    await seen(room)
    await room.start(conversation, 1, "GO")
    asked = await room.until(PermissionAsked)
    asks = "owl.hoot" if room.kind is CLAUDE else 'Allow the owl MCP server to run tool "hoot"?'
    assert (asked.turn, asked.title) == (TurnId(1), asks)
    await conversation.answer(asked.request, verdict)
    assert (await room.until(TurnEnded)).outcome is Outcome.completed
    assert ("hoo" in [e.text for e in room.all(ItemSeen)]) is (verdict is not Verdict.deny)
    if verdict is Verdict.always:
        await room.play(conversation, 2, "GO ON")
        assert (len(room.all(PermissionAsked)), [e.text for e in room.all(ItemSeen)].count("hoo")) == (1, 2)


def test_nothing_is_filled_in_at_claudes() -> None:
    """Claude puts its own variables, its key among them, wherever a server's settings read so."""
    far = McpServer("far", url="https://h/${ANTHROPIC_API_KEY}?$a")
    near = McpServer("near", ("sh", "-c", "echo ${ANTHROPIC_API_KEY}"))
    spelled = servers((far, near))
    assert spelled["far"]["url"] == "https://h/$%7BANTHROPIC_API_KEY}?$a"
    assert "$" not in json.dumps(spelled["near"])
    assert json.loads(mcp_start.spelled(near.command, ["A"])) == {"command": [*near.command], "names": ["A"]}
    assert mcp_start.kept({"A": "1", "B": "2", "LC_ALL": "C"}, ["A"]) == {"A": "1", "LC_ALL": "C"}
