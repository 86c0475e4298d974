"""What is said to a Session: Input, which may become a Turn, and Control, which acts on one.

Both are journaled, placed and accepted the same way (architecture, section 4). Nothing here decides anything."""

from dataclasses import dataclass
from enum import StrEnum

from amux.core.ids import BindingId, InputId, Principal, RequestId, TurnId

MAX_TEXT = 200_000  # characters of one message; a longer one is refused by name, never cut


class Origin(StrEnum):
    """Who raised an input. Only a person's may steer (I4)."""

    person = "person"
    bot = "bot"
    group_watch = "group_watch"


class Permission(StrEnum):
    """The provider's native permission setting (S9)."""

    bypass = "bypass"
    ask = "ask"


@dataclass(frozen=True, slots=True)
class Place:
    """Where output goes: the Binding that a Turn freezes when it starts, and its address in Feishu (B11)."""

    binding: BindingId
    app: str
    chat: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a Turn runs under, frozen when its input was admitted. No place: the answer is read where it was asked."""

    principal: Principal
    place: Place | None = None
    permission: Permission | None = None  # None: the Session's own


@dataclass(frozen=True, slots=True)
class Material:
    """A file, an image or a message quoted on purpose (I8). `name` is for people, `path` lies in the workspace."""

    kind: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Input:
    """One message to a Session. `sent_at` is in milliseconds, by Feishu's or Postgres' clock, never a client's."""

    id: InputId
    text: str
    sender: Principal | None
    authorization: Authorization
    sent_at: int
    name: str = ""
    origin: Origin = Origin.person
    material: tuple[Material, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ask the running Turn to stop (A3). It names its Turn, so that a late one touches no later Turn (H39)."""

    id: InputId
    by: Principal
    turn: TurnId | None
    name: str = ""


class Verdict(StrEnum):
    """A person's answer to a permission request."""

    allow = "allow"
    always = "always"
    deny = "deny"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one permission request; the first accepted one counts (H40)."""

    id: InputId
    by: Principal
    request: RequestId
    verdict: Verdict
    name: str = ""


class Action(StrEnum):
    """What may be done to a whole Session."""

    sleep = "sleep"
    resume = "resume"
    restart = "restart"
    archive = "archive"


@dataclass(frozen=True, slots=True)
class Manage:
    """Do that to the Session, at once and not in the queue (A4, A5, A8)."""

    id: InputId
    by: Principal
    action: Action
    name: str = ""


class ContextAction(StrEnum):
    """What may be done to an agent's context."""

    compact = "compact"
    clear = "clear"


@dataclass(frozen=True, slots=True)
class ContextWish:
    """Do that to the agent's context, in the queue: after what came before, before what comes after (I9, A6, A7)."""

    id: InputId
    by: Principal
    what: ContextAction
    name: str = ""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """These inputs shall not run, if they still wait (H43)."""

    id: InputId
    by: Principal
    inputs: tuple[InputId, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Prefer:
    """The submission that holds this input shall be the next of those that wait."""

    id: InputId
    by: Principal
    input: InputId
    name: str = ""


Control = Interrupt | Answer | Manage | ContextWish | Withdraw | Prefer
Said = Input | Control
