"""REST as a bot uses it: tokens, sends, edits, reads."""

from __future__ import annotations

import json

import pytest

from amux.sandbox.changes import ChangeKind
from amux.sandbox.feishu import CODER, CODER_SECRET, OPS, PAYMENTS, USER_A, USER_B, USER_C
from amux.sandbox.ledger import Ledger, Sent
from amux.sandbox.records import MessageId, Via, open_id, private_chat_id
from tests.sandbox.bot import Bot, bot_of, text
from tests.sandbox.conftest import Cloud
from tests.sandbox.test_cards import card, markdown

CARD = json.dumps(card(markdown("one")))
OTHER = json.dumps(card(markdown("two")))


@pytest.fixture
async def bot(cloud: Cloud) -> Bot:
    return await bot_of(cloud)


async def test_a_token_is_given_again_until_it_is_nearly_old(cloud: Cloud) -> None:
    async def token() -> tuple[str, int]:
        path = "/open-apis/auth/v3/tenant_access_token/internal"
        answer = (await cloud.http.post(path, json={"app_id": CODER, "app_secret": CODER_SECRET})).json()
        assert (answer["code"], answer["msg"]) == (0, "ok")
        return answer["tenant_access_token"], answer["expire"]

    first, seconds = await token()
    assert seconds == 7200
    cloud.world.clock.advance(seconds=5000)
    again, left = await token()
    assert again == first
    assert 2190 <= left <= 2200
    cloud.world.clock.advance(seconds=1000)
    assert (await token())[0] != first


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 99991661),
        ({"Authorization": "Basic abc"}, 99991668),
        ({"Authorization": "Bearer nonsense"}, 99991668),
        ({"Authorization": "Bearer t-unknown"}, 99991663),
    ],
)
async def test_without_a_good_token_nothing_is_done(cloud: Cloud, headers: dict[str, str], code: int) -> None:
    answer = await cloud.http.get("/open-apis/bot/v3/info", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.headers["X-Tt-Logid"] == answer.json()["error"]["log_id"]


async def test_a_token_dies_of_age(bot: Bot) -> None:
    bot.world.clock.advance(seconds=7201)
    assert (await bot.get("/bot/v3/info"))["code"] == 99991663


async def test_wrong_secrets_get_no_token(cloud: Cloud) -> None:
    path = "/open-apis/auth/v3/tenant_access_token/internal"
    wrong = await cloud.http.post(path, json={"app_id": CODER, "app_secret": "no"})
    unknown = await cloud.http.post(path, json={"app_id": "cli_no", "app_secret": "no"})
    assert (wrong.json()["code"], unknown.json()["code"]) == (10014, 10003)


async def test_a_bot_knows_itself(bot: Bot) -> None:
    info = await bot.get("/bot/v3/info")
    assert (info["bot"]["app_name"], info["bot"]["open_id"]) == ("Coder", open_id(CODER, CODER))


async def test_the_same_uuid_is_one_message_for_an_hour(bot: Bot) -> None:
    first = await bot.send(OPS, text("hello"), uuid="u1")
    again = await bot.send(OPS, text("something else"), uuid="u1")
    assert again["data"] == first["data"]
    bot.world.clock.advance(seconds=3601)
    await bot.renew()
    later = await bot.send(OPS, text("hello"), uuid="u1")
    assert later["data"]["message_id"] != first["data"]["message_id"]
    assert [s.uuid for s in Ledger(bot.world).sent(CODER)] == ["u1", "u1"]


async def test_a_repeated_reply_is_one_message_too(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    first = await bot.reply(asked, text("yes"), uuid="r1", reply_in_thread=True)
    again = await bot.reply(asked, text("yes"), uuid="r1", reply_in_thread=True)
    assert again["data"] == first["data"]
    assert Ledger(bot.world).answers(CODER) == {asked: 1}


async def test_a_reply_into_a_topic_stays_there(bot: Bot) -> None:
    topic = bot.world.open_topic(USER_A, PAYMENTS, "hello")
    root = bot.world.topics[topic].root
    second = bot.world.say(USER_B, PAYMENTS, "and more", topic=topic)
    answer = (await bot.reply(second, text("yes")))["data"]
    assert (answer["thread_id"], answer["root_id"], answer["parent_id"]) == (topic, root, root)
    assert answer["sender"]["id"] == CODER
    (sent,) = Ledger(bot.world).sent(CODER, thread=topic)
    message = bot.world.messages[MessageId(answer["message_id"])]
    assert sent == Sent(
        id=message.id,
        app=CODER,
        chat=PAYMENTS,
        thread=topic,
        answers=second,
        uuid="",
        msg_type="text",
        created_ms=message.created_ms,
        recalled_ms=None,
        revisions=message.revisions,
    )


async def test_a_reply_in_thread_opens_a_topic_where_none_was(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    plain = (await bot.reply(asked, text("yes")))["data"]
    assert "thread_id" not in plain
    assert (plain["root_id"], plain["parent_id"]) == (asked, asked)
    threaded = (await bot.reply(asked, text("yes"), reply_in_thread=True))["data"]
    assert threaded["thread_id"] == (await bot.message(asked))["thread_id"]
    assert bot.world.topics[threaded["thread_id"]].root == asked


async def test_the_opening_of_a_topic_tells_its_thread_when_asked(bot: Bot) -> None:
    topic = bot.world.open_topic(USER_A, PAYMENTS, "hello")
    root = await bot.message(bot.world.topics[topic].root)
    assert root["thread_id"] == topic
    assert root["sender"] == {
        "id": open_id(CODER, USER_A),
        "id_type": "open_id",
        "sender_type": "user",
        "tenant_key": root["sender"]["tenant_key"],
    }
    assert [(m["key"], m["id"]) for m in root["mentions"]] == [("@_user_1", open_id(CODER, CODER))]


async def test_a_plain_send_opens_a_topic_in_a_group_of_topics(bot: Bot) -> None:
    first, second = [(await bot.send(PAYMENTS, text(t)))["data"]["thread_id"] for t in "ab"]
    assert first != second


async def test_a_private_message_goes_by_open_id(bot: Bot) -> None:
    answer = await bot.post(
        "/im/v1/messages", {"receive_id": open_id(CODER, USER_B), **text("hello")}, receive_id_type="open_id"
    )
    assert answer["data"]["chat_id"] == private_chat_id(USER_B, CODER)


async def test_a_card_is_patched_and_does_not_come_back_as_sent(bot: Bot) -> None:
    sent = (await bot.send(OPS, {"msg_type": "interactive", "content": CARD}))["data"]
    assert (await bot.patch_message(sent["message_id"], OTHER)) == {"code": 0, "msg": "success", "data": {}}
    message = bot.world.messages[sent["message_id"]]
    assert [(r.via, r.content) for r in message.revisions] == [(Via.sent, CARD), (Via.patched, OTHER)]
    assert set(json.loads((await bot.message(message.id))["body"]["content"])) == {"title", "elements"}
    raw = await bot.get(f"/im/v1/messages/{message.id}", card_msg_content_type="raw_card_content")
    assert json.loads(raw["data"]["items"][0]["body"]["content"])["json_card"] == OTHER


async def test_a_bad_card_is_refused_and_shown_where_it_would_have_been(bot: Bot) -> None:
    bad = json.dumps(card({"tag": "note"}))
    refused = await bot.send(OPS, {"msg_type": "interactive", "content": bad})
    assert refused["code"] == 230099
    assert refused["msg"].startswith("Failed to create card content, ext=ErrCode: 200861; ErrMsg: ")
    (change,) = [c for c in bot.world.log.since(0) if c.kind is ChangeKind.send_refused]
    assert (change.chat, change.app, change.code) == (OPS, CODER, 230099)
    assert Ledger(bot.world).sent(CODER) == ()


async def test_what_cannot_be_sent(bot: Bot) -> None:
    recalled = bot.world.say(USER_A, OPS, "never mind")
    bot.world.recall(USER_A, recalled)
    big_card = json.dumps(card(markdown("x" * 31_000)))
    codes = {
        "unknown message": (await bot.reply("om_none", text("x")))["code"],
        "recalled": (await bot.reply(recalled, text("x")))["code"],
        "unknown chat": (await bot.send("oc_none", text("x")))["code"],
        "long text": (await bot.send(OPS, text("x" * 154_000)))["code"],
        "big card": (await bot.send(OPS, {"msg_type": "interactive", "content": big_card}))["code"],
        "no JSON": (await bot.send(OPS, {"msg_type": "text", "content": "hello"}))["code"],
        "empty text": (await bot.send(OPS, text("")))["code"],
        "image": (await bot.send(OPS, {"msg_type": "image", "content": "{}"}))["code"],
        "long uuid": (await bot.send(OPS, text("x"), uuid="u" * 51))["code"],
        "no content": (await bot.send(OPS, {"msg_type": "text"}))["code"],
    }
    assert codes == {
        "unknown message": 230001,
        "recalled": 230011,
        "unknown chat": 230001,
        "long text": 230025,
        "big card": 230025,
        "no JSON": 230001,
        "empty text": 230001,
        "image": 230054,
        "long uuid": 230001,
        "no content": 99992402,
    }
    assert Ledger(bot.world).sent(CODER) == ()


async def test_what_cannot_be_changed(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    note = (await bot.send(OPS, text("x")))["data"]["message_id"]
    shown = (await bot.send(OPS, {"msg_type": "interactive", "content": CARD}))["data"]["message_id"]
    gone = (await bot.send(OPS, {"msg_type": "interactive", "content": CARD}))["data"]["message_id"]
    await bot.delete(f"/im/v1/messages/{gone}")
    codes = {
        "not a card": (await bot.patch_message(note, CARD))["code"],
        "of another": (await bot.patch_message(asked, CARD))["code"],
        "recalled": (await bot.patch_message(gone, CARD))["code"],
        "a bad card": (await bot.patch_message(shown, "{}"))["code"],
        "a card by put": (await bot.put(f"/im/v1/messages/{shown}", {"msg_type": "interactive", "content": CARD}))[
            "code"
        ],
        "recall of another's": (await bot.delete(f"/im/v1/messages/{asked}"))["code"],
    }
    bot.world.clock.advance(seconds=15 * 24 * 3600)
    await bot.renew()
    codes["too old"] = (await bot.patch_message(shown, CARD))["code"]
    codes["too old to recall"] = (await bot.delete(f"/im/v1/messages/{shown}"))["code"]
    assert codes == {
        "not a card": 230001,
        "of another": 230071,
        "recalled": 230011,
        "a bad card": 230099,
        "a card by put": 230001,
        "recall of another's": 230026,
        "too old": 230031,
        "too old to recall": 230009,
    }


async def test_a_text_is_edited_twenty_times(bot: Bot) -> None:
    note = (await bot.send(OPS, text("0")))["data"]["message_id"]
    codes = [(await bot.put(f"/im/v1/messages/{note}", text(str(n))))["code"] for n in range(1, 22)]
    assert codes == [0] * 20 + [230072]
    assert bot.world.messages[note].text == "20"
    assert (await bot.message(note))["updated"] is True


async def test_a_removed_bot_is_out(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    bot.world.remove_bot(USER_A, OPS, CODER)
    assert (await bot.reply(asked, text("x")))["code"] == 230002
    assert (await bot.send(OPS, text("x")))["code"] == 230002
    assert (await bot.get(f"/im/v1/chats/{OPS}"))["code"] == 232011
    (told,) = [p for p in bot.world.courier.pushes() if p.event_type == "im.chat.member.bot.deleted_v1"]
    assert json.loads(told.payload)["event"]["chat_id"] == OPS


async def test_history_of_a_chat_holds_the_first_message_of_each_topic(bot: Bot) -> None:
    topic = bot.world.open_topic(USER_A, PAYMENTS, "one")
    root = bot.world.topics[topic].root
    second = bot.world.say(USER_B, PAYMENTS, "two", topic=topic)
    third = bot.world.say(USER_A, PAYMENTS, "three", topic=topic)
    other = bot.world.topics[bot.world.open_topic(USER_C, PAYMENTS, "four")].root

    async def ids(kind: str, where: str, **query: str) -> list[str]:
        answer = await bot.get("/im/v1/messages", container_id_type=kind, container_id=where, **query)
        return [item["message_id"] for item in answer["data"]["items"]]

    assert await ids("chat", PAYMENTS) == [root, other]
    assert await ids("chat", PAYMENTS, only_thread_root_messages="false") == [root, second, third, other]
    assert await ids("chat", PAYMENTS, start_time=str(2**33)) == []
    assert await ids("thread", topic) == [root, second, third]
    assert await ids("thread", topic, sort_type="ByCreateTimeDesc") == [third, second, root]
    page = (await bot.get("/im/v1/messages", container_id_type="thread", container_id=topic, page_size="2"))["data"]
    assert (len(page["items"]), page["has_more"]) == (2, True)
    assert await ids("thread", topic, page_size="2", page_token=page["page_token"]) == [third]


async def test_chats_and_their_members(bot: Bot) -> None:
    modes = {}
    for chat in (PAYMENTS, OPS, private_chat_id(USER_A, CODER)):
        info = (await bot.get(f"/im/v1/chats/{chat}"))["data"]
        modes[info["name"]] = (info["chat_mode"], info.get("group_message_type"), info["user_count"])
    assert modes == {
        "payments-api": ("group", "thread", "3"),
        "ops-room": ("group", "chat", "3"),
        "Coder": ("p2p", None, "1"),
    }
    people = (await bot.get(f"/im/v1/chats/{OPS}/members", member_id_type="open_id"))["data"]
    assert [(m["member_id"], m["name"]) for m in people["items"]] == [
        (open_id(CODER, USER_A), "User A"),
        (open_id(CODER, USER_B), "User B"),
        (open_id(CODER, USER_C), "User C"),
    ]
    assert {c["chat_id"] for c in (await bot.get("/im/v1/chats"))["data"]["items"]} == {PAYMENTS, OPS}
    assert (await bot.get("/im/v1/chats/oc_none"))["code"] == 232006


async def test_a_reaction_comes_and_goes(bot: Bot) -> None:
    asked = bot.world.say(USER_A, OPS, "hello")
    path = f"/im/v1/messages/{asked}/reactions"
    made = (await bot.post(path, {"reaction_type": {"emoji_type": "OK"}}))["data"]
    assert made["operator"] == {"operator_id": CODER, "operator_type": "app"}
    assert (await bot.get(path))["data"]["items"] == [made]
    assert (await bot.delete(f"{path}/{made['reaction_id']}"))["code"] == 0
    assert (await bot.get(path))["data"]["items"] == []
    assert (await bot.post(path, {"reaction_type": {}}))["code"] == 231001
