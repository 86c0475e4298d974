"""One deliverer shows a Session; what it owes is found until it is shown."""

from dataclasses import replace

import pytest

from amux.core.errors import Stale
from amux.core.events import Cause, TurnStarted
from amux.core.ids import BindingId, Seq, SessionKey, TurnId
from amux.core.inputs import Place
from amux.core.session import fold
from amux.ports import Append, CardRow, Delivery, Fence
from tests.conformance.sides import Side

PLACE = Place(BindingId(3), "cli_bot", "oc_group", "omt_topic")


def row(key: SessionKey, slot: str = "turn:1", uuid: str = "u1") -> CardRow:
    return CardRow(key, slot, TurnId(1), PLACE, "om_1", uuid, "n1", 12.5)


async def shown(side: Side, key: SessionKey, fence: Fence | None = None) -> Fence:
    """A step that gives the deliverer work."""
    if fence is None:
        owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
        assert owner
        fence = owner.fence
    events = (TurnStarted(TurnId(1), (), Cause.input),)
    return await side.a.timeline.append(key, fence, Append(events, fold(events), shown=True))


async def owes(side: Side, key: SessionKey) -> bool:
    await side.pass_time(0.02)
    return key in await side.a.cards.owing(older_than=0.01)


async def test_the_first_row_of_a_slot_stays(side: Side) -> None:
    key = await side.session()
    delivery = await side.a.cards.take(key)
    first = await side.a.cards.make(delivery, row(key))
    assert first == row(key)
    assert await side.a.cards.make(delivery, row(key, uuid="u2")) == first
    sent = replace(first, card_id="c1", message_id="om_2", sequence=64, state="sent")
    await side.a.cards.sent(delivery, sent)
    await side.a.cards.make(delivery, row(key, slot="turn:1:2"))
    assert list(await side.b.cards.rows(key)) == [sent, row(key, slot="turn:1:2")]


async def test_an_older_deliverer_writes_nothing(side: Side) -> None:
    key = await side.session()
    old = await side.a.cards.take(key)
    await side.a.cards.make(old, row(key))
    new = await side.b.cards.take(key)
    assert new == Delivery(key, old.fence + 1, Seq(0))
    with pytest.raises(Stale):
        await side.a.cards.make(old, row(key, slot="turn:2"))
    with pytest.raises(Stale):
        await side.a.cards.sent(old, replace(row(key), state="sent"))
    with pytest.raises(Stale):
        await side.a.cards.advance(old, Seq(5), done=True)
    assert list(await side.b.cards.rows(key)) == [row(key)]
    assert (await side.b.cards.take(key)).position == Seq(0)


async def test_what_is_not_shown_is_owed(side: Side) -> None:
    key = await side.session()
    assert not await owes(side, key)
    fence = await shown(side, key)
    assert await owes(side, key)
    delivery = await side.b.cards.take(key)
    await side.b.cards.advance(delivery, Seq(1), done=False)
    assert await owes(side, key)
    await side.b.cards.advance(delivery, Seq(1), done=True)
    assert not await owes(side, key)
    await shown(side, key, fence)
    assert await owes(side, key)
    assert (await side.b.cards.take(key)).position == Seq(1)


async def test_what_came_while_the_last_was_shown_stays_owed(side: Side) -> None:
    key = await side.session()
    fence = await shown(side, key)
    delivery = await side.b.cards.take(key)
    await shown(side, key, fence)  # seq 2, behind the deliverer's back
    await side.b.cards.advance(delivery, Seq(1), done=True)
    assert await owes(side, key)


async def test_a_deliverer_at_work_is_not_knocked_for(side: Side) -> None:
    key = await side.session()
    await shown(side, key)
    await side.b.cards.advance(await side.b.cards.take(key), Seq(0), done=False)
    assert key not in await side.a.cards.owing(older_than=60)
