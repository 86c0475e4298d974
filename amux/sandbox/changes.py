"""What has changed in the cloud, in order, for whoever looks on: a page, a test, a drill. Says what changed and where,
never what was written: that is read from the World."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum

from amux.sandbox.pace import Clock
from amux.sandbox.records import AppId, ChatId, MessageId, ThreadId


class ChangeKind(StrEnum):
    message_sent = "message_sent"
    message_revised = "message_revised"
    message_recalled = "message_recalled"
    topic_opened = "topic_opened"
    reaction_changed = "reaction_changed"
    send_refused = "send_refused"
    push_acknowledged = "push_acknowledged"
    push_failed = "push_failed"
    clicked = "clicked"
    members_changed = "members_changed"
    connected = "connected"
    disconnected = "disconnected"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `code` and `reason` are set for what the platform refused or a person was shown."""

    seq: int
    kind: ChangeKind
    at_ms: int
    chat: ChatId | None = None
    thread: ThreadId | None = None
    message: MessageId | None = None
    app: AppId | None = None
    code: int = 0
    reason: str = ""


class Changes:
    """The log. Numbers start at 1 and have no gaps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log: list[Change] = []
        self._grown = asyncio.Event()

    @property
    def head(self) -> int:
        return len(self._log)

    def note(
        self,
        kind: ChangeKind,
        *,
        chat: ChatId | None = None,
        thread: ThreadId | None = None,
        message: MessageId | None = None,
        app: AppId | None = None,
        code: int = 0,
        reason: str = "",
    ) -> None:
        at_ms = self._clock.now_ms()
        self._log.append(Change(self.head + 1, kind, at_ms, chat, thread, message, app, code, reason))
        self._grown.set()
        self._grown = asyncio.Event()

    def since(self, after: int) -> tuple[Change, ...]:
        return tuple(self._log[after:])

    async def follow(self, after: int = 0) -> AsyncIterator[Change]:
        """Every change behind number `after`, then each new one as it comes; never ends by itself."""
        while True:
            grown = self._grown
            for change in self.since(after):
                yield change
                after = change.seq
            await grown.wait()

    async def until(self, holds: Callable[[], bool], *, seconds: float) -> None:
        """Return as soon as `holds()` is true, looked at after every change. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            while not holds():
                await self._grown.wait()
