"""Codex, the real program, on the loopback model: Turns, steers, interrupts, questions, death and resume."""

import asyncio
import os
import signal

import pytest

from amux.extensions import (
    DeltaSeen,
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
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
from amux.sandbox.replies import Ask, Call, Hang, Hold, Say, Shell
from tests.providers.agent_room import KEY, SECONDS, said
from tests.providers.codex_room import ASKING, Room, room
from tests.providers.conftest import carriers, eventually

__all__ = ["room"]
pytestmark = pytest.mark.agent


@pytest.mark.rule("T3")
async def test_a_turn_streams_text_and_tools_and_ends_once(room: Room) -> None:
    room.models.script("ONE", (Say("two words"), Shell("echo hi; exit 3")), (Say("the end"),))
    thread = await room.open()
    assert thread.native_id
    await room.play(thread, 1, "ONE")
    turn, message, tool = TurnId(1), ItemType.message, ItemType.tool
    items = [ItemId(f"item{n}") for n in range(3)]
    started, completed, failed = ItemStatus.started, ItemStatus.completed, ItemStatus.failed
    assert room.numbered() == [
        ItemSeen(turn, items[0], message, started),
        DeltaSeen(turn, items[0], 0, "two "),
        DeltaSeen(turn, items[0], 4, "words"),
        ItemSeen(turn, items[0], message, completed, text="two words"),
        ItemSeen(turn, items[1], tool, started, title="echo hi; exit 3"),
        ItemSeen(turn, items[1], tool, failed, title="echo hi; exit 3", text="hi\n"),
        ItemSeen(turn, items[2], message, started),
        DeltaSeen(turn, items[2], 0, "the "),
        DeltaSeen(turn, items[2], 4, "end"),
        ItemSeen(turn, items[2], message, completed, text="the end"),
        TurnEnded(turn, Outcome.completed, usage=Usage(200, 40, 20)),
    ]
    assert room.models.times_said("ONE") == 1


@pytest.mark.rule("I3")
async def test_a_steer_joins_after_the_tool_and_is_said_exactly_once(room: Room) -> None:
    room.models.script("RUN", (Shell(room.flag("go")),), (Say("done"),))
    thread = await room.open()
    await room.start(thread, 1, "RUN")
    await room.tool(1)
    steer = asyncio.ensure_future(thread.steer(TurnId(1), (said("ALSO THIS"), said("AND THAT"))))
    await eventually((room.workspace / "go.waits").exists)
    assert not steer.done()
    (room.workspace / "go").touch()
    async with asyncio.timeout(SECONDS):
        await steer
    ended = await room.until(TurnEnded)
    assert (ended.outcome, len(room.all(TurnEnded))) == (Outcome.completed, 1)
    assert [room.models.times_said(text) for text in ("RUN", "ALSO THIS", "AND THAT")] == [1, 1, 1]
    assert room.models.heard[-1].asked == ("RUN", "ALSO THIS\n\nAND THAT")


@pytest.mark.rule("I3")
async def test_a_steer_while_text_streams_leaves_what_was_shown(room: Room) -> None:
    go = asyncio.Event()
    room.models.script("RUN", (Say("half"), Hold(go), Say("whole")), (Say("then"),))
    thread = await room.open()
    await room.start(thread, 1, "RUN")
    await room.until(ItemSeen, lambda e: e.text == "half")
    steer = asyncio.ensure_future(thread.steer(TurnId(1), (said("LATER"),)))
    go.set()
    async with asyncio.timeout(SECONDS):
        await steer
    await room.until(TurnEnded)
    texts = [e.text for e in room.all(ItemSeen) if e.status is ItemStatus.completed]
    assert texts == ["half", "whole", "then"]


@pytest.mark.rule("I3", "I4")
async def test_a_steer_that_comes_too_late_is_refused(room: Room) -> None:
    room.models.script("ONE", (Say("done"),))
    thread = await room.open()
    await room.play(thread, 1, "ONE")
    with pytest.raises(Refused):
        await thread.steer(TurnId(1), (said("LATE"),))
    await room.play(thread, 2, "!say next")
    with pytest.raises(Refused):
        await thread.steer(TurnId(1), (said("LATE"),))
    assert room.models.times_said("LATE") == 0


@pytest.mark.rule("I3", "I4")
async def test_steers_at_the_end_of_a_turn_are_held_or_refused(room: Room) -> None:
    """Whatever the moment: refused means that the model never sees it, and held that it does, once."""
    thread = await room.open()
    outcomes: dict[str, bool] = {}
    for turn in range(1, 8):
        room.models.script(f"TURN{turn}x", (Say("a b c"),))
        await room.start(thread, turn, f"TURN{turn}x")
        await room.count(turn, turn - 1)  # of its six events, and its end is the last
        try:
            async with asyncio.timeout(SECONDS):
                await thread.steer(TurnId(turn), (said(f"STEER{turn}x"),))
            outcomes[f"STEER{turn}x"] = True
        except Refused:
            outcomes[f"STEER{turn}x"] = False
        await room.until(TurnEnded, lambda e, turn=turn: e.turn == turn)  # type: ignore[misc]
    assert outcomes["STEER7x"] is False
    assert {text: room.models.times_said(text) == 1 for text in outcomes} == outcomes
    assert [e.turn for e in room.all(TurnEnded)] == list(range(1, 8))


@pytest.mark.rule("A3", "I6")
async def test_an_interrupt_stops_whatever_runs(room: Room) -> None:
    thread = await room.open()
    await room.play(thread, 1, "!say first")
    room.models.script("HANGS", (Hang(),))
    await room.start(thread, 2, "HANGS")
    await room.models.until_heard("HANGS")
    await room.interrupted(thread, 2)
    assert [e.usage for e in room.all(TurnEnded) if e.turn == 2] in ([None], [Usage(0, 0, 0)])

    room.models.script("STREAMS", (Say("one two"), Say("three four", seconds=30)))
    await room.start(thread, 3, "STREAMS")
    cut = await room.until(DeltaSeen, lambda e: "three" in e.text)
    await room.interrupted(thread, 3)
    assert [e.status for e in room.all(ItemSeen) if e.item == cut.item] == [ItemStatus.started, ItemStatus.superseded]

    detached = "setsid nohup sh -c 'while :; do date +%N > clock; sleep 0.01; done' > /dev/null 2>&1 &"
    room.models.script("TOOL", (Shell(f"{detached} sleep 300"),))
    await room.start(thread, 4, "TOOL")
    clock = room.workspace / "clock"
    await eventually(lambda: clock.exists() and clock.read_text())
    steer = asyncio.ensure_future(thread.steer(TurnId(4), (said("NEVER SEEN"),)))
    await asyncio.sleep(0)
    await room.interrupted(thread, 4)
    clock.unlink()
    with pytest.raises(Refused):
        await steer
    assert (await room.play(thread, 5, "!say well")).outcome is Outcome.completed
    assert not clock.exists()
    assert room.models.times_said("NEVER SEEN") == 0


@pytest.mark.rule("A3")
async def test_an_interrupt_at_any_moment_of_the_start(room: Room) -> None:
    """Before the acknowledgement, between it and the beginning, before and after the commit (H45)."""
    thread = await room.open()
    for turn in range(1, 11):
        starting = asyncio.ensure_future(thread.start_turn(TurnId(turn), Prompt((said(f"!sleep 20 {turn}"),))))
        await asyncio.sleep(0.004 * (turn - 1))  # nothing to wait for: the moments are what is tried
        await room.interrupted(thread, turn)
        async with asyncio.timeout(SECONDS):
            await starting
    assert (await room.play(thread, 11, "!say well")).outcome is Outcome.completed
    assert [e.turn for e in room.all(TurnEnded)] == list(range(1, 12))


@pytest.mark.crash
@pytest.mark.rule("I5", "S1", "S4")
async def test_after_sigkill_the_thread_goes_on_with_its_history(room: Room) -> None:
    thread = await room.open()
    await room.play(thread, 1, "FIRST")
    room.models.script("SECOND", (Shell("setsid sleep 300 & sleep 300"),))
    await room.start(thread, 2, "SECOND")
    await room.tool(2)
    steer = asyncio.ensure_future(thread.steer(TurnId(2), (said("LOST"),)))
    await asyncio.sleep(0)
    os.kill(thread.pid, signal.SIGKILL)
    died = await room.until(Died)
    assert died == Died("Codex was killed by signal 9.")
    with pytest.raises(Uncertain):
        await steer
    assert carriers(room.home) == []
    with pytest.raises(Unavailable):
        await room.start(thread, 3, "TO THE DEAD")

    again = await room.open(thread.native_id)
    assert again.native_id == thread.native_id
    ended = await room.play(again, 3, "THIRD")
    assert (ended.outcome, ended.usage) == (Outcome.completed, Usage(100, 20, 10))
    assert room.models.heard[-1].said == ("FIRST", "SECOND", "THIRD")
    assert len(room.all(Died)) == 1


@pytest.mark.crash
async def test_a_thread_that_was_never_used_can_be_resumed(room: Room) -> None:
    """An owner may die between the opening and the first Turn (H56)."""
    thread = await room.open()
    os.kill(thread.pid, signal.SIGKILL)
    await room.until(Died)
    again = await room.open(thread.native_id)
    assert again.native_id == thread.native_id
    assert (await room.play(again, 1, "!say well")).outcome is Outcome.completed


OUTSIDE = "echo outside > outside.txt; echo did it"


@pytest.mark.parametrize(("verdict", "done"), [(Verdict.allow, True), (Verdict.always, True), (Verdict.deny, False)])
async def test_a_question_waits_for_its_answer(room: Room, verdict: Verdict, done: bool) -> None:
    room.models.script("ASK", (Ask(OUTSIDE),), (Say("thanks"),))
    thread = await room.open(launch=ASKING)
    await room.start(thread, 1, "ASK")
    asked = await room.until(PermissionAsked)
    assert (asked.turn, asked.title, asked.detail) == (TurnId(1), OUTSIDE, "it was asked for")
    assert not (room.workspace / "outside.txt").exists()
    await thread.answer(asked.request, verdict)
    await thread.answer(asked.request, Verdict.allow)  # the first one counted
    ended = await room.until(TurnEnded)
    assert (ended.outcome, (room.workspace / "outside.txt").exists()) == (Outcome.completed, done)


async def test_a_changed_file_is_shown(room: Room) -> None:
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\nEOF"
    room.models.script("EDIT", (Shell(patch),), (Say("done"),))
    thread = await room.open()
    await room.play(thread, 1, "EDIT")
    file = [e for e in room.all(ItemSeen) if e.type is ItemType.file][-1]
    assert (file.status, file.title, file.text) == (
        ItemStatus.completed,
        f"add {room.workspace}/new.txt",
        "hello\n",
    )


async def test_tools_see_no_secret(room: Room) -> None:
    room.models.script("ENV", (Shell("env"),), (Say("done"),))
    thread = await room.open()
    await room.play(thread, 1, "ENV")
    (seen,) = [e for e in room.all(ItemSeen) if e.type is ItemType.tool and e.status is ItemStatus.completed]
    names = {line.partition("=")[0] for line in seen.text.splitlines()}
    assert "PATH" in names
    assert [name for name in names if "KEY" in name or name.startswith("AMUX")] == []
    assert KEY not in seen.text


async def test_a_tool_that_outlives_its_turn_ends_as_a_late_item(room: Room) -> None:
    late = {"cmd": room.flag("go"), "yield_time_ms": 250}
    room.models.script("BACK", (Call("exec_command", late),), (Say("left it running"),))
    thread = await room.open()
    await room.play(thread, 1, "BACK")
    (room.workspace / "go").touch()
    item = await room.until(ItemSeen, lambda e: e.type is ItemType.tool and e.status is ItemStatus.completed)
    assert (item.turn, item.text, room.events[-1]) == (TurnId(1), "saw go\n", item)


@pytest.mark.rule("G7")
async def test_a_goal_that_nobody_granted_is_paused_and_its_turn_foreign(room: Room) -> None:
    thread = await room.open()
    room.models.script("count", (Say("endless"),) * 50)
    await thread.peer.ask("thread/goal/set", {"threadId": thread.native_id, "objective": "count"}, seconds=SECONDS)
    began = await room.until(ForeignTurnBegan)
    assert (await room.play(thread, 1, "!say mine")).outcome is Outcome.completed
    ended = await room.until(ForeignTurnEnded)
    assert (began.native_turn, began.reason) == (ended.native_turn, "unasked")
    assert room.all(ForeignTurnBegan) == [began]
    assert {e.turn for e in room.all(ItemSeen)} == {TurnId(1)}


@pytest.mark.rule("G7")
async def test_a_goal_that_the_model_makes_itself_goes_no_further(room: Room) -> None:
    room.models.script("MAKE", (Call("create_goal", {"objective": "count"}),), (Say("made"),))
    thread = await room.open()
    assert (await room.play(thread, 1, "MAKE")).outcome is Outcome.completed
    assert (await room.play(thread, 2, "!say next")).outcome is Outcome.completed
    assert (room.all(ForeignTurnBegan), len(room.models.heard)) == ([], 3)


async def test_an_interrupt_of_a_turn_that_is_over_touches_no_later_one(room: Room) -> None:
    """H39: the tools that run are another Turn's."""
    thread = await room.open()
    await room.play(thread, 1, "!say first")
    room.models.script("RUN", (Shell(room.flag("go")),), (Say("done"),))
    await room.start(thread, 2, "RUN")
    await eventually((room.workspace / "go.waits").exists)
    await thread.interrupt(TurnId(1))
    (room.workspace / "go").touch()
    assert (await room.until(TurnEnded, lambda e: e.turn == 2)).outcome is Outcome.completed
    assert [e.text for e in room.all(ItemSeen) if e.type is ItemType.tool][-1] == "saw go\n"
