"""Whether the running Turn's agent has fallen silent, whether the Turn or a question of its has lasted too long (T8, H40).

Judges by the times that it is given; stops nothing itself. A question that waits for a person and a tool that runs are
not silence."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from amux.core import signals as s
from amux.core.events import ItemStatus, ItemType
from amux.core.ids import ItemId, RequestId, TurnId

SILENT, TOO_LONG = "watchdog", "turn_limit"  # reasons of a TurnFinished


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds."""

    silence: float = inf  # without a sign of the agent
    turn: float = inf  # of a whole Turn
    answer: float = inf  # for a person to answer a permission request


UNLIMITED = Limits()
GRAIN = 0.2  # seconds to which it is known when the last word came: to know it better costs as much as the word
WORK = (ItemType.tool, ItemType.file)


class Watch(Struct, frozen=True):
    """What is known of the running Turn's agent. Times are monotonic seconds."""

    turn: TurnId
    began: float
    heard: float
    tools: frozenset[ItemId] = frozenset()  # that run
    asked: tuple[tuple[RequestId, float], ...] = ()

    def hear(self, signals: Sequence[s.Signal], now: float) -> "Watch":
        """After these signals: whatever its agent does is a sign of life. The same where it tells nothing new."""
        signs = [x for x in signals if getattr(x, "turn", None) == self.turn]
        tools, asked, rare = self.tools, self.asked, False
        for sign in signs:
            if isinstance(sign, s.ItemSeen):
                if sign.type in WORK:
                    tools = tools | {sign.item} if sign.status is ItemStatus.started else tools - {sign.item}
            elif not isinstance(sign, s.DeltaSeen):
                rare = True
                if isinstance(sign, s.PermissionAsked) and sign.request not in dict(asked):  # the first time counts
                    asked = (*asked, (sign.request, now))
        if not signs or (now < self.heard + GRAIN and tools == self.tools and not rare):
            return self
        return replace(self, heard=now, tools=tools, asked=asked)

    def overdue(self, limits: Limits, open_: Sequence[RequestId], now: float) -> str | None:
        """Why the Turn has to end now, as a reason of its TurnFinished; None while it may go on."""
        if now >= self.began + limits.turn:
            return TOO_LONG
        return SILENT if now >= self._silent_at(limits, open_) else None

    def unanswered(self, limits: Limits, open_: Sequence[RequestId], now: float) -> tuple[RequestId, ...]:
        """Those of the open requests that have waited too long."""
        return tuple(request for request, at in self.asked if request in open_ and now >= at + limits.answer)

    def due(self, limits: Limits, open_: Sequence[RequestId]) -> float:
        """When to look again; infinity when time alone changes nothing."""
        answers = [at + limits.answer for request, at in self.asked if request in open_] if open_ else ()
        return min(self.began + limits.turn, self._silent_at(limits, open_), *answers)

    def _silent_at(self, limits: Limits, open_: Sequence[RequestId]) -> float:
        return inf if open_ or self.tools else self.heard + limits.silence
