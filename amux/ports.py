"""What the runtime asks of the world: one Protocol per thing it needs, each honestly faked in tests/fakes.py.

Adapters translate every foreign error into the five families at once. None of them decides anything."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from amux.core.again import Fate
from amux.core.events import Event, Label
from amux.core.ids import BindingId, Epoch, InputId, Seq, SessionKey, SessionRef, TurnId
from amux.core.inputs import Input, Place, Said
from amux.core.launch import LaunchSnapshot, Record, Saved
from amux.core.session import State


@dataclass(frozen=True, slots=True)
class Session:
    """A Session's row: what is left of what was recorded at launch, and projections of its Timeline."""

    key: SessionKey
    ref: SessionRef
    record: Record
    saved: Saved
    label: Label
    head: Seq
    open_turn: TurnId | None
    owner: str | None
    title: str

    @property
    def identity(self) -> Record:
        """The profile and the engine that it is known to have, by its record or else by its snapshot (S6)."""
        return Record(self.record.profile or self.saved.profile, self.record.engine or self.saved.engine)


@dataclass(frozen=True, slots=True)
class Journaled:
    """What the journal made of one submission. `fresh` is False for a twin, which is told where the first one went.

    `said` is what was written: an Interrupt names its Turn there."""

    said: Said
    session: SessionKey
    target: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class Known:
    """An input of before, by its id. `seq` is its acceptance's; None while it is not accepted."""

    said: Input
    session: SessionKey
    seq: Seq | None


class Inputs(Protocol):
    """The journal: one accepted id, one row, for good (H35). Its commit is the promise to the sender."""

    async def journal(self, session: SessionKey, said: Said) -> Journaled:
        """Write it for that Session, once per id over all Sessions; an Interrupt without a Turn gets the open one.

        Raises Unavailable when it certainly was not written, Uncertain when it may have been (ask again: same id)."""

    async def launch(self, draft: "Draft", said: Said, binding: "NewBinding | None") -> Journaled:
        """Make Session, Binding and Input in one transaction (H36); who loses the Binding's index is told where the
        winner's Session is, and its input is journaled there."""

    async def recall(self, said: InputId) -> SessionKey | None:
        """The Session to which that input was said. One that has not come yet never will: its id is taken, and who says it
        later is Refused with the key `recalled` (H43)."""

    async def unaccepted(self, session: SessionKey) -> Sequence[Said]:
        """What was said to that Session and is not accepted, in the order in which it was journaled."""

    async def known(self, inputs: Sequence[InputId]) -> Sequence[Known]:
        """What was said under these ids, in their order; a Control, and what never came, is left out."""

    async def fates(self, session: SessionKey, after: Seq) -> Sequence[Fate]:
        """What the Timeline says behind `after` of what became of that Session's inputs."""

    async def lying(self, *, older_than: float) -> Sequence[tuple[SessionKey, str]]:
        """Sessions (and targets) with unaccepted input older than so many seconds, for the sweep."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A Session to be made."""

    ref: SessionRef
    launch: LaunchSnapshot
    title: str


@dataclass(frozen=True, slots=True)
class NewBinding:
    """A topic Binding to be made with its Session (B1). `place.binding` is not known yet and is filled in."""

    place: Place
    topic: str  # the key of the topic: its thread, or its root message until the thread is known
    since: int  # milliseconds


@dataclass(frozen=True, slots=True)
class Binding:
    """Where input comes from and which Session it reaches, for a span of time (H38). Milliseconds."""

    id: BindingId
    place: Place
    topic: str
    session: SessionKey
    since: int
    until: int | None


class Bindings(Protocol):
    """Topic Bindings; each row has one writer at a time."""

    async def find(self, app: str, chat: str, topics: Sequence[str]) -> Sequence[Binding]:
        """All Bindings of these topic keys, ended ones too, newest first."""

    async def alias(self, binding: BindingId, topic: str) -> None:
        """That topic key names the same topic (a starter's root message and its thread)."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One entry of a Session's Inbox stream."""

    entry: str
    said: Said


@dataclass(frozen=True, slots=True)
class Rung:
    """How a post was heard: the owner's bell rang, or a wake is due (or was asked for already)."""

    wake: bool


class Inbox(Protocol):
    """A Session's stream in Redis. It carries; it never remembers."""

    async def post(self, session: SessionKey, said: Said) -> Rung: ...
    async def read(self, session: SessionKey, after: str) -> Sequence[Posted]: ...
    async def trim(self, session: SessionKey, through: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A Lease taken. `tail` is the stream's newest entry then; `young`: Redis came up empty within one lease (H6)."""

    tail: str
    young: bool


@dataclass(frozen=True, slots=True)
class Renewal:
    """How one Lease's renewal came out."""

    held: bool
    anew: bool = False  # the key was gone and was taken again: the stream may be new too


class Leases(Protocol):
    """The right to *try* to own a Session. Who may *write* is the Timeline's to say (ADR 2). Times in seconds."""

    async def take(self, session: SessionKey, token: str, *, seconds: float) -> Taken | None: ...

    async def renew(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[Renewal]:
        """Renew many. Raises Unavailable when Redis cannot be reached."""

    async def held(self, sessions: Sequence[SessionKey]) -> Sequence[bool]:
        """Whether anybody holds each one's Lease now."""

    async def release(self, session: SessionKey, token: str) -> None:
        """Give it back unused; a foreign token is left alone."""

    async def release_if_drained(self, session: SessionKey, token: str, *, last_read: str) -> bool:
        """Give it up with its stream, unless the Inbox holds an entry after `last_read`: then keep it, answer False."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write: compared, whole, in the append (H1, H2)."""

    epoch: Epoch
    token: str
    head: Seq


@dataclass(frozen=True, slots=True)
class OpenedTimeline:
    """What a new owner gets."""

    fence: Fence
    state: State
    session: Session
    journal: Sequence[Said]


@dataclass(frozen=True, slots=True)
class Append:
    """One Session's step, to be written whole or not at all. `accepts` pairs an input with its event's offset from 1.

    `state` is the fold after the events; projections and checkpoints are written from it. `shown` marks a step that
    gave the deliverer work (it sets deliveries.open, H11). `record` is the identity that was settled in this step: it is
    written where the Session's row has none (S8)."""

    events: Sequence[Event]
    state: State
    accepts: Sequence[tuple[InputId, int]] = ()
    shown: bool = False
    record: Record | None = None


class Recorded(NamedTuple):
    """An event as it stands in the Timeline. `at` is in seconds since 1970, by Postgres' clock."""

    seq: Seq
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Head:
    """One atomic read: the head, and the active Turn's start if one runs (T5)."""

    seq: Seq
    label: Label
    started: Recorded | None


class Timeline(Protocol):
    """The append-only record. Only a Fence writes."""

    async def open(self, session: SessionKey, token: str, *, worker: str, young: bool) -> OpenedTimeline | None:
        """A new epoch for that token; None while another owner must be left alone: it is named and Redis is young,
        or it holds on through Postgres (H6, H63). Raises Refused when this code is older than `schema` allows (H17)."""

    async def append(self, session: SessionKey, fence: Fence, step: Append) -> Fence:
        """Write the step in one statement with others' and answer the next Fence. Asked again after a lost answer.

        Raises Stale when Fence or accepts do not fit any more; Unavailable when Postgres stays away."""

    async def hold(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[bool]:
        """Keep these owners through Postgres for so long; False where the token is no longer the row's (H63)."""

    async def sign_off(self, session: SessionKey, fence: Fence) -> None:
        """The row names no owner any more; a foreign token is left alone."""

    async def read(self, session: SessionKey, after: Seq, *, limit: int) -> Sequence[Recorded]: ...

    async def head(self, session: SessionKey) -> Head: ...


class Sessions(Protocol):
    """Session rows, for people and for the sweep."""

    async def find(self, prefix: str) -> Session:
        """The one whose id (or target/id) starts so. Raises Refused when there is none, or several: it lists them."""

    async def list(self, *, label: Label | None, target: str | None, limit: int) -> Sequence[Session]: ...

    async def named(self) -> Sequence[tuple[SessionKey, str]]:
        """Sessions (and targets) whose row names an owner that does not hold on through Postgres, for the sweep."""


class Waker(Protocol):
    """Asks for a `drive` or a `deliver` of a Session. A lost or doubled wake changes nothing."""

    async def drive(self, session: SessionKey, target: str, *, again: bool = False) -> None:
        """Ask for an owner; one that is there hears its bell instead. `again` is the sweep's: it asks although a mark stands,
        if the wake before was lost."""

    async def deliver(self, session: SessionKey, *, again: bool = False) -> None:
        """Ask for a deliverer, unless one is at work or asked for."""

    async def delivering(self, session: SessionKey, *, seconds: float) -> None:
        """A deliverer is at work for so long; 0 ends it."""

    async def waiting(self, target: str) -> int:
        """How many wakes of that target no worker has taken yet; 0 when nobody can say."""


class Nudges(Protocol):
    """ "The Timeline grew", with what grew. At most once; readers mend gaps from Postgres by seq."""

    def follow(self, session: SessionKey) -> AsyncGenerator[Sequence[Recorded], None]:
        """What is appended from now on. First an empty sequence as soon as it listens, and one after each silence: a
        reader then looks for itself."""


class Workspaces(Protocol):
    """The folders of a target in which agents work."""

    async def ready(self, session: SessionRef, launch: LaunchSnapshot) -> str:
        """The folder in which that Session's agent works: checked, and made where it is the Session's own.

        Raises Refused, saying what to do, when it cannot be used."""


class Clock(Protocol):
    """Time that only runs forward, in seconds: `monotonic` for deadlines, `boottime` for Guards (counts sleep)."""

    def monotonic(self) -> float: ...
    def boottime(self) -> float: ...


class Bells(Protocol):
    """This worker's own bell: rings when something was posted to a Session that it owns."""

    def register(self, session: SessionKey, ring: Callable[[], None]) -> None: ...
    def unregister(self, session: SessionKey) -> None: ...


@dataclass(frozen=True, slots=True)
class CardRow:
    """One message of ours in Feishu, written before it is sent. `uuid` and `nonce` are fixed for its life (H12, H24).

    `slot` names what it shows: `turn:7`, `turn:7:2` (a later part), `receipt:{input}`, `ask:{request}`."""

    session: SessionKey
    slot: str
    turn: TurnId | None
    place: Place
    reply_to: str
    uuid: str
    nonce: str
    made_at: float
    card_id: str | None = None
    message_id: str | None = None
    sequence: int = 0
    state: str = "made"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A deliverer's Lease in Postgres: its fence, and the position from which to read on."""

    session: SessionKey
    fence: int
    position: Seq


class Cards(Protocol):
    """What was shown where. Every write compares the deliverer's fence; Stale when another has taken over."""

    async def take(self, session: SessionKey) -> Delivery: ...
    async def rows(self, session: SessionKey) -> Sequence[CardRow]: ...
    async def make(self, delivery: Delivery, row: CardRow) -> CardRow:
        """Write a row before its send; the one that is there already wins and is answered."""

    async def sent(self, delivery: Delivery, row: CardRow) -> None:
        """Save message id, card id, sequence and state of a row."""

    async def advance(self, delivery: Delivery, position: Seq, *, done: bool) -> None: ...

    async def owing(self, *, older_than: float) -> Sequence[SessionKey]:
        """Sessions with something not shown yet, for the sweep."""


class Messenger(Protocol):
    """Feishu's outgoing side. uuid and sequence come from the card row, so every call may be repeated.

    All raise Refused when it can never be done, Unavailable or Uncertain when it may be tried again."""

    async def make_card(self, row: CardRow, card: Mapping[str, object]) -> CardRow:
        """Make the card entity, which nobody sees yet; answer the row with its id, to be saved before it is sent."""

    async def send_card(self, row: CardRow, card: Mapping[str, object]) -> CardRow:
        """Send it as a reply into the row's place; answer the row with its message id, and the topic it stands in."""

    async def update_card(self, row: CardRow, card: Mapping[str, object], *, sequence: int) -> None:
        """Replace the card. A refused sequence means a newer state is there already, and counts as done (H12)."""

    async def find_sent(self, row: CardRow, *, claimed: Sequence[str]) -> CardRow | None:
        """Our own message at that place, made after the row and claimed by no row, when its uuid's hour is over (H13)."""
