"""The rates that REST grants, and the faults on the way to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from amux.sandbox.faults import RestFault
from amux.sandbox.feishu import CODER, OPS, PAYMENTS, USER_A, small_world
from amux.sandbox.ledger import Ledger
from amux.sandbox.pace import Limits, Pace
from tests.sandbox.bot import Bot, bot_of, text
from tests.sandbox.conftest import Cloud, cloud_of
from tests.sandbox.test_cards import card, markdown

CARD = json.dumps(card(markdown("one")))
OTHER = json.dumps(card(markdown("two")))


@pytest.fixture
async def bot(cloud: Cloud) -> Bot:
    return await bot_of(cloud)


@pytest.fixture
async def limited() -> AsyncIterator[Bot]:
    """A bot in a world with Feishu's own limits."""
    async with cloud_of(small_world(pace=Pace(retry_seconds=()))) as cloud:
        yield await bot_of(cloud)


async def test_a_message_takes_five_patches_a_second(limited: Bot) -> None:
    shown = (await limited.send(OPS, {"msg_type": "interactive", "content": CARD}))["data"]["message_id"]
    codes = [(await limited.patch_message(shown, OTHER))["code"] for _ in range(6)]
    limited.world.clock.advance(seconds=1)
    assert (await limited.patch_message(shown, OTHER))["code"] == 0
    assert codes == [0] * 5 + [230020]


async def test_a_chat_takes_five_messages_a_second(limited: Bot) -> None:
    assert [(await limited.send(OPS, text("x")))["code"] for _ in range(6)] == [0] * 5 + [230020]
    assert (await limited.send(PAYMENTS, text("x")))["code"] == 0


async def test_too_many_calls_of_one_kind_are_told_when_to_come_back() -> None:
    async with cloud_of(small_world(limits=Limits(calls_per_api=2, calls_per_api_minute=3))) as cloud:
        bot = await bot_of(cloud)
        answers = [await bot.raw("GET", "/bot/v3/info") for _ in range(3)]
        cloud.world.clock.advance(seconds=1)
        answers += [await bot.raw("GET", "/bot/v3/info") for _ in range(2)]
        assert (await bot.get(f"/im/v1/chats/{OPS}"))["code"] == 0
    assert [a.json()["code"] for a in answers] == [0, 0, 99991400, 0, 99991400]
    assert [a.headers.get("x-ogw-ratelimit-reset") for a in answers] == [None, None, "1", None, "60"]
    assert [a.headers.get("x-ogw-ratelimit-limit") for a in answers] == [None, None, "2", None, "3"]


async def test_a_call_that_was_carried_out_and_not_answered(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    bot.world.faults.arm(RestFault.answer_lost, method="POST", path="/reply")
    with pytest.raises(httpx2.RemoteProtocolError):
        await bot.reply(asked, text("yes"), uuid="r1")
    again = await bot.reply(asked, text("yes"), uuid="r1")
    assert [s.id for s in Ledger(bot.world).sent(CODER)] == [again["data"]["message_id"]]


@pytest.mark.parametrize(
    ("fault", "status", "reset"),
    [(RestFault.rate_limited, 429, "1"), (RestFault.rate_limited_bare, 429, None), (RestFault.bad_gateway, 502, None)],
)
async def test_a_call_fails_once_and_does_nothing(bot: Bot, fault: RestFault, status: int, reset: str | None) -> None:
    bot.world.faults.arm(fault)
    body = {"receive_id": OPS, **text("x")}
    failed = await bot.raw("POST", "/im/v1/messages", body, {"receive_id_type": "chat_id"})
    assert (failed.status_code, failed.headers.get("x-ogw-ratelimit-reset")) == (status, reset)
    assert Ledger(bot.world).sent(CODER) == ()
    assert (await bot.send(OPS, text("x")))["code"] == 0


async def test_a_token_dies_in_mid_flight(bot: Bot) -> None:
    bot.world.faults.arm(RestFault.unauthorized, path="/messages")
    assert (await bot.send(OPS, text("x")))["code"] == 99991663
    assert (await bot.send(OPS, text("x")))["code"] == 99991663
    await bot.renew()
    assert (await bot.send(OPS, text("x")))["code"] == 0


async def test_a_slow_answer_is_of_a_call_carried_out_at_once(bot: Bot) -> None:
    bot.world.faults.arm(RestFault.slow, path="/messages", seconds=30)
    body = {"receive_id": OPS, **text("x")}
    with pytest.raises(httpx2.ReadTimeout):
        await bot.raw("POST", "/im/v1/messages", body, {"receive_id_type": "chat_id"}, seconds=0.2)
    assert len(Ledger(bot.world).sent(CODER)) == 1
