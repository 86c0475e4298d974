"""Which Session a Feishu message reaches: a topic's Binding, a launch, or nobody. Decided by the Bindings as they stood
when it was sent (H38). Pure: it asks nobody and refuses nobody; who may drive is `admission`."""

from collections.abc import Sequence
from dataclasses import dataclass

from amux.core.ids import BindingId, InputId, Principal, SessionKey
from amux.core.inputs import Material, Origin


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said in a chat. `topics` are the keys by which its topic may be known, the surest first.

    `private`: a chat with the bot alone, where everything is meant for it. `sent_at` in milliseconds of Feishu's clock."""

    id: InputId
    app: str
    chat: str
    topics: tuple[str, ...]
    text: str
    sender: Principal | None
    sent_at: int
    thread: str | None = None
    name: str = ""
    origin: Origin = Origin.person
    material: tuple[Material, ...] = ()
    private: bool = False
    mentions_bot: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """A Binding as routing sees it: a span of time in milliseconds."""

    id: BindingId
    session: SessionKey
    since: int
    until: int | None


@dataclass(frozen=True, slots=True)
class ToSession:
    """It is input of that Session (B1)."""

    bound: Bound


@dataclass(frozen=True, slots=True)
class Launch:
    """It begins a topic of its own, under that key."""

    topic: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Its topic has ended and never comes back by itself (B9)."""

    bound: Bound


@dataclass(frozen=True, slots=True)
class Unmeant:
    """It is not for the bot: people's own discussion, or a bot's (B6)."""


Route = ToSession | Launch | Ended | Unmeant


def route(message: Message, bindings: Sequence[Bound]) -> Route:
    """Where it goes (B1, B6, B9). `bindings` are all that its topic keys name, ended ones too."""
    if not (message.private or message.mentions_bot):
        return Unmeant()
    standing = [b for b in bindings if b.since <= message.sent_at and (b.until is None or message.sent_at < b.until)]
    if standing:
        return ToSession(standing[0])
    if ended := [b for b in bindings if b.until is not None and b.until <= message.sent_at]:
        return Ended(ended[0])
    if bindings:  # sent before its topic was bound: people's talk, not work (H38)
        return Unmeant()
    return Launch(message.topics[0])
