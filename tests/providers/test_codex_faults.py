"""Codex when something is wrong: with the model, with the program, with what it answers."""

import asyncio
import json
import sys
from dataclasses import replace
from textwrap import indent

import pytest

from amux.extensions import (
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    Outcome,
    PermissionAsked,
    Refused,
    TurnEnded,
    TurnId,
    Uncertain,
    Verdict,
)
from amux.providers.codex import Codex
from amux.providers.codex_thread import Thread
from amux.providers.codex_turn import Patience
from amux.providers.pipes import Line
from amux.sandbox.replies import Call, Fail, Say
from tests.providers.agent_room import KEY, SECONDS, said
from tests.providers.codex_room import LAUNCH, SHORT, Room, room
from tests.providers.conftest import carriers, eventually

__all__ = ["room"]
pytestmark = pytest.mark.agent


async def test_a_wrong_model_is_told_clearly(room: Room) -> None:
    thread = await room.open(launch=replace(LAUNCH, model="no-such-model"))
    ended = await room.play(thread, 1, "HI")
    assert ended.outcome is Outcome.failed
    assert ended.detail == (
        "unexpected status 404 Not Found: The model `no-such-model` does not exist. "
        "Start a Session with a model that OPENAI_BASE_URL serves."
    )


async def test_a_wrong_model_of_openai_itself_is_refused_at_once(room: Room) -> None:
    provider = Codex({"OPENAI_API_KEY": KEY}, patience=SHORT)
    with pytest.raises(Refused, match=r"Codex has no model no-such-model\. It has: gpt-"):
        await room.open(provider=provider, launch=replace(LAUNCH, model="no-such-model"))
    assert carriers(room.home) == []


async def test_a_model_that_fails_ends_the_turn_and_not_the_conversation(room: Room) -> None:
    thread = await room.open()
    ended = await room.play(thread, 1, "!fail")
    assert (ended.outcome, ended.reason) == (Outcome.failed, "other")
    room.models.script("AGAIN", (Fail(500),), (Say("at last"),))
    ended = await room.play(thread, 2, "AGAIN")
    assert ended.outcome is Outcome.completed


IMPATIENT = Patience(opening=10, answer=0.5, commit=0.5, stop=0.5)
ANSWERED = ("initialize", "thread/start", "thread/name/set", "turn/start")
DEAF = """\
#!{python} -IS
import json, os, sys
def tell(**line):
    print(json.dumps(line), flush=True)
ANSWERS = {{"thread/start": {{"thread": {{"id": "T"}}}}, "turn/start": {{"turn": {{"id": "N"}}}}}}
for line in sys.stdin:
    with open("heard", "a") as heard:
        heard.write(line)
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params", {{}})
    if method in {answers}:
        tell(id=number, result=ANSWERS.get(method, {{}}))
    if method in ("turn/start", "thread/compact/start"):
{then}
    if method == "turn/interrupt" and os.path.exists("go"):
        tell(method="turn/completed", params={{"threadId": "T", "turn": {{"id": "X"}}}})
"""
HOLDS = """\
item = {"type": "userMessage", "id": "u", "clientId": params["clientUserMessageId"]}
tell(method="item/completed", params={"threadId": "T", "turnId": "N", "item": item})
"""
GOES_ON = """\
tell(method="turn/completed", params={"threadId": "T", "turn": {"id": "N", "status": "completed"}})
tell(method="turn/started", params={"threadId": "T", "turn": {"id": "X"}})
"""
ASKS = """\
tell(method="turn/started", params={"threadId": "T", "turn": {"id": "X"}})
tell(method="item/commandExecution/requestApproval", id=0, params={"threadId": "T", "turnId": "X", "command": "ls"})
tell(method="item/tool/requestUserInput", id=1, params={"threadId": "T", "turnId": "N"})
tell(method="item/completed", params={"threadId": "T", "turnId": "N", "item": "no object"})
tell(method="item/fileChange/requestApproval", id=2, params={"threadId": "T", "turnId": "N", "itemId": "i"})
"""


async def deaf(room: Room, then: str, *, patience: Patience = IMPATIENT, answers: tuple[str, ...] = ANSWERED) -> Thread:
    """A Codex that does `then` when a Turn or a summary starts, answers no other methods than these, and ends its native
    turn X when it is told to and the file `go` is there."""
    program = room.program(DEAF.format(python=sys.executable, answers=answers, then=indent(then, " " * 8)))
    return await room.open(provider=room.provider(program=program, patience=patience))


def heard(room: Room) -> list[Line]:
    """Every whole line that reached that Codex."""
    return [
        json.loads(line) for line in (room.workspace / "heard").read_text().splitlines(keepends=True) if "\n" in line
    ]


def answers(room: Room) -> dict[int, object]:
    """What was answered to requests of that Codex."""
    return {line["id"]: line.get("result") or line.get("error") for line in heard(room) if "method" not in line}


def asked(room: Room, method: str) -> int:
    """How often it was asked that."""
    return sum(line.get("method") == method for line in heard(room))


@pytest.mark.rule("G7")
async def test_every_request_is_answered_and_a_foreign_one_declined(room: Room) -> None:
    thread = await deaf(room, ASKS + HOLDS, patience=SHORT)
    await room.start(thread, 1, "HI")
    question = await room.until(PermissionAsked)
    assert (question.turn, question.title, [e.native_turn for e in room.all(ForeignTurnBegan)]) == (
        1,
        "change files",
        ["X"],
    )
    await thread.answer(question.request, Verdict.deny)
    await eventually(lambda: len(answers(room)) == 3)
    assert answers(room) == {
        0: {"decision": "decline"},
        1: {"code": -32601, "message": "item/tool/requestUserInput is not supported"},
        2: {"decision": "decline"},
    }


@pytest.mark.rule("A3")
async def test_a_turn_that_is_stopped_while_it_waits_for_a_foreign_one_never_begins(room: Room) -> None:
    """H50: its end was told already."""
    obeys = (*ANSWERED, "thread/goal/set", "turn/interrupt", "thread/backgroundTerminals/clean")
    thread = await deaf(room, HOLDS + GOES_ON, patience=SHORT, answers=obeys)
    await room.play(thread, 1, "HI")
    await room.until(ForeignTurnBegan)
    waits = asyncio.create_task(room.start(thread, 2, "MORE"))
    await eventually(lambda: asked(room, "turn/interrupt"))
    await thread.interrupt(TurnId(2))
    (room.workspace / "go").touch()
    await room.until(ForeignTurnEnded)
    await waits
    assert (asked(room, "turn/start"), room.all(Died)) == (1, [])


@pytest.mark.rule("G7")
@pytest.mark.parametrize(
    "patience", [replace(SHORT, answer=0.5), replace(SHORT, stop=0.5)], ids=["no answer", "not in time"]
)
async def test_an_agent_whose_goal_cannot_be_paused_is_killed(room: Room, patience: Patience) -> None:
    """H50: else its foreign turn goes on, and input waits for ever."""
    thread = await deaf(room, HOLDS + GOES_ON, patience=patience)
    await room.play(thread, 1, "HI")
    assert await room.until(Died) == Died("Codex was killed.")
    assert carriers(room.home) == []


@pytest.mark.rule("I5")
async def test_a_start_that_is_never_shown_is_uncertain_and_ends_the_agent(room: Room) -> None:
    thread = await deaf(room, "pass")
    with pytest.raises(Uncertain, match="did not show"):
        await room.start(thread, 1, "HI")
    assert await room.until(Died) == Died("Codex was killed.")
    assert carriers(room.home) == []


@pytest.mark.rule("I5")
async def test_a_start_that_is_never_acknowledged_is_uncertain_and_ends_the_agent(room: Room) -> None:
    thread = await deaf(room, "pass", answers=("initialize", "thread/start", "thread/name/set"))
    with pytest.raises(Uncertain, match="did not answer turn/start"):
        await room.start(thread, 1, "HI")
    assert await room.until(Died) == Died("Codex was killed.")
    assert carriers(room.home) == []


@pytest.mark.rule("I5")
async def test_a_steer_without_an_answer_is_uncertain(room: Room) -> None:
    thread = await deaf(room, HOLDS)
    await room.start(thread, 1, "HI")
    with pytest.raises(Uncertain, match="did not answer turn/steer"):
        await thread.steer(TurnId(1), (said("MORE"),))
    assert room.all(Died) == []


@pytest.mark.rule("A3")
async def test_an_agent_that_does_not_obey_an_interrupt_is_killed(room: Room) -> None:
    thread = await deaf(room, HOLDS)
    await room.start(thread, 1, "HI")
    async with asyncio.timeout(SECONDS):
        await thread.interrupt(TurnId(1))
    assert (room.all(TurnEnded), room.all(Died)) == ([], [Died("Codex was killed.")])
    assert carriers(room.home) == []


SUMMARISES = """\
tell(method="turn/started", params={{"threadId": "T", "turn": {{"id": "C"}}}})
{meanwhile}
tell(method="turn/completed", params={{"threadId": "T", "turn": {{"id": "C", "status": "{status}"}}}})
"""
UNASKED = """\
for method in ("turn/started", "turn/completed"):
    tell(method=method, params={"threadId": "T", "turn": {"id": "X"}})"""
COMPACTS = (*ANSWERED, "thread/goal/set", "thread/compact/start", "turn/interrupt")


async def compact(thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        await thread.compact()


@pytest.mark.rule("A6")
async def test_a_goal_is_paused_before_a_summary_and_only_one_native_turn_is_that(room: Room) -> None:
    """H52, H54."""
    thread = await deaf(
        room, SUMMARISES.format(meanwhile=UNASKED, status="completed"), patience=SHORT, answers=COMPACTS
    )
    await compact(thread)
    assert room.events == [ForeignTurnBegan("X", "unasked"), ForeignTurnEnded("X")]
    order = [
        line["method"] for line in heard(room) if line.get("method", "").startswith(("thread/goal", "thread/comp"))
    ]
    assert order[:2] == ["thread/goal/set", "thread/compact/start"]


@pytest.mark.rule("A6", "G7")
async def test_a_goal_of_the_models_sleeps_through_a_summary(room: Room) -> None:
    """H52."""
    room.models.script("MAKE", (Call("create_goal", {"objective": "count"}),), (Say("made"),))
    thread = await room.open()
    assert (await room.play(thread, 1, "MAKE")).outcome is Outcome.completed
    await compact(thread)
    told = await thread.peer.ask("thread/goal/get", {"threadId": thread.native_id}, seconds=SECONDS)
    assert (told["goal"]["status"], room.all(ForeignTurnBegan), len(room.models.heard)) == ("paused", [], 3)


@pytest.mark.rule("A6")
async def test_a_summary_that_is_interrupted_was_not_made(room: Room) -> None:
    thread = await deaf(room, SUMMARISES.format(meanwhile="pass", status="interrupted"), answers=COMPACTS)
    with pytest.raises(Refused, match="did not summarise its context: it was interrupted"):
        await compact(thread)


@pytest.mark.rule("A6")
@pytest.mark.parametrize(
    ("answers", "told"),
    [(COMPACTS, "did not begin to summarise"), (COMPACTS[:-2], "did not answer thread/compact/start")],
    ids=["never begun", "never acknowledged"],
)
async def test_a_summary_of_which_nothing_is_heard_is_uncertain(
    room: Room, answers: tuple[str, ...], told: str
) -> None:
    thread = await deaf(room, "pass", answers=answers)
    with pytest.raises(Uncertain, match=told):
        await compact(thread)


@pytest.mark.rule("A6")
async def test_a_summary_waits_for_a_foreign_turn_to_end(room: Room) -> None:
    """H54: it would cut that one, and be taken for it."""
    then = "if method == 'turn/start':\n" + indent(HOLDS + GOES_ON, "    ")
    thread = await deaf(
        room,
        f"{then}else:\n{indent(SUMMARISES.format(meanwhile='pass', status='completed'), '    ')}",
        patience=SHORT,
        answers=COMPACTS,
    )
    await room.play(thread, 1, "HI")
    await room.until(ForeignTurnBegan)
    compacting = asyncio.create_task(compact(thread))
    await eventually(lambda: asked(room, "turn/interrupt") and asked(room, "thread/goal/set") > 1)
    (room.workspace / "go").touch()
    await compacting
    assert len(room.all(ForeignTurnEnded)) == 1
    last = [line["method"] for line in heard(room) if "method" in line][-2:]
    assert last == ["turn/interrupt", "thread/compact/start"]
