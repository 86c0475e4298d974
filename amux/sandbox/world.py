"""The world behind the platform: who there is, what was said, and what people do. People act through the methods here;
bots act through REST (`rest`, `cardkit`), which ends in `add` and `revise`. In memory only: a restart forgets all
messages, while ids of chats and people stay. It is no judge of who may drive a bot: that is the app's affair."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import replace

from amux.sandbox import clicks, events
from amux.sandbox.changes import Change, ChangeKind, Changes
from amux.sandbox.clicks import ClickAnswer
from amux.sandbox.faults import Faults
from amux.sandbox.pace import FEISHU_LIMITS, FEISHU_PACE, Clock, Limits, Meter, Pace
from amux.sandbox.push import Courier
from amux.sandbox.records import (
    AppId,
    Bot,
    CardId,
    Chat,
    ChatId,
    ChatMode,
    Entity,
    Hears,
    Json,
    Mention,
    Message,
    MessageId,
    Person,
    PersonId,
    Revision,
    ThreadId,
    Topic,
    Via,
    WorldError,
    dumps,
    private_chat_id,
)


class World:
    """Everything the cloud knows. All of it runs on one event loop, the server's; nothing here is thread-safe."""

    def __init__(
        self,
        *,
        people: Iterable[Person],
        bots: Iterable[Bot],
        chats: Iterable[Chat],
        pace: Pace = FEISHU_PACE,
        limits: Limits = FEISHU_LIMITS,
        seed: int | None = None,
    ) -> None:
        """`seed` makes the choice of connections and every shuffle repeatable."""
        self.people = {person.id: person for person in people}
        self.bots = {bot.app_id: bot for bot in bots}
        self.chats = {chat.id: chat for chat in chats}
        for person in self.people.values():
            for bot in self.bots.values():
                chat = ChatId(private_chat_id(person.id, bot.app_id))
                lone = frozenset({person.id}), frozenset({bot.app_id})
                self.chats[chat] = Chat(chat, bot.name, ChatMode.private, *lone)
        self.messages: dict[MessageId, Message] = {}
        self.topics: dict[ThreadId, Topic] = {}
        self.entities: dict[CardId, Entity] = {}
        self.sends: dict[tuple[AppId, str], MessageId] = {}
        self.pace, self.limits = pace, limits
        self.clock = Clock()
        self.meter = Meter(self.clock)
        self.faults = Faults()
        self.log = Changes(self.clock)
        self.rng = random.Random(seed)
        self.courier = Courier(self.clock, pace, faults=self.faults, changes=self.log, rng=self.rng)

    def changes(self, after: int = 0) -> AsyncIterator[Change]:
        """Every change behind number `after`, then each new one as it comes; never ends by itself."""
        return self.log.follow(after)

    async def close(self) -> None:
        """Stop all pushes and drop all connections."""
        await self.courier.close()

    # -- what people do

    def say(
        self,
        person: PersonId,
        chat: ChatId,
        text: str,
        *,
        topic: ThreadId | None = None,
        mentions: Collection[AppId] | None = None,
        quotes: MessageId | None = None,
    ) -> MessageId:
        """A text from a person, pushed to the chat's bots. Without `topic` it opens one where every message does.
        `mentions` None means all bots of a group; `()` nobody. `quotes` answers a message, in its topic if it has one. Raises
        WorldError when the person or a bot is not in the chat, or the topic or message is not."""
        place = self._place(person, chat)
        if mentions is None:
            mentions = () if place.mode is ChatMode.private else sorted(place.bots)
        if not place.bots.issuperset(mentions):
            raise WorldError("a bot that is mentioned is not in this chat: invite it first")
        names = tuple(self._mention(number, app) for number, app in enumerate(mentions, 1))
        spoken = " ".join([*(name.key for name in names), text])
        topic = topic or (self.message(quotes, chat).thread if quotes else None)
        root, parent = self._above(chat, topic, quotes)
        if place.mode is ChatMode.topics:
            topic = topic or ThreadId("omt_" + uuid.uuid4().hex[:16])
        message = Message(
            id=self.new_message_id(),
            chat=chat,
            person=person,
            app=None,
            msg_type="text",
            created_ms=self.clock.moment_ms(),
            revisions=(Revision(self.clock.now_ms(), Via.sent, dumps({"text": spoken})),),
            root=root,
            parent=parent,
            thread=topic,
            mentions=names,
        )
        self.add(message)
        self._push_message(message, place, person)
        return message.id

    def open_topic(self, person: PersonId, chat: ChatId, text: str) -> ThreadId:
        """A text that opens a topic of its own and mentions all bots. Raises WorldError where messages do not."""
        if self._place(person, chat).mode is not ChatMode.topics:
            raise WorldError("messages open no topics in this chat: reply in a thread to one of them")
        thread = self.messages[self.say(person, chat, text)].thread
        assert thread is not None
        return thread

    def reply_in_thread(self, person: PersonId, message: MessageId, text: str) -> MessageId:
        """A text in the topic of `message`, which is made where there is none yet."""
        return self.say(person, self.message(message).chat, text, topic=self.thread_of(message))

    def recall(self, person: PersonId, message: MessageId) -> None:
        """Take back one's own message. Raises WorldError when it is not one's own."""
        if self.message(message).person != person:
            raise WorldError("only its author can recall this message")
        self.retract(message)
        recalled = self.messages[message]
        for app in sorted(self.chats[recalled.chat].bots):
            if self._hears(self.bots[app], recalled, self.chats[recalled.chat]):
                event = events.recalled(recalled, at_ms=recalled.recalled_ms or 0)
                self.publish(app, events.RECALLED, event, chat=recalled.chat, message=recalled.id)

    async def click(
        self, person: PersonId, message: MessageId, element: str | None = None, *, value: object = None
    ) -> ClickAnswer:
        """Press a button of a card: the one with this element id, or any button that would send `value` (as an old
        screen still shows it, or a forger makes it). Waits for the app's answer, 3 s at most. Raises WorldError when
        the person cannot see the card or it has no such button."""
        return await clicks.click(self, person, message, element=element, value=value)

    def remove_bot(self, person: PersonId, chat: ChatId, app: AppId) -> None:
        """Take a bot out of a chat; it is told, and its calls there answer 230002 from now on."""
        place = self._place(person, chat)
        self.chats[chat] = replace(place, bots=place.bots - {app})
        self._membership(events.BOT_REMOVED, chat, app, person)

    def invite_bot(self, person: PersonId, chat: ChatId, app: AppId) -> None:
        place = self._place(person, chat)
        self.chats[chat] = replace(place, bots=place.bots | {app})
        self._membership(events.BOT_ADDED, chat, app, person)

    # -- what both people and bots end in

    def message(self, message: MessageId, chat: ChatId | None = None) -> Message:
        """The message of this id, in `chat` if given. Raises WorldError when there is none."""
        found = self.messages.get(message)
        if found is None or chat not in (None, found.chat):
            raise WorldError(f"there is no message {message} here")
        return found

    def new_message_id(self) -> MessageId:
        return MessageId("om_" + uuid.uuid4().hex)

    def add(self, message: Message) -> None:
        """A message appears in its chat."""
        self.messages[message.id] = message
        if message.thread is not None and message.thread not in self.topics:
            self.topics[message.thread] = Topic(message.thread, message.chat, message.id)
            self._note(ChangeKind.topic_opened, message)
        self._note(ChangeKind.message_sent, message)

    def revise(self, message: MessageId, content: str, via: Via, *, sequence: int | None = None) -> None:
        """A message gets a new content, for everybody who sees it."""
        old = self.messages[message]
        revision = Revision(self.clock.now_ms(), via, content, sequence)
        self.messages[message] = replace(old, revisions=(*old.revisions, revision))
        self._note(ChangeKind.message_revised, old)

    def retract(self, message: MessageId) -> None:
        """A message is recalled; it stays on record."""
        self.messages[message] = replace(self.messages[message], recalled_ms=self.clock.now_ms())
        self._note(ChangeKind.message_recalled, self.messages[message])

    def streams(self, entity: Entity) -> bool:
        """Whether this card streams now: it stops by itself, ten minutes after it was last switched on."""
        since = entity.streaming_since_ms
        return since is not None and self.clock.now_ms() - since < self.pace.streaming_seconds * 1000

    def thread_of(self, message: MessageId) -> ThreadId:
        """The topic a message stands in; made, with the message as its root, where it stands in none."""
        found = self.messages[message]
        if found.thread is None:
            found = replace(found, thread=ThreadId("omt_" + uuid.uuid4().hex[:16]))
            self.messages[message] = found
        assert found.thread is not None
        if found.thread not in self.topics:
            self.topics[found.thread] = Topic(found.thread, found.chat, found.root or found.id)
            self._note(ChangeKind.topic_opened, found)
        return found.thread

    def publish(
        self,
        app: AppId,
        event_type: str,
        event: Json,
        *,
        chat: ChatId | None = None,
        message: MessageId | None = None,
    ) -> None:
        """Push one event to one app by the schedule."""
        at_ms = self.clock.now_ms()

        def make(event_id: str) -> bytes:
            return events.envelope(event_type, app, event, event_id=event_id, at_ms=at_ms)

        self.courier.publish(app, event_type, make, chat=chat, message=message)

    # -- within

    def _place(self, person: PersonId, chat: ChatId) -> Chat:
        place = self.chats.get(chat)
        if place is None or person not in place.members:
            raise WorldError(f"{person} is not in the chat {chat}")
        return place

    def _above(
        self, chat: ChatId, topic: ThreadId | None, quotes: MessageId | None
    ) -> tuple[MessageId | None, MessageId | None]:
        """Root and parent of a message: in a topic both are its first message."""
        if topic is not None:
            root = self._topic(topic, chat).root
            return root, root
        if quotes is None:
            return None, None
        quoted = self.message(quotes, chat)
        return quoted.root or quoted.id, quoted.id

    def _topic(self, thread: ThreadId, chat: ChatId) -> Topic:
        topic = self.topics.get(thread)
        if topic is None or topic.chat != chat:
            raise WorldError(f"there is no topic {thread} in this chat")
        return topic

    def _mention(self, number: int, app: AppId) -> Mention:
        return Mention(f"@_user_{number}", app, self.bots[app].name, "bot")

    def _hears(self, bot: Bot, message: Message, place: Chat) -> bool:
        if place.mode is ChatMode.private or bot.hears is Hears.all_messages:
            return True
        return any(mention.who == bot.app_id for mention in message.mentions)

    def _push_message(self, message: Message, place: Chat, person: PersonId) -> None:
        for app in sorted(place.bots):
            if self._hears(self.bots[app], message, place):
                event = events.received(message, person, place, app)
                self.publish(app, events.MESSAGE, event, chat=place.id, message=message.id)

    def _membership(self, event_type: str, chat: ChatId, app: AppId, person: PersonId) -> None:
        self.log.note(ChangeKind.members_changed, chat=chat, app=app)
        event = events.bot_membership(self.chats[chat], self.bots[app], person)
        self.publish(app, event_type, event, chat=chat)

    def _note(self, kind: ChangeKind, message: Message) -> None:
        self.log.note(kind, chat=message.chat, thread=message.thread, message=message.id, app=message.app)
