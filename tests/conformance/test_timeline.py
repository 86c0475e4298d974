"""Only a Fence writes, once; what is read is what was written."""

from dataclasses import replace

import pytest

from amux.core.errors import Broken, Refused, Stale
from amux.core.events import (
    Cause,
    Event,
    InputAccepted,
    InputQueued,
    Item,
    ItemStatus,
    ItemType,
    Label,
    Outcome,
    OwnerOpened,
    QueueReason,
    TurnFinished,
    TurnStarted,
)
from amux.core.ids import Epoch, ItemId, Seq, SessionKey, TurnId
from amux.core.session import State, fold
from amux.ports import Append, Fence, Head, OpenedTimeline
from tests.conformance.sides import Process, Side


def step(state: State, *events: Event, **more: object) -> Append:
    return Append(events, fold(events, state), **more)  # type: ignore[arg-type]


def started(turn: int = 1) -> TurnStarted:
    return TurnStarted(TurnId(turn), (), Cause.input)


def finished(turn: int = 1, outcome: Outcome = Outcome.completed) -> TurnFinished:
    return TurnFinished(TurnId(turn), outcome)


def item(text: str) -> Item:
    return Item(TurnId(1), ItemId("m"), ItemType.message, ItemStatus.completed, text=text)


async def opened(process: Process, key: SessionKey, token: str = "a|1") -> OpenedTimeline:
    answer = await process.timeline.open(key, token, worker=token[0], young=False)
    assert answer
    return answer


async def events(side: Side, key: SessionKey, after: int = 0) -> list[Event]:
    return [r.event for r in await side.a.timeline.read(key, Seq(after), limit=10_000)]


async def test_an_owner_gets_the_whole_session(side: Side) -> None:
    journaled = await side.launch()
    key = journaled.session
    first = await opened(side.a, key)
    assert (first.fence, first.state) == (Fence(Epoch(1), "a|1", Seq(0)), State())
    assert list(first.journal) == [journaled.said]
    assert (first.session.key, first.session.owner, first.session.title) == (key, "a", "a title")
    queued = InputQueued((journaled.said.id,), QueueReason.no_running_turn)
    done = step(first.state, InputAccepted(journaled.said), queued, accepts=((journaled.said.id, 1),))  # type: ignore[arg-type]
    fence = await side.a.timeline.append(key, first.fence, done)
    assert fence == Fence(Epoch(1), "a|1", Seq(2))
    second = await opened(side.b, key, "b|2")
    assert (second.fence, second.state, list(second.journal)) == (Fence(Epoch(2), "b|2", Seq(2)), done.state, [])


async def test_what_is_read_is_what_was_written(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    written = (OwnerOpened(Epoch(1), "a"), started(), item('quotes " \\ {,} \n and 中文 \x1e \x7f'), finished())
    await side.a.timeline.append(key, owner.fence, step(owner.state, *written))
    read = await side.b.timeline.read(key, Seq(0), limit=10)
    assert [r.event for r in read] == list(written)
    assert [r.seq for r in read] == [1, 2, 3, 4]
    assert len({r.at for r in read}) == 1
    assert [r.event for r in await side.b.timeline.read(key, Seq(1), limit=2)] == list(written[1:3])


async def test_a_long_timeline_is_read_whole(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    written = [item(f"number {n}") for n in range(1_300)]
    await side.a.timeline.append(key, owner.fence, step(owner.state, *written))
    for after, limit in (
        (0, 2_000),
        (0, 1_300),
        (0, 1_001),
        (1, 1_000),
        (299, 500),
        (799, 501),
        (1_299, 10),
        (1_300, 10),
    ):
        read = await side.b.timeline.read(key, Seq(after), limit=limit)
        assert [r.event for r in read] == written[after : after + limit]
        assert [r.seq for r in read] == list(range(after + 1, min(after + limit, 1_300) + 1))


async def test_a_lone_surrogate_is_mended(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    await side.a.timeline.append(key, owner.fence, step(owner.state, item("x\ud800y")))
    assert await events(side, key) == [item("x\ufffdy")]


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": Epoch(2)},
        {"token": "b|9"},  # the epoch alone may repeat after a failover (H2)
        {"head": Seq(1)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_another_fence_writes_nothing(side: Side, change: dict[str, object]) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    with pytest.raises(Stale):
        await side.a.timeline.append(key, replace(owner.fence, **change), step(owner.state, started()))  # type: ignore[arg-type]
    assert await events(side, key) == []


async def test_an_old_owner_writes_nothing_after_the_new_one_opened(side: Side) -> None:
    key = await side.session()
    old = await opened(side.a, key)
    new = await opened(side.b, key, "b|2")
    with pytest.raises(Stale):
        await side.a.timeline.append(key, old.fence, step(old.state, started()))
    await side.b.timeline.append(key, new.fence, step(new.state, started()))
    assert await events(side, key) == [started()]


async def test_the_same_append_asked_again_stands_once(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    first = step(owner.state, started())
    fence = await side.a.timeline.append(key, owner.fence, first)
    assert await side.a.timeline.append(key, owner.fence, first) == fence
    with pytest.raises(Stale):
        await side.a.timeline.append(key, owner.fence, step(owner.state, item("another")))
    assert await events(side, key) == [started()]


async def test_an_input_is_accepted_once(side: Side) -> None:
    journaled = await side.launch()
    key, said = journaled.session, journaled.said
    owner = await opened(side.a, key)
    accept = step(owner.state, InputAccepted(said), accepts=((said.id, 1),))  # type: ignore[arg-type]
    fence = await side.a.timeline.append(key, owner.fence, accept)
    with pytest.raises(Stale):
        await side.a.timeline.append(key, fence, accept)
    assert len(await events(side, key)) == 1
    assert list(await side.a.inputs.unaccepted(key)) == []


async def test_an_owner_accepts_no_input_of_another_session(side: Side) -> None:
    key, other = await side.session(), await side.launch()
    owner = await opened(side.a, key)
    said = other.said
    with pytest.raises(Stale):
        await side.a.timeline.append(key, owner.fence, step(owner.state, InputAccepted(said), accepts=((said.id, 1),)))  # type: ignore[arg-type]
    assert list(await side.a.inputs.unaccepted(other.session)) == [said]


@pytest.mark.rule("T3")
async def test_a_turn_ends_once_whatever_the_code_thinks(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    fence = await side.a.timeline.append(key, owner.fence, step(owner.state, started(), finished()))
    with pytest.raises(Broken):
        await side.a.timeline.append(key, fence, step(owner.state, finished(outcome=Outcome.lost)))
    assert await events(side, key) == [started(), finished()]


async def test_the_head_names_the_running_turns_start(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    assert await side.b.timeline.head(key) == Head(Seq(0), Label.created, None)
    one = step(owner.state, OwnerOpened(Epoch(1), "a"), started())
    fence = await side.a.timeline.append(key, owner.fence, one)
    fence = await side.a.timeline.append(key, fence, two := step(one.state, item("x")))
    head = await side.b.timeline.head(key)
    assert (head.seq, head.label, head.started and (head.started.seq, head.started.event)) == (
        Seq(3),
        Label.running,
        (Seq(2), started()),
    )
    await side.a.timeline.append(key, fence, step(two.state, finished()))
    assert await side.b.timeline.head(key) == Head(Seq(4), Label.idle, None)


async def test_a_named_owner_is_left_alone_while_redis_is_young(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    assert await side.b.timeline.open(key, "b|2", worker="b", young=True) is None
    await side.a.timeline.append(key, owner.fence, step(owner.state, started()))  # it was not disturbed
    sleeping = await side.session()
    assert await side.b.timeline.open(sleeping, "b|3", worker="b", young=True)


async def test_an_owner_holds_on_through_postgres(side: Side) -> None:
    key = await side.session()
    owner = await opened(side.a, key)
    held = [(key, owner.fence.token), (key, "b|9")]
    assert list(await side.a.timeline.hold(held, seconds=0.2)) == [True, False]
    assert await side.b.timeline.open(key, "b|2", worker="b", young=False) is None
    assert key not in dict(await side.b.sessions.named())
    await side.pass_time(0.25)
    assert key in dict(await side.b.sessions.named())
    assert await side.b.timeline.open(key, "b|2", worker="b", young=False)
    assert list(await side.a.timeline.hold(held, seconds=0.2)) == [False, False]


async def test_who_signs_off_is_named_no_more(side: Side) -> None:
    key = await side.session()
    old = await opened(side.a, key)
    assert dict(await side.a.sessions.named())[key] == "local"
    new = await opened(side.b, key, "b|2")
    await side.a.timeline.sign_off(key, old.fence)
    assert key in dict(await side.a.sessions.named())
    await side.b.timeline.sign_off(key, new.fence)
    assert key not in dict(await side.a.sessions.named())
    assert list(await side.b.timeline.hold([(key, "b|2")], seconds=60)) == [False]  # a late renewal holds nobody up
    assert await side.a.timeline.open(key, "a|3", worker="a", young=False)


async def test_a_session_that_is_not_there_cannot_be_opened(side: Side) -> None:
    with pytest.raises(Refused, match="no such Session"):
        await side.a.timeline.open(SessionKey(10**12), "a|1", worker="a", young=False)
