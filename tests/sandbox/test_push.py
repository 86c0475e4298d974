"""The long connection: how events reach an app, when they are pushed again, and what can go wrong on the way."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosedError

from amux.sandbox import frames
from amux.sandbox.faults import PushFault
from amux.sandbox.feishu import CODER, OPS, PAYMENTS, USER_A, USER_B
from amux.sandbox.frames import Frame
from amux.sandbox.ledger import Ledger
from amux.sandbox.push import Outcome
from amux.sandbox.records import TENANT_KEY, open_id, union_id
from tests.sandbox.conftest import HASTY, Cloud, Phone


async def settled(cloud: Cloud) -> None:
    await cloud.world.courier.settled(seconds=10)


def outcomes(cloud: Cloud) -> list[list[Outcome]]:
    return [[attempt.outcome for attempt in push.attempts] for push in cloud.world.courier.pushes()]


async def test_a_message_arrives_as_the_facts_say(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        message = cloud.world.say(USER_A, PAYMENTS, "hello")
        frame, event = await phone.event()
        await phone.ack(frame)
        await settled(cloud)
    said = cloud.world.messages[message]
    (push,) = cloud.world.courier.pushes()
    assert [key for key, _ in frame.headers] == ["type", "message_id", "trace_id", "sum", "seq"]
    assert (frame.header("type"), frame.header("sum"), frame.header("seq")) == ("event", "1", "0")
    assert (frame.method, frame.service) == (frames.DATA, phone.service)
    me = {"union_id": union_id(USER_A), "user_id": None, "open_id": open_id(CODER, USER_A)}
    bot = {"union_id": union_id(CODER), "user_id": None, "open_id": open_id(CODER, CODER)}
    mention = {"key": "@_user_1", "id": bot, "mentioned_type": "bot", "name": "Coder", "tenant_key": TENANT_KEY}
    assert event == {
        "schema": "2.0",
        "header": {
            "event_id": push.event_id,
            "event_type": "im.message.receive_v1",
            "create_time": event["header"]["create_time"],
            "token": "",
            "app_id": CODER,
            "tenant_key": TENANT_KEY,
        },
        "event": {
            "sender": {"sender_id": me, "sender_type": "user", "tenant_key": TENANT_KEY},
            "message": {
                "message_id": message,
                "create_time": str(said.created_ms),
                "update_time": str(said.created_ms),
                "chat_id": PAYMENTS,
                "chat_type": "group",
                "message_type": "text",
                "content": '{"text":"@_user_1 hello"}',
                "mentions": [mention],
                "user_agent": "Mozilla/5.0 Lark/7.50",
            },
        },
    }
    assert Ledger(cloud.world).acknowledged(CODER) == {message}


async def test_only_the_opening_of_a_topic_lacks_its_thread(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        topic = cloud.world.open_topic(USER_A, PAYMENTS, "first")
        opening = (await phone.take())["event"]["message"]
        cloud.world.say(USER_B, PAYMENTS, "second", topic=topic, mentions=())
        second = (await phone.take())["event"]["message"]
    root = opening["message_id"]
    assert {"thread_id", "root_id", "parent_id", "mentions"} & opening.keys() == {"mentions"}
    assert (second["thread_id"], second["root_id"], second["parent_id"]) == (topic, root, root)
    assert "mentions" not in second


async def test_a_quote_is_no_topic(cloud: Cloud) -> None:
    first = cloud.world.say(USER_A, OPS, "one")
    second = cloud.world.messages[cloud.world.say(USER_B, OPS, "two", quotes=first)]
    third = cloud.world.messages[cloud.world.say(USER_A, OPS, "three", quotes=second.id)]
    assert (second.root, second.parent, second.thread) == (first, first, None)
    assert (third.root, third.parent, third.thread) == (first, second.id, None)


async def test_without_an_acknowledgement_it_is_pushed_four_times_more(hasty: Cloud) -> None:
    async with hasty.phone() as phone:
        message = hasty.world.say(USER_A, OPS, "hello")
        seen = [(await phone.event())[1]["header"]["event_id"] for _ in range(4)]
        frame, last = await phone.event()
        await phone.ack(frame)
        await settled(hasty)
    assert {*seen, last["header"]["event_id"]} == {hasty.world.courier.pushes()[0].event_id}
    assert outcomes(hasty) == [[Outcome.silent] * 4 + [Outcome.acknowledged]]
    assert Ledger(hasty.world).acknowledged(CODER) == {message}


async def test_an_acknowledgement_after_the_deadline_is_none(hasty: Cloud) -> None:
    async with hasty.phone() as phone:
        message = hasty.world.say(USER_A, OPS, "hello")
        late, _ = await phone.event()
        again, _ = await phone.event()
        await phone.ack(late)
        await phone.ack(again, code=500)
        await settled(hasty)
    assert outcomes(hasty)[0][:2] == [Outcome.silent, Outcome.refused]
    assert Ledger(hasty.world).unacknowledged(CODER) == {message}


async def test_an_event_goes_to_one_of_the_connections(cloud: Cloud) -> None:
    async with cloud.phone() as one, cloud.phone() as two:
        for _ in range(20):
            cloud.world.say(USER_A, OPS, "hello")

        async def drain(phone: Phone) -> None:
            while True:
                await phone.take()

        draining = [asyncio.ensure_future(drain(phone)) for phone in (one, two)]
        await settled(cloud)
        for task in draining:
            task.cancel()
    attempts = [push.attempts for push in cloud.world.courier.pushes()]
    assert [len(a) for a in attempts] == [1] * 20
    assert len({a[0].connection for a in attempts}) == 2


async def test_nobody_connected_is_a_failed_push(cloud: Cloud) -> None:
    cloud.world.say(USER_A, OPS, "hello")
    await settled(cloud)
    assert outcomes(cloud) == [[Outcome.offline] * 5]


async def test_a_push_on_a_connection_that_breaks_goes_to_the_next(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        cloud.world.say(USER_A, OPS, "hello")
        await phone.event()
        cloud.world.courier.drop(CODER)
        with pytest.raises(ConnectionClosedError) as closed:
            await phone.socket.recv()
        assert closed.value.rcvd is None  # 1006: cut without a closing frame
    await settled(cloud)
    async with cloud.phone() as other:
        cloud.world.courier.redeliver(CODER)
        await other.take()
        await settled(cloud)
    assert outcomes(cloud) == [[Outcome.broken, *[Outcome.offline] * 4, Outcome.acknowledged]]


async def test_a_mute_connection_stays_open_and_says_nothing(hasty: Cloud) -> None:
    async with hasty.phone() as phone:
        ping = Frame(frames.CONTROL, (("type", "ping"),), service=phone.service)
        await phone.socket.send(frames.encode(ping))
        pong = await phone.frame()
        assert (pong.header("type"), json.loads(pong.payload)) == ("pong", HASTY.client_config())
        hasty.world.courier.mute(CODER)
        await phone.socket.send(frames.encode(ping))
        hasty.world.say(USER_A, OPS, "hello")
        await settled(hasty)
        assert set(outcomes(hasty)[0]) == {Outcome.silent}
        await (await phone.socket.ping())  # the protocol's own pings are still answered, behind all that was sent
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await phone.socket.recv()
        async with hasty.phone() as other:
            for _ in range(20):  # half of them go to the mute one
                hasty.world.courier.redeliver(CODER)
            await other.take()


async def test_the_same_event_twice(cloud: Cloud) -> None:
    cloud.world.faults.arm(PushFault.doubled)
    async with cloud.phone() as phone:
        cloud.world.say(USER_A, OPS, "hello")
        first, second = await phone.take(), await phone.take()
        await settled(cloud)
    assert first == second


async def test_the_same_message_under_a_new_event_id(cloud: Cloud) -> None:
    cloud.world.faults.arm(PushFault.twinned)
    async with cloud.phone() as phone:
        cloud.world.say(USER_A, OPS, "hello")
        first, second = await phone.take(), await phone.take()
    assert first["event"] == second["event"]
    assert first["header"]["event_id"] != second["header"]["event_id"]


async def test_an_acknowledgement_that_gets_lost(hasty: Cloud) -> None:
    hasty.world.faults.arm(PushFault.ack_ignored)
    async with hasty.phone() as phone:
        hasty.world.say(USER_A, OPS, "hello")
        first, second = await phone.take(), await phone.take()
        await settled(hasty)
    assert first == second
    assert outcomes(hasty) == [[Outcome.silent, Outcome.acknowledged]]


async def test_a_chat_out_of_order(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        cloud.world.courier.reorder(OPS, seconds=0.05)
        said = [cloud.world.say(USER_A, OPS, str(n)) for n in range(3)]
        heard = [(await phone.take())["event"]["message"]["message_id"] for _ in range(3)]
    assert heard == said[::-1]


async def test_what_was_held_back_is_pushed_again_like_the_rest(hasty: Cloud) -> None:
    hasty.world.faults.arm(PushFault.ack_ignored)
    async with hasty.phone() as phone:
        hasty.world.courier.reorder(OPS, seconds=0.01)
        hasty.world.say(USER_A, OPS, "hello")
        first, second = await phone.take(), await phone.take()
        await settled(hasty)
    assert first == second
    assert outcomes(hasty) == [[Outcome.silent, Outcome.acknowledged]]


async def test_everything_once_more_and_shuffled(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        for n in range(8):
            cloud.world.say(USER_A, OPS, str(n))
        first = [(await phone.take())["header"]["event_id"] for _ in range(8)]
        await settled(cloud)
        assert cloud.world.courier.redeliver(CODER) == 8
        again = [(await phone.take())["header"]["event_id"] for _ in range(8)]
        await settled(cloud)
    assert sorted(again) == sorted(first)
    assert again != first


async def test_a_recall_is_told(cloud: Cloud) -> None:
    async with cloud.phone() as phone:
        message = cloud.world.say(USER_A, OPS, "hello")
        await phone.take()
        cloud.world.recall(USER_A, message)
        told = await phone.take()
    recalled_ms = cloud.world.messages[message].recalled_ms
    assert told["header"]["event_type"] == "im.message.recalled_v1"
    assert told["event"] == {
        "message_id": message,
        "chat_id": OPS,
        "recall_time": str(recalled_ms),
        "recall_type": "message_owner",
    }
