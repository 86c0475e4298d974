"""Whether the running Turn's agent has fallen silent, whether the Turn or a question of its has lasted too long (T8, H40).

Judges by the times that it is given; stops nothing itself. A question that waits for a person and a tool that runs are
not silence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

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
SIGNS = (s.ItemSeen, s.DeltaSeen, s.Stirred, s.PermissionAsked, s.PermissionWithdrawn, s.Steered)
WORK = (ItemType.tool, ItemType.file)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of the running Turn's agent. Times are monotonic seconds."""

    turn: TurnId
    began: float
    heard: float
    tools: frozenset[ItemId] = frozenset()  # that run
    asked: tuple[tuple[RequestId, float], ...] = ()

    def hear(self, signals: Sequence[s.Signal], now: float) -> "Watch":
        """After these signals; the same when none of them is a sign of its agent."""
        signs = [x for x in signals if isinstance(x, SIGNS) and x.turn == self.turn]
        if not signs:
            return self
        tools, asked = self.tools, self.asked
        for sign in signs:
            match sign:
                case s.ItemSeen(_, item, kind, ItemStatus.started) if kind in WORK:
                    tools |= {item}
                case s.ItemSeen(_, item):
                    tools -= {item}
                case s.PermissionAsked(_, request) if request not in dict(asked):  # asked again, it waits no longer
                    asked = (*asked, (request, now))
                case _:
                    pass
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
        answers = [at + limits.answer for request, at in self.asked if request in open_]
        return min(self.began + limits.turn, self._silent_at(limits, open_), *answers)

    def _silent_at(self, limits: Limits, open_: Sequence[RequestId]) -> float:
        return inf if open_ or self.tools else self.heard + limits.silence
