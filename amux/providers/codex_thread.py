"""One Codex thread in conversation: Turns, steers, the stop procedure, answers, summaries.

An acknowledgement of Codex is no promise: an input is held only once its `userMessage` is shown as completed, under the
id that it was sent with. A native turn has one end, `turn/completed`. Nothing is ever sent twice, and what Codex does
not do in time is ended with its whole process tree."""

import asyncio
from contextlib import suppress

from amux.extensions import (
    Emit,
    Input,
    Prompt,
    Refused,
    RequestId,
    TurnId,
    Unavailable,
    Uncertain,
    Verdict,
)
from amux.providers import codex_items, strays
from amux.providers.audience import Audience
from amux.providers.codex_told import Question, Told
from amux.providers.codex_turn import Patience, Turn
from amux.providers.compacting import Compacting
from amux.providers.jsonrpc import CallId, Peer
from amux.providers.life import Life, unless_dead, within
from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.unanswered import Rejected

DECISIONS = {Verdict.allow: "accept", Verdict.always: "acceptForSession", Verdict.deny: "decline"}
HELPERS = frozenset({"codex-code-mode-host"})  # Codex's own, which it does not start again
AGAIN_SECONDS = 0.05  # between two looks at something that is about to happen
LEAVING_SECONDS = 2.0  # Codex ends within 0.1 s of being asked


class Thread:
    """A Conversation, and its own Steering and Compaction. Made and opened by `codex`."""

    def __init__(self, process: Process, patience: Patience) -> None:
        self.steering: Thread | None = self
        self.compaction: Thread | None = self
        self._process, self._patience, self._audience = process, patience, Audience()
        self._told = Told(self, self._audience)
        self.peer = Peer(process, notice=self._told.noticed, asked=self._told.asked)
        self._before: frozenset[int] = frozenset()  # what ran when the Turn began
        self._waiting: Turn | None = None  # for a foreign turn's end, before it begins
        self._life = Life(process, self.peer.run, died=self._told.died)

    @property
    def native_id(self) -> str:
        """The thread's id, by which it is resumed."""
        return self._told.native_id

    @native_id.setter
    def native_id(self, native_id: str) -> None:
        self._told.native_id = native_id

    @property
    def pid(self) -> int:
        """The agent's own process."""
        return self._process.pid

    def hand_over(self, emit: Emit) -> None:
        """It is open: tell what came meanwhile, and from now on at once."""
        self._audience.hand_over(emit)

    # -- what it is asked to do ---------------------------------------------------------------------------------------

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        current = self._waiting = Turn(turn, asyncio.get_running_loop().create_future())
        for over in list(self._told.foreign.values()):  # else the prompt would be merged into it (H50)
            await over.wait()
        if current.over.is_set():  # stopped meanwhile
            return
        self._waiting, current.before = None, self._told.total
        held = current.tell(prompt.inputs[0].id)
        self._before = strays.below(self._process)
        self._told.begin(current)
        native = None
        try:
            answer = await self._ask("turn/start", **codex_items.message(prompt.inputs, prompt.note))
            native = str(answer["turn"]["id"])
        except Rejected as error:
            raise Refused(f"Codex did not take this: {error.message}") from error
        except Uncertain:
            await self._process.kill()
            raise
        finally:
            self._told.acknowledge(current, native)
        await self._until_held(held)

    async def _until_held(self, held: asyncio.Future[bool]) -> None:
        """A Turn that ends before it holds its prompt has told its end, and that is answer enough."""
        try:
            async with asyncio.timeout(self._patience.commit):
                await asyncio.shield(held)
        except TimeoutError:
            await self._process.kill()
            raise Uncertain(f"Codex did not show within {self._patience.commit:g} s that it holds this.") from None

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        current = self._told.turn
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

    async def compact(self) -> None:
        await self.pause_goal()  # which it would wake (H52)
        for over in list(self._told.foreign.values()):  # else it would end that one, and be taken for it
            await over.wait()
        summary = self._told.compacting = Compacting("Codex")
        try:
            await self._ask("thread/compact/start")
            await summary.outcome(begin=self._patience.commit, silence=self._patience.summary)
        except Rejected as error:
            raise Refused(f"Codex did not take this: {error.message}") from error
        finally:
            self._told.compacting = None

    async def interrupt(self, turn: TurnId) -> None:
        if self._waiting and self._waiting.id == turn:  # Codex was told nothing of it, and nothing of it runs
            self._waiting.over.set()
            return
        current = self._told.turn
        if current and current.id != turn:  # the tools that run are another's
            return
        try:
            async with asyncio.timeout(self._patience.stop):
                if current and (native := await asyncio.shield(current.native)):
                    await self._stop(native, current.over)
                await self._ask("thread/backgroundTerminals/clean")
                await strays.end(self._process, known=self._before, spared=HELPERS)
        except Unavailable:  # it is dead, and so are its tools
            return
        except (Rejected, Uncertain, TimeoutError):
            await self._life.kill()

    async def _stop(self, native: str, over: asyncio.Event) -> None:
        """Ask until it is over; the caller sets the deadline. While a turn begins, Codex denies that it runs (H45)."""
        while not over.is_set():
            with suppress(Rejected):
                await self._ask("turn/interrupt", turnId=native)
            await within(over, AGAIN_SECONDS)

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        if question := self._told.take(request):
            await unless_dead(self.peer.reply(question.number, _answered(question, verdict)))

    async def close(self) -> None:
        self._audience.leave()
        await self._life.close(seconds=LEAVING_SECONDS)

    # -- what it does by itself ---------------------------------------------------------------------------------------

    def reject(self, native: str) -> None:
        self._life.beside(self._reject(native))

    def rest(self) -> None:
        self._life.beside(self.pause_goal())

    def decline(self, question: Question) -> None:
        self._life.beside(self.peer.reply(question.number, _answered(question, Verdict.deny)))

    def refuse(self, number: CallId, method: str) -> None:
        self._life.beside(self.peer.refuse(number, method))

    async def _reject(self, native: str) -> None:
        try:
            async with asyncio.timeout(self._patience.stop):
                await self.pause_goal()  # first, or it would begin the next one
                if over := self._told.foreign.get(native):
                    await self._stop(native, over)
        except (Uncertain, TimeoutError):
            await self._life.kill()

    async def pause_goal(self) -> None:
        """Let Codex continue nothing by itself. Also before the thread is loaded; without a goal it does nothing."""
        with suppress(Rejected):
            await self._ask("thread/goal/set", status="paused")

    async def _ask(self, method: str, **params: object) -> Line:
        about = {"threadId": self.native_id, **params}
        return await self.peer.ask(method, about, seconds=self._patience.answer)


def _answered(question: Question, verdict: Verdict) -> dict[str, object]:
    """A person's word as Codex wants it: always is for this conversation alone."""
    if not question.of_server:
        return {"decision": DECISIONS[verdict]}
    if verdict is Verdict.deny:
        return {"action": "decline"}
    persist = {"_meta": {"persist": "session"}} if verdict is Verdict.always else {}
    return {"action": "accept", "content": {}, **persist}
