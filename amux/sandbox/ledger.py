"""The crowd's own record, by which a drill counts: what was acknowledged to its sender, and what the bots sent where.
Reads the World; never asks the app that is being judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from amux.sandbox import events
from amux.sandbox.push import Push
from amux.sandbox.records import AppId, ChatId, Message, MessageId, Revision, ThreadId
from amux.sandbox.world import World


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that a bot sent, with every content it has had. `answers` is the message that it replied to."""

    id: MessageId
    app: AppId
    chat: ChatId
    thread: ThreadId | None
    answers: MessageId | None
    uuid: str
    msg_type: str
    created_ms: int
    recalled_ms: int | None
    revisions: tuple[Revision, ...]


class Ledger:
    """Questions about one World; every answer is read anew."""

    def __init__(self, world: World) -> None:
        self._world = world

    def messages(self, app: AppId) -> tuple[Push, ...]:
        """The pushes of people's messages to this app, in the order in which they were said; a message that was pushed
        under two event ids is there twice."""
        return tuple(p for p in self._world.courier.pushes() if p.app == app and p.event_type == events.MESSAGE)

    def acknowledged(self, app: AppId) -> frozenset[MessageId]:
        """The messages whose push this app acknowledged with code 200 in time: what it has promised to care for."""
        return frozenset(
            p.message for p in self.messages(app) if p.message is not None and p.acknowledged_ms is not None
        )

    def unacknowledged(self, app: AppId) -> frozenset[MessageId]:
        """The messages pushed to this app of which no push was acknowledged in time."""
        everything = frozenset(p.message for p in self.messages(app) if p.message is not None)
        return everything - self.acknowledged(app)

    def sent(
        self, app: AppId, *, chat: ChatId | None = None, thread: ThreadId | None = None, msg_type: str | None = None
    ) -> tuple[Sent, ...]:
        """What this bot sent, oldest first: everywhere, or in one chat, topic or kind."""
        found = (_sent(m, app) for m in self._world.messages.values() if m.app == app)
        return tuple(
            s for s in found if chat in (None, s.chat) and thread in (None, s.thread) and msg_type in (None, s.msg_type)
        )

    def answers(self, app: AppId) -> Counter[MessageId]:
        """How many messages this bot sent in reply to each message."""
        return Counter(s.answers for s in self.sent(app) if s.answers is not None)


def _sent(message: Message, app: AppId) -> Sent:
    return Sent(
        id=message.id,
        app=app,
        chat=message.chat,
        thread=message.thread,
        answers=message.answers,
        uuid=message.uuid,
        msg_type=message.msg_type,
        created_ms=message.created_ms,
        recalled_ms=message.recalled_ms,
        revisions=message.revisions,
    )
