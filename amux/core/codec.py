"""Events, inputs and checkpoints to JSON and back. What was once written stays readable for ever.

An event is encoded once, for the append and for the nudge. What Postgres or a reader could not hold is mended here,
so that one bad event stops nobody (H5): lone surrogates become U+FFFD, and an event keeps below MAX_EVENT bytes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import msgspec

from amux.core import events as e
from amux.core.inputs import Answer, Input, Interrupt, Said
from amux.core.session import State

T = TypeVar("T")
OldRow = dict[str, Any]
MAX_EVENT = 256 * 1024  # bytes

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
    "submission_failed": (1, e.SubmissionFailed),
    "turn_started": (1, e.TurnStarted),
    "item": (1, e.Item),
    "delta": (1, e.Delta),
    "permission_requested": (1, e.PermissionRequested),
    "permission_resolved": (1, e.PermissionResolved),
    "interrupt_requested": (1, e.InterruptRequested),
    "control_refused": (1, e.ControlRefused),
    "native_turn_quarantined": (1, e.NativeTurnQuarantined),
    "turn_finished": (1, e.TurnFinished),
}
UPGRADES: dict[tuple[str, int], Callable[[OldRow], OldRow]] = {}  # (kind, version): the row of that version, one later
KIND_OF: dict[type[e.Event], tuple[str, int]] = {cls: (kind, version) for kind, (version, cls) in KINDS.items()}

SAID: dict[str, type[Said]] = {"input": Input, "interrupt": Interrupt, "answer": Answer}
SAID_KIND: dict[type[Said], str] = {cls: kind for kind, cls in SAID.items()}
CHECKPOINT = 1  # the version of State's own JSON; a checkpoint of another version is not read but folded anew (H17)

_encoder = msgspec.json.Encoder()
_decoders: Mapping[str, msgspec.json.Decoder[e.Event]] = {
    kind: msgspec.json.Decoder(cls) for kind, (_, cls) in KINDS.items()
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(event: e.Event) -> tuple[str, int, str]:
    """An event's kind, version and JSON text, which Postgres can always hold."""
    kind, version = KIND_OF[type(event)]
    try:
        payload = _encoder.encode(event)
    except UnicodeEncodeError:
        event = _mended(event)
        payload = _encoder.encode(event)
    if len(payload) > MAX_EVENT:
        payload = _encoder.encode(_shortened(event, len(payload)))
    return kind, version, payload.decode()


def decode(kind: str, version: int, payload: str | bytes) -> e.Event:
    """The event of a row of any release. Raises KeyError for a kind this release does not know."""
    today, cls = KINDS[kind]
    if version == today:
        return _decoders[kind].decode(payload)
    row = msgspec.json.decode(payload)
    for past in range(version, today):
        row = UPGRADES[kind, past](row)
    return msgspec.convert(row, cls)


def encode_said(said: Said) -> tuple[str, str]:
    """The kind of what was said, and its JSON text for journal and Inbox."""
    try:
        return SAID_KIND[type(said)], _encoder.encode(said).decode()
    except UnicodeEncodeError:
        return SAID_KIND[type(said)], _encoder.encode(_mended(said)).decode()


def decode_said(kind: str, payload: str | bytes) -> Said:
    """What was said. Raises KeyError or msgspec.ValidationError for what no release of ours wrote."""
    return msgspec.json.decode(payload, type=SAID[kind])


def encode_state(state: State) -> str:
    """A checkpoint of the fold."""
    return _encoder.encode(state).decode()


def decode_state(payload: str | bytes) -> State:
    return msgspec.json.decode(payload, type=State)


def clean(text: str) -> str:
    """The same text without what JSON or a terminal cannot carry: lone surrogates and NUL."""
    return _SURROGATE.sub("\ufffd", text).replace("\0", "\ufffd")


def _mended(value: T) -> T:
    """The same value with every text in it cleaned."""
    match value:
        case str():
            return clean(value)  # type: ignore[return-value]
        case tuple():
            return tuple(_mended(part) for part in value)  # type: ignore[return-value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: _mended(getattr(value, f.name)) for f in fields(value)})
        case _:
            return value


def _shortened(event: e.Event, size: int) -> e.Event:
    """The event with its longest text cut so that it fits, and saying so."""
    texts = {f.name: v for f in fields(event) if isinstance(v := getattr(event, f.name), str)}
    name = max(texts, key=lambda n: len(texts[n]))
    keep = len(texts[name]) * (MAX_EVENT // 2) // size  # half of the bound: escapes weigh up to six bytes
    return replace(event, **{name: f"{texts[name][:keep]}\n[cut here: {len(texts[name]) - keep} characters more]"})  # type: ignore[arg-type]
