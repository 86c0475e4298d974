"""Claude Code, the real program, on the loopback model: its Turns."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from amux.extensions import (
    DeltaSeen,
    Died,
    ForeignTurnBegan,
    ItemId,
    ItemSeen,
    ItemStatus,
    ItemType,
    Outcome,
    PermissionAsked,
    Prompt,
    Refused,
    TurnEnded,
    TurnId,
    Unavailable,
    Uncertain,
    Usage,
    Verdict,
)
from amux.sandbox.replies import Ask, Drop, Hang, Hold, Say, Shell, Think
from tests.providers import claude_room
from tests.providers.agent_room import KEY, SECONDS, said
from tests.providers.claude_room import ASKING, LAUNCH, Room, asked
from tests.providers.conftest import carriers, eventually

pytestmark = pytest.mark.agent
room = claude_room.room


@pytest.mark.rule("T3")
async def test_a_turn_streams_text_and_tools_and_ends_once(room: Room) -> None:
    room.models.script("ONE", (Think("hm"), Say("two words"), Shell("echo hi; exit 3")), (Say("the end"),))
    dialogue = await room.open()
    assert dialogue.native_id
    await room.play(dialogue, 1, "ONE")
    turn, message, tool = TurnId(1), ItemType.message, ItemType.tool
    items = [ItemId(f"item{n}") for n in range(4)]
    started, completed, failed = ItemStatus.started, ItemStatus.completed, ItemStatus.failed
    assert room.numbered() == [
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
    assert (await room.interrupted(dialogue, 1)).unhandled == (said("LATER").id,)
    async with asyncio.timeout(SECONDS):
        await dialogue.start_turn(TurnId(2), Prompt((said("!say well"), said("and more")), note="[Note: stopped.]"))
    assert (await room.until(TurnEnded, lambda e: e.turn == 2)).outcome is Outcome.completed
    assert room.models.heard[-1].said[-1] == "[Note: stopped.]\n\n!say well\n\nand more"


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_stops_whatever_runs(room: Room) -> None:
    dialogue = await room.open()
    room.models.script("STREAMS", (Say("three four", seconds=30),))
    await room.start(dialogue, 1, "STREAMS")
    cut = await room.until(DeltaSeen)
    steer = asyncio.ensure_future(dialogue.steer(TurnId(1), (said("NEVER SEEN"),)))
    await asyncio.sleep(0)
    await asked(dialogue)
    assert (await room.interrupted(dialogue, 1)).unhandled == ()
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
    await room.interrupted(dialogue, 2)
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
        await room.interrupted(dialogue, turn)
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
