"""One card a Turn, whatever dies and whenever; nothing older lands last; what Feishu never takes stops nobody."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from amux.core import events as e
from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.core.ids import ItemId, RequestId, Seq, SessionKey, TurnId
from amux.core.inputs import Input, Verdict
from amux.core.session import State, fold
from amux.core.view import AskView, ReceiptView, TurnView
from amux.ports import Append, CardRow, Fence
from amux.runtime import deliver, failpoints
from amux.runtime.attach import Attach
from amux.runtime.deliver import INTERVAL, STEPS, UUID_HOUR, Deliver
from amux.runtime.sweep import PATIENCE, Sweep
from tests.build import TOPIC, rights, said
from tests.fakes import BIRTH, Crashed, FakeClock, Worker, World
from tests.runtime.feishu import FakeFeishu, FakeMessenger, Fuse
from tests.runtime.house import until

T1, T2 = TurnId(1), TurnId(2)
ONE, TWO = (said("user_a", id=f"feishu:cli_bot:om_{n}") for n in (1, 2))
BY_B = said("user_b", id="feishu:cli_bot:om_b")
LEASE = 15.0
LONG = "x" * 25  # of ten a card


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


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    room = Room()
    monkeypatch.setattr(deliver, "time", Now(room.world.clock))
    await room.begin()
    yield room
    failpoints.disarm()


@pytest.mark.rule("D2", "B11")
async def test_a_turn_is_one_card_that_ends_in_its_answer(room: Room) -> None:
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    await room.deliver()
    assert room.texts(ONE) == ["hello completed"]
    assert (room.row("turn:1").state, room.row("turn:1").message_id) == ("final", "om_sent_1")
    assert (room.owed(), room.world.dues[room.session].position) == (False, 4)


async def test_a_long_answer_goes_on_in_further_messages(room: Room) -> None:
    await room.write(started(T1, ONE), says(LONG), ended(), accepts=[ONE])
    await room.deliver()
    assert room.texts(ONE) == ["x" * 10 + " completed", "x" * 10, "x" * 5]
    assert [slot for _, slot in room.world.cards] == ["turn:1", "turn:1:2", "turn:1:3"]


@pytest.mark.parametrize("tenures", [1, 2], ids=["the same deliverer", "the next one"])
async def test_a_part_that_is_not_needed_any_more_does_not_keep_its_old_text(room: Room, tenures: int) -> None:
    """D2: the answer was shortened after its end was shown, by an item that came late."""
    queued = e.InputQueued((BY_B.id,), e.QueueReason.other_sender)
    await room.write(started(T1, ONE), queued, says(LONG), ended(), accepts=[ONE, BY_B])
    task = asyncio.create_task(room.deliver())
    await settled()
    assert room.texts(ONE) == ["x" * 10 + " completed", "x" * 10, "x" * 5]
    if tenures == 2:
        task.cancel()
        await asyncio.wait([task])
        task = asyncio.create_task(room.deliver())
        await settled()
    room.world.clock.advance(INTERVAL)
    await room.write(says("y" * 12))
    await settled()
    assert room.texts(ONE) == ["y" * 10 + " completed", "yy", "nothing"]
    room.world.clock.advance(INTERVAL)
    await room.write(says("short"), started(T2, BY_B), ended(T2))
    await until(task.done)
    assert room.texts(ONE) == ["short completed", "nothing", "nothing"]
    assert not room.owed()


async def test_the_topic_that_our_card_opened_leads_to_the_session(room: Room) -> None:
    starter = said(
        "user_a", id="feishu:cli_bot:om_9", authorization=rights("user_a", place=replace(TOPIC, thread=None))
    )
    await room.write(started(T1, starter), ended(), accepts=[starter])
    await room.deliver()
    assert room.world.aliases == [(TOPIC.binding, "omt_opened")]


# -- following --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def live(room: Room) -> AsyncIterator[Room]:
    """Turn 1 runs and its card is shown; a deliverer follows."""
    await room.write(started(T1, ONE), accepts=[ONE])
    task = asyncio.create_task(room.deliver())
    await settled()
    assert room.texts(ONE) == [""]
    yield room
    if open_ := room.state().turn:
        await room.write(ended(open_.id))
    room.world.clock.advance(INTERVAL)
    room.silence()
    await until(task.done)
    await task
    assert not room.owed()


async def test_progress_is_shown_at_most_once_an_interval(live: Room) -> None:
    for n in range(5):
        await live.write(says(f"word {n}", status=e.ItemStatus.started))
    live.silence()
    await settled()
    assert live.updates("turn:1") == []
    live.world.clock.advance(INTERVAL)
    live.silence()
    await until(lambda: live.texts(ONE) == ["word 4"])
    assert live.updates("turn:1") == [STEPS * 5 + 1]


@pytest.mark.rule("A3")
async def test_a_change_of_state_is_shown_at_once(live: Room) -> None:
    await live.write(e.PermissionRequested(T1, RequestId("1-1"), "git push"))
    await until(lambda: len(live.texts(ONE)) == 2)
    await settled()
    assert live.texts(ONE) == [" asks", f"git push None {live.row('ask:1-1').nonce}"]
    answered = e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.answered, Verdict.allow)
    await live.write(answered)
    await until(lambda: live.row("ask:1-1").state == "final")
    await until(lambda: live.texts(ONE)[0] == "")
    assert live.updates("ask:1-1") == [STEPS + 1]


async def test_sequences_grow_with_the_timeline(live: Room) -> None:
    for n in range(3):
        live.world.clock.advance(INTERVAL)
        await live.write(says(f"word {n}", status=e.ItemStatus.started))
        await settled()
        assert live.texts(ONE) == [f"word {n}"]
    assert live.updates("turn:1") == [STEPS * n + 1 for n in (1, 2, 3)]


@pytest.mark.rule("I4")
async def test_what_waits_is_told_and_its_receipt_follows_its_fate(live: Room) -> None:
    await live.write(e.InputQueued((BY_B.id,), e.QueueReason.other_sender), accepts=[BY_B])
    await until(lambda: live.texts(BY_B) == ["waiting 0"])
    await live.write(ended(), started(T2, BY_B), ended(T2))
    live.world.clock.advance(INTERVAL)
    live.silence()
    await until(lambda: live.texts(BY_B) == ["started 0", " completed"])


async def test_a_message_that_started_at_once_gets_no_receipt(room: Room) -> None:
    """What waited in nobody's sight did not wait."""
    queued = e.InputQueued((ONE.id,), e.QueueReason.no_running_turn)
    await room.write(queued, started(T1, ONE), ended(), accepts=[ONE])
    await room.deliver()
    assert list(room.world.cards) == [(room.session, "turn:1")]


@pytest.mark.rule("B11")
async def test_what_has_no_place_in_feishu_is_shown_nowhere(room: Room) -> None:
    by_cli = said("user_a", id="cli:user_a:1", authorization=rights("user_a", place=None))
    await room.write(started(T1, by_cli), says("hello"), ended(), accepts=[by_cli])
    await room.deliver()
    assert (room.feishu.messages, room.world.cards, room.owed()) == ([], {}, False)


# -- crashes ----------------------------------------------------------------------------------------------------------


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


async def crash_at(room: Room, place: str) -> None:
    def die() -> None:
        room.ports.postgres.crashed = True
        raise Crashed

    failpoints.arm(place, die)
    with pytest.raises(Crashed):
        await room.deliver()
    failpoints.disarm()


@pytest.mark.rule("T7")
@pytest.mark.parametrize("place", ["after_card_row", "after_send"])
@pytest.mark.parametrize("entities", [True, False], ids=["entity", "message"])
async def test_a_crash_makes_no_second_card(room: Room, place: str, entities: bool) -> None:
    """T7.b, H12: and the first one shows the end at once."""
    room.entities = entities
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    await crash_at(room, place)
    await room.write(ended())
    task = asyncio.create_task(room.deliver())
    await settled()
    assert room.texts(ONE) == ["hello completed"]
    await over(room, task)
    assert room.texts(ONE) == ["hello completed"]


@pytest.mark.rule("T7", "D2")
@pytest.mark.parametrize("entities", [True, False], ids=["entity", "message"])
@pytest.mark.parametrize("later", [0.0, INTERVAL, 2 * UUID_HOUR], ids=["at once", "soon", "after the uuid's hour"])
async def test_killed_at_any_step_the_next_deliverer_completes_each_card_once(
    room: Room, later: float, entities: bool
) -> None:
    """H12, H13: one message for each part, and the receipt, and the request; each shows its end."""
    ask = e.PermissionRequested(T1, RequestId("1-1"), "git push")
    waits = e.InputQueued((BY_B.id,), e.QueueReason.other_sender)
    for steps in range(1, 500):
        other = Room(room.world, entities)
        await other.begin()
        await other.write(started(T1, ONE_OF(steps)), ask, says(LONG), accepts=[ONE_OF(steps)])
        one, by_b = ONE_OF(steps), said("user_b", id=f"feishu:cli_bot:om_b{steps}")
        await other.write(e.InputQueued((by_b.id,), waits.reason), accepts=[by_b])
        await other.write(e.PermissionResolved(T1, RequestId("1-1"), e.Resolution.ended), ended())
        await other.write(started(T2, by_b), ended(T2))
        died = await killed_at(other, steps)
        room.world.clock.advance(later)
        await over(other, asyncio.create_task(other.deliver()))
        nonce = other.row("ask:1-1").nonce
        assert sorted(map(str, other.texts(one))) == sorted(
            [f"git push ended {nonce}", "x" * 10 + " completed", "x" * 10, "x" * 5]
        ), f"killed at step {steps}"
        assert other.texts(by_b) in ([" completed"], [" completed", "started 0"]), f"killed at step {steps}"
        if not died:
            return
    raise AssertionError("it never came to its end")


async def killed_at(room: Room, step: int) -> bool:
    """Whether its deliverer was killed before it had shown everything."""
    try:
        await over(room, asyncio.create_task(room.deliver(step)))
    except Crashed:
        return True
    return False


def ONE_OF(n: int) -> Input:  # noqa: N802
    return said("user_a", id=f"feishu:cli_bot:om_one{n}", at=n)


@pytest.mark.rule("T7")
async def test_a_thawed_deliverer_stops_and_leaves_the_newer_state(room: Room) -> None:
    """H12: frozen before its update; meanwhile another showed the end."""
    await room.write(started(T1, ONE), accepts=[ONE])
    old = asyncio.create_task(room.deliver())
    await settled()
    frozen, old_messenger = room.ports, room.messenger
    frozen.postgres.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    assert old_messenger.calls[-1][0] == "send"  # it stands before the door
    await room.write(ended())
    await room.deliver()
    assert room.texts(ONE) == ["older completed"]
    frozen.postgres.thawed.set()
    await until(old.done)
    await old
    assert room.texts(ONE) == ["older completed"]
    assert room.row("turn:1").state == "final"
    assert len(room.feishu.messages) == 1
    assert [name for name, *_ in old_messenger.calls].count("send") == 1


# -- cards that are no entities ---------------------------------------------------------------------------------------


def patching(room: Room) -> tuple[asyncio.Task[None], Fuse]:
    """A deliverer whose app may make no entities, and the door between it and Feishu."""
    room.entities = False
    house, door = room.deliverer(), Fuse(room.world)
    door.thawed.set()
    room.messenger.door = door
    return asyncio.create_task(house.deliver(room.session)), door


@pytest.mark.rule("D2")
async def test_an_end_without_an_entity_is_patched_again_after_a_lease(room: Room) -> None:
    """H12: frozen on its way to Feishu, it patched the end over when it thawed, and nobody else could know."""
    await room.write(started(T1, ONE), accepts=[ONE])
    frozen, door = patching(room)
    await settled()
    door.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    await room.write(ended())
    second, _ = patching(room)
    await settled()
    assert room.texts(ONE) == ["older completed"]
    door.thawed.set()
    await until(frozen.done)
    assert room.texts(ONE) == ["older"]
    assert room.owed()
    await over(room, second)
    assert room.texts(ONE) == ["older completed"]
    assert room.updates("turn:1") == [STEPS * 2 + 1, STEPS * 2 + 2]


async def test_who_dies_within_that_lease_leaves_it_to_the_next(room: Room) -> None:
    """H12: and what was patched again is not patched a third time."""
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    for expected in ([STEPS * 2 + 1], []):
        died, _ = patching(room)
        await settled()
        died.cancel()
        await asyncio.wait([died])
        assert (room.updates("turn:1"), room.owed()) == (expected, True)
    last, _ = patching(room)
    await settled()
    await over(room, last)
    assert room.updates("turn:1") == [STEPS * 2 + 2]
    room.world.dues[room.session].position = Seq(0)
    idle, _ = patching(room)
    await until(idle.done)
    assert room.messenger.calls == []


async def test_a_part_that_feishu_never_takes_is_not_patched_again(room: Room) -> None:
    await room.write(started(T1, ONE), says("x" * 15), ended(), accepts=[ONE])
    task, _ = patching(room)
    room.messenger.faults["make"] = [DEADLY["the bot was removed"]]
    await settled()
    await over(room, task)
    assert (room.updates("turn:1"), room.updates("turn:1:2")) == ([], [STEPS * 2 + 1, STEPS * 2 + 2])
    assert (room.row("turn:1").state, room.texts(ONE)) == ("dead", ["x" * 5])


async def test_a_thawed_deliverer_asks_its_fence_before_it_patches(room: Room) -> None:
    """H12: however long it was frozen."""
    await room.write(started(T1, ONE), accepts=[ONE])
    frozen, _ = patching(room)
    await settled()
    ports, its = room.ports, room.messenger
    before = list(its.calls)
    ports.postgres.thawed.clear()
    room.world.clock.advance(INTERVAL)
    await room.write(says("older"))
    await settled()
    await room.write(ended())
    second, _ = patching(room)
    await settled()
    await over(room, second)
    ports.postgres.thawed.set()
    await until(frozen.done)
    assert its.calls == before
    assert room.texts(ONE) == ["older completed"]


# -- signs of life ----------------------------------------------------------------------------------------------------


async def sweep(room: Room) -> list[SessionKey]:
    """Whom it asks for."""
    ports = Worker(room.world, "sweep")
    await Sweep(ports.inputs, ports.sessions, ports.cards, ports.leases, ports.waker).round()
    asked, room.world.delivers = room.world.delivers, []
    return asked


async def test_a_killed_deliverer_is_missed_when_its_lease_is_over(room: Room) -> None:
    """H11."""
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    killed = asyncio.create_task(room.deliver())
    await settled()
    room.ports.redis.crashed = room.ports.postgres.crashed = True
    killed.cancel()
    with pytest.raises(Crashed):
        await killed
    room.world.clock.advance(LEASE - 0.1)
    assert await sweep(room) == []
    room.world.clock.advance(0.2)
    assert await sweep(room) == [room.session]


@pytest.mark.parametrize("ending", ["cancelled", "busy"])
async def test_a_deliverer_that_ends_by_itself_is_missed_at_once(room: Room, ending: str) -> None:
    """A drained worker, or a Feishu that is flooded: nobody waits for a lease."""
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    house = room.deliverer()
    if ending == "busy":
        room.messenger.faults["send"] = [Unavailable("Feishu is flooded.")]
    task = asyncio.create_task(house.deliver(room.session))
    await settled()
    task.cancel()
    await asyncio.wait([task])
    room.world.clock.advance(PATIENCE + 0.1)
    assert await sweep(room) == [room.session]


async def test_a_deliverer_that_waits_long_for_feishu_is_not_missed(room: Room) -> None:
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    house = room.deliverer(lease=0.03)
    signs: asyncio.Queue[float] = asyncio.Queue()
    told = room.ports.waker.delivering

    async def delivering(session: SessionKey, *, seconds: float) -> None:
        await told(session, seconds=seconds)
        signs.put_nowait(seconds)

    room.ports.waker.delivering = delivering  # type: ignore[method-assign]
    door = room.messenger.door = Fuse(room.world)  # it stands still
    task = asyncio.create_task(house.deliver(room.session))
    async with asyncio.timeout(10):
        assert [await signs.get() for _ in range(4)] == [0.03] * 4
    door.thawed.set()
    await until(task.done)
    await task
    assert room.texts(ONE) == ["hello completed"]


async def test_a_thawed_deliverer_leaves_the_others_sign_of_life(room: Room) -> None:
    """Else the sweep would ask for a third, which would send the second away."""
    await room.write(started(T1, ONE), accepts=[ONE])
    old = asyncio.create_task(room.deliver())
    await settled()
    new = asyncio.create_task(room.deliver())
    await settled()
    room.world.clock.advance(INTERVAL + PATIENCE)
    await room.write(says("hello"))
    await until(old.done)
    await old
    assert await sweep(room) == []
    await room.write(ended())
    await until(new.done)
    await new


# -- what Feishu does not take ----------------------------------------------------------------------------------------

DEADLY = {
    "the bot was removed": Refused("The bot is not in that chat any more: add it again."),
    "we called it wrongly": Broken("code 230001"),
}


@pytest.mark.parametrize("call", ["make", "send", "update"])
@pytest.mark.parametrize("fault", DEADLY.values(), ids=DEADLY)
async def test_a_card_that_feishu_never_takes_is_given_up_and_the_others_go_on(
    room: Room, call: str, fault: Exception
) -> None:
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    first = room.deliverer()
    room.messenger.faults[call] = [fault]
    if call == "update":
        task = asyncio.create_task(first.deliver(room.session))
        await settled()
        await room.write(ended(), started(T2, TWO), ended(T2), accepts=[])
        await until(task.done)
    else:
        await room.write(ended())
        await room.write(started(T2, TWO), ended(T2), accepts=[TWO])
        await first.deliver(room.session)
    assert room.row("turn:1").state == "dead"
    assert room.texts(TWO) == [" completed"]
    assert not room.owed()


async def test_a_dead_card_is_not_tried_again(room: Room) -> None:
    await room.write(started(T1, ONE), says("hello"), accepts=[ONE])
    first = room.deliverer()
    room.messenger.faults["make"] = [DEADLY["the bot was removed"]]
    await room.write(ended())
    await first.deliver(room.session)
    room.world.dues[room.session].position = Seq(0)
    await room.deliver()
    assert (room.messenger.calls, room.feishu.messages) == ([], [])


@pytest.mark.parametrize(
    "fault",
    [
        Unavailable("Feishu is flooded."),
        Refused("bad secret", key="bad_credentials"),
        Refused("grant it", key="missing_scope"),
    ],
    ids=["busy", "bad credentials", "missing scope"],
)
async def test_what_can_be_mended_is_owed_until_it_is(room: Room, fault: Exception) -> None:
    """A person must act, or Feishu be less busy: the card waits for it, and the sweep asks again."""
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    first = room.deliverer()
    room.messenger.faults["send"] = [fault]
    await first.deliver(room.session)
    assert (room.owed(), room.feishu.messages) == (True, [])
    await room.deliver()
    assert room.texts(ONE) == ["hello completed"]
    assert not room.owed()


async def test_a_card_that_feishu_does_not_take_now_keeps_no_other_waiting(room: Room) -> None:
    """D2: it would be the first again in every tenure. What is told is why the first of them was not shown."""
    three = [(TurnId(n), said("user_a", id=f"feishu:cli_bot:om_{n}")) for n in (1, 2, 3)]
    for turn, one in three:
        await room.write(started(turn, one), ended(turn), accepts=[one])
    first = room.deliverer()
    room.messenger.faults["send"] = [Uncertain("no answer"), Unavailable("flooded")]
    with capture_logs() as lines:
        await first.deliver(room.session)
    assert [line["why"] for line in lines if line["event"] == "not_delivered"] == ["no answer"]
    assert [room.texts(one) for _, one in three] == [[], [], [" completed"]]
    assert room.owed()
    await room.deliver()
    assert [room.texts(one) for _, one in three] == [[" completed"]] * 3
    assert not room.owed()


async def test_cards_that_are_due_at_once_are_sent_in_the_order_of_the_timeline(room: Room) -> None:
    """B11: the tenth Turn's behind the ninth's, and a receipt where its message was queued."""
    many = [(TurnId(n), said("user_a", id=f"feishu:cli_bot:om_{n}")) for n in range(1, 12)]
    for turn, one in many:
        await room.write(started(turn, one), ended(turn), accepts=[one])
    await room.write(e.InputQueued((BY_B.id,), e.QueueReason.other_sender), accepts=[BY_B])
    task = asyncio.create_task(room.deliver())
    await until(lambda: len(room.feishu.messages) == len(many) + 1)
    assert [m.reply_to for m in room.feishu.messages] == [*(message_id(one) for _, one in many), message_id(BY_B)]
    last = TurnId(12)
    await room.write(started(last, BY_B), ended(last))
    await over(room, task)


async def test_postgres_away_leaves_it_owed(room: Room) -> None:
    await room.write(started(T1, ONE), says("hello"), ended(), accepts=[ONE])
    room.world.postgres_away = True
    await room.deliver()
    room.world.postgres_away = False
    assert room.owed()
    await room.deliver()
    assert room.texts(ONE) == ["hello completed"]


@pytest.mark.rule("D2")
async def test_without_redis_cards_are_shown_all_the_same(live: Room) -> None:
    live.world.redis_away = True
    live.world.clock.advance(LEASE)
    await live.write(says("hello"))
    live.silence()  # its nudge is lost
    await until(lambda: live.texts(ONE) == ["hello"])


async def test_what_a_failed_delivery_showed_already_is_not_shown_again(room: Room) -> None:
    await room.write(started(T1, ONE), says(LONG), ended(), accepts=[ONE])
    first = room.deliverer()
    room.messenger.faults["make"] = []
    room.messenger.faults["send"] = []

    sends = 0
    send = room.messenger.send_card

    async def third_fails(row: CardRow, card: Mapping[str, object]) -> CardRow:
        nonlocal sends
        sends += 1
        if sends == 3:
            raise Unavailable("flooded")
        return await send(row, card)

    room.messenger.send_card = third_fails  # type: ignore[method-assign]
    await first.deliver(room.session)
    assert len(room.feishu.messages) == 2
    await room.deliver()
    assert room.texts(ONE) == ["x" * 10 + " completed", "x" * 10, "x" * 5]
