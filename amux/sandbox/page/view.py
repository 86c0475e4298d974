"""What the page shows, as plain values read from the World: who is there, which chats and topics, what was said.
Pure reading: it changes nothing, keeps nothing and knows no HTML."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from amux.sandbox.changes import Change, ChangeKind
from amux.sandbox.page.cards import Card, Refused, read
from amux.sandbox.records import Bot, Chat, ChatId, ChatMode, Message, MessageId, Person, PersonId, ThreadId
from amux.sandbox.world import World

NEWEST = 200
TITLE = 60
BAD_CARDS = {230025, 230099, 11310, 200621, 200860, 200861, 300301, 300302, 300303, 300305}
"The refusals that are about what a card says; a rate limit or a late sequence shows a person nothing."


@dataclass(frozen=True, slots=True)
class Reader:
    """Who looks at the page, and how. `lang` is en or zh, `theme` auto, light or dark."""

    person: PersonId
    lang: str = "en"
    theme: str = "auto"


@dataclass(frozen=True, slots=True)
class Spot:
    """The chat that is open; in a group of topics also the topic, None for one that its first message opens."""

    chat: ChatId
    topic: ThreadId | None = None


@dataclass(frozen=True, slots=True)
class Who:
    """A person or bot by name. `role` is a key of words.toml."""

    id: str
    name: str
    letter: str
    face: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list of chats. `note` is a key of words.toml; `mark` is run, wait or nothing."""

    spot: Spot
    title: str = ""
    note: str = ""
    who: Who | None = None
    inside: bool = False
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text; a mention or plain words."""

    text: str
    mention: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One message. Exactly one of `pieces`, `card` and `refused` says what it is, unless it was recalled."""

    id: str
    at_ms: int
    who: Who
    pieces: tuple[Piece, ...] = ()
    card: Card | None = None
    revision: int = 0
    refused: str = ""
    recalled: bool = False
    undelivered: bool = False
    receipts: tuple["Said", ...] = ()


def bot_of(world: World, chat: Chat) -> Bot:
    """The bot of this chat; the World's first one where it was taken out."""
    return world.bots[min(chat.bots)] if chat.bots else next(iter(world.bots.values()))


def connected(world: World, chat: ChatId) -> bool:
    return bool(world.courier.connections(bot_of(world, world.chats[chat]).app_id))


def settle(world: World, person: str, chat: str, topic: str) -> tuple[PersonId, Spot]:
    """The nearest that exists to what was asked for: a person, a chat they are in, a topic of it. A private chat leads
    to the person's own one with the same bot."""
    who = PersonId(person) if person in world.people else next(iter(world.people))
    asked = world.chats.get(ChatId(chat))
    mine = [c for c in world.chats.values() if who in c.members]
    place = (
        asked
        if asked in mine
        else next((c for c in mine if asked and (c.mode, c.bots) == (asked.mode, asked.bots)), mine[0])
    )
    found = world.topics.get(ThreadId(topic))
    if topic == "" and asked is None:
        found = next((t for t in reversed(world.topics.values()) if t.chat == place.id), None)
    return who, Spot(place.id, found.id if found and found.chat == place.id else None)


def people(world: World, uninvited: Collection[PersonId]) -> tuple[Who, ...]:
    owners = {bot.owner for bot in world.bots.values()}
    roles = {p: "owner" if p in owners else "stranger" if p in uninvited else "member" for p in world.people}
    return tuple(replace(_person(p), role=roles[p.id]) for p in world.people.values())


def rows(world: World, person: PersonId) -> tuple[Row, ...]:
    """The person's chats; below a chat its topics, newest first, and the door to a new one where all is in topics."""
    marks = _marks(world)
    mine = (chat for chat in world.chats.values() if person in chat.members)
    return tuple(row for chat in mine for row in _rows_of(world, chat, marks))


def _rows_of(world: World, chat: Chat, marks: Mapping[str, str]) -> Iterator[Row]:
    notes = {ChatMode.topics: "bound_topic", ChatMode.group: "bound_mention", ChatMode.private: "bound_private"}
    bot = bot_of(world, chat)
    who = _bot(bot) if chat.mode is ChatMode.private else Who(chat.id, chat.name, chat.name[:2], "")
    flows = chat.mode is not ChatMode.topics  # else the chat itself holds nothing but topics
    yield Row(Spot(chat.id), chat.name, notes[chat.mode], who, mark=marks.get(chat.id, "") if flows else "")
    if not flows:
        yield Row(Spot(chat.id), inside=True)
    for topic in reversed(world.topics.values()):
        if topic.chat == chat.id:
            spot = Spot(chat.id, topic.id)
            yield Row(spot, title(world, spot), inside=True, mark=marks.get(topic.id, ""))


def _marks(world: World) -> dict[str, str]:
    """By chat and topic, what the bot's cards there say by their colour: one waits for a person, or one runs."""
    found: dict[str, str] = {}
    for message in world.messages.values():
        card = read(message.content) if message.card is not None and message.recalled_ms is None else None
        mark = {"orange": "wait", "blue": "run"}.get(card.look if isinstance(card, Card) else "")
        for place in (message.chat, message.thread):
            if mark and place and found.get(place) != "wait":
                found[place] = mark
    return found


def title(world: World, spot: Spot) -> str:
    """The first line of the message that opened the topic, without its mentions; the name of any other chat."""
    if spot.topic is None:
        return world.chats[spot.chat].name
    root = world.messages[world.topics[spot.topic].root]
    words = "".join(p.text for p in _pieces(root) if not p.mention).strip()
    first = words.partition("\n")[0] or root.text
    return first if len(first) <= TITLE else first[: TITLE - 1].rstrip() + "…"


def messages(world: World, spot: Spot) -> tuple[Said, ...]:
    """What was said here, oldest first, the newest 200; receipts hang below what they answer, and what Feishu refused
    stands where it would have stood."""
    told = _delivered(world)
    offline = not connected(world, spot.chat)
    here = _in(world, spot)[-NEWEST:]
    said = {m.id: _said(world, m, undelivered=offline and m.person is not None and m.id not in told) for m in here}
    for message in here:
        below = anchor(world, message)
        if below in said and below != message.id:
            receipt = said.pop(message.id)
            said[below] = replace(said[below], receipts=(*said[below].receipts, receipt))
    refusals = [_refusal(world, c) for c in world.log.since(0) if refused_in(c, spot)]
    return tuple(sorted([*said.values(), *refusals], key=lambda s: s.at_ms))


def anchor(world: World, message: Message) -> MessageId:
    """The message below which this one is drawn: a receipt below what it answers, any other message for itself."""
    answered = world.messages.get(message.answers) if message.answers else None
    if message.card is None or message.recalled_ms or answered is None or answered.person is None:
        return message.id
    card = read(message.content)
    return answered.id if isinstance(card, Card) and card.short else message.id


def refused_in(change: Change, spot: Spot) -> bool:
    """Whether Feishu refused a card here; one that was refused before it had a place is shown wherever one looks."""
    if change.kind is not ChangeKind.send_refused or change.code not in BAD_CARDS:
        return False
    return change.chat is None or (change.chat, change.thread) == (spot.chat, spot.topic)


def contains(world: World, spot: Spot, message: MessageId) -> bool:
    """Whether this is part of what is shown: a topic, or all of a chat that is not made of topics."""
    found = world.messages[message]
    flows = world.chats[spot.chat].mode is not ChatMode.topics and spot.topic is None
    return found.chat == spot.chat and (flows or found.thread == spot.topic is not None)


def _in(world: World, spot: Spot) -> list[Message]:
    return [m for m in world.messages.values() if contains(world, spot, m.id)]


def _delivered(world: World) -> frozenset[MessageId]:
    return frozenset(p.message for p in world.courier.pushes() if p.message and p.acknowledged_ms is not None)


def _said(world: World, message: Message, *, undelivered: bool) -> Said:
    who = _person(world.people[message.person]) if message.person else _bot(world.bots[message.app or min(world.bots)])
    said = Said(message.id, message.created_ms, who, recalled=message.recalled_ms is not None, undelivered=undelivered)
    if message.card is None:
        return replace(said, pieces=tuple(_pieces(message)))
    card = read(message.content)
    if isinstance(card, Refused):
        return replace(said, refused=card.reason)
    return replace(said, card=card, revision=len(message.revisions) - 1)


def _refusal(world: World, change: Change) -> Said:
    bot = world.bots[change.app] if change.app else next(iter(world.bots.values()))
    return Said(f"refused-{change.seq}", change.at_ms, _bot(bot), refused=f"{change.code}: {change.reason}")


def _pieces(message: Message) -> Iterator[Piece]:
    """The words of a text with the mentions in it set apart."""
    rest = message.text if message.msg_type == "text" else _flat(json.loads(message.content))
    for mention in message.mentions:
        before, found, rest = rest.partition("@" + mention.name)
        if before.strip():
            yield Piece(before)
        if found:
            yield Piece(found, mention=True)
    if rest:
        yield Piece(rest)


def _flat(content: object) -> str:
    """All words of a post, a paragraph a line."""
    match content:
        case {"text": str(text)}:
            return text
        case dict():
            return "\n".join(_flat(part) for part in content.values() if isinstance(part, dict | list))
        case list():
            return ("\n" if any(isinstance(part, list) for part in content) else "").join(map(_flat, content))
        case _:
            return ""


def _person(person: Person) -> Who:
    letter = person.name[-1].upper()
    return Who(person.id, person.name, letter, f"p{letter.lower()}")


def _bot(bot: Bot) -> Who:
    return Who(bot.app_id, bot.name, bot.name[0].upper(), "bot")
