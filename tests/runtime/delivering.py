"""A deliverer in a world of its own: a Timeline to write on, a Feishu that remembers, and time that a test moves."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio.lowlevel

from amux.core import events as e
from amux.core.errors import Broken, Refused
from amux.core.ids import ItemId, SessionKey, TurnId
from amux.core.inputs import Input
from amux.core.session import State, fold
from amux.core.view import AskView, ReceiptView, TurnView
from amux.ports import Append, CardRow, Fence
from amux.runtime.attach import Attach
from amux.runtime.deliver import Deliver
from tests.build import said
from tests.fakes import BIRTH, FakeClock, Worker, World
from tests.runtime.feishu import FakeFeishu, FakeMessenger, Fuse
from tests.runtime.house import until

T1, T2 = TurnId(1), TurnId(2)
ONE, TWO = (said("user_a", id=f"feishu:cli_bot:om_{n}") for n in (1, 2))
BY_B = said("user_b", id="feishu:cli_bot:om_b")
LEASE = 15.0
LONG = "x" * 25  # of ten a card


DEADLY = {
    "the bot was removed": Refused("The bot is not in that chat any more: add it again."),
    "we called it wrongly": Broken("code 230001"),
}


@dataclass
class Now:
    """Time as deliver reads it, by the world's clock."""

    clock: FakeClock

    def time(self) -> float:
        return BIRTH + self.clock.now

    def monotonic(self) -> float:
        return self.clock.now


def render(view: TurnView | ReceiptView | AskView, nonce: str, *, shown: int) -> Sequence[Mapping[str, object]]:
    """What each view says, ten characters of an answer a card."""
    match view:
        case TurnView():
            answer = view.answer()
            end = f" {view.finished.outcome}" if view.finished else (" asks" if view.asking else "")
            parts = [answer[n : n + 10] for n in range(0, len(answer), 10)] if view.finished else [answer[-10:]]
            cards = [{"text": f"{part}{end if not n else ''}"} for n, part in enumerate(parts or [""])]
            return cards + [{"text": "nothing"}] * (shown - len(cards))
        case ReceiptView():
            return [{"text": f"{view.fate} {view.ahead}"}]
        case AskView():
            return [{"text": f"{view.title} {view.how} {nonce}"}]


@dataclass
class Room:
    """A Session with its Timeline, and Feishu."""

    world: World = field(default_factory=World)
    entities: bool = True  # whether the app may make them
    fence: Fence = field(init=False)
    session: SessionKey = field(init=False)
    feishu: FakeFeishu = field(init=False)
    ports: Worker = field(init=False)
    messenger: FakeMessenger = field(init=False)

    async def begin(self) -> None:
        self.feishu = FakeFeishu(Now(self.world.clock).time)
        self.session = self.world.session()
        opened = await Worker(self.world, "w1").timeline.open(self.session, "w1|t", worker="w1", young=False)
        assert opened
        self.fence = opened.fence

    async def write(self, *events: e.Event, accepts: Sequence[Input] = ()) -> None:
        """The owner appends."""
        ports = Worker(self.world, "owner")
        for one in accepts:
            await ports.inputs.journal(self.session, one)
        all_ = (*map(e.InputAccepted, accepts), *events)
        pairs = [(one.id, n) for n, one in enumerate(accepts, 1)]
        append = Append(all_, fold(all_, self.state()), pairs, shown=bool(accepts))
        self.fence = await ports.timeline.append(self.session, self.fence, append)

    def state(self) -> State:
        return fold(recorded.event for recorded in self.world.timeline[self.session])

    def silence(self) -> None:
        """Nothing was said for a while: readers look for themselves."""
        for queue in self.world.followers.get(self.session, ()):
            queue.put_nowait(())

    def deliverer(self, steps: int = 1_000_000, *, lease: float = LEASE) -> Deliver:
        """A new process; it is killed at that step."""
        self.ports = ports = Worker(self.world, "d1")
        fuse = Fuse(self.world, steps=steps)
        fuse.thawed.set()
        for port in (ports.timeline, ports.cards, ports.bindings):
            port.door = fuse
        ports.postgres = fuse
        self.messenger = FakeMessenger(self.feishu, fuse, entities=self.entities)
        attach = Attach(ports.timeline, ports.nudges)
        return Deliver(attach, ports.cards, ports.bindings, ports.waker, self.messenger, render, lease)

    async def deliver(self, steps: int = 1_000_000) -> None:
        await self.deliverer(steps).deliver(self.session)

    def row(self, slot: str) -> CardRow:
        return self.world.cards[self.session, slot]

    def owed(self) -> bool:
        return self.world.dues[self.session].open

    def texts(self, one: Input) -> list[object]:
        """What each of our messages that answer it shows."""
        return [self.feishu.text(m) for m in self.feishu.of(message_id(one))]

    def updates(self, slot: str) -> list[int]:
        return [sequence for name, where, sequence in self.messenger.calls if (name, where) == ("update", slot)]


async def settled() -> None:
    """Everybody has gone on as far as they can."""
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


def message_id(one: Input) -> str:
    return one.id.rpartition(":")[2]


def started(turn: TurnId, one: Input) -> e.Event:
    return e.TurnStarted(turn, (one.id,), e.Cause.input, one.authorization, (one.sender,), "codex")


def says(text: str, *, turn: TurnId = T1, status: e.ItemStatus = e.ItemStatus.completed) -> e.Event:
    return e.Item(turn, ItemId("m"), e.ItemType.message, status, text=text)


def ended(turn: TurnId = T1, outcome: e.Outcome = e.Outcome.completed) -> e.Event:
    return e.TurnFinished(turn, outcome)


async def over(room: Room, deliverer: asyncio.Task[None]) -> None:
    """Now, or a lease later, it has shown everything."""
    for _ in range(5):
        if not deliverer.done():
            await settled()
    room.world.clock.advance(LEASE)
    room.silence()
    await until(deliverer.done)
    await deliverer
    assert not room.owed()
