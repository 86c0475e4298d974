"""Catch up, then follow: each event once and in order, whichever nudges are lost, doubled or late."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amux.core import events as e
from amux.core.ids import ItemId, Seq, SessionKey, TurnId
from amux.core.session import fold
from amux.ports import Append, Fence, Recorded
from amux.runtime import attach as module
from amux.runtime.attach import Attach
from tests.build import rights, said
from tests.fakes import Worker, World


@dataclass
class Room:
    """A Session that grows, and its readers. With `lossy` no nudge comes by itself: the test hands them out."""

    world: World = field(default_factory=World)
    lossy: bool = False
    nudges: list[Sequence[Recorded]] = field(default_factory=list)
    session: SessionKey = field(init=False)
    fence: Fence = field(init=False)

    async def begin(self) -> "Room":
        self.session = self.world.session()
        opened = await Worker(self.world, "w1").timeline.open(self.session, "w1|t", worker="w1", young=False)
        assert opened
        self.fence = opened.fence
        return self

    async def append(self, *events: e.Event) -> None:
        log = self.world.timeline[self.session]
        state = fold([*(r.event for r in log), *events])
        self.world.redis_away = self.lossy
        after = self.fence.head
        self.fence = await Worker(self.world, "w1").timeline.append(self.session, self.fence, Append(events, state))
        self.world.redis_away = False
        self.nudges.append(log[after:])

    async def grow(self, count: int) -> None:
        first = self.fence.head
        await self.append(*(e.Delta(TurnId(1), ItemId("m"), n, "x") for n in range(first, first + count)))

    def hand(self, nudge: Sequence[Recorded]) -> None:
        for queue in self.world.followers.get(self.session, ()):
            queue.put_nowait(nudge)

    def reader(self, after: int = 0) -> AsyncGenerator[Sequence[Recorded], None]:
        ports = Worker(self.world, "web")
        return Attach(ports.timeline, ports.nudges).follow(self.session, Seq(after))

    async def seen(self, reader: AsyncGenerator[Sequence[Recorded], None], through: int) -> list[int]:
        """The seqs it yields until that one, or nothing more comes."""
        seqs: list[int] = []
        while not seqs or seqs[-1] < through:
            seqs += [recorded.seq for recorded in await anext(reader)]
        return seqs


def upto(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@pytest.mark.rule("T5")
async def test_attached_while_a_thousand_are_appended_each_is_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """T5.a; more than one page was missed."""
    monkeypatch.setattr(module, "PAGE", 100)
    room = await Room().begin()
    await room.grow(500)
    async with contextlib.aclosing(room.reader(after=120)) as reader:
        first = await anext(reader)
        assert [r.seq for r in first] == upto(121, 500)
        for _ in range(50):
            await room.grow(10)
        assert await room.seen(reader, 1_000) == upto(501, 1_000)


@pytest.mark.rule("T5")
async def test_killed_and_attached_again_at_its_last_seq_it_misses_nothing() -> None:
    room = await Room().begin()
    await room.grow(10)
    seen: list[int] = []
    for _ in range(5):
        async with contextlib.aclosing(room.reader(after=len(seen))) as reader:
            seen += [r.seq for r in await anext(reader)]
            await room.grow(7)
            if len(seen) % 2:  # killed before, or after it saw the news
                seen += [r.seq for r in await anext(reader)]
    assert seen == upto(1, len(seen))
    assert room.world.followers[room.session] == []


async def nothing_is_missed(acts: list[tuple[str, int]]) -> None:
    room = await Room(lossy=True).begin()
    await room.grow(3)
    seen: list[int] = []
    async with contextlib.aclosing(room.reader(after=1)) as reader:
        seen += [r.seq for r in await anext(reader)]
        for act, number in acts:
            match act:
                case "grow":
                    await room.grow(number + 1)
                    continue
                case "nudge":  # any of them: doubled, late, out of turn; what is never drawn is lost
                    room.hand(room.nudges[number % len(room.nudges)])
                case _:
                    room.hand(())
            seen += [r.seq for r in await anext(reader)]
            assert seen == upto(2, len(seen) + 1)
        room.hand(())
        seen += [r.seq for r in await anext(reader)]
    assert seen == upto(2, room.fence.head)


@pytest.mark.rule("T5", "T7")
@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["grow", "nudge", "nudge", "silence"]), st.integers(0, 20)), max_size=25))
def test_any_loss_doubling_and_delay_of_nudges_is_mended(acts: list[tuple[str, int]]) -> None:
    """T5.a: a silence makes a reader look for itself."""
    asyncio.run(nothing_is_missed(acts))


@pytest.mark.rule("T5")
@pytest.mark.parametrize("moment", ["before the end", "after it"])
async def test_a_tail_begins_with_the_running_turn_or_behind_its_end(moment: str) -> None:
    """T5.b: one atomic read; never a snapshot whose end is missed."""
    room = await Room().begin()
    one = said("user_a")
    started = e.TurnStarted(TurnId(1), (one.id,), e.Cause.input, rights("user_a"))
    await room.append(started)
    await room.grow(5)
    ended = e.TurnFinished(TurnId(1), e.Outcome.completed)
    if moment == "after it":
        await room.append(ended)
    ports = Worker(room.world, "web")
    head = await Attach(ports.timeline, ports.nudges).head(room.session)
    if moment == "before the end":
        assert head.started and (head.started.event, head.seq, head.label) == (started, 6, e.Label.running)
        await room.append(ended)
        async with contextlib.aclosing(room.reader(after=head.started.seq)) as reader:
            assert (await anext(reader))[-1].event == ended
    else:
        assert (head.started, head.seq, head.label) == (None, 7, e.Label.idle)


async def test_an_empty_session_is_followed_from_its_first_event() -> None:
    room = await Room().begin()
    async with contextlib.aclosing(room.reader()) as reader:
        assert list(await anext(reader)) == []
        await room.grow(2)
        assert await room.seen(reader, 2) == [1, 2]
