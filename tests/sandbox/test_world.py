"""What people can and cannot do, and what an onlooker is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from amux.sandbox.changes import Change, ChangeKind
from amux.sandbox.feishu import CODER, OPS, PAYMENTS, USER_A, USER_B, small_world
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import ChatId, Hears, MessageId, PersonId, ThreadId, WorldError, private_chat_id
from amux.sandbox.world import World


@pytest.fixture
async def world() -> World:
    return small_world()


async def test_what_nobody_can_do(world: World) -> None:
    message = world.say(USER_A, OPS, "hello")
    with pytest.raises(WorldError, match="not in the chat"):
        world.say(PersonId("user_x"), OPS, "hello")
    with pytest.raises(WorldError, match="not in the chat"):
        world.say(USER_A, ChatId("oc_none"), "hello")
    with pytest.raises(WorldError, match="not in the chat"):
        world.say(USER_B, private_chat_id(USER_A, CODER), "hello")
    with pytest.raises(WorldError, match="no topic"):
        world.say(USER_A, OPS, "hello", topic=ThreadId("omt_none"))
    with pytest.raises(WorldError, match="no message"):
        world.say(USER_A, OPS, "hello", quotes=MessageId("om_none"))
    with pytest.raises(WorldError, match="open no topics"):
        world.open_topic(USER_A, OPS, "hello")
    with pytest.raises(WorldError, match="only its author"):
        world.recall(USER_B, message)
    assert list(world.messages) == [message]
    await world.close()


async def test_a_bot_that_is_not_there_cannot_be_mentioned_or_hear(world: World) -> None:
    world.remove_bot(USER_A, OPS, CODER)
    world.say(USER_A, OPS, "hello")
    with pytest.raises(WorldError, match="invite it first"):
        world.say(USER_A, OPS, "hello", mentions=[CODER])
    assert Ledger(world).messages(CODER) == ()
    world.invite_bot(USER_A, OPS, CODER)
    heard = world.say(USER_A, OPS, "hello")
    assert [p.message for p in Ledger(world).messages(CODER)] == [heard]
    await world.close()


async def test_by_its_scopes_a_bot_hears_only_what_mentions_it() -> None:
    world = small_world(hears=Hears.mentions)
    mine = world.say(USER_A, OPS, "hello")
    world.recall(USER_A, world.say(USER_A, OPS, "talk", mentions=()))
    private = world.say(USER_A, private_chat_id(USER_A, CODER), "hello")
    assert [p.message for p in world.courier.pushes()] == [mine, private]
    assert world.messages[private].mentions == ()
    await world.close()


async def test_a_topic_in_an_ordinary_group(world: World) -> None:
    first = world.say(USER_A, OPS, "hello")
    second = world.messages[world.reply_in_thread(USER_B, first, "in a thread")]
    assert (second.root, second.parent, second.thread) == (first, first, world.messages[first].thread)
    assert world.topics[world.thread_of(first)].root == first
    await world.close()


async def test_a_quote_stays_in_the_topic_of_what_it_quotes(world: World) -> None:
    topic = world.open_topic(USER_A, PAYMENTS, "hello")
    root = world.topics[topic].root
    quoted = world.say(USER_B, PAYMENTS, "more", topic=topic)
    quote = world.messages[world.say(USER_A, PAYMENTS, "that", quotes=quoted)]
    assert (quote.root, quote.parent, quote.thread) == (root, root, topic)
    await world.close()


async def test_placeholders_stand_for_names(world: World) -> None:
    message = world.messages[world.say(USER_A, PAYMENTS, "do it")]
    assert (message.content, message.text) == ('{"text":"@_user_1 do it"}', "@Coder do it")
    await world.close()


async def test_messages_have_an_order_by_time(world: World) -> None:
    times = [world.messages[world.say(USER_A, OPS, str(n))].created_ms for n in range(50)]
    assert times == sorted(set(times))
    await world.close()


async def test_an_onlooker_misses_nothing_and_may_come_late(world: World) -> None:
    topic = world.open_topic(USER_A, PAYMENTS, "hello")
    root = world.topics[topic].root
    seen: list[Change] = []
    async for change in world.changes():
        seen.append(change)
        if change.kind is ChangeKind.push_failed:
            world.recall(USER_A, root)
        if change.kind is ChangeKind.message_recalled:
            break
    kinds = [c.kind for c in seen]
    assert kinds[:2] == [ChangeKind.topic_opened, ChangeKind.message_sent]
    assert {c.message for c in seen} == {root}
    assert [c.seq for c in seen] == list(range(1, len(seen) + 1))
    late = [change async for change in _first(world, after=2, count=len(seen) - 2)]
    assert late == seen[2:]
    await world.close()


async def test_what_changes_while_an_onlooker_looks_away_is_not_missed(world: World) -> None:
    world.log.note(ChangeKind.connected)
    seen: list[ChangeKind] = []
    async with asyncio.timeout(5):
        async for change in world.changes():
            seen.append(change.kind)
            if change.kind is ChangeKind.disconnected:
                break
            world.log.note(ChangeKind.disconnected)
    assert seen == [ChangeKind.connected, ChangeKind.disconnected]


async def test_waiting_for_what_never_comes_ends(world: World) -> None:
    with pytest.raises(TimeoutError):
        await world.log.until(lambda: False, seconds=0.01)


async def _first(world: World, *, after: int, count: int) -> AsyncIterator[Change]:
    async for change in world.changes(after):
        yield change
        count -= 1
        if not count:
            return
