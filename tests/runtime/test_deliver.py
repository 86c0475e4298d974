"""One card a Turn, whatever dies and whenever; nothing older lands last; what Feishu never takes stops nobody."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from amux.core import events as e
from amux.core.errors import Refused, Unavailable, Uncertain
from amux.core.ids import RequestId, Seq, TurnId
from amux.core.inputs import Verdict
from amux.ports import CardRow
from amux.runtime.deliver import INTERVAL, STEPS
from tests.build import TOPIC, rights, said
from tests.runtime.delivering import (
    BY_B,
    DEADLY,
    LEASE,
    LONG,
    ONE,
    T1,
    T2,
    TWO,
    Room,
    ended,
    message_id,
    over,
    says,
    settled,
    started,
)
from tests.runtime.house import until


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


# -- what Feishu does not take ----------------------------------------------------------------------------------------


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
