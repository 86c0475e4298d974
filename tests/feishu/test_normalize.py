"""Payloads of recorded shape in, typed values out; whatever is odd has an answer and never an exception."""

import json
from dataclasses import replace
from typing import Any

import pytest

from amux.core.ids import InputId
from amux.feishu.content import Material, MaterialKind
from amux.feishu.normalize import (
    MAX_BYTES,
    CardAction,
    ChatType,
    Ignored,
    IgnoredReason,
    Mention,
    Message,
    Normalized,
    Recalled,
    SenderKind,
    normalize,
)

APP, BOT = "cli_a", "ou_bot"


def envelope(kind: str, event: object, **header: object) -> dict[str, Any]:
    head = {
        "event_id": "ev_1",
        "event_type": kind,
        "create_time": "1609073151999",
        "token": "vt",
        "app_id": APP,
        "tenant_key": "736",
    }
    return {"schema": "2.0", "header": head | header, "event": event}


def mention(key: str, open_id: str, name: str) -> dict[str, Any]:
    ids = {"union_id": f"on_{open_id}", "user_id": None, "open_id": open_id}
    return {"key": key, "id": ids, "mentioned_type": "user", "name": name, "tenant_key": "736"}


AT_BOT = mention("@_user_1", BOT, "Amux")
AT_B = mention("@_user_2", "ou_b", "User B")


def said(content: object, *, kind: str = "text", sender: object = None, **message: object) -> dict[str, Any]:
    """One im.message.receive_v1 of recorded shape; a None among `message` leaves that field out, as Feishu does."""
    person = {"sender_id": {"union_id": "on_a", "user_id": "a", "open_id": "ou_a"}, "sender_type": "user"}
    body = {
        "message_id": "om_1",
        "create_time": "1609073151345",
        "update_time": "1687343654666",
        "chat_id": "oc_1",
        "chat_type": "group",
        "message_type": kind,
        "content": content if isinstance(content, str) else json.dumps(content, ensure_ascii=False),
        "user_agent": "x",
    }
    fields = {key: value for key, value in (body | message).items() if value is not None}
    return envelope("im.message.receive_v1", {"sender": sender or person, "message": fields})


def read(payload: object) -> Normalized:
    return normalize(json.dumps(payload).encode(), app=APP, bot=BOT)


def message(payload: object) -> Message:
    answer = read(payload)
    assert isinstance(answer, Message), answer
    return answer


PLAIN = Message(
    input_id=InputId("feishu:cli_a:om_1"),
    app=APP,
    event_id="ev_1",
    message_id="om_1",
    chat_id="oc_1",
    chat_type=ChatType.group,
    thread_id=None,
    root_id=None,
    parent_id=None,
    sender="ou_a",
    sender_kind=SenderKind.person,
    sent_at=1609073151345,
    text="hello",
)


def test_a_text_in_a_group() -> None:
    assert read(said({"text": "hello"})) == PLAIN


def test_a_text_in_private() -> None:
    assert read(said({"text": "hello"}, chat_type="p2p")) == replace(PLAIN, chat_type=ChatType.p2p)


@pytest.mark.rule("B6")
def test_the_leading_mention_of_the_bot_is_stripped_and_others_stay_by_name() -> None:
    answer = message(said({"text": "@_user_1 ask @_user_2, then @_user_1"}, mentions=[AT_BOT, AT_B]))
    assert answer == replace(
        PLAIN,
        text="ask @User B, then @Amux",
        mentions=(Mention(BOT, "Amux"), Mention("ou_b", "User B")),
        mentions_bot=True,
    )


@pytest.mark.rule("B6")
@pytest.mark.parametrize(
    ("text", "mentions", "expected", "addressed"),
    [
        ("@Amux please", [], "@Amux please", False),
        ("@_all please", [], "@all please", False),
        ("@_all please", [mention("@_all", BOT, "all")], "@all please", False),
        ("@_user_2 please", [AT_B], "@User B please", False),
        ("@_user_2 @_user_1 please", [AT_BOT, AT_B], "@User B @Amux please", True),
        ("  @_user_1   goal go", [AT_BOT], "goal go", True),
        ("@_user_1", [AT_BOT], "", True),
    ],
    ids=["spelt, not mentioned", "everyone", "everyone as an entity", "another", "not leading", "blanks", "alone"],
)
def test_who_is_addressed_is_decided_by_id(text: str, mentions: list[Any], expected: str, addressed: bool) -> None:
    answer = message(said({"text": text}, mentions=mentions))
    assert (answer.text, answer.mentions_bot) == (expected, addressed)


def test_placeholders_are_replaced_longest_first_and_once() -> None:
    people = [mention(f"@_user_{n}", f"ou_{n}", f"User {n}") for n in range(1, 11)]
    people[1]["name"] = "@_user_3"
    answer = message(said({"text": "@_user_10 @_user_1 @_user_2"}, mentions=people))
    assert answer.text == "@User 10 @User 1 @@_user_3"


def test_two_bots_of_one_group_have_their_own_inputs() -> None:
    """Both get the same message id (H34): keyed by it alone, the second bot's input would be a duplicate."""
    raw = json.dumps(said({"text": "@_user_1 @_user_2 go"}, mentions=[AT_BOT, AT_B])).encode()
    other = raw.replace(b'"app_id": "cli_a"', b'"app_id": "cli_b"')
    answers = normalize(raw, app=APP, bot=BOT), normalize(other, app="cli_b", bot="ou_b")
    assert [a.input_id for a in answers if isinstance(a, Message)] == ["feishu:cli_a:om_1", "feishu:cli_b:om_1"]
    assert all(isinstance(a, Message) and a.mentions_bot for a in answers)


def test_a_repeated_push_has_the_same_input() -> None:
    again = said({"text": "hello"})
    again["header"]["event_id"] = "ev_2"
    assert message(again).input_id == PLAIN.input_id


BOT_SENDER = {"sender_id": {"open_id": "ou_other"}, "sender_type": "bot"}


@pytest.mark.rule("I4")
@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        (BOT_SENDER, ("ou_other", SenderKind.bot)),
        ({"sender_id": {"app_id": "cli_z"}, "sender_type": "app"}, ("cli_z", SenderKind.bot)),
        ({"sender_id": {"open_id": None, "user_id": "a"}, "sender_type": "user"}, (None, SenderKind.none)),
        ({"sender_id": None, "sender_type": "user"}, (None, SenderKind.none)),
        ({"sender_id": {"open_id": "ou_a"}, "sender_type": "anonymous"}, (None, SenderKind.none)),
        ({"sender_type": "user"}, (None, SenderKind.none)),
    ],
    ids=["bot", "app", "person without open id", "person without ids", "unknown kind", "no ids"],
)
def test_a_missing_identity_is_nobody(sender: object, expected: tuple[str | None, SenderKind]) -> None:
    answer = message(said({"text": "hello"}, sender=sender))
    assert (answer.sender, answer.sender_kind) == expected


@pytest.mark.parametrize("ids", [{"open_id": BOT}, {"app_id": APP}])
def test_what_the_bot_said_itself_is_ignored(ids: object) -> None:
    sender = {"sender_id": ids, "sender_type": "app"}
    assert read(said({"text": "hello"}, sender=sender)) == Ignored(IgnoredReason.own_message)


TOPIC = {"thread_id": "omt_1"}


@pytest.mark.rule("I8")
@pytest.mark.parametrize(
    ("place", "thread", "quote"),
    [
        ({"root_id": "om_r", "parent_id": "om_r"} | TOPIC, "omt_1", None),
        (TOPIC, "omt_1", None),
        ({"root_id": "om_r", "parent_id": "om_q"} | TOPIC, "omt_1", "om_q"),
        ({"root_id": "om_q", "parent_id": "om_q"}, None, "om_q"),
        ({"root_id": "om_r", "parent_id": "om_q"}, None, "om_q"),
        ({"root_id": "omt_1", "parent_id": "om_r"}, "omt_1", None),
        ({"root_id": "", "parent_id": "", "thread_id": ""}, None, None),
        ({}, None, None),
    ],
    ids=["reply in a topic", "typed into a topic", "quoted in a topic", "quoted in a chat", "quoted in a chain",
         "topic as root", "empty ids", "starter"],
)  # fmt: skip
def test_only_an_explicit_quote_is_one(place: dict[str, str], thread: str | None, quote: str | None) -> None:
    answer = message(said({"text": "hello"}, **place))
    assert (answer.thread_id, answer.quote) == (thread, quote)


@pytest.mark.rule("I8")
@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("image", {"image_key": "img_1"}, Material(MaterialKind.image, "img_1")),
        ("file", {"file_key": "f_1", "file_name": "a.txt"}, Material(MaterialKind.file, "f_1", "a.txt")),
        ("audio", {"file_key": "f_1", "duration": 2000}, Material(MaterialKind.audio, "f_1")),
        ("media", {"file_key": "f_1", "image_key": "i", "file_name": "a.mp4", "duration": 1},
         Material(MaterialKind.video, "f_1", "a.mp4")),
        ("sticker", {"file_key": "f_1"}, Material(MaterialKind.sticker, "f_1")),
        ("folder", {"file_key": "f_1", "file_name": "d"}, Material(MaterialKind.folder, "f_1", "d")),
        ("merge_forward", {"content": "Merged and Forwarded Message"}, Material(MaterialKind.forward, "")),
        ("location", {"name": "x"}, Material(MaterialKind.other, "", "location")),
        ("image", "no json", Material(MaterialKind.image, "")),
    ],
)  # fmt: skip
def test_material(kind: str, content: object, expected: Material) -> None:
    answer = message(said(content, kind=kind))
    assert (answer.text, answer.material) == ("", (expected,))


def test_a_post_is_text_with_its_images_as_material() -> None:
    post = {
        "title": "Report",
        "content": [
            [{"tag": "at", "user_id": "@_user_1", "user_name": "Amux"}, {"tag": "text", "text": " look at "},
             {"tag": "a", "text": "this", "href": "https://example.com/"}, {"tag": "emotion", "emoji_type": "OK"}],
            [{"tag": "img", "image_key": "img_1"}],
            [{"tag": "code_block", "language": "PYTHON", "text": "print(1)\n"}],
            [{"tag": "at", "user_id": "all"}, {"tag": "hr"}, {"tag": "media", "file_key": "f_1"}, "odd", {}],
        ],
    }  # fmt: skip
    answer = message(said(post, kind="post", mentions=[AT_BOT]))
    assert answer.text == ("Report\nlook at this (https://example.com/):OK:\n\n\n```python\nprint(1)\n```\n\n@all\n---")
    assert answer.mentions_bot
    assert answer.material == (Material(MaterialKind.image, "img_1"), Material(MaterialKind.video, "f_1"))


def test_nothing_unstorable_gets_through() -> None:
    """A NUL or a lone surrogate would fail the whole group of appends it is in (H5)."""
    raw = json.dumps(said(r'{"text": "a\u0000b \ud83d c \ud83d\ude00"}')).encode()
    answer = normalize(raw.replace(b'"om_1"', b'"om_\\ud800"'), app=APP, bot=BOT)
    assert isinstance(answer, Message)
    assert (answer.text, answer.message_id) == ("a\ufffdb \ufffd c \U0001f600", "om_\ufffd")


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    raw = json.dumps(said({"text": "hello"})).encode().replace(b"hello", b"hel\xfflo")
    assert normalize(raw, app=APP, bot=BOT) == replace(PLAIN, text="hel\ufffdlo")


def click(value: object, **event: object) -> dict[str, Any]:
    body = {
        "operator": {"tenant_key": "736", "open_id": "ou_a", "union_id": "on_a"},
        "token": "c-295",
        "action": {"value": value, "tag": "button", "name": "b1", "timezone": "Asia/Shanghai"},
        "host": "im_message",
        "context": {"open_message_id": "om_card", "open_chat_id": "oc_1"},
    }
    return envelope("card.action.trigger", body | event, create_time="1609073151345678")


CLICK = CardAction(
    input_id=InputId("feishu:cli_a:ev_1"),
    app=APP,
    event_id="ev_1",
    message_id="om_card",
    chat_id="oc_1",
    sender="ou_a",
    clicked_at=1609073151345,
    value={"do": "interrupt", "turn": 7},
)


def test_a_click() -> None:
    assert read(click({"do": "interrupt", "turn": 7})) == CLICK


@pytest.mark.parametrize(
    ("value", "expected"),
    [('{"do": "interrupt", "turn": 7}', CLICK.value), ("plain", {}), ("[1]", {}), (None, {}), (7, {})],
)
def test_a_button_value_that_is_no_object_still_has_an_answer(value: object, expected: object) -> None:
    answer = read(click(value))
    assert isinstance(answer, CardAction)
    assert answer.value == expected


def test_a_click_without_an_operator_is_nobodys() -> None:
    assert read(click(CLICK.value, operator=None)) == replace(CLICK, sender=None)


def test_a_recall_names_the_input_it_takes_back() -> None:
    event = {"message_id": "om_1", "chat_id": "oc_1", "recall_time": "1609073151777", "recall_type": "message_owner"}
    assert read(envelope("im.message.recalled_v1", event)) == Recalled(
        input_id=InputId("feishu:cli_a:ev_1"),
        app=APP,
        event_id="ev_1",
        target=PLAIN.input_id,
        message_id="om_1",
        chat_id="oc_1",
        recalled_at=1609073151777,
    )


DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Ignored(IgnoredReason.not_json)),
        (b"\xff\xfe{", Ignored(IgnoredReason.not_json)),
        (DEEP, Ignored(IgnoredReason.not_json)),
        (b" " * (MAX_BYTES + 1), Ignored(IgnoredReason.too_large, f"{MAX_BYTES + 1} bytes")),
        (b"[]", Ignored(IgnoredReason.malformed, "Expected `object`, got `array`")),
        (b"null", Ignored(IgnoredReason.malformed, "Expected `object`, got `null`")),
        (b'{"encrypt": "x"}', Ignored(IgnoredReason.malformed, "Object missing required field `header`")),
        (json.dumps(envelope("im.message.receive_v1", None)).encode(),
         Ignored(IgnoredReason.malformed, "Expected `object`, got `null` - at `$.event`")),
        (json.dumps(said({"text": "a"}, chat_id=None)).encode(),
         Ignored(IgnoredReason.malformed, "Object missing required field `chat_id` - at `$.event.message`")),
        (json.dumps(said({"text": "a"}, chat_id=7)).encode(),
         Ignored(IgnoredReason.malformed, "Expected `str`, got `int` - at `$.event.message.chat_id`")),
        (json.dumps(said({"text": "a"}, create_time="soon")).encode(), Ignored(IgnoredReason.malformed)),
        (json.dumps(said({}, kind="system")).encode(), Ignored(IgnoredReason.system_message)),
        (json.dumps(envelope("brand.new_v9", {})).encode(), Ignored(IgnoredReason.unknown_type, "brand.new_v9")),
        (json.dumps(envelope("im.message.message_read_v1", {})).encode(),
         Ignored(IgnoredReason.no_interest, "im.message.message_read_v1")),
        (json.dumps(envelope("im.message.receive_v1", {}, app_id="cli_z")).encode(),
         Ignored(IgnoredReason.foreign_app)),
    ],
    ids=["empty", "no text", "too deep", "too large", "a list", "null", "encrypted", "no event", "a field missing",
         "a field of another type", "no time", "system", "unknown type", "not for us", "of another app"],
)  # fmt: skip
def test_what_cannot_be_read_is_ignored_with_a_reason(raw: bytes, expected: Ignored) -> None:
    assert normalize(raw, app=APP, bot=BOT) == expected


def test_every_reason_to_ignore_has_a_case() -> None:
    marks = test_what_cannot_be_read_is_ignored_with_a_reason.pytestmark  # type: ignore[attr-defined]
    seen = {expected.reason for _, expected in marks[0].args[1]} | {IgnoredReason.own_message}
    assert seen == set(IgnoredReason)
