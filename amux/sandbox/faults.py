"""What may go wrong on purpose: armed here by name and count, taken by the part of the platform that it befalls. Nothing
goes wrong unless it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class RestFault(StrEnum):
    """What befalls one REST call."""

    rate_limited = "rate_limited"
    "99991400 with HTTP 429 and the headers that say when to come back"
    rate_limited_bare = "rate_limited_bare"
    "the same without headers"
    bad_gateway = "bad_gateway"
    "HTTP 502 with an HTML page; nothing was done"
    unauthorized = "unauthorized"
    "99991663: the token presented is dead from now on"
    answer_lost = "answer_lost"
    "the call is carried out, then the connection breaks instead of an answer"
    slow = "slow"
    "carried out at once, answered late"


class EndpointFault(StrEnum):
    """What befalls one request for a long connection's address."""

    status_500 = "status_500"
    busy = "busy"
    forbidden = "forbidden"
    auth_failed = "auth_failed"
    over_limit = "over_limit"
    black_hole = "black_hole"


class HandshakeFault(StrEnum):
    """How one WebSocket handshake is refused."""

    forbidden = "forbidden"
    over_limit = "over_limit"


class PushFault(StrEnum):
    """What befalls one push of an event."""

    doubled = "doubled"
    "pushed twice with the same event id"
    twinned = "twinned"
    "pushed again under a new event id: the same message"
    ack_ignored = "ack_ignored"
    "its acknowledgement never arrives at the platform"


@dataclass(frozen=True, slots=True)
class Armed:
    """A fault that waits for its `times` next occasions. `method` and `path` narrow it; any part of a path will do."""

    fault: RestFault | EndpointFault | HandshakeFault | PushFault
    times: int
    method: str = ""
    path: str = ""
    seconds: float = 0.0


class Faults:
    """All that is armed."""

    def __init__(self) -> None:
        self._armed: list[Armed] = []

    def arm(
        self,
        fault: RestFault | EndpointFault | HandshakeFault | PushFault,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Let the next `times` occasions go wrong; of REST calls only those with this method and this in their path.
        `seconds` is how late a slow answer comes."""
        self._armed.append(Armed(fault, times, method, path, seconds))

    def disarm(self) -> None:
        """Forget all that is still armed."""
        self._armed.clear()

    def rest(self, method: str, path: str) -> Armed | None:
        return self._take(lambda a: isinstance(a.fault, RestFault) and a.method in ("", method) and a.path in path)

    def endpoint(self) -> EndpointFault | None:
        armed = self._take(lambda a: isinstance(a.fault, EndpointFault))
        return EndpointFault(armed.fault) if armed else None

    def handshake(self) -> HandshakeFault | None:
        armed = self._take(lambda a: isinstance(a.fault, HandshakeFault))
        return HandshakeFault(armed.fault) if armed else None

    def push(self, fault: PushFault) -> PushFault | None:
        """`fault` when it is armed for this occasion, else None."""
        return fault if self._take(lambda a: a.fault is fault) else None

    def _take(self, fits: Callable[[Armed], bool]) -> Armed | None:
        for at, armed in enumerate(self._armed):
            if fits(armed):
                self._armed[at : at + 1] = [replace(armed, times=armed.times - 1)] if armed.times > 1 else []
                return armed
        return None
