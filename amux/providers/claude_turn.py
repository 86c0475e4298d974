"""One Turn on Claude Code, as far as it is known: what was said in it and what became of each, its native turns, its cost.

A Turn may span several native turns: a steer that comes after the last tool becomes one of its own (H48). It is over when
none runs and nothing that was said is still on its way. Kept by `claude_dialogue`, which talks; nothing is sent here."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from amux.extensions import Input, InputId, Outcome, TurnId, Uncertain, Usage
from amux.providers.claude_live import Live


@dataclass(frozen=True, slots=True)
class Patience:
    """How long Claude may take, in seconds: to open, to answer, to acknowledge an input, to begin a prompt, and to be quiet
    after an interrupt; and how long it may be silent over a summary, of which it shows nothing until it is done."""

    opening: float = 30.0
    answer: float = 10.0
    receipt: float = 5.0
    commit: float = 60.0
    stop: float = 10.0
    summary: float = 300.0


PATIENCE = Patience()


@dataclass(slots=True, eq=False)
class Said:
    """One native message. `held` comes out True when a native turn takes it in, False when none ever will; `seen` once the
    model has begun to answer with it; `closed` once nothing more can become of it."""

    inputs: tuple[InputId, ...]
    queued: asyncio.Event
    held: asyncio.Future[bool]
    seen: bool = False
    closed: bool = False

    @property
    def started(self) -> bool:
        return self.held.done() and not self.held.cancelled() and not self.held.exception() and self.held.result()

    def drop(self) -> None:
        """No native turn takes it in any more."""
        self.closed = True
        self.queued.set()
        if not self.held.done():
            self.held.set_result(False)


@dataclass(slots=True, eq=False)
class Turn:
    """`running` while a native turn of its own runs; `stopping` once somebody wants it to end."""

    id: TurnId
    live: Live
    over: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    running: bool = False
    stopping: bool = False
    ended: tuple[Outcome, str] | None = None
    spent: Usage | None = None
    said: dict[str, Said] = field(default_factory=dict)

    def tell(self, uuid: str, inputs: tuple[Input, ...]) -> Said:
        """Register what is about to be sent."""
        held: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.said[uuid] = Said(tuple(i.id for i in inputs), asyncio.Event(), held)
        return self.said[uuid]

    def start(self, said: Said) -> None:
        """A native turn takes it in: the point from which it is in the history."""
        self.running = True
        said.queued.set()
        if not said.held.done():
            said.held.set_result(True)
        if self.stopping:
            self.moved.set()

    def answering(self) -> None:
        """The model is told all that was taken in so far."""
        for said in self.said.values():
            said.seen = said.seen or said.started

    def result(self, listed: Iterable[str], ended: tuple[Outcome, str], spent: Usage) -> None:
        """A native turn is over, and with it all that it had taken in. `listed` is its own word for what that was."""
        self.ended = ended
        before = self.spent or Usage()
        self.spent = Usage(
            before.input_tokens + spent.input_tokens,
            before.cached_tokens + spent.cached_tokens,
            before.output_tokens + spent.output_tokens,
        )
        for said in (self.said[uuid] for uuid in listed if uuid in self.said):
            self.start(said)
        self.running = False
        for said in self.said.values():
            said.closed = said.closed or said.started

    @property
    def quiet(self) -> bool:
        """Nothing of it runs, and nothing that was said is still on its way."""
        return not self.running and all(said.closed for said in self.said.values())

    def unhandled(self) -> tuple[InputId, ...]:
        """What was steered in and taken, but too late for the model to answer with it (I6)."""
        steered = list(self.said.values())[1:]
        return tuple(name for said in steered if said.started and not said.seen for name in said.inputs)

    def close(self) -> None:
        """It is over; what it has not taken in it never will."""
        self.over.set()
        self.moved.set()
        for said in self.said.values():
            said.drop()

    def lose(self, why: str) -> None:
        """The process is gone, and with it the answer to what was said and not yet taken in."""
        self.over.set()
        self.moved.set()
        for said in self.said.values():
            said.queued.set()
            if not said.held.done():
                said.held.set_exception(Uncertain(why))
                said.held.exception()  # whoever waits is told; nobody has to
