"""Events, inputs and checkpoints to JSON and back. What was once written stays readable for ever.

An event is encoded once, for the append and for the nudge. What Postgres or a reader could not hold is mended here,
so that one bad event stops nobody (H5): lone surrogates and NUL become U+FFFD, and an event keeps below MAX_EVENT
bytes. A person's own message is never cut: one that would not fit is refused before it is journaled (`fits`)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from amux.core import events as e
from amux.core.inputs import Answer, ContextWish, Input, Interrupt, Manage, Prefer, Said, Withdraw
from amux.core.session import State

T = TypeVar("T")
OldRow = dict[str, Any]
MAX_EVENT = 256 * 1024  # bytes
AROUND = 1024  # bytes that an event may need around what it carries

KINDS: dict[str, tuple[int, type[e.Event]]] = {  # the word on the wire: its version today, its class
    "session_state": (1, e.SessionState),
    "owner_opened": (1, e.OwnerOpened),
    "conversation_opening": (1, e.ConversationOpening),
    "conversation_opened": (1, e.ConversationOpened),
    "input_accepted": (1, e.InputAccepted),
    "input_queued": (1, e.InputQueued),
    "steer_requested": (1, e.SteerRequested),
    "input_steered": (1, e.InputSteered),
    "input_cancelled": (1, e.InputCancelled),
    "input_preferred": (1, e.InputPreferred),
    "submission_failed": (1, e.SubmissionFailed),
    "turn_started": (1, e.TurnStarted),
    "item": (1, e.Item),
    "delta": (1, e.Delta),
    "permission_requested": (1, e.PermissionRequested),
    "permission_resolved": (1, e.PermissionResolved),
    "interrupt_requested": (1, e.InterruptRequested),
    "action_requested": (1, e.ActionRequested),
    "context_queued": (1, e.ContextQueued),
    "compact_requested": (1, e.CompactRequested),
    "context_compacted": (1, e.ContextCompacted),
    "context_failed": (1, e.ContextFailed),
    "context_cleared": (1, e.ContextCleared),
    "conversation_failed": (1, e.ConversationFailed),
    "control_refused": (1, e.ControlRefused),
    "native_turn_quarantined": (1, e.NativeTurnQuarantined),
    "turn_finished": (1, e.TurnFinished),
}
UPGRADES: dict[tuple[str, int], Callable[[OldRow], OldRow]] = {}  # (kind, version): the row of that version, one later
KIND_OF: dict[type[e.Event], tuple[str, int]] = {cls: (kind, version) for kind, (version, cls) in KINDS.items()}

SAID: dict[str, type[Said]] = {
    "input": Input,
    "interrupt": Interrupt,
    "answer": Answer,
    "manage": Manage,
    "context": ContextWish,
    "withdraw": Withdraw,
    "prefer": Prefer,
}
SAID_KIND: dict[type[Said], str] = {cls: kind for kind, cls in SAID.items()}
CHECKPOINT = 5  # the version of State's own JSON; a checkpoint of another version is not read but folded anew (H17)

_encoder = msgspec.json.Encoder()
_READ: Mapping[str, Callable[[str | bytes | msgspec.Raw], e.Event]] = {
    kind: msgspec.json.Decoder(cls).decode for kind, (_, cls) in KINDS.items()
}
_READ_MANY: Mapping[str, Callable[[str], list[e.Event]]] = {
    kind: msgspec.json.Decoder(list[cls]).decode  # type: ignore[valid-type]
    for kind, (_, cls) in KINDS.items()
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(event: e.Event) -> tuple[str, int, str]:
    """An event's kind, version and JSON text, which Postgres can always hold."""
    kind, version = KIND_OF[type(event)]
    payload = _payload(event)
    if len(payload) > MAX_EVENT:
        payload = _payload(_shortened(event, len(payload)))
    return kind, version, payload.decode()


def encode_run(events: Sequence[e.Event]) -> tuple[list[str], list[int], list[str]]:
    """Kinds, versions and JSON texts of events that are written together: a third of the time of `encode` for each."""
    kinds = [KIND_OF[type(event)] for event in events]
    return [kind for kind, _ in kinds], [version for _, version in kinds], _payloads(events)


def decode(kind: str, version: int, payload: str | bytes | msgspec.Raw) -> e.Event:
    """The event of a row of any release. Raises KeyError for a kind this release does not know."""
    today, cls = KINDS[kind]
    if version == today:
        return _READ[kind](payload)
    row = msgspec.json.decode(payload)
    for past in range(version, today):
        row = UPGRADES[kind, past](row)
    return msgspec.convert(row, cls)


def encode_said(said: Said) -> tuple[str, str]:
    """The kind of what was said, and its JSON text for journal and Inbox."""
    return SAID_KIND[type(said)], _payload(said).decode()


def fits(said: Said) -> bool:
    """Whether the event that accepts it keeps below MAX_EVENT."""
    return len(_payload(said)) <= MAX_EVENT - AROUND


def decode_run(kind: str, version: int, payloads: Sequence[str]) -> Sequence[e.Event]:
    """The events of rows of one kind that stand together, read as one list: half the time of reading each."""
    if version == KINDS[kind][0]:
        return _READ_MANY[kind](f"[{','.join(payloads)}]")
    return [decode(kind, version, payload) for payload in payloads]


def decode_said(kind: str, payload: str | bytes) -> Said:
    """What was said. Raises KeyError or msgspec.ValidationError for what no release of ours wrote."""
    return msgspec.json.decode(payload, type=SAID[kind])


def encode_state(state: State) -> str:
    """A checkpoint of the fold."""
    return _payload(state).decode()


def decode_state(payload: str | bytes) -> State:
    return msgspec.json.decode(payload, type=State)


def clean(text: str) -> str:
    """The same text without what JSON or a terminal cannot carry: lone surrogates and NUL."""
    return _SURROGATE.sub("\ufffd", text).replace("\0", "\ufffd")


def _payload(value: e.Event | Said | State) -> bytes:
    """Its JSON, in which every text can be held anywhere."""
    try:
        payload = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_mended(value))
    return _encoder.encode(_mended(value)) if b"\\u0000" in payload else payload


def _payloads(events: Sequence[e.Event]) -> list[str]:
    """All at once, unless one of them may have to be mended or shortened."""
    try:
        lines = _encoder.encode_lines(events)
    except UnicodeEncodeError:
        lines = b""
    if 0 < len(lines) <= MAX_EVENT and b"\\u0000" not in lines:
        return lines.decode().split("\n")[:-1]
    return [encode(event)[2] for event in events]


def _mended(value: T) -> T:
    """The same value with every text in it cleaned."""
    match value:
        case str():
            return clean(value)  # type: ignore[return-value]
        case tuple():
            return tuple(_mended(part) for part in value)  # type: ignore[return-value]
        case _ if hasattr(type(value), "__match_args__"):  # a dataclass or a Struct
            return type(value)(**{name: _mended(part) for name, part in _parts(value).items()})
        case _:
            return value


def _parts(value: object) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__match_args__}  # type: ignore[attr-defined]


def _shortened(event: e.Event, size: int) -> e.Event:
    """The event with its longest texts cut so that it fits, and saying so; one without a text of its own stays whole."""
    texts = {name: part for name, part in _parts(event).items() if isinstance(part, str)}
    long = {name: text for name, text in texts.items() if len(text) > AROUND}
    # half of the bound: what is cut may hold more of the characters whose escapes weigh six bytes than what is left out
    kept = {name: text[: len(text) * (MAX_EVENT // 2) // size] for name, text in long.items()}
    cut = {name: f"{text}\n[cut here: {len(long[name]) - len(text)} characters more]" for name, text in kept.items()}
    shorter = replace(event, **cut)
    weight = len(_payload(shorter))
    return _shortened(shorter, weight) if MAX_EVENT < weight < size else shorter
