"""What a bot reads over REST: messages, their history, chats and their members. Changes nothing."""

from __future__ import annotations

from typing import Any, TypeVar

from amux.sandbox.records import (
    TENANT_KEY,
    Chat,
    ChatId,
    ChatMode,
    Json,
    Message,
    MessageId,
    ThreadId,
    dumps,
    open_id,
)
from amux.sandbox.rest import ApiError, Call, Table, bad_parameter

MAX_PAGE, MAX_MEMBERS = 50, 100
UNREADABLE = "Please upgrade to the latest version to view the content"
RECALLED = "This message was recalled"
T = TypeVar("T")


def message_object(call: Call, message: Message) -> Json:
    """A message as REST shows it to this bot: ids of people are its own, `mentions[].id` is a string here."""
    edited = len(message.revisions) > 1 and message.msg_type != "interactive"
    found: Json = {"message_id": message.id}
    ids = {"root_id": message.root, "parent_id": message.parent, "thread_id": message.thread}
    found |= {key: value for key, value in ids.items() if value is not None}
    found |= {
        "msg_type": message.msg_type,
        "create_time": str(message.created_ms),
        "update_time": str(max(message.created_ms, message.revisions[-1].at_ms)),
        "deleted": message.recalled_ms is not None,
        "updated": edited,
        "chat_id": message.chat,
        "sender": _sender(call, message),
        "body": {"content": _content(call, message)},
    }
    if message.mentions:
        app = call.bot.app_id
        names = [(m.key, open_id(app, m.who), m.name) for m in message.mentions]
        keys = ("key", "id", "name")
        fixed = {"id_type": "open_id", "tenant_key": TENANT_KEY}
        found["mentions"] = [dict(zip(keys, name, strict=True)) | fixed for name in names]
    return found


def seen_message(call: Call, message_id: str) -> Message:
    """The message a call is about. Raises ApiError when there is none, or the bot is not in its chat."""
    message = call.world.messages.get(MessageId(message_id))
    if message is None:
        raise bad_parameter("invalid message_id.")
    joined_chat(call, message.chat)
    return message


def joined_chat(call: Call, chat_id: str) -> Chat:
    """The chat a call is about. Raises ApiError when there is none, or the bot is not in it."""
    chat = call.world.chats.get(ChatId(chat_id))
    if chat is None:
        raise bad_parameter("invalid receive_id.")
    if call.bot.app_id not in chat.bots:
        raise ApiError(230002, "Bot/User can NOT be out of the chat.")
    return chat


def get(call: Call) -> Json:
    return {"data": {"items": [message_object(call, seen_message(call, call.path["message_id"]))]}}


def listing(call: Call) -> Json:
    """The history of a chat, which holds of each topic the first message only unless asked for all; or of a topic, to
    which no times apply."""
    match call.query.get("container_id_type"):
        case "chat":
            chat = joined_chat(call, call.query.get("container_id", "")).id
            found = [m for m in call.world.messages.values() if m.chat == chat]
            if call.query.get("only_thread_root_messages") != "false":
                found = [m for m in found if m.thread is None or m.root is None]
            start, end = (int(call.query.get(key) or default) for key, default in (("start_time", 0), ("end_time", 0)))
            found = [m for m in found if start * 1000 <= m.created_ms <= (end * 1000 + 999 if end else m.created_ms)]
        case "thread":
            topic = call.world.topics.get(ThreadId(call.query.get("container_id", "")))
            if topic is None:
                raise ApiError(230019, "The topic does not exist.")
            joined_chat(call, topic.chat)
            found = [m for m in call.world.messages.values() if m.thread == topic.id]
        case other:
            raise bad_parameter(f"invalid container_id_type {other}.")
    found.sort(key=lambda m: m.created_ms, reverse=call.query.get("sort_type") == "ByCreateTimeDesc")
    items, page = _page(call, found, most=MAX_PAGE)
    return {"data": {"items": [message_object(call, m) for m in items], **page}}


def chat_info(call: Call) -> Json:
    chat = _chat(call)
    data: Json = {"name": chat.name, "i18n_names": {"zh_cn": chat.name, "en_us": chat.name}, **_mode(chat)}
    data |= {"owner_id": open_id(call.bot.app_id, min(chat.members)), "owner_id_type": "open_id"}
    data |= {"tenant_key": TENANT_KEY, "user_count": str(len(chat.members)), "bot_count": str(len(chat.bots))}
    return {"data": data | {"external": False, "chat_status": "normal"}}


def members(call: Call) -> Json:
    """The people in a chat; bots are not listed."""
    chat = _chat(call)
    people, page = _page(call, sorted(chat.members), most=MAX_MEMBERS)
    items = [
        {
            "member_id": open_id(call.bot.app_id, person),
            "member_id_type": "open_id",
            "name": call.world.people[person].name,
            "tenant_key": TENANT_KEY,
        }
        for person in people
    ]
    return {"data": {"items": items, **page, "member_total": len(chat.members)}}


def chats(call: Call) -> Json:
    """The groups the bot is in; private chats are not listed."""
    joined = [
        {"chat_id": chat.id, "name": chat.name, "tenant_key": TENANT_KEY, "external": False, "chat_status": "normal"}
        for chat in call.world.chats.values()
        if call.bot.app_id in chat.bots and chat.mode is not ChatMode.private
    ]
    items, page = _page(call, joined, most=MAX_MEMBERS)
    return {"data": {"items": items, **page}}


def _chat(call: Call) -> Chat:
    chat = call.world.chats.get(ChatId(call.path["chat_id"]))
    if chat is None:
        raise ApiError(232006, "Your request specifies a chat_id which is invalid.")
    if call.bot.app_id not in chat.bots:
        raise ApiError(232011, "Operator can NOT be out of the chat.")
    return chat


def _mode(chat: Chat) -> Json:
    match chat.mode:
        case ChatMode.private:
            return {"chat_mode": "p2p"}
        case ChatMode.topics:
            return {"chat_mode": "group", "chat_type": "private", "group_message_type": "thread"}
        case ChatMode.group:
            return {"chat_mode": "group", "chat_type": "private", "group_message_type": "chat"}


def _sender(call: Call, message: Message) -> Json:
    if message.app is not None:
        return {"id": message.app, "id_type": "app_id", "sender_type": "app", "tenant_key": TENANT_KEY}
    assert message.person is not None
    person = open_id(call.bot.app_id, message.person)
    return {"id": person, "id_type": "open_id", "sender_type": "user", "tenant_key": TENANT_KEY}


def _content(call: Call, message: Message) -> str:
    """A card does not come back as it was sent, unless asked for."""
    if message.recalled_ms is not None:
        return RECALLED
    card = message.card
    if card is None:
        return message.content
    if call.query.get("card_msg_content_type") == "raw_card_content":
        return dumps({"json_card": message.content, "card_schema": 2})
    title = card.get("header", {}).get("title", {}).get("content")
    return dumps({"title": title, "elements": [[{"tag": "text", "text": UNREADABLE}]]})


def _page(call: Call, found: list[T], *, most: int) -> tuple[list[T], dict[str, Any]]:
    try:
        size = int(call.query.get("page_size") or 20)
        start = int(call.query.get("page_token") or 0)
    except ValueError as e:
        raise bad_parameter("invalid page_size or page_token.") from e
    if not 1 <= size <= most:
        raise bad_parameter(f"page_size must be from 1 to {most}.")
    more = start + size < len(found)
    return found[start : start + size], {"has_more": more, "page_token": str(start + size) if more else ""}


def user(call: Call) -> Json:
    """A person's name, to a bot that may ask for it."""
    wanted = call.path["user_id"]
    found = [p for p in call.world.people.values() if open_id(call.bot.app_id, p.id) == wanted]
    if not found:
        raise ApiError(41050, "no user authority error")
    return {"data": {"user": {"open_id": wanted, "name": found[0].name, "en_name": found[0].name}}}


TABLE: Table = {
    ("GET", "/im/v1/messages"): listing,
    ("GET", "/im/v1/messages/{message_id}"): get,
    ("GET", "/im/v1/chats"): chats,
    ("GET", "/contact/v3/users/{user_id}"): user,
    ("GET", "/im/v1/chats/{chat_id}"): chat_info,
    ("GET", "/im/v1/chats/{chat_id}/members"): members,
}
