"""One Codex thread in conversation: Turns, steers, the stop procedure, permissions, and what Codex begins by itself.

An acknowledgement of Codex is no promise: an input is held only once its `userMessage` is shown as completed, under the
id that it was sent with. A native turn has one end, `turn/completed`. Nothing is ever sent twice, and what Codex does
not do in time is ended with its whole process tree."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import structlog

from amux.extensions import (
    Died,
    Emit,
    ForeignTurnBegan,
    ForeignTurnEnded,
    Input,
    ItemId,
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
from amux.providers import codex_items, strays
from amux.providers.codex_turn import Patience, Turn
from amux.providers.jsonrpc import CallId, Params, Peer, Rejected
from amux.providers.pipes import Line
from amux.providers.process import Process

log = structlog.get_logger()
DECISIONS = {Verdict.allow: "accept", Verdict.always: "acceptForSession", Verdict.deny: "decline"}
OUTCOMES = {"completed": Outcome.completed, "interrupted": Outcome.interrupted}
HELPERS = frozenset({"codex-code-mode-host"})  # Codex's own, which it does not start again
AGAIN_SECONDS = 0.2  # between two looks at something that is about to happen
LEAVING_SECONDS = 2.0  # Codex ends within 0.1 s of being asked


class Thread:
    """A Conversation, and its own Steering. Made and opened by `codex`."""

    def __init__(self, process: Process, patience: Patience) -> None:
        self.native_id = ""
        self.steering: Thread | None = self
        self.peer = Peer(process, notice=self._noticed, asked=self._asked)
        self._process, self._patience = process, patience
        self._kept: list[ProviderEvent] = []  # what is told before somebody listens
        self._emit: Emit = self._kept.append
        self._turns: dict[str, Turn] = {}
        self._turn: Turn | None = None
        self._foreign: dict[str, asyncio.Event] = {}
        self._early: list[tuple[str, Line]] = []  # about turns whose start is not acknowledged yet
        self._before: frozenset[int] = frozenset()  # what ran when the Turn began
        self._requests: dict[RequestId, CallId] = {}
        self._total: codex_items.Totals | None = None
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
        for over in list(self._foreign.values()):  # else the prompt would be merged into it (H50)
            await over.wait()
        current = self._turn = Turn(turn, asyncio.get_running_loop().create_future(), before=self._total)
        held = current.tell(prompt.inputs[0].id)
        self._before = strays.below(self._process)
        native = None
        try:
            answer = await self._ask("turn/start", **codex_items.message(prompt.inputs, prompt.note))
            native = str(answer["turn"]["id"])
            self._turns[native] = current
        except Rejected as error:
            raise Refused(f"Codex did not take this: {error.message}") from error
        except Uncertain:
            await self._process.kill()
            raise
        finally:
            self._acknowledge(current, native)
        self._spawn(self._watch(current))
        try:
            async with asyncio.timeout(self._patience.commit):
                await asyncio.shield(held)
        except TimeoutError:
            await self._process.kill()
            raise Uncertain(f"Codex did not show within {self._patience.commit:g} s that it holds this.") from None

    def _acknowledge(self, current: Turn, native: str | None) -> None:
        """The start came out: what was told meanwhile has its Turn, or never will have one."""
        if not current.native.done():
            current.native.set_result(native)
        if native is None:
            current.over.set()
            self._turn = None
        early, self._early = self._early, []
        for method, params in early:
            self._noticed(method, params)

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        current = self._turn
        native = await asyncio.shield(current.native) if current and current.id == turn else None
        if current is None or native is None or current.over.is_set():
            raise Refused("That Turn is over; Codex was told nothing.")
        held = current.tell(inputs[0].id)
        try:
            await self._ask("turn/steer", expectedTurnId=native, **codex_items.message(inputs, ""))
        except Rejected as error:
            raise Refused(f"Codex did not take this into its Turn: {error.message}") from error
        except Unavailable as error:
            raise Refused("Codex is gone and was told nothing.") from error
        if not await asyncio.shield(held):
            raise Refused("The Turn ended and Codex never held this.")

    async def interrupt(self, turn: TurnId) -> None:
        current = self._turn
        if current and current.id == turn:
            await self._stop(current.over, current)
        try:
            async with asyncio.timeout(self._patience.stop):
                await self._ask("thread/backgroundTerminals/clean")
                await strays.end(self._process, known=self._before, spared=HELPERS)
        except Unavailable:  # it is dead, and so are its tools
            return
        except (Rejected, Uncertain, TimeoutError):
            await self._kill()

    async def _stop(self, over: asyncio.Event, turn: Turn | str) -> None:
        """Interrupt until it is over; end the process when that does not happen in time (H45).

        Between acknowledgement and beginning Codex knows the turn under no id, and only `""` hits it: then nothing else
        can run or be about to."""
        try:
            async with asyncio.timeout(self._patience.stop):
                while not over.is_set():
                    native = turn if isinstance(turn, str) else turn.running
                    with suppress(Rejected, Uncertain, Unavailable):  # it begins or ends at this moment: look again
                        await self._ask("turn/interrupt", turnId=native)
                    await _within(over, AGAIN_SECONDS)
        except TimeoutError:
            await self._kill()

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        number = self._requests.pop(request, None)
        if number is not None:
            with suppress(Unavailable, Uncertain):  # it died with its question
                await self.peer.reply(number, {"decision": DECISIONS[verdict]})

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
        """Until its output ends. Then it is dead: what was not shown is unknown, and nothing more comes."""
        await self.peer.run()
        end = await self._process.after_lines()
        if self._turn:
            self._turn.lose(Uncertain(f"Codex {end.said} before it showed that it holds this."))
        for over in self._foreign.values():
            over.set()
        log.info("codex_ended", why=end.why, code=end.code)
        self._emit(Died(f"Codex {end.said}."))

    def _noticed(self, method: str, params: Line) -> None:
        if params.get("threadId", self.native_id) != self.native_id:
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            self._understand(method, params)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("codex_unreadable", method=method, error=type(error).__name__)

    def _understand(self, method: str, params: Line) -> None:
        native = str(params.get("turnId") or (params.get("turn") or {}).get("id") or "")
        known = native in self._turns or native in self._foreign
        if native and not known and self._turn and not self._turn.native.done():
            self._early.append((method, params))
            return
        match method:
            case "thread/tokenUsage/updated":
                self._count(native, params["tokenUsage"])
            case "thread/goal/updated" if params["goal"].get("status") == "active":
                self._spawn(self.pause_goal())  # nobody here granted it (H52)
            case "serverRequest/resolved":
                self._forget(params["requestId"])
            case _ if native in self._turns:
                self._follow(self._turns[native], method, params)
            case "turn/completed" if native in self._foreign:
                self._foreign.pop(native).set()
                self._emit(ForeignTurnEnded(native))
            case "turn/started" if not known:
                self._foreign[native] = asyncio.Event()
                self._emit(ForeignTurnBegan(native, "unasked"))
                self._spawn(self._reject(native))

    def _follow(self, turn: Turn, method: str, params: Line) -> None:
        match method:
            case "turn/started":
                turn.begun = True
            case "turn/completed":
                self._end(turn, params["turn"])
            case "item/completed" if params["item"].get("type") == "userMessage":
                turn.holds(str(params["item"].get("clientId")))
            case "item/started":
                self._tell(turn.open(codex_items.begun(turn.id, params["item"])))
            case "item/completed":
                turn.close(ItemId(str(params["item"]["id"])))
                self._tell(codex_items.done(turn.id, params["item"]))
            case "item/agentMessage/delta":
                self._emit(turn.stream(ItemId(str(params["itemId"])), str(params["delta"])))
            case "error" if params.get("willRetry"):
                self._emit(codex_items.retried(turn.id, params["error"]))

    def _end(self, turn: Turn, native: Line) -> None:
        if turn.over.is_set():
            return
        outcome = OUTCOMES.get(native.get("status", ""), Outcome.failed)
        reason, detail = codex_items.failure(native.get("error"))
        if turn.silent:
            outcome, reason = Outcome.failed, "silent"
            detail = f"No sign of life from the model for {self._patience.silence:g} s."
        for item in turn.end(outcome):
            self._emit(item)
        self._turn = None
        self._requests.clear()
        usage = turn.spent.usage() if turn.spent else None
        self._emit(TurnEnded(turn.id, outcome, reason, detail, usage))

    def _count(self, native: str, counted: Line) -> None:
        """Totals of the thread, told again at a resume under an old turn's id: never a sum of what is told."""
        total = codex_items.totals(counted["total"])
        if turn := self._turns.get(native):
            turn.count(total, codex_items.totals(counted["last"]))
        elif self._turn and self._turn.spent is None:
            self._turn.before = total
        self._total = total

    def _tell(self, event: ProviderEvent | None) -> None:
        if event:
            self._emit(event)

    # -- what it asks -------------------------------------------------------------------------------------------------

    def _asked(self, number: CallId, method: str, params: Line) -> None:
        turn = self._turns.get(str(params.get("turnId")))
        match method:
            case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" if turn is self._turn:
                assert turn
                request = RequestId(f"{turn.id}-{number}")  # Codex counts from 0 in each process, and a Turn has one
                self._requests[request] = number
                title, detail = codex_items.question(params, turn.opened(ItemId(str(params.get("itemId")))))
                self._emit(PermissionAsked(turn.id, request, title, detail))
            case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
                self._spawn(self.peer.reply(number, {"decision": "decline"}))  # of a turn that nobody asked for (G7)
            case _:
                self._spawn(self.peer.refuse(number, method))

    def _forget(self, number: CallId) -> None:
        self._requests = {request: asked for request, asked in self._requests.items() if asked != number}

    # -- what it begins by itself, or does not do ---------------------------------------------------------------------

    async def _reject(self, native: str) -> None:
        """A native turn that nobody asked for: its goal is paused, then it is interrupted."""
        await self.pause_goal()
        if over := self._foreign.get(native):
            await self._stop(over, native)

    async def pause_goal(self) -> None:
        """Let Codex continue nothing by itself. Also before the thread is loaded; without a goal it does nothing."""
        with suppress(Rejected):
            await self._ask("thread/goal/set", status="paused")

    async def _watch(self, turn: Turn) -> None:
        """End a Turn that can no longer end by itself; a running tool and an open question are no silence (T8)."""
        while not turn.over.is_set():
            now = asyncio.get_running_loop().time()
            since = now if turn.working or self._requests else self._heard
            if now - since >= self._patience.silence:
                turn.silent = True
                await self.interrupt(turn.id)
                return
            await _within(turn.over, since + self._patience.silence - now)

    async def _kill(self) -> None:
        await self._process.kill()
        await asyncio.shield(self._reading)

    async def _ask(self, method: str, **params: object) -> Line:
        about: Params = {"threadId": self.native_id, **params}
        return await self.peer.ask(method, about, seconds=self._patience.answer)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(_unless_dead(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _unless_dead(work: Coroutine[object, object, None]) -> None:
    with suppress(Unavailable, Uncertain):  # the process is gone, which is told as Died
        await work


def _nobody(_: ProviderEvent) -> None:
    """Hears what comes after close."""
