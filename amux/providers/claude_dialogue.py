"""One Claude Code conversation, and what it is asked to do: Turns, steers, the stop procedure, answers, summaries.

A write says nothing: what was sent is followed by its uuid until Claude tells its fate, which `claude_told` understands.
Claude's queue holds only what was steered into the running Turn. Nothing is ever sent twice, and what Claude does not do in
time is ended with its whole process tree."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

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
from amux.providers import claude_items, strays
from amux.providers.audience import Audience
from amux.providers.claude_control import Control
from amux.providers.claude_live import Live
from amux.providers.claude_told import Told
from amux.providers.claude_turn import Patience, Said, Turn
from amux.providers.compacting import Compacting
from amux.providers.life import Life, unless_dead, within
from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.unanswered import Rejected

AGAIN_SECONDS = 0.2  # between two interrupts of something that is about to begin or to end
LEAVING_SECONDS = 3.0  # Claude kills its tools and ends within 0.4 s of being asked


class Dialogue:
    """A Conversation, and its own Steering and Compaction. Made and opened by `claude`. `used` is called once something was
    said in it; `hide` takes secrets out of a text for people."""

    def __init__(
        self,
        process: Process,
        native_id: str,
        patience: Patience,
        *,
        used: Callable[[], None],
        hide: Callable[[str], str],
    ) -> None:
        self.native_id = native_id
        self.steering: Dialogue | None = self
        self.compaction: Dialogue | None = self
        self._audience = Audience()
        self.told = Told(self, self._audience, hide=hide)
        self.control = Control(process, frame=self.told.frame, asked=self.told.asked, withdrawn=self.told.withdrawn)
        self._process, self._patience, self._used = process, patience, used
        self._before: frozenset[int] = frozenset()  # what ran when the Turn began
        self._life = Life(process, self.control.run, died=self.told.lose)

    @property
    def pid(self) -> int:
        """The agent's own process."""
        return self._process.pid

    def hand_over(self, emit: Emit) -> None:
        """It is open: tell what came meanwhile, and from now on at once."""
        self._audience.hand_over(emit)

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        current = Turn(turn, Live(turn))
        self.told.begin(current)
        await self.told.foreign_over.wait()  # else the prompt would be taken into it (H55)
        if current.over.is_set():
            return
        self._before = strays.below(self._process)
        if await self._held(current, prompt):
            self._used()
        elif not current.over.is_set():  # one that was stopped before it began has told its end
            self.told.turn = None
            current.close()
            raise Refused("Claude did not take this.")

    async def _held(self, current: Turn, prompt: Prompt) -> bool:
        try:
            said = await self._say(current, prompt.inputs, prompt.note)
            async with asyncio.timeout(self._patience.commit):
                return await asyncio.shield(said.held)
        except Unavailable:
            self.told.turn = None
            raise
        except Uncertain:
            await self._life.kill()
            raise
        except TimeoutError:
            await self._life.kill()
            raise Uncertain(f"Claude did not begin within {self._patience.commit:g} s.") from None

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        current = self.told.turn
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
            self.told.settle()
            raise
        if not await within(said.queued, self._patience.receipt):
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
        self.told.settle()
        if answer.get("cancelled") is not True:
            raise Uncertain(f"Claude did not acknowledge this within {self._patience.receipt:g} s.")

    async def compact(self) -> None:
        await self.told.foreign_over.wait()
        uuid = str(uuid4())
        summary = self.told.compacting = Compacting("Claude", uuid)
        try:
            await self.control.say(claude_items.compact(uuid))
            await summary.outcome(begin=self._patience.commit, silence=self._patience.summary)
        finally:
            self.told.compacting = None

    async def interrupt(self, turn: TurnId) -> None:
        current = self.told.turn
        if current and current.id == turn:
            current.stopping = True
            self.told.settle()
            await self._stop(current.over, current.moved, cancel_queued=True)
        try:
            async with asyncio.timeout(self._patience.stop):
                await strays.end(self._process, known=self._before, spared=frozenset())
        except TimeoutError:
            await self._life.kill()

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
                        await within(moved, AGAIN_SECONDS)
        except TimeoutError:
            await self._life.kill()

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        if asked := self.told.requests.pop(request, None):
            number, about = asked
            await unless_dead(self.control.reply(number, claude_items.verdict(about, verdict)))

    async def close(self) -> None:
        self._audience.leave()
        await self._life.close(seconds=LEAVING_SECONDS)

    # -- what has to be done about what it tells ----------------------------------------------------------------------

    def stop_foreign(self) -> None:
        """What waits in the queue stays there: it is a Turn's, which is not to be stopped."""
        self._life.beside(self._stop(self.told.foreign_over, asyncio.Event()))

    def reply(self, number: str, result: dict[str, object]) -> None:
        self._life.beside(self.control.reply(number, result))

    def refuse(self, number: str, subtype: str) -> None:
        self._life.beside(self.control.refuse(number, subtype))
