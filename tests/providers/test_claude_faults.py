"""Claude Code when it is asked wrongly, is not there, or does not behave."""

import asyncio
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from amux.core.inputs import Permission
from amux.extensions import (
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    ItemSeen,
    ItemStatus,
    ItemType,
    LaunchSnapshot,
    McpServer,
    Outcome,
    Refused,
    TurnEnded,
    TurnId,
    Uncertain,
    Usage,
)
from amux.providers.claude import EFFORTS, WITHHELD, Native, command, servers
from amux.providers.claude_dialogue import Dialogue
from amux.providers.claude_turn import Patience
from amux.sandbox.replies import Say, Shell
from tests.providers import claude_room
from tests.providers.agent_room import KEY, SECONDS, said
from tests.providers.claude_room import LAUNCH, Room
from tests.providers.conftest import carriers

pytestmark = pytest.mark.agent
room = claude_room.room


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize(("model", "effort"), [(None, None), ("loopback", "high")])
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("instructions", ["", "--Be\nbrief."])
@pytest.mark.parametrize("mcp", [(), (McpServer("near", ("owl", "长 ${A}")), McpServer("far", url="https://h/mcp"))])
def test_the_command_is_the_one_that_the_sdk_spells(
    *,
    asks: bool,
    model: str | None,
    effort: str | None,
    resumed: bool,
    instructions: str,
    mcp: tuple[McpServer, ...],
) -> None:
    sdk = importlib.import_module("claude_agent_sdk")  # here, since it takes seconds
    transport = importlib.import_module("claude_agent_sdk._internal.transport.subprocess_cli")
    options = sdk.ClaudeAgentOptions(
        cli_path="/x/claude",
        system_prompt={"type": "preset", "preset": "claude_code", **({"append": instructions} if instructions else {})},
        setting_sources=["project"],
        strict_mcp_config=True,
        mcp_servers=servers(mcp),
        disallowed_tools=[*WITHHELD],
        include_partial_messages=True,
        permission_mode="default" if asks else "bypassPermissions",
        permission_prompt_tool_name="stdio" if asks else None,
        model=model,
        effort=effort,
        resume="ID" if resumed else None,
        session_id=None if resumed else "ID",
    )
    permission = Permission.ask if asks else Permission.bypass
    launch = LaunchSnapshot("claude", "", "", model, effort, permission, instructions, mcp=mcp)
    spelled = transport.SubprocessCLITransport("", options)._build_command()
    assert command(Path("/x/claude"), launch, Native("ID", resumed=resumed)) == spelled


def test_the_efforts_are_those_of_the_sdk() -> None:
    assert get_args(importlib.import_module("claude_agent_sdk").EffortLevel) == EFFORTS


async def test_a_model_that_would_be_an_option_is_refused(room: Room) -> None:
    with pytest.raises(Refused, match="--debug is no name of a model"):
        await room.open(launch=replace(LAUNCH, model="--debug"))


async def test_an_effort_that_claude_does_not_know_is_refused(room: Room) -> None:
    with pytest.raises(Refused, match=r"Claude has no effort huge\. It has: low, medium"):
        await room.open(launch=replace(LAUNCH, effort="huge"))


async def test_what_people_write_is_taken_word_for_word(room: Room) -> None:
    (room.workspace / "secret.txt").write_text("TOPSECRET")
    dialogue = await room.open()
    native_id = dialogue.native_id
    texts = ("FIRST", "/clear", "look at @secret.txt", "!say /compact", "# remember")
    for turn, text in enumerate(texts, 1):
        await room.play(dialogue, turn, text)
    assert room.models.heard[-1].said == texts
    assert dialogue.native_id == native_id


async def test_the_agent_sees_no_secret_of_amux(room: Room) -> None:
    room.models.script("ENV", (Shell("env"),), (Say("done"),))
    dialogue = await room.open()
    await room.play(dialogue, 1, "ENV")
    (seen,) = [e for e in room.all(ItemSeen) if e.type is ItemType.tool and e.status is ItemStatus.completed]
    env = dict(line.partition("=")[::2] for line in seen.text.splitlines())
    assert (env["HOME"], env["CLAUDE_CONFIG_DIR"]) == (str(room.home), str(room.home / "claude"))
    assert [name for name in env if name.startswith("AMUX_P")] == []
    assert (KEY in seen.text, "CLAUDE_CODE_RESUME_INTERRUPTED_TURN" in env) == (False, False)


DEAF = """#!{python} -IS
import json, sys
def tell(**line):
    print(json.dumps(line), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] == "control_request" and asked["request"]["subtype"] == "initialize":
        tell(type="control_response", response=dict(subtype="success", request_id=asked["request_id"], response=dict()))
    if asked["type"] == "user" and {hears}:
        for state in ("queued", "started"):
            tell(type="command_lifecycle", command_uuid=asked["uuid"], state=state)
    if asked["type"] == "user" and {ends}:
        tell(type="result", terminal_reason="completed", usage=dict(), user_message_uuids=[asked["uuid"]])
    if asked["type"] == "user" and "WAKE" in asked["message"]["content"]:
        tell(type="system", subtype="init", uuid="UNASKED")
    if asked["type"] == "control_request" and asked["request"]["subtype"] == "interrupt" and {ends}:
        tell(type="result", terminal_reason="aborted_tools", usage=dict(), origin=dict(kind="task-notification"))
"""


async def deaf(room: Room, *, hears: str, ends: str = "False", stop: float = 0.5) -> Dialogue:
    """A Claude that stops answering in mid-Turn, or that goes on by itself."""
    program = room.program(DEAF.format(python=sys.executable, hears=hears, ends=ends))
    patience = Patience(opening=10, answer=0.5, receipt=0.5, commit=0.5, stop=stop, summary=0.5)
    return await room.open(provider=room.provider(program=program, patience=patience))


@pytest.mark.rule("I5")
async def test_a_start_without_a_receipt_is_uncertain_and_ends_the_agent(room: Room) -> None:
    dialogue = await deaf(room, hears="False")
    with pytest.raises(Uncertain, match="did not acknowledge"):
        await room.start(dialogue, 1, "HI")
    assert await room.until(Died) == Died("Claude was killed.")
    assert (carriers(room.home), room.all(TurnEnded)) == ([], [])


@pytest.mark.rule("I5")
async def test_a_steer_without_a_receipt_is_uncertain(room: Room) -> None:
    dialogue = await deaf(room, hears="'MORE' not in asked['message']['content']")
    await room.start(dialogue, 1, "HI")
    with pytest.raises(Uncertain, match="did not acknowledge"):
        await dialogue.steer(TurnId(1), (said("MORE"),))
    assert room.all(Died) == []


@pytest.mark.rule("A3")
async def test_an_agent_that_does_not_obey_an_interrupt_is_killed(room: Room) -> None:
    dialogue = await deaf(room, hears="True")
    await room.start(dialogue, 1, "HI")
    async with asyncio.timeout(SECONDS):
        await dialogue.interrupt(TurnId(1))
    assert (room.all(TurnEnded), room.all(Died)) == ([], [Died("Claude was killed.")])
    assert carriers(room.home) == []


@pytest.mark.rule("G7")
async def test_a_native_turn_that_nobody_asked_for_is_foreign_and_stopped(room: Room) -> None:
    """A program that tells what Claude does when a task in the background ends; background tasks are off."""
    dialogue = await deaf(room, hears="True", ends="True")
    await room.play(dialogue, 1, "WAKE")
    assert await room.until(ForeignTurnBegan) == ForeignTurnBegan("UNASKED", "unasked")
    await room.play(dialogue, 2, "NEXT")
    assert room.events == [
        TurnEnded(TurnId(1), Outcome.completed, usage=Usage()),
        ForeignTurnBegan("UNASKED", "unasked"),
        ForeignTurnEnded("UNASKED"),
        TurnEnded(TurnId(2), Outcome.completed, usage=Usage()),
    ]


@pytest.mark.rule("A6")
async def test_with_nothing_said_there_is_nothing_to_summarise(room: Room) -> None:
    dialogue = await room.open()
    with pytest.raises(Refused, match="Claude did not summarise its context: Error: No messages to compact"):
        await dialogue.compact()
    await dialogue.close()
    again = await room.open(dialogue.native_id)
    assert (await room.play(again, 1, "!say first")).outcome is Outcome.completed
    assert room.all(ForeignTurnBegan) == []


DEAF_TO_IT = {
    "no word": ("False", "False", Uncertain, "did not begin to summarise its context within 0.5 s"),
    "no end": ("True", "False", Uncertain, "was silent for 0.5 s while it summarised its context"),
    "an end without a word": ("True", "True", Refused, "did not summarise its context: it gave no reason"),
}


@pytest.mark.rule("A6")
@pytest.mark.parametrize(("hears", "ends", "error", "told"), DEAF_TO_IT.values(), ids=DEAF_TO_IT)
async def test_a_summary_of_which_too_little_is_heard(
    room: Room, hears: str, ends: str, error: type[Exception], told: str
) -> None:
    dialogue = await deaf(room, hears=hears, ends=ends)
    with pytest.raises(error, match=told):
        await dialogue.compact()
    assert room.events == []


@pytest.mark.rule("A6")
async def test_a_summary_waits_for_a_foreign_turn_to_end(room: Room) -> None:
    """H54: the end of that one would be taken for its own."""
    ends = "(asked['type'] == 'user' or __import__('os').path.exists('go'))"
    dialogue = await deaf(room, hears="True", ends=ends, stop=SECONDS)
    await room.play(dialogue, 1, "WAKE")
    await room.until(ForeignTurnBegan)
    compacting = asyncio.create_task(dialogue.compact())
    assert await asyncio.wait((compacting,), timeout=0.3) == (set(), {compacting})
    (room.workspace / "go").touch()
    with pytest.raises(Refused, match="it gave no reason"):
        await compacting
    assert room.events[1:] == [ForeignTurnBegan("UNASKED", "unasked"), ForeignTurnEnded("UNASKED")]
