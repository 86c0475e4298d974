"""The built-in agent: no account, no model, the same answers every time; for the demo, the tests and the benchmarks.

`Scripted` runs it as a program of its own behind a Guard, like any other agent. `ScriptedInWorker` runs the same script
inside the worker and is for benchmarks only: it has no process that could be killed, and forgets when it is closed."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.extensions import (
    Compaction,
    Conversation,
    DeltaSeen,
    Died,
    Emit,
    Extra,
    Input,
    InputId,
    ItemId,
    ItemSeen,
    ItemStatus,
    ItemType,
    Opening,
    Outcome,
    PermissionAsked,
    Prompt,
    ProviderEvent,
    RequestId,
    Steering,
    TurnEnded,
    TurnId,
    Usage,
    Verdict,
)
from amux.providers.given import given
from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.scripted_agent import Agent, Failed

ENGINE = "scripted"
GREETING_SECONDS = 20.0
STOP_SECONDS = 5.0  # an agent that does not obey for so long is killed
ROOT = str(Path(__file__).parents[2])
PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from amux.providers.scripted_program import main; main()"


class Link(Protocol):
    """How a conversation reaches its agent."""

    async def send(self, line: Line) -> None:
        """Raises Unavailable or Uncertain."""

    async def kill(self) -> str:
        """End it; answers how it ended, for people."""


class ScriptedConversation:
    """One conversation with the agent, which thinks over its `instructions` at the beginning of each Turn. `patience` is
    how long it may take to show that it holds something, in seconds."""

    def __init__(self, link: Link, native_id: str, emit: Emit, *, patience: float, instructions: str = "") -> None:
        self.native_id = native_id
        self.steering: Steering | None = self
        self.compaction: Compaction | None = self
        self._link, self._emit, self._patience, self._instructions = link, emit, patience, instructions
        self._compacting: asyncio.Future[bool] | None = None
        self._told: dict[tuple[InputId, ...], asyncio.Future[str]] = {}
        self._turn: TurnId | None = None
        self._quiet = asyncio.Event()
        self._closed = False

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        """As the protocol says; the agent commits a prompt at once."""
        self._turn = turn
        self._quiet.clear()
        note = "\n\n".join(filter(None, (self._instructions, prompt.note)))
        await self._tell("start", turn, prompt.inputs, note=note)

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        """As the protocol says; the agent takes it between two steps."""
        try:
            await self._tell("steer", turn, inputs)
        except Unavailable as why:
            raise Refused(str(why), key="not_running") from why

    async def _tell(self, how: str, turn: TurnId, inputs: tuple[Input, ...], *, note: str = "") -> None:
        ids = tuple(said.id for said in inputs)
        told = self._told[ids] = asyncio.get_running_loop().create_future()
        said = [{"id": said.id, "text": said.text} for said in inputs]
        try:
            async with asyncio.timeout(self._patience):
                await self._link.send({"do": how, "turn": turn, "inputs": said, "note": note})
                answer = await told
        except TimeoutError:
            raise Uncertain(f"The scripted agent did not answer within {self._patience:g} s.") from None
        finally:
            self._told.pop(ids, None)
        if answer == "refused":
            raise Refused("The scripted agent works on no such Turn.", key="not_running")
        if answer == "gone":
            raise Uncertain("The scripted agent ended before it answered.")

    async def compact(self) -> None:
        """As the protocol says; what it knows it knows as before."""
        self._compacting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._patience):
                await self._link.send({"do": "compact"})
                if not await self._compacting:
                    raise Refused("The scripted agent works on a Turn.", key="busy")
        except TimeoutError:
            raise Uncertain(f"The scripted agent did not answer within {self._patience:g} s.") from None
        finally:
            self._compacting = None

    async def interrupt(self, turn: TurnId) -> None:
        """As the protocol says."""
        if turn != self._turn:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._link.send({"do": "interrupt", "turn": turn})
                await self._quiet.wait()
        except TimeoutError:
            self.died(await self._link.kill())
        except (Unavailable, Uncertain):  # it is dead, and whoever listens tells so
            await self._quiet.wait()

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        """As the protocol says."""
        await self._link.send({"do": "answer", "request": request, "verdict": verdict})

    async def close(self) -> None:
        """As the protocol says; all that the agent said is in its home already."""
        self._closed = True
        await self._link.kill()
        self._settle(self._told, "gone")

    def take(self, line: Line) -> None:
        """One line of the agent's."""
        match line["is"]:
            case "committed" | "refused" as answer:
                self._settle([tuple(line["inputs"])], answer)
            case "compacted":
                if self._compacting and not self._compacting.done():
                    self._compacting.set_result(line["done"])
            case what:
                self._show(_event(what, line["turn"], line))

    def _show(self, event: ProviderEvent) -> None:
        if isinstance(event, TurnEnded):
            self._turn = None
            self._settle(self._told, "refused")  # it answers in order: what it has not answered it never took
            self._quiet.set()
        if not self._closed:
            self._emit(event)

    def died(self, how: str) -> None:
        """The agent is gone. Told once."""
        if not self._closed:
            self._closed = True
            self._settle(self._told, "gone")
            if self._compacting and not self._compacting.done():
                self._compacting.set_exception(Uncertain("The scripted agent ended before it answered."))
            self._emit(Died(f"The scripted agent {how}."))
        self._quiet.set()

    def _settle(self, which: Iterable[tuple[InputId, ...]], answer: str) -> None:
        for ids in tuple(which):
            told = self._told.get(ids)
            if told and not told.done():
                told.set_result(answer)


def _event(what: str, turn: TurnId, line: Line) -> ProviderEvent:
    match what:
        case "item":
            kind, status = _TYPES[line["type"]], _STATUSES[line["status"]]
            return ItemSeen(turn, line["item"], kind, status, line["title"], line["text"])
        case "delta":
            return DeltaSeen(turn, ItemId(line["item"]), line["offset"], line["text"])
        case "asked":
            return PermissionAsked(turn, RequestId(line["request"]), line["title"])
        case "ended":
            unhandled = tuple(InputId(each) for each in line["unhandled"])
            how, usage = Outcome(line["outcome"]), Usage(**line["usage"])
            return TurnEnded(turn, how, line["reason"], line["detail"], usage, unhandled)
        case _:
            raise Broken(f"the scripted agent says {what!r}")


_TYPES = {kind.value: kind for kind in ItemType}  # asking the Enum itself costs a microsecond
_STATUSES = {status.value: status for status in ItemStatus}


class Scripted:
    """The agent as a program. An ordinary prompt takes it `seconds`; `patience` as in ScriptedConversation; `env` is the
    worker's environment. It has no tools that are real, so no MCP server either."""

    engine = ENGINE
    extras = frozenset({Extra.environment})

    def __init__(self, *, seconds: float = 1.0, patience: float = 60.0, env: Mapping[str, str] = os.environ) -> None:
        self._seconds, self._patience, self._worker = seconds, patience, env

    async def open(self, opening: Opening, emit: Emit) -> Conversation:
        """As the protocol says."""
        variables = given(opening.launch, self._worker)
        process = await Process.start(
            [sys.executable, "-I", "-S", "-c", PROGRAM, ROOT, str(self._seconds), opening.native_id or ""],
            opening,
            env=variables,
            hidden=variables.values(),
            name="The scripted agent",
            remedy="It is part of amux: install amux again.",
        )
        link = _ProgramLink(process)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                return await link.greet(emit, opening.launch.instructions, patience=self._patience)
        except TimeoutError:
            raise Unavailable(f"The scripted agent did not begin within {GREETING_SECONDS:g} s.") from None
        finally:
            if link.conversation is None:
                await process.kill()


class _ProgramLink:
    """To the program, and from it by one task that reads for as long as there is something."""

    def __init__(self, process: Process) -> None:
        self.conversation: ScriptedConversation | None = None
        self._process, self._lines = process, process.lines()
        self._listening: asyncio.Task[None] | None = None

    async def greet(self, emit: Emit, instructions: str, *, patience: float) -> ScriptedConversation:
        """Raises Refused when it has no such conversation, Unavailable when it says nothing."""
        first = await anext(self._lines, None)
        if first is None:
            raise await self._process.failure()
        if first["is"] == "no_history":
            raise Refused("The scripted agent knows no such conversation any more.", key="no_history")
        self.conversation = ScriptedConversation(
            self, first["conversation"], emit, patience=patience, instructions=instructions
        )
        self._listening = asyncio.create_task(self._listen(self.conversation), name="scripted agent")
        return self.conversation

    async def _listen(self, conversation: ScriptedConversation) -> None:
        try:
            async for line in self._lines:
                conversation.take(line)
        finally:
            conversation.died((await self._process.after_lines()).said)

    async def send(self, line: Line) -> None:
        await self._process.send(line)

    async def kill(self) -> str:
        return (await self._process.kill()).said


class ScriptedInWorker:
    """The same agent inside the worker, for benchmarks: no process, no Guard, no file, and no environment of its own."""

    engine = ENGINE
    extras = frozenset[Extra]()

    def __init__(self, *, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def open(self, opening: Opening, emit: Emit) -> Conversation:
        """As the protocol says; it opens anything."""
        link = _WorkerLink()
        conversation = ScriptedConversation(
            link, opening.native_id or "scripted-1", emit, patience=60.0, instructions=opening.launch.instructions
        )
        link.begin(self._seconds, conversation.take)
        return conversation


class _WorkerLink:
    """The agent itself, going on by the event loop's clock."""

    def __init__(self) -> None:
        self.known = 0
        self._agent: Agent
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, tell: Callable[[Line], None]) -> None:
        """Let the agent tell what it does."""
        self._agent = Agent(memory=self, seconds=seconds, tell=tell, act=_act)

    def heard(self, _said: Line, _how: str) -> None:
        self.known += 1

    def answered(self, _text: str) -> None:
        pass

    async def send(self, line: Line) -> None:
        self._agent.hear(line, self._loop.time())
        self._wake()

    def _go_on(self) -> None:
        self._agent.go_on(self._loop.time())
        self._wake()

    def _wake(self) -> None:
        if self._timer:
            self._timer.cancel()
        due = self._agent.due
        self._timer = None if due is None else self._loop.call_at(due, self._go_on)

    async def kill(self) -> str:
        self._agent.due = None
        self._wake()
        return "was closed"


def _act(word: str, _argument: str) -> None:
    if word != "rest":
        raise Failed("bad_script", f"!{word} needs a program of its own.")
