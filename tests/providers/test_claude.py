"""Claude Code, the real program, on the loopback model."""

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, get_args

import pytest

from amux.core.ids import Principal, SessionId
from amux.core.inputs import Authorization, Input, Permission
from amux.extensions import (
    DeltaSeen,
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    InputId,
    ItemId,
    ItemSeen,
    ItemStatus,
    ItemType,
    LaunchSnapshot,
    Opening,
    Outcome,
    PermissionAsked,
    Prompt,
    ProviderEvent,
    Refused,
    SessionRef,
    TurnEnded,
    TurnId,
    Unavailable,
    Uncertain,
    Usage,
    Verdict,
)
from amux.providers.claude import EFFORTS, WITHHELD, Claude, Native, command
from amux.providers.claude_dialogue import Dialogue
from amux.providers.claude_turn import Patience
from amux.providers.process import boottime
from amux.sandbox.models import Models, serving
from amux.sandbox.replies import Ask, Drop, Hang, Hold, Say, Shell, Think
from tests.providers.conftest import carriers, eventually

pytestmark = pytest.mark.agent
E = TypeVar("E", bound=ProviderEvent)
SECONDS = 30  # the longest any single wait may take
KEY = "sk-loopback-0123456789"
SHORT = Patience(opening=25, answer=10, receipt=10, commit=15, stop=10)
LAUNCH = LaunchSnapshot("claude", "", model="loopback")
ASKING = replace(LAUNCH, permission=Permission.ask)


@dataclass
class Room:
    """One Session's home, a provider, and all that its conversations told."""

    models: Models
    url: str
    home: Path
    workspace: Path
    events: list[ProviderEvent] = field(default_factory=list)
    grew: asyncio.Condition = field(default_factory=asyncio.Condition)
    opened: list[Dialogue] = field(default_factory=list)

    def provider(self, *, patience: Patience = SHORT, program: Path | None = None, key: str = KEY) -> Claude:
        env = {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": key, "AMUX_POSTGRES_URL": "postgresql://secret"}
        return Claude(env, program=program, patience=patience)

    async def open(
        self, native_id: str | None = None, *, provider: Claude | None = None, launch: LaunchSnapshot = LAUNCH
    ) -> Dialogue:
        opening = Opening(
            SessionRef("local", SessionId("s1")),
            replace(launch, workspace=str(self.workspace)),
            str(self.home),
            boottime() + 60,
            native_id,
        )
        dialogue = await (provider or self.provider()).open(opening, self.hear)
        self.opened.append(dialogue)
        return dialogue

    def hear(self, event: ProviderEvent) -> None:
        self.events.append(event)
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self.grew:
            self.grew.notify_all()

    async def until(self, kind: type[E], fits: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of that kind that fits, now or later."""
        async with asyncio.timeout(SECONDS), self.grew:
            await self.grew.wait_for(lambda: any(isinstance(e, kind) and fits(e) for e in self.events))
        return next(e for e in self.events if isinstance(e, kind) and fits(e))

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    async def start(self, dialogue: Dialogue, turn: int, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            await dialogue.start_turn(TurnId(turn), Prompt((said(text),)))

    async def play(self, dialogue: Dialogue, turn: int, text: str) -> TurnEnded:
        """A whole Turn, and how it ended."""
        await self.start(dialogue, turn, text)
        return await self.until(TurnEnded, lambda e: e.turn == turn)

    async def tool(self, turn: int) -> ItemSeen:
        return await self.until(ItemSeen, lambda e: e.turn == turn and e.type is ItemType.tool)

    def flag(self, name: str) -> str:
        """A shell command that waits until the file of that name is there."""
        return f"touch {name}.waits; until [ -e {name} ]; do sleep 0.02; done; echo saw {name}"


def said(text: str) -> Input:
    who = Principal("cli:user_a")
    return Input(InputId(f"cli:user_a:{text}"), text, who, Authorization(who), sent_at=0)


async def asked(dialogue: Dialogue) -> None:
    """Return once all that was sent has its receipt."""
    turn = dialogue.told.turn
    assert turn
    async with asyncio.timeout(SECONDS):
        for one in list(turn.said.values()):
            await one.queued.wait()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    models = Models(seconds=0)
    async with serving(models) as url:
        room = Room(models, url, tmp_path / "homes" / "session", workspace)
        yield room
        async with asyncio.timeout(SECONDS):
            for dialogue in room.opened:
                await dialogue.close()
    await eventually(lambda: not carriers(room.home))


@pytest.mark.rule("T3")
async def test_a_turn_streams_text_and_tools_and_ends_once(room: Room) -> None:
    room.models.script("ONE", (Think("hm"), Say("two words"), Shell("echo hi; exit 3")), (Say("the end"),))
    dialogue = await room.open()
    assert dialogue.native_id
    await room.play(dialogue, 1, "ONE")
    names: dict[ItemId, ItemId] = {}
    seen = [
        replace(e, item=names.setdefault(e.item, ItemId(f"item{len(names)}")))
        if isinstance(e, ItemSeen | DeltaSeen)
        else e
        for e in room.events
    ]
    turn, message, tool = TurnId(1), ItemType.message, ItemType.tool
    items = [ItemId(f"item{n}") for n in range(4)]
    started, completed, failed = ItemStatus.started, ItemStatus.completed, ItemStatus.failed
    assert seen == [
        ItemSeen(turn, items[0], ItemType.reasoning, completed, text="hm"),
        ItemSeen(turn, items[1], message, started),
        DeltaSeen(turn, items[1], 0, "two "),
        DeltaSeen(turn, items[1], 4, "words"),
        ItemSeen(turn, items[1], message, completed, text="two words"),
        ItemSeen(turn, items[2], tool, started, title="echo hi; exit 3"),
        ItemSeen(turn, items[2], tool, failed, title="echo hi; exit 3", text="Exit code 3\nhi"),
        ItemSeen(turn, items[3], message, started),
        DeltaSeen(turn, items[3], 0, "the "),
        DeltaSeen(turn, items[3], 4, "end"),
        ItemSeen(turn, items[3], message, completed, text="the end"),
        TurnEnded(turn, Outcome.completed, usage=Usage(200, 40, 20)),
    ]
    assert room.models.times_said("ONE") == 1


@pytest.mark.rule("I3")
async def test_a_steer_joins_after_the_tool_and_is_said_exactly_once(room: Room) -> None:
    room.models.script("RUN", (Shell(room.flag("go")),), (Say("done"),))
    dialogue = await room.open()
    await room.start(dialogue, 1, "RUN")
    await room.tool(1)
    steer = asyncio.ensure_future(dialogue.steer(TurnId(1), (said("ALSO THIS"), said("AND THAT"))))
    await eventually((room.workspace / "go.waits").exists)
    await asyncio.sleep(0)
    await asked(dialogue)
    assert not steer.done()
    (room.workspace / "go").touch()
    async with asyncio.timeout(SECONDS):
        await steer
    ended = await room.until(TurnEnded)
    assert (ended.outcome, ended.unhandled, len(room.all(TurnEnded))) == (Outcome.completed, (), 1)
    assert [room.models.times_said(text) for text in ("RUN", "ALSO THIS", "AND THAT")] == [1, 1, 1]
    assert room.models.heard[-1].asked == ("RUN", "ALSO THIS\n\nAND THAT")


@pytest.mark.rule("I3")
async def test_steers_in_the_last_text_become_a_native_turn_of_their_own_in_the_same_turn(room: Room) -> None:
    go = asyncio.Event()
    room.models.script("RUN", (Say("half"), Hold(go), Say("whole")), (Say("then"),))
    dialogue = await room.open()
    await room.start(dialogue, 1, "RUN")
    await room.until(DeltaSeen)
    steers = [asyncio.ensure_future(dialogue.steer(TurnId(1), (said(text),))) for text in ("LATER", "LATEST")]
    await asyncio.sleep(0)
    await asked(dialogue)
    assert not any(steer.done() for steer in steers)
    go.set()
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*steers)
    ended = await room.until(TurnEnded)
    assert ended == TurnEnded(TurnId(1), Outcome.completed, usage=Usage(200, 40, 20))
    texts = [e.text for e in room.all(ItemSeen) if e.status is ItemStatus.completed]
    assert texts == ["half", "whole", "then"]
    assert [room.models.times_said(text) for text in ("LATER", "LATEST")] == [1, 1]
    assert (len(room.all(TurnEnded)), room.all(ForeignTurnBegan)) == (1, [])
    with pytest.raises(Refused):
        await dialogue.steer(TurnId(1), (said("TOO LATE"),))
    assert (await room.play(dialogue, 2, "!say next")).outcome is Outcome.completed
    assert room.models.times_said("TOO LATE") == 0


@pytest.mark.rule("I6")
async def test_a_steer_that_was_taken_and_not_answered_is_named_when_its_turn_is_stopped(room: Room) -> None:
    go = asyncio.Event()
    room.models.script("RUN", (Say("half"), Hold(go), Say("whole")), (Hang(),))
    dialogue = await room.open()
    await room.start(dialogue, 1, "RUN")
    await room.until(DeltaSeen)
    steer = asyncio.ensure_future(dialogue.steer(TurnId(1), (said("LATER"),)))
    await asyncio.sleep(0)
    await asked(dialogue)
    go.set()
    async with asyncio.timeout(SECONDS):
        await steer
        await room.models.until_heard("LATER")
    assert (await interrupted(room, dialogue, 1)).unhandled == (said("LATER").id,)
    async with asyncio.timeout(SECONDS):
        await dialogue.start_turn(TurnId(2), Prompt((said("!say well"), said("and more")), note="[Note: stopped.]"))
    assert (await room.until(TurnEnded, lambda e: e.turn == 2)).outcome is Outcome.completed
    assert room.models.heard[-1].said[-1] == "[Note: stopped.]\n\n!say well\n\nand more"


async def interrupted(room: Room, dialogue: Dialogue, turn: int) -> TurnEnded:
    async with asyncio.timeout(SECONDS):
        await dialogue.interrupt(TurnId(turn))
    (end,) = [e for e in room.all(TurnEnded) if e.turn == turn]
    assert (end.outcome, end.reason, room.all(Died)) == (Outcome.interrupted, "", [])
    return end


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_stops_whatever_runs(room: Room) -> None:
    dialogue = await room.open()
    room.models.script("STREAMS", (Say("three four", seconds=30),))
    await room.start(dialogue, 1, "STREAMS")
    cut = await room.until(DeltaSeen)
    steer = asyncio.ensure_future(dialogue.steer(TurnId(1), (said("NEVER SEEN"),)))
    await asyncio.sleep(0)
    await asked(dialogue)
    assert (await interrupted(room, dialogue, 1)).unhandled == ()
    with pytest.raises(Refused):
        await steer
    assert [e.status for e in room.all(ItemSeen) if e.item == cut.item] == [ItemStatus.started, ItemStatus.superseded]

    detached = "setsid nohup sh -c 'while :; do date +%N > clock; sleep 0.01; done' > /dev/null 2>&1 &"
    room.models.script("TOOL", (Shell(f"{detached} tail -f /dev/null"),))
    await room.start(dialogue, 2, "TOOL")
    clock = room.workspace / "clock"
    await eventually(lambda: clock.exists() and clock.read_text())
    steer = asyncio.ensure_future(dialogue.steer(TurnId(2), (said("NOR THIS"),)))
    await asyncio.sleep(0)
    await asked(dialogue)
    await interrupted(room, dialogue, 2)
    clock.unlink()
    with pytest.raises(Refused):
        await steer
    assert (await room.play(dialogue, 3, "!say well")).outcome is Outcome.completed
    assert not clock.exists()
    assert [room.models.times_said(text) for text in ("STREAMS", "NEVER SEEN", "NOR THIS")] == [1, 0, 0]
    assert [e.status for e in room.all(ItemSeen) if e.turn == 2] == [ItemStatus.started, ItemStatus.failed]


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_at_any_moment_of_the_start(room: Room) -> None:
    """Before the receipt, between it and the beginning, and after; what had not begun never does (H45)."""
    dialogue = await room.open()
    for turn in range(1, 7):
        starting = asyncio.ensure_future(dialogue.start_turn(TurnId(turn), Prompt((said(f"!hang {turn}"),))))
        await asyncio.sleep(0.012 * (turn - 1))  # nothing to wait for: the moments are what is tried
        await interrupted(room, dialogue, turn)
        async with asyncio.timeout(SECONDS):
            await starting
    assert (await room.play(dialogue, 7, "!say well")).outcome is Outcome.completed
    assert [e.turn for e in room.all(TurnEnded)] == list(range(1, 8))


@pytest.mark.crash
@pytest.mark.rule("I5", "S1", "S4")
async def test_after_sigkill_the_conversation_goes_on_with_its_history(room: Room) -> None:
    dialogue = await room.open()
    await room.play(dialogue, 1, "FIRST")
    room.models.script("SECOND", (Shell("setsid tail -f /dev/null & tail -f /dev/null"),))
    await room.start(dialogue, 2, "SECOND")
    await room.tool(2)
    steer = asyncio.ensure_future(dialogue.steer(TurnId(2), (said("LOST"),)))
    await asyncio.sleep(0)
    await asked(dialogue)
    (transcript,) = (room.home / "claude" / "projects").rglob("*.jsonl")
    await eventually(lambda: "SECOND" in transcript.read_text())
    os.kill(dialogue.pid, signal.SIGKILL)
    assert await room.until(Died) == Died("Claude was killed by signal 9.")
    with pytest.raises(Uncertain):
        await steer
    assert carriers(room.home) == []
    with pytest.raises(Unavailable):
        await room.start(dialogue, 3, "TO THE DEAD")

    again = await room.open(dialogue.native_id)
    assert again.native_id == dialogue.native_id
    ended = await room.play(again, 3, "!say well THIRD")
    assert ended == TurnEnded(TurnId(3), Outcome.completed, usage=Usage(100, 20, 10))
    assert room.models.heard[-1].said == ("FIRST", "SECOND", "!say well THIRD")
    assert (len(room.all(Died)), room.all(ForeignTurnBegan)) == (1, [])


@pytest.mark.crash
async def test_a_conversation_that_was_never_used_can_be_resumed(room: Room) -> None:
    """An owner may die between the opening and the first Turn, or before it has noted that one began (H56)."""
    dialogue = await room.open()
    os.kill(dialogue.pid, signal.SIGKILL)
    await room.until(Died)
    again = await room.open(dialogue.native_id)
    assert (await room.play(again, 1, "!say well")).outcome is Outcome.completed
    await again.close()
    (room.home / "claude" / "unused").write_text(dialogue.native_id)
    third = await room.open(dialogue.native_id)
    assert (await room.play(third, 2, "!say on")).outcome is Outcome.completed
    assert room.models.heard[-1].said == ("!say well", "!say on")


async def test_a_conversation_that_is_gone_is_named(room: Room) -> None:
    with pytest.raises(Refused) as refused:
        await room.open("9a6d2cd0-2ebc-4862-bbd0-5ef1a07b1e11")
    assert refused.value.key == "no_history"
    assert carriers(room.home) == []


async def test_closing_leaves_nothing_and_tells_nothing(room: Room) -> None:
    room.models.script("RUN", (Shell("tail -f /dev/null"),))
    dialogue = await room.open()
    await room.start(dialogue, 1, "RUN")
    await room.tool(1)
    before = len(room.events)
    await dialogue.close()
    await dialogue.close()
    assert (carriers(room.home), room.events[before:]) == ([], [])


async def test_a_question_waits_for_its_answer(room: Room) -> None:
    """Denied, allowed once, then always: what was always allowed is not asked again."""
    dialogue = await room.open(launch=ASKING)
    command = "touch outside.txt"
    for turn, verdict in enumerate((Verdict.deny, Verdict.allow, Verdict.always, None), 1):
        (room.workspace / "outside.txt").unlink(missing_ok=True)
        room.models.script(f"ASK{turn}", (Ask(command),), (Say("thanks"),))
        await room.start(dialogue, turn, f"ASK{turn}")
        if verdict:
            question = await room.until(PermissionAsked, lambda e, turn=turn: e.turn == turn)  # type: ignore[misc]
            assert question.title == f"Bash: {command}"
            assert not (room.workspace / "outside.txt").exists()
            await dialogue.answer(question.request, verdict)
            await dialogue.answer(question.request, Verdict.allow)  # the first one counted
        ended = await room.until(TurnEnded, lambda e, turn=turn: e.turn == turn)  # type: ignore[misc]
        done = verdict is not Verdict.deny
        assert (ended.outcome, (room.workspace / "outside.txt").exists()) == (Outcome.completed, done)
    assert len(room.all(PermissionAsked)) == 3
    assert not (room.workspace / ".claude").exists()


async def test_an_interrupt_ends_an_open_question(room: Room) -> None:
    room.models.script("ASK", (Ask("echo outside > outside.txt"),))
    dialogue = await room.open(launch=ASKING)
    await room.start(dialogue, 1, "ASK")
    question = await room.until(PermissionAsked)
    await interrupted(room, dialogue, 1)
    await dialogue.answer(question.request, Verdict.allow)
    assert (await room.play(dialogue, 2, "!say well")).outcome is Outcome.completed
    assert not (room.workspace / "outside.txt").exists()


async def test_what_the_model_makes_fail_ends_the_turn_and_not_the_conversation(room: Room) -> None:
    dialogue = await room.open(launch=replace(LAUNCH, model="no-such-model", effort="high"))
    ended = await room.play(dialogue, 1, "HI")
    assert (ended.outcome, ended.reason) == (Outcome.failed, "model_not_found")
    assert "no-such-model" in ended.detail
    assert "Start a Session with a model that ANTHROPIC_BASE_URL serves." in ended.detail
    await dialogue.close()
    dialogue = await room.open(dialogue.native_id)
    ended = await room.play(dialogue, 2, f"!fail {KEY} is no key of {room.url}/v1")
    assert (ended.outcome, ended.detail) == (Outcome.failed, "API Error: 400 [secret] is no key of [address]")


async def test_a_stream_that_breaks_is_taken_up_again(room: Room) -> None:
    """What had come as a whole block stands: the model is asked to go on behind it."""
    go = asyncio.Event()
    room.models.script("AGAIN", (Say("half"), Hold(go), Drop()), (Say("at last"),))
    dialogue = await room.open()
    await room.start(dialogue, 1, "AGAIN")
    await room.until(ItemSeen, lambda e: e.text == "half")
    go.set()
    assert (await room.until(TurnEnded)).outcome is Outcome.completed
    shown = [(e.status, e.text) for e in room.all(ItemSeen) if e.type is ItemType.message]
    started, completed = ItemStatus.started, ItemStatus.completed
    assert shown == [(started, ""), (completed, "half"), (started, ""), (completed, "at last")]


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize(("model", "effort"), [(None, None), ("loopback", "high")])
@pytest.mark.parametrize("asks", [True, False])
def test_the_command_is_the_one_that_the_sdk_spells(
    *, asks: bool, model: str | None, effort: str | None, resumed: bool
) -> None:
    sdk = importlib.import_module("claude_agent_sdk")  # here, since it takes seconds
    transport = importlib.import_module("claude_agent_sdk._internal.transport.subprocess_cli")
    options = sdk.ClaudeAgentOptions(
        cli_path="/x/claude",
        system_prompt={"type": "preset", "preset": "claude_code"},
        setting_sources=["project"],
        strict_mcp_config=True,
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
    launch = LaunchSnapshot("claude", "", model=model, effort=effort, permission=permission)
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


@pytest.mark.rule("T8")
async def test_a_silent_model_is_given_up(room: Room) -> None:
    room.models.script("HANGS", (Hang(),))
    dialogue = await room.open(provider=room.provider(patience=replace(SHORT, silence=0.7)))
    ended = await room.play(dialogue, 1, "HANGS")
    assert (ended.outcome, ended.reason) == (Outcome.failed, "silent")


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


PROGRAMS = {
    "exits at once": ("echo 'no such luck' >&2; exit 3", "ended by itself with code 3. Its last words: no such luck"),
    "prints garbage": ("while :; do echo '%%% no JSON'; done", "wrote 21 lines that are no JSON"),
    "never answers": ("exec tail -f /dev/null", "did not answer initialize within 1 s"),
}


@pytest.mark.parametrize(("script", "told"), PROGRAMS.values(), ids=PROGRAMS)
async def test_a_program_that_is_no_claude(room: Room, tmp_path: Path, script: str, told: str) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(Unavailable) as unavailable:
        await room.open(provider=room.provider(program=program, patience=replace(SHORT, opening=1)))
    assert told in str(unavailable.value)
    assert 'pip install "amux[agents]"' in str(unavailable.value)
    assert carriers(room.home) == []


@pytest.mark.rule("S7")
async def test_a_program_or_a_key_that_is_missing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="Claude needs ANTHROPIC_API_KEY"):
        await room.open(provider=room.provider(key=""))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r'Claude program is not installed. .*pip install "amux\[agents\]"'):
        await room.open()


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


async def deaf(room: Room, *, hears: str, ends: str = "False") -> Dialogue:
    """A Claude that stops answering in mid-Turn, or that goes on by itself."""
    program = room.workspace / "claude"
    program.write_text(DEAF.format(python=sys.executable, hears=hears, ends=ends))
    program.chmod(0o755)
    patience = Patience(opening=10, answer=0.5, receipt=0.5, commit=0.5, stop=0.5)
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
