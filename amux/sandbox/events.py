"""The events of the platform as an app receives them: pure builders of payloads. Which app gets which event, and when,
is for the World and `push`."""

from __future__ import annotations

from amux.sandbox.records import (
    TENANT_KEY,
    AppId,
    Bot,
    Chat,
    ChatId,
    ChatMode,
    Json,
    Message,
    MessageId,
    PersonId,
    Reaction,
    dumps,
    open_id,
    union_id,
)

MESSAGE = "im.message.receive_v1"
RECALLED = "im.message.recalled_v1"
REACTED = "im.message.reaction.created_v1"
UNREACTED = "im.message.reaction.deleted_v1"
BOT_ADDED = "im.chat.member.bot.added_v1"
BOT_REMOVED = "im.chat.member.bot.deleted_v1"
CARD_ACTION = "card.action.trigger"


def envelope(event_type: str, app: AppId, event: Json, *, event_id: str, at_ms: int) -> bytes:
    """The whole payload. Callbacks give their time in microseconds, events in milliseconds; the token is empty over a
    long connection."""
    create_time = str(at_ms * 1000 if event_type == CARD_ACTION else at_ms)
    header = {"event_id": event_id, "event_type": event_type, "create_time": create_time}
    header |= {"token": "", "app_id": app, "tenant_key": TENANT_KEY}
    return dumps({"schema": "2.0", "header": header, "event": event}).encode()


def identity(app: AppId, who: PersonId | AppId) -> Json:
    """`user_id` is null: no app here has the scope for it."""
    return {"union_id": union_id(who), "user_id": None, "open_id": open_id(app, who)}


def received(message: Message, person: PersonId, chat: Chat, app: AppId) -> Json:
    """im.message.receive_v1 as `app` sees it. The message that opens a topic lacks its thread_id, and absent ids are
    left out, not empty."""
    fields: Json = {"message_id": message.id}
    if message.root and message.parent:
        fields |= {"root_id": message.root, "parent_id": message.parent}
    if message.thread and message.root:
        fields |= {"thread_id": message.thread}
    at = str(message.created_ms)
    fields |= {"create_time": at, "update_time": at, "chat_id": message.chat}
    fields |= {"chat_type": "p2p" if chat.mode is ChatMode.private else "group"}
    fields |= {"message_type": message.msg_type, "content": message.content}
    if message.mentions:
        fields |= {
            "mentions": [
                {
                    "key": m.key,
                    "id": identity(app, m.who),
                    "mentioned_type": m.kind,
                    "name": m.name,
                    "tenant_key": TENANT_KEY,
                }
                for m in message.mentions
            ]
        }
    fields |= {"user_agent": "Mozilla/5.0 Lark/7.50"}
    sender = {"sender_id": identity(app, person), "sender_type": "user", "tenant_key": TENANT_KEY}
    return {"sender": sender, "message": fields}


def recalled(message: Message, *, at_ms: int) -> Json:
    return {
        "message_id": message.id,
        "chat_id": message.chat,
        "recall_time": str(at_ms),
        "recall_type": "message_owner",
    }


def reacted(message: MessageId, reaction: Reaction) -> Json:
    """A bot's own reaction comes back to it too."""
    return {
        "message_id": message,
        "reaction_type": {"emoji_type": reaction.emoji},
        "operator_type": "app",
        "app_id": reaction.app,
        "action_time": str(reaction.at_ms),
    }


def bot_membership(chat: Chat, bot: Bot, operator: PersonId) -> Json:
    return {
        "chat_id": chat.id,
        "operator_id": identity(bot.app_id, operator),
        "external": False,
        "operator_tenant_key": TENANT_KEY,
        "name": chat.name,
        "i18n_names": {"zh_cn": chat.name, "en_us": chat.name, "ja_jp": chat.name},
    }


def clicked(person: PersonId, app: AppId, *, message: MessageId, chat: ChatId, token: str, value: object) -> Json:
    """card.action.trigger: a button pressed. It has no thread id: the app keeps what its messages belong to."""
    return {
        "operator": {"tenant_key": TENANT_KEY, **identity(app, person)},
        "token": token,
        "action": {"value": value, "tag": "button", "timezone": "Asia/Shanghai"},
        "host": "im_message",
        "context": {"open_message_id": message, "open_chat_id": chat},
    }
