"""What there is in the cloud: people, bots, chats, topics, messages, card entities, and the ids they go by. Plain frozen
values; the World holds and changes them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NewType

Json = dict[str, Any]
PersonId = NewType("PersonId", str)
AppId = NewType("AppId", str)
ChatId = NewType("ChatId", str)
ThreadId = NewType("ThreadId", str)
MessageId = NewType("MessageId", str)
CardId = NewType("CardId", str)

TENANT_KEY = "736588c9260f175d"


class WorldError(Exception):
    """A person tried what Feishu's client would not offer: not in this chat, no such button, not their message."""


class Hears(StrEnum):
    """Which group messages reach a bot, by its scopes: all of them, or only those that mention it."""

    all_messages = "all_messages"
    mentions = "mentions"


class ChatMode(StrEnum):
    """An ordinary group, a group in which every top-level message is a topic, or one person's chat with one bot."""

    group = "group"
    topics = "topics"
    private = "private"


class Via(StrEnum):
    """By which call a message got a new content."""

    sent = "sent"
    patched = "patched"
    edited = "edited"
    clicked = "clicked"
    entity_content = "entity_content"
    entity_settings = "entity_settings"
    entity_updated = "entity_updated"
    entity_batch = "entity_batch"


@dataclass(frozen=True, slots=True)
class Person:
    id: PersonId
    name: str


@dataclass(frozen=True, slots=True)
class Bot:
    """One app with a bot. `owner` made it; what that allows is for the app to decide, not for the cloud."""

    app_id: AppId
    secret: str
    name: str
    owner: PersonId
    hears: Hears = Hears.all_messages


@dataclass(frozen=True, slots=True)
class Chat:
    id: ChatId
    name: str
    mode: ChatMode
    members: frozenset[PersonId]
    bots: frozenset[AppId]


@dataclass(frozen=True, slots=True)
class Topic:
    id: ThreadId
    chat: ChatId
    root: MessageId


@dataclass(frozen=True, slots=True)
class Mention:
    """A placeholder in a text and whom it stands for."""

    key: str
    who: PersonId | AppId
    name: str
    kind: str
    "`bot` or `user`"


@dataclass(frozen=True, slots=True)
class Revision:
    """One content that a message has had. `sequence` is CardKit's, where the change came that way."""

    at_ms: int
    via: Via
    content: str
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Reaction:
    id: str
    emoji: str
    app: AppId
    at_ms: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the cloud keeps it. Exactly one of `person` and `app` wrote it. `answers` is the message whose id
    a bot named in its reply, which `parent` is not inside a topic: there every message hangs on the root."""

    id: MessageId
    chat: ChatId
    person: PersonId | None
    app: AppId | None
    msg_type: str
    created_ms: int
    revisions: tuple[Revision, ...]
    root: MessageId | None = None
    parent: MessageId | None = None
    thread: ThreadId | None = None
    answers: MessageId | None = None
    mentions: tuple[Mention, ...] = ()
    uuid: str = ""
    entity: CardId | None = None
    recalled_ms: int | None = None
    reactions: tuple[Reaction, ...] = ()

    @property
    def content(self) -> str:
        """The content that stands now, as JSON text; of a card, the card itself."""
        return self.revisions[-1].content

    @property
    def text(self) -> str:
        """What a text says, with names in the place of its placeholders."""
        text = str(json.loads(self.content).get("text", ""))
        for mention in sorted(self.mentions, key=lambda m: -len(m.key)):  # @_user_1 is a prefix of @_user_10
            text = text.replace(mention.key, "@" + mention.name)
        return text

    @property
    def card(self) -> Json | None:
        """The card as it stands now, or None when this is no card."""
        return json.loads(self.content) if self.msg_type == "interactive" else None


@dataclass(frozen=True, slots=True)
class Entity:
    """A CardKit card: updated by sequence, sent once. `streaming_since_ms` is None while streaming is off."""

    id: CardId
    app: AppId
    card: Json
    created_ms: int
    sequence: int = 0
    streaming_since_ms: int | None = None
    message: MessageId | None = None
    uuids: frozenset[str] = frozenset()


def open_id(app: AppId, who: PersonId | AppId) -> str:
    """How one app sees one person or bot: another id for every app, the same at every start."""
    return "ou_" + _digest(f"open/{app}/{who}")


def union_id(who: PersonId | AppId) -> str:
    """How all apps of one developer see one person or bot."""
    return "on_" + _digest(f"union/{who}")


def chat_id(name: str) -> ChatId:
    """The id of a chat, made from its name, so that what was bound to it still holds after a restart."""
    return ChatId("oc_" + _digest(f"chat/{name}"))


def private_chat_id(person: PersonId, app: AppId) -> ChatId:
    return ChatId("oc_" + _digest(f"private/{person}/{app}"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def dumps(value: Any) -> str:
    """JSON as Feishu writes it: compact, and Han as it stands."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
