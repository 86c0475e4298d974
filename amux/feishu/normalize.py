"""What Feishu pushed, as typed values: raw event bytes in, one of four frozen answers out.

Pure. It never raises, asks nobody and decides nothing: whether a message starts work, steers or is only context
is for routing and admission to say. Whatever cannot be read is `Ignored` with a reason, because an exception here
would refuse the push and have Feishu send the same poison four times more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from amux.core.ids import InputId
from amux.feishu.content import Material, loads, obj, read

MAX_BYTES = 8 << 20  # a message holds 150 KB at most; what is somewhat above is refused by name, not dropped here

ChatType = StrEnum("ChatType", "p2p group")
SenderKind = StrEnum("SenderKind", "person bot none")
IgnoredReason = StrEnum(
    "IgnoredReason", "too_large not_json malformed unknown_type no_interest own_message foreign_app system_message"
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Somebody named in the message by an entity, not by its spelling; everyone (`@_all`) is nobody."""

    open_id: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said in a chat. `sent_at` is in milliseconds of Feishu's clock.

    `text` has its placeholders replaced and the leading mention of this bot removed. `quote` is the message that the
    sender explicitly quoted; the parent that every reply inside a topic has is no quote (I8).
    """

    input_id: InputId
    app: str
    event_id: str
    message_id: str
    chat_id: str
    chat_type: ChatType
    thread_id: str | None
    root_id: str | None
    parent_id: str | None
    sender: str | None
    sender_kind: SenderKind
    sent_at: int
    text: str
    mentions: tuple[Mention, ...] = ()
    mentions_bot: bool = False
    material: tuple[Material, ...] = ()
    quote: str | None = None


@dataclass(frozen=True, slots=True)
class CardAction:
    """A press on one of our cards. `value` is what the button carries: forgeable, so it is looked up, never believed
    (H24). It is empty when the button carried something else than an object. `clicked_at` is in milliseconds."""

    input_id: InputId
    app: str
    event_id: str
    message_id: str
    chat_id: str
    sender: str | None
    clicked_at: int
    value: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Recalled:
    """A message was taken back; it may arrive before that message does. `target` is that message's own input."""

    input_id: InputId
    app: str
    event_id: str
    target: InputId
    message_id: str
    chat_id: str
    recalled_at: int


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing to do. `detail` names a type or a field, never content."""

    reason: IgnoredReason
    detail: str = ""


Normalized = Message | CardAction | Recalled | Ignored

T = TypeVar("T")


class _Header(msgspec.Struct):
    event_type: str
    event_id: str
    create_time: str | int = "0"
    app_id: str | None = None


class _Envelope(msgspec.Struct, Generic[T]):
    header: _Header
    event: T


class _Id(msgspec.Struct):
    open_id: str | None = None
    app_id: str | None = None


class _Sender(msgspec.Struct):
    sender_id: _Id | None = None
    sender_type: str | None = None


class _Mention(msgspec.Struct):
    key: str
    id: _Id | None = None
    name: str | None = None


class _Said(msgspec.Struct):
    message_id: str
    chat_id: str
    chat_type: str
    message_type: str
    content: str
    create_time: str | int
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: list[_Mention] | None = None


class _Receive(msgspec.Struct):
    message: _Said
    sender: _Sender | None = None


class _Recall(msgspec.Struct):
    message_id: str
    chat_id: str = ""
    recall_time: str | int | None = None


class _Action(msgspec.Struct):
    value: object = None


class _Place(msgspec.Struct):
    open_message_id: str = ""
    open_chat_id: str = ""


class _Click(msgspec.Struct):
    action: _Action
    context: _Place
    operator: _Id | None = None


def normalize(raw: bytes, *, app: str, bot: str) -> Normalized:
    """Read one push to `app`, whose bot's own open_id is `bot`. Every input has an answer; nothing is raised."""
    if len(raw) > MAX_BYTES:
        return Ignored(IgnoredReason.too_large, f"{len(raw)} bytes")
    try:
        event = loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Ignored(IgnoredReason.not_json)
    try:
        return _read(event, app, bot)
    except msgspec.ValidationError as e:
        return Ignored(IgnoredReason.malformed, str(e)[:200])  # names fields and types, never values
    except (ValueError, RecursionError):
        return Ignored(IgnoredReason.malformed)


def _read(event: object, app: str, bot: str) -> Normalized:
    header = msgspec.convert(event, _Envelope[object]).header
    if header.app_id not in (None, "", app):
        return Ignored(IgnoredReason.foreign_app)
    match header.event_type:
        case "im.message.receive_v1":
            return _message(header, msgspec.convert(event, _Envelope[_Receive]).event, app, bot)
        case "card.action.trigger":
            return _click(header, msgspec.convert(event, _Envelope[_Click]).event, app)
        case "im.message.recalled_v1":
            return _recalled(header, msgspec.convert(event, _Envelope[_Recall]).event, app)
        case kind if kind in NO_INTEREST:
            return Ignored(IgnoredReason.no_interest, kind)
        case kind:
            return Ignored(IgnoredReason.unknown_type, kind[:100])


NO_INTEREST = frozenset({
    "im.message.message_read_v1", "im.message.reaction.created_v1", "im.message.reaction.deleted_v1",
    "im.chat.access_event.bot_p2p_chat_entered_v1", "im.chat.updated_v1", "im.chat.disbanded_v1",
    "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1", "im.chat.member.user.added_v1",
    "im.chat.member.user.deleted_v1", "im.chat.member.user.withdrawn_v1", "application.bot.menu_v6",
})  # fmt: skip


def _message(header: _Header, event: _Receive, app: str, bot: str) -> Message | Ignored:
    said, sender, kind = event.message, *_sender(event.sender)
    if kind is SenderKind.bot and sender in (bot, app):
        return Ignored(IgnoredReason.own_message)
    if said.message_type == "system":
        return Ignored(IgnoredReason.system_message)
    thread = said.thread_id or _thread_in(said.root_id)
    named = {m.key: (_open_id(m), m.name or "") for m in said.mentions or () if m.key and m.key != "@_all"}
    text, material = read(said.message_type, said.content, named, bot=bot)
    return Message(
        input_id=InputId(f"feishu:{app}:{said.message_id}"),
        app=app,
        event_id=header.event_id,
        message_id=said.message_id,
        chat_id=said.chat_id,
        chat_type=ChatType.p2p if said.chat_type == "p2p" else ChatType.group,
        thread_id=thread,
        root_id=said.root_id or None,
        parent_id=said.parent_id or None,
        sender=sender,
        sender_kind=kind,
        sent_at=_ms(said.create_time),
        text=text,
        mentions=tuple(Mention(who, name) for who, name in named.values()),
        mentions_bot=any(who == bot for who, _ in named.values()),
        material=material,
        quote=_quote(said, thread),
    )


def _sender(sender: _Sender | None) -> tuple[str | None, SenderKind]:
    """Who wrote it. A person without an id is nobody: a missing identity is never taken for somebody (I4)."""
    if sender is None:
        return None, SenderKind.none
    ids = sender.sender_id or _Id()
    open_id = ids.open_id or None
    if sender.sender_type in ("bot", "app"):
        return open_id or ids.app_id or None, SenderKind.bot
    return (open_id, SenderKind.person) if sender.sender_type == "user" and open_id else (None, SenderKind.none)


def _open_id(mention: _Mention) -> str | None:
    return (mention.id.open_id if mention.id else None) or None


def _thread_in(root: str | None) -> str | None:
    """Some topic replies name the topic as their root and carry no thread; any other root is a message."""
    return root if root and root.startswith("omt_") else None


def _quote(said: _Said, thread: str | None) -> str | None:
    """In a topic every reply hangs on the root, so only a parent that differs from it was quoted (I8)."""
    if thread and (said.root_id in (None, "", said.parent_id) or said.root_id == thread):
        return None
    return said.parent_id or None


def _click(header: _Header, event: _Click, app: str) -> CardAction:
    return CardAction(
        input_id=InputId(f"feishu:{app}:{header.event_id}"),
        app=app,
        event_id=header.event_id,
        message_id=event.context.open_message_id,
        chat_id=event.context.open_chat_id,
        sender=(event.operator.open_id if event.operator else None) or None,
        clicked_at=_ms(header.create_time),
        value=obj(event.action.value),
    )


def _recalled(header: _Header, event: _Recall, app: str) -> Recalled:
    return Recalled(
        input_id=InputId(f"feishu:{app}:{header.event_id}"),
        app=app,
        event_id=header.event_id,
        target=InputId(f"feishu:{app}:{event.message_id}"),
        message_id=event.message_id,
        chat_id=event.chat_id,
        recalled_at=_ms(event.recall_time or header.create_time),
    )


def _ms(stamp: str | int) -> int:
    """Milliseconds, of a stamp in seconds, milliseconds or microseconds: Feishu sends 13 digits or, for clicks, 16."""
    value, digits = int(stamp), len(str(int(stamp)))
    return value // 1000 if digits > 14 else value * 1000 if 0 < digits < 11 else value
