"""How time goes in the cloud and how much it takes: the clock, the deadlines, the redelivery schedule and the rate
limits. Numbers only; who keeps to them is `push`, `rest` and `cardkit`."""

from __future__ import annotations

import time
from dataclasses import dataclass

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


class Clock:
    """Wall time in milliseconds, which tests may move forward. No two moments are the same one, so that messages have
    an order by time."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._last_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def moment_ms(self) -> int:
        """Now, later than every moment given before."""
        self._last_ms = max(self.now_ms(), self._last_ms + 1)
        return self._last_ms

    def advance(self, *, seconds: float) -> None:
        """Move the clock forward: tokens, uuids and streaming grow old. Waits that have begun are not shortened."""
        self._ahead_ms += int(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Pace:
    """Deadlines in seconds. `scale` shrinks the redelivery schedule alone; no retries at all: `retry_seconds=()`."""

    ack_seconds: float = 3.0
    retry_seconds: tuple[float, ...] = (15, 300, 3600, 21600)
    scale: float = 1.0
    ping_seconds: int = 120
    reconnect_seconds: int = 120
    reconnect_nonce: int = 30
    streaming_seconds: float = 600

    def client_config(self) -> dict[str, int]:
        """What the long connection tells its client; all four keys, as a missing one breaks the stock client."""
        return {
            "ReconnectCount": -1,
            "ReconnectInterval": self.reconnect_seconds,
            "ReconnectNonce": self.reconnect_nonce,
            "PingInterval": self.ping_seconds,
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates that the platform grants; the defaults are Feishu's. 0 means unlimited."""

    patches_per_message: int = 5
    sends_per_chat: int = 5
    calls_per_card: int = 10
    calls_per_api: int = 50
    calls_per_api_minute: int = 1000


FEISHU_PACE = Pace()
FEISHU_LIMITS = Limits()
UNLIMITED = Limits(0, 0, 0, 0, 0)
"For load that is not about rates: many Sessions in one chat would otherwise wait for Feishu, not for us."


class Meter:
    """Counts calls in sliding windows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[tuple[str, ...], list[int]] = {}

    def admits(self, *key: str, limit: int, seconds: float = 1.0) -> bool:
        """Whether one more call of `key` fits into the window; it is counted when it does."""
        if not limit:
            return True
        now = self._clock.now_ms()
        recent = [at for at in self._calls.get(key, ()) if at > now - seconds * 1000]
        self._calls[key] = recent
        if len(recent) >= limit:
            return False
        recent.append(now)
        return True
