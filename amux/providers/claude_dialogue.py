"""One Claude Code conversation: Turns, steers, the stop procedure, permissions, and what Claude begins by itself.

What was sent is followed by its uuid alone: a write says nothing, `queued` is a receipt, `started` is the commit, and a
result closes all that it took in. Claude's queue holds only what was steered into the running Turn. Nothing is ever sent
twice, and what Claude does not do in time is ended with its whole process tree."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from uuid import uuid4

import structlog

from amux.extensions import (
    Died,
    Emit,
    ForeignTurnBegan,
    ForeignTurnEnded,
    Input,
    Outcome,
    PermissionAsked,
    Prompt,
    ProviderEvent,
    Refused,
    RequestId,
    TurnEnded,
    TurnId,
    Unavailable,
    Uncertain,
    Verdict,
)
from amux.providers import claude_items, strays
from amux.providers.claude_control import Control
from amux.providers.claude_live import Live
from amux.providers.claude_turn import Patience, Said, Turn
from amux.providers.jsonrpc import Rejected
from amux.providers.pipes import Line
from amux.providers.process import Process

log = structlog.get_logger()
AGAIN_SECONDS = 0.2  # between two interrupts of something that is about to begin or to end
LEAVING_SECONDS = 3.0  # Claude kills its tools and ends within 0.4 s of being asked


class Dialogue:
    """A Conversation, and its own Steering. Made and opened by `claude`; `used` is called once something was said in it."""

    def __init__(self, process: Process, native_id: str, patience: Patience, used: Callable[[], None]) -> None:
        self.native_id = native_id
        self.steering: Dialogue | None = self
        self.control = Control(process, frame=self._noticed, asked=self._asked, withdrawn=self._withdrawn)
        self._process, self._patience, self._used = process, patience, used
        self._kept: list[ProviderEvent] = []  # what is told before somebody listens
        self._emit: Emit = self._kept.append
        self._turn: Turn | None = None
        self._foreign = ""  # the native turn that nobody asked for and that runs now
        self._foreign_over = asyncio.Event()
        self._foreign_over.set()
        self._before: frozenset[int] = frozenset()  # what ran when the Turn began
        self._requests: dict[RequestId, tuple[str, Line]] = {}
        self._heard = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.ensure_future(self._read())

    @property
    def pid(self) -> int:
        """The agent's own process."""
        return self._process.pid

    def hand_over(self, emit: Emit) -> None:
        """It is open: tell what came meanwhile, and from now on at once (G7)."""
        self._emit = emit
        for event in self._kept:
            emit(event)

    # -- what it is asked to do ---------------------------------------------------------------------------------------

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        current = self._turn = Turn(turn, Live(turn))
        await self._foreign_over.wait()  # else the prompt would be taken into it (H55)
        if current.over.is_set():
            return
        self._before = strays.below(self._process)
        self._heard = asyncio.get_running_loop().time()
        try:
            said = await self._say(current, prompt.inputs, prompt.note)
            async with asyncio.timeout(self._patience.commit):
                held = await asyncio.shield(said.held)
        except Unavailable:
            self._turn = None
            raise
        except Uncertain:
            await self._kill()
            raise
        except TimeoutError:
            await self._kill()
            raise Uncertain(f"Claude did not begin within {self._patience.commit:g} s.") from None
        if held:
            self._used()
            self._spawn(self._watch(current))
        elif not current.over.is_set():  # one that was stopped before it began has told its end
            self._turn = None
            current.close()
            raise Refused("Claude did not take this.")

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        current = self._turn
        if current is None or current.id != turn or current.over.is_set() or current.stopping:
            raise Refused("That Turn is over; Claude was told nothing.")
        try:
            said = await self._say(current, inputs, "")
        except Unavailable as error:
            raise Refused("Claude is gone and was told nothing.") from error
        if not await asyncio.shield(said.held):
            raise Refused("The Turn ended and Claude never took this.")

    async def _say(self, current: Turn, inputs: tuple[Input, ...], note: str) -> Said:
        """Send one message and wait for its receipt. Raises Unavailable when nothing was sent, Uncertain without receipt;
        what comes of that input then is no longer waited for."""
        uuid = str(uuid4())
        said = current.tell(uuid, inputs)
        try:
            await self.control.say(claude_items.message(inputs, note, uuid))
        except (Unavailable, Uncertain):
            said.drop()
            self._settle()
            raise
        if not await _within(said.queued, self._patience.receipt):
            await self._recall(uuid, said)
        return said

    async def _recall(self, uuid: str, said: Said) -> None:
        """No receipt came in time: take it back for certain, or do not know (I5)."""
        answer: Line = {}
        with suppress(Rejected, Uncertain, Unavailable):
            answer = await self.control.ask("cancel_async_message", message_uuid=uuid, seconds=self._patience.receipt)
        if said.queued.is_set():
            return
        said.drop()
        self._settle()
        if answer.get("cancelled") is not True:
            raise Uncertain(f"Claude did not acknowledge this within {self._patience.receipt:g} s.")

    async def interrupt(self, turn: TurnId) -> None:
        current = self._turn
        if current and current.id == turn:
            current.stopping = True
            self._settle()
            await self._stop(current.over, current.moved, cancel_queued=True)
        try:
            async with asyncio.timeout(self._patience.stop):
                await strays.end(self._process, known=self._before, spared=frozenset())
        except TimeoutError:
            await self._kill()

    async def _stop(self, over: asyncio.Event, moved: asyncio.Event, **how: object) -> None:
        """Interrupt until it is over, again at once when another queued input begins; end the process when that does not
        happen in time (H45)."""
        try:
            async with asyncio.timeout(self._patience.stop):
                while not over.is_set():
                    moved.clear()
                    with suppress(Rejected, Uncertain, Unavailable):  # it begins or ends at this moment: look again
                        await self.control.ask("interrupt", seconds=self._patience.answer, **how)
                    if not over.is_set():
                        await _within(moved, AGAIN_SECONDS)
        except TimeoutError:
            await self._kill()

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        if asked := self._requests.pop(request, None):
            number, about = asked
            await self._reply(number, claude_items.verdict(about, verdict))

    def extend(self, deadline: float) -> None:
        self._process.extend(deadline)

    async def close(self) -> None:
        self._emit = _nobody
        for task in self._tasks:
            task.cancel()
        await self._process.stop(LEAVING_SECONDS)
        await asyncio.shield(self._reading)

    # -- what it tells ------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Until its output ends. Then it is dead: what was not begun is unknown, and nothing more comes."""
        await self.control.run()
        end = await self._process.after_lines()
        if self._turn:
            self._turn.lose(f"Claude {end.said} before it began this.")
        self._foreign_over.set()
        log.info("claude_ended", why=end.why, code=end.code)
        self._emit(Died(f"Claude {end.said}."))

    def _noticed(self, frame: Line) -> None:
        self._heard = asyncio.get_running_loop().time()
        try:
            self._understand(frame)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            log.warning("claude_unreadable", type=str(frame.get("type")), error=type(error).__name__)

    def _understand(self, frame: Line) -> None:
        match frame:
            case {"type": "command_lifecycle", "command_uuid": str(uuid), "state": str(state)}:
                self._fate(uuid, state)
            case {"type": "system", "subtype": "init"}:
                self._began(frame)
            case {"type": "result"}:
                self._result(frame)
            case _ if self._turn and self._turn.running:
                self._show(self._turn, frame)

    def _show(self, current: Turn, frame: Line) -> None:
        answers = frame.get("type") == "assistant" or frame.get("event", {}).get("type") == "message_start"
        if answers and not frame.get("aborted"):
            current.answering()
        for event in current.live.take(frame):
            self._emit(event)

    def _fate(self, uuid: str, state: str) -> None:
        """A word on one input. `cancelled` of one that began says only how its native turn ended: the result does that."""
        current = self._turn
        said = current.said.get(uuid) if current else None
        if current is None or said is None:
            return
        match state:
            case "queued":
                said.queued.set()
            case "started" if not said.closed:
                current.start(said)
                self._foreign_ended()  # it was taken into that one, which is a Turn's now
            case "completed" | "cancelled" | "discarded" | "refused" if not said.started:
                said.drop()
                self._settle()

    def _began(self, frame: Line) -> None:
        """A native turn begins; when nothing that was said has begun, nobody asked for it."""
        if self._foreign or (self._turn and self._turn.running):
            return
        self._foreign = str(frame["uuid"])
        self._foreign_over.clear()
        self._emit(ForeignTurnBegan(self._foreign, "unasked"))
        # What waits in the queue stays there: it is a Turn's, which is not to be stopped.
        self._spawn(self._stop(self._foreign_over, asyncio.Event()))

    def _foreign_ended(self) -> None:
        if self._foreign:
            self._emit(ForeignTurnEnded(self._foreign))
            self._foreign = ""
            self._foreign_over.set()

    def _result(self, frame: Line) -> None:
        listed = [str(uuid) for uuid in frame.get("user_message_uuids") or ()]
        current = self._turn
        ours = current is not None and (current.running or any(uuid in current.said for uuid in listed))
        self._foreign_ended()
        if current and ours:
            current.result(listed, claude_items.outcome(frame), claude_items.usage(frame["usage"]))
            self._settle()

    def _settle(self) -> None:
        """End the Turn if nothing of it runs or is on its way any more, once."""
        current = self._turn
        if current is None or not current.quiet or current.over.is_set():
            return
        if current.ended is None and not current.stopping:
            return  # nothing has begun, which `start_turn` tells
        self._turn = None
        self._requests.clear()
        outcome, reason, detail = _how(current, self._patience)
        for item in current.live.end(outcome):
            self._emit(item)
        unhandled = current.unhandled()
        current.close()
        self._emit(TurnEnded(current.id, outcome, reason, detail, current.spent, unhandled))

    # -- what it asks -------------------------------------------------------------------------------------------------

    def _asked(self, number: str, about: Line) -> None:
        self._heard = asyncio.get_running_loop().time()
        current = self._turn
        match about.get("subtype"):
            case "can_use_tool" if current and current.running and not current.stopping:
                request = RequestId(f"{current.id}-{number}")
                self._requests[request] = number, about
                self._emit(PermissionAsked(current.id, request, *claude_items.question(about)))
            case "can_use_tool":  # of a turn that nobody asked for, or that is being stopped (G7)
                self._spawn(self._reply(number, claude_items.verdict(about, Verdict.deny)))
            case subtype:
                self._spawn(self.control.refuse(number, str(subtype)))

    def _withdrawn(self, number: str) -> None:
        self._requests = {request: asked for request, asked in self._requests.items() if asked[0] != number}

    async def _reply(self, number: str, result: dict[str, object]) -> None:
        with suppress(Unavailable, Uncertain):  # it died with its question
            await self.control.reply(number, result)

    # -- what it does not do ------------------------------------------------------------------------------------------

    async def _watch(self, turn: Turn) -> None:
        """End a Turn that can no longer end by itself; a running tool and an open question are no silence (T8)."""
        while not turn.over.is_set():
            now = asyncio.get_running_loop().time()
            since = now if turn.live.working or self._requests else self._heard
            if now - since >= self._patience.silence:
                turn.silent = True
                await self.interrupt(turn.id)
                return
            await _within(turn.over, since + self._patience.silence - now)

    async def _kill(self) -> None:
        await self._process.kill()
        await asyncio.shield(self._reading)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(_unless_dead(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _how(turn: Turn, patience: Patience) -> tuple[Outcome, str, str]:
    """The outcome of a whole Turn: of its last native turn, and whether somebody had asked for that end."""
    outcome, reason = turn.ended or (Outcome.interrupted, "")
    if turn.silent:
        return Outcome.failed, "silent", f"No sign of life from the model for {patience.silence:g} s."
    if outcome is Outcome.interrupted and not turn.stopping:
        return Outcome.failed, "aborted", "Claude ended this by itself."
    if outcome is Outcome.failed:
        word, told = turn.live.failure
        return outcome, word or reason, told or f"Claude ended this: {reason}."
    return outcome, "", ""


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it was set in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def _unless_dead(work: Coroutine[object, object, None]) -> None:
    with suppress(Unavailable, Uncertain):  # the process is gone, which is told as Died
        await work


def _nobody(_: ProviderEvent) -> None:
    """Hears what comes after close."""
