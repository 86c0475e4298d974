"""Buttons: what an app is told, what the person sees of its answer, and the codes of clicks that failed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from amux.sandbox.clicks import ClickAnswer
from amux.sandbox.feishu import CODER, OPS, USER_A, USER_B
from amux.sandbox.records import TENANT_KEY, MessageId, PersonId, Via, WorldError, open_id, private_chat_id, union_id
from tests.sandbox.bot import bot_of, text
from tests.sandbox.conftest import Cloud
from tests.sandbox.test_cardkit import START, make
from tests.sandbox.test_cards import button, card, markdown

CARD = card(markdown("one"), button("stop"))
TOAST = {"type": "info", "content": "Interrupting", "i18n": {"zh_cn": "正在打断", "en_us": "Interrupting"}}
NEW = card(markdown("two"))


async def shown(cloud: Cloud) -> MessageId:
    bot = await bot_of(cloud)
    answer = await bot.send(OPS, {"msg_type": "interactive", "content": json.dumps(CARD)})
    return MessageId(answer["data"]["message_id"])


async def pressed(
    cloud: Cloud, message: MessageId, answer: object, code: int = 200
) -> tuple[ClickAnswer, dict[str, Any]]:
    """User B presses Stop; the app answers so. What B saw, and what the app was told."""
    async with cloud.phone() as phone:
        click = asyncio.ensure_future(cloud.world.click(USER_B, message, "stop"))
        frame, event = await phone.event()
        await phone.ack(frame, code, answer)
        return await click, event


async def test_a_click_is_told_and_answered_with_a_toast(cloud: Cloud) -> None:
    message = await shown(cloud)
    seen, told = await pressed(cloud, message, {"toast": TOAST})
    assert seen == ClickAnswer(0, TOAST)
    assert told["header"]["event_type"] == "card.action.trigger"
    assert len(told["header"]["create_time"]) == 16
    assert told["event"] == {
        "operator": {
            "tenant_key": TENANT_KEY,
            "union_id": union_id(USER_B),
            "user_id": None,
            "open_id": open_id(CODER, USER_B),
        },
        "token": told["event"]["token"],
        "action": {"value": {"do": "stop"}, "tag": "button", "timezone": "Asia/Shanghai"},
        "host": "im_message",
        "context": {"open_message_id": message, "open_chat_id": OPS},
    }


async def test_a_card_in_the_answer_replaces_the_old_one_for_everybody(cloud: Cloud) -> None:
    message = await shown(cloud)
    seen, _ = await pressed(cloud, message, {"toast": TOAST, "card": {"type": "raw", "data": NEW}})
    assert seen == ClickAnswer(0, TOAST, NEW)
    assert cloud.world.messages[message].card == NEW
    assert [r.via for r in cloud.world.messages[message].revisions] == [Via.sent, Via.clicked]
    with pytest.raises(WorldError):
        await cloud.world.click(USER_A, message, "stop")


@pytest.mark.parametrize(
    ("answer", "code", "seen"),
    [
        ({}, 200, 0),
        (None, 200, 108002),
        ({"toast": TOAST}, 500, 200671),
        ({"toast": {"type": "loud", "content": "x"}}, 200, 200672),
        ({"more": 1}, 200, 200672),
        ([], 200, 200672),
        ({"card": {"type": "raw"}}, 200, 200672),
        ({"card": {"type": "raw", "data": card({"tag": "note"})}}, 200, 200673),
        ({"card": {"type": "raw", "data": {"elements": []}}}, 200, 200830),
    ],
)
async def test_what_the_person_sees_of_an_answer(cloud: Cloud, answer: object, code: int, seen: int) -> None:
    message = await shown(cloud)
    click, _ = await pressed(cloud, message, answer, code)
    assert click == ClickAnswer(seen)
    assert cloud.world.messages[message].card == CARD


async def test_a_click_without_a_connection_or_an_answer_fails_and_is_not_repeated(hasty: Cloud) -> None:
    message = await shown(hasty)
    assert await hasty.world.click(USER_B, message, "stop") == ClickAnswer(200340)
    async with hasty.phone() as phone:
        click = asyncio.ensure_future(hasty.world.click(USER_B, message, "stop"))
        late, _ = await phone.event()
        assert await click == ClickAnswer(200341)
        await phone.ack(late, data={"card": {"type": "raw", "data": NEW}})
        again = asyncio.ensure_future(hasty.world.click(USER_B, message, "stop"))
        frame, _ = await phone.event()
        assert frame.header("message_id") != late.header("message_id")
        await phone.ack(frame, data={})
        assert await again == ClickAnswer()
    assert hasty.world.messages[message].card == CARD


async def test_a_forged_value_and_an_old_screen_reach_the_app(cloud: Cloud) -> None:
    message = await shown(cloud)
    for value in ({"do": "anything"}, "a string"):
        async with cloud.phone() as phone:
            click = asyncio.ensure_future(cloud.world.click(USER_B, message, value=value))
            frame, event = await phone.event()
            await phone.ack(frame, data={})
            await click
        assert event["event"]["action"]["value"] == value


async def test_a_card_that_streams_is_not_replaced_by_an_answer(cloud: Cloud) -> None:
    bot = await bot_of(cloud)
    card_id = (await make(bot, START))["data"]["card_id"]
    content = json.dumps({"type": "card", "data": {"card_id": card_id}})
    message = MessageId((await bot.send(OPS, {"msg_type": "interactive", "content": content}))["data"]["message_id"])
    seen, _ = await pressed(cloud, message, {"toast": TOAST, "card": {"type": "raw", "data": NEW}})
    assert seen == ClickAnswer(0, TOAST)
    assert cloud.world.messages[message].card == START


async def test_who_cannot_press_what(cloud: Cloud) -> None:
    message = await shown(cloud)
    bot = await bot_of(cloud)
    plain = MessageId((await bot.send(OPS, text("hello")))["data"]["message_id"])
    said = cloud.world.say(USER_A, private_chat_id(USER_A, CODER), "hello")
    for person, target in (
        (PersonId("user_x"), message),
        (USER_A, plain),
        (USER_B, said),
        (USER_A, MessageId("om_no")),
    ):
        with pytest.raises(WorldError):
            await cloud.world.click(person, target, "stop")
