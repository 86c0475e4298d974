"""What a bot sends, changes and takes back over REST: messages, their edits, reactions. A send with a uuid happens once
in its hour, whatever it says the second time."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, replace

from amux.sandbox import cards, events
from amux.sandbox.cards import BadCard
from amux.sandbox.changes import ChangeKind
from amux.sandbox.pace import DAY_MS, HOUR_MS
from amux.sandbox.reading import joined_chat, message_object, seen_message
from amux.sandbox.records import (
    CardId,
    Chat,
    ChatMode,
    Json,
    Message,
    MessageId,
    Person,
    Reaction,
    Revision,
    ThreadId,
    Via,
    dumps,
    open_id,
    private_chat_id,
    union_id,
)
from amux.sandbox.rest import ApiError, Call, Table, bad_parameter

MAX_TEXT, MAX_POST, MAX_EDITS, MAX_UUID = 150 * 1024, 30 * 1024, 20, 50
TOO_LONG, RECALLED, FREQUENT, NOT_SENDER = 230025, 230011, 230020, 230071
EMOJI = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Content:
    """A content that was found good; `entity` is the card that it names."""

    msg_type: str
    text: str
    entity: CardId | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes, and what it answers."""

    chat: Chat
    answers: MessageId | None = None
    root: MessageId | None = None
    parent: MessageId | None = None
    thread: ThreadId | None = None


def create(call: Call) -> Json:
    """A new message in a chat, or in the private chat with a person. Where every message opens a topic, so does this."""
    chat = _receiver(call)
    thread = ThreadId("omt_" + uuid.uuid4().hex[:16]) if chat.mode is ChatMode.topics else None
    return _send(call, Place(chat, thread=thread))


def reply(call: Call) -> Json:
    """An answer to a message. In a topic it stays there; elsewhere `reply_in_thread` opens a topic."""
    again = _sent_before(call)
    if again is not None:
        return again
    target = seen_message(call, call.path["message_id"])
    if target.recalled_ms is not None:
        raise ApiError(RECALLED, "The message has been recalled.")
    chat = call.world.chats[target.chat]
    if target.thread is None and call.body.get("reply_in_thread") is not True:
        return _send(call, Place(chat, target.id, target.root or target.id, target.id))
    _content(call)  # before a topic is made for it
    thread = call.world.thread_of(target.id)
    root = call.world.topics[thread].root
    return _send(call, Place(chat, target.id, root, root, thread))


def patch(call: Call) -> Json:
    """Another card in the place of a card, whole."""
    message = _own(call, NOT_SENDER, "The operator is not the sender of the message.")
    if message.msg_type != "interactive":
        raise bad_parameter("This message is NOT a card.")
    if call.world.clock.now_ms() - message.created_ms > 14 * DAY_MS:
        raise ApiError(230031, "The message is too old to be updated.")
    if not call.world.meter.admits("patch", message.id, limit=call.world.limits.patches_per_message):
        raise ApiError(FREQUENT, "The message is updated too frequently.")
    text = call.text("content")
    card = _card(text)
    entity = call.world.entities.get(message.entity) if message.entity else None
    if entity is not None:
        since = call.world.clock.now_ms() if cards.wants_streaming(card) else None
        call.world.entities[entity.id] = replace(entity, card=card, streaming_since_ms=since)
    call.world.revise(message.id, text, Via.patched)
    return {"data": {}}


def put(call: Call) -> Json:
    """Another text or post in the place of a text or post, 20 times at most."""
    message = _own(call, NOT_SENDER, "The operator is not the sender of the message.")
    if message.msg_type not in ("text", "post") or call.text("msg_type") != message.msg_type:
        raise bad_parameter("only a text or a post can be edited, and into its own kind.")
    if len(message.revisions) > MAX_EDITS:
        raise ApiError(230072, "The message has reached the number of times it can be edited.")
    call.world.revise(message.id, _content(call).text, Via.edited)
    return {"data": message_object(call, call.world.messages[message.id])}


def delete(call: Call) -> Json:
    message = _own(call, 230026, "The operator has no permission to recall the message.")
    if call.world.clock.now_ms() - message.created_ms > DAY_MS:
        raise ApiError(230009, "The message is too old to be recalled.")
    call.world.retract(message.id)
    return {"data": {}}


def react(call: Call) -> Json:
    message = seen_message(call, call.path["message_id"])
    if message.recalled_ms is not None:
        raise ApiError(231003, "The message is not found, recalled or deleted.")
    emoji = (call.body.get("reaction_type") or {}).get("emoji_type")
    if not isinstance(emoji, str) or not EMOJI.fullmatch(emoji):
        raise ApiError(231001, "The reaction type is invalid.")
    reaction = Reaction(uuid.uuid4().hex, emoji, call.bot.app_id, call.world.clock.now_ms())
    _set_reactions(call, message, (*message.reactions, reaction), events.REACTED, reaction)
    return {"data": _reaction(reaction)}


def reactions(call: Call) -> Json:
    message = seen_message(call, call.path["message_id"])
    return {"data": {"items": [_reaction(r) for r in message.reactions], "has_more": False, "page_token": ""}}


def unreact(call: Call) -> Json:
    message = seen_message(call, call.path["message_id"])
    gone = [r for r in message.reactions if r.id == call.path["reaction_id"] and r.app == call.bot.app_id]
    if not gone:
        raise ApiError(231001, "The reaction is not found.")
    kept = tuple(r for r in message.reactions if r is not gone[0])
    _set_reactions(call, message, kept, events.UNREACTED, gone[0])
    return {"data": _reaction(gone[0])}


def _send(call: Call, place: Place) -> Json:
    again = _sent_before(call)
    if again is not None:
        return again
    world, now = call.world, call.world.clock.now_ms()
    content = _content(call)
    if not world.meter.admits("chat", place.chat.id, limit=world.limits.sends_per_chat):
        raise ApiError(FREQUENT, "Messages are sent to this chat too frequently.")
    message = Message(
        id=world.new_message_id(),
        chat=place.chat.id,
        person=None,
        app=call.bot.app_id,
        msg_type=content.msg_type,
        created_ms=world.clock.moment_ms(),
        revisions=(Revision(now, Via.sent, content.text),),
        root=place.root,
        parent=place.parent,
        thread=place.thread,
        answers=place.answers,
        uuid=call.text("uuid", ""),
        entity=content.entity,
    )
    if content.entity is not None:
        world.entities[content.entity] = replace(world.entities[content.entity], message=message.id)
    if message.uuid:
        world.sends[call.bot.app_id, message.uuid] = message.id
    world.add(message)
    return {"data": message_object(call, message)}


def _sent_before(call: Call) -> Json | None:
    """The answer of an earlier send with the same uuid, within its hour; the contents are not compared."""
    key = call.text("uuid", "")
    if len(key) > MAX_UUID:
        raise bad_parameter("uuid is longer than 50 characters.")
    before = call.world.messages.get(call.world.sends.get((call.bot.app_id, key), MessageId("")))
    if not key or before is None or call.world.clock.now_ms() - before.created_ms > HOUR_MS:
        return None
    return {"data": message_object(call, before)}


def _receiver(call: Call) -> Chat:
    kind, who = call.query.get("receive_id_type"), call.text("receive_id")
    if kind == "chat_id":
        return joined_chat(call, who)
    app = call.bot.app_id
    ways = {"open_id": lambda p: open_id(app, p.id), "union_id": lambda p: union_id(p.id)}
    if kind not in ways:
        raise bad_parameter("receive_id_type must be chat_id, open_id or union_id.")
    found: list[Person] = [p for p in call.world.people.values() if ways[kind](p) == who]
    if not found:
        raise bad_parameter("invalid receive_id.")
    return call.world.chats[private_chat_id(found[0].id, app)]


def _own(call: Call, code: int, msg: str) -> Message:
    """The message to change. Raises ApiError when it is gone, or `code` when another wrote it."""
    message = seen_message(call, call.path["message_id"])
    if message.recalled_ms is not None:
        raise ApiError(RECALLED, "The message has been recalled.")
    if message.app != call.bot.app_id:
        raise ApiError(code, msg)
    return message


def _content(call: Call) -> Content:
    """The content of a send or an edit, found good. Raises ApiError when it is not."""
    msg_type, text = call.text("msg_type"), call.text("content")
    try:
        body = json.loads(text)
    except ValueError as e:
        raise bad_parameter("content is not a string in json format.") from e
    match msg_type:
        case "text" if isinstance(body, dict) and isinstance(body.get("text"), str) and body["text"]:
            most = MAX_TEXT
        case "post" if isinstance(body, dict):
            most = MAX_POST
        case "interactive":
            return _interactive(call, text, body)
        case "text" | "post":
            raise bad_parameter("content does not fit msg_type.")
        case _:
            raise ApiError(230054, "This type of message is not supported.")
    if len(text.encode()) > most:
        raise ApiError(TOO_LONG, "The length of the message content reaches its limit.")
    return Content(msg_type, text)


def _interactive(call: Call, text: str, body: object) -> Content:
    """A card given whole, or a card entity by its id, which can be sent once."""
    if not (isinstance(body, dict) and body.get("type") == "card"):
        _card(text)
        return Content("interactive", text)
    card_id = CardId(str((body.get("data") or {}).get("card_id", "")))
    entity = call.world.entities.get(card_id)
    if entity is None or entity.app != call.bot.app_id or entity.message is not None:
        raise _bad_content(BadCard(cards.TABLES, "cardid is invalid"))
    return Content("interactive", dumps(entity.card), entity.id)


def _card(text: str) -> Json:
    try:
        return cards.check(text)
    except BadCard as bad:
        raise _bad_content(bad) from bad


def _bad_content(bad: BadCard) -> ApiError:
    if bad.code == cards.TOO_BIG:
        return ApiError(TOO_LONG, "The length of the message content reaches its limit.")
    code = cards.TABLES if bad.code == cards.TOO_MANY else bad.code
    return ApiError(230099, f"Failed to create card content, ext=ErrCode: {code}; ErrMsg: {bad.text};")


def _set_reactions(
    call: Call, message: Message, left: tuple[Reaction, ...], event_type: str, reaction: Reaction
) -> None:
    call.world.messages[message.id] = replace(message, reactions=left)
    call.world.log.note(
        ChangeKind.reaction_changed, chat=message.chat, thread=message.thread, message=message.id, app=call.bot.app_id
    )
    event = events.reacted(message.id, reaction)
    call.world.publish(call.bot.app_id, event_type, event, chat=message.chat, message=message.id)


def _reaction(reaction: Reaction) -> Json:
    return {
        "reaction_id": reaction.id,
        "operator": {"operator_id": reaction.app, "operator_type": "app"},
        "action_time": str(reaction.at_ms),
        "reaction_type": {"emoji_type": reaction.emoji},
    }


TABLE: Table = {
    ("POST", "/im/v1/messages"): create,
    ("POST", "/im/v1/messages/{message_id}/reply"): reply,
    ("PATCH", "/im/v1/messages/{message_id}"): patch,
    ("PUT", "/im/v1/messages/{message_id}"): put,
    ("DELETE", "/im/v1/messages/{message_id}"): delete,
    ("POST", "/im/v1/messages/{message_id}/reactions"): react,
    ("GET", "/im/v1/messages/{message_id}/reactions"): reactions,
    ("DELETE", "/im/v1/messages/{message_id}/reactions/{reaction_id}"): unreact,
}
