"""What Claude Code tells, understood: frames and questions become the Turn's record and provider events.

An input's fate is told by its uuid: `queued` is a receipt, `started` is the commit, and a result closes all that it took
in. A native turn that begins while nothing that was said has begun is foreign: it is named, none of it is shown, and its
questions are denied. Nothing here is sent: what has to be done about it is asked of `Hands`."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from amux.extensions import (
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    Outcome,
    PermissionAsked,
    PermissionWithdrawn,
    RequestId,
    TurnEnded,
    Verdict,
)
from amux.providers import claude_items
from amux.providers.audience import Audience
from amux.providers.claude_turn import Turn
from amux.providers.compacting import Compacting
from amux.providers.pipes import Line

log = structlog.get_logger()
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError)


class Hands(Protocol):
    """What has to be done about something that was told. None of them waits."""

    def stop_foreign(self) -> None: ...
    def reply(self, number: str, result: dict[str, object]) -> None: ...
    def refuse(self, number: str, subtype: str) -> None: ...


class Told:
    """What is known of a conversation. `turn` is the one that is open, `compacting` the summary that was asked for; `hide`
    takes secrets out of a text for people."""

    def __init__(self, hands: Hands, audience: Audience, *, hide: Callable[[str], str]) -> None:
        self.turn: Turn | None = None
        self.compacting: Compacting | None = None
        self.foreign_over = asyncio.Event()
        self.foreign_over.set()
        self.requests: dict[RequestId, tuple[str, Line]] = {}
        self._hands, self._hide = hands, hide
        self._foreign = ""  # the native turn that nobody asked for and that runs now
        self._tell, self._stir = audience.tell, audience.stir

    def begin(self, turn: Turn) -> None:
        self.turn = turn

    def lose(self, how: str) -> None:
        """The process is gone, and nothing more comes."""
        if self.turn:
            self.turn.lose(f"Claude {how} before it began this.")
        if self.compacting:
            self.compacting.lose(how)
        self.foreign_over.set()
        self._tell(Died(f"Claude {how}."))

    # -- frames -------------------------------------------------------------------------------------------------------

    def frame(self, frame: Line) -> None:
        """One frame that is neither a question nor an answer. One of a shape that nobody knows is passed over."""
        if self.turn:
            self._stir(self.turn.id)
        if self.compacting:
            self.compacting.stir()
        try:
            self._understand(frame)
        except UNREADABLE as error:
            log.warning("claude_unreadable", type=str(frame.get("type")), error=type(error).__name__)

    def _understand(self, frame: Line) -> None:
        match frame:
            case {"command_uuid": str(uuid), "state": str(state)} if self.compacting and uuid == self.compacting.native:
                self._summary_fate(self.compacting, state)
            case {"type": "command_lifecycle", "command_uuid": str(uuid), "state": str(state)}:
                self._fate(uuid, state)
            case _ if self.compacting and self.compacting.begun:
                self._summarise(self.compacting, frame)
            case {"type": "system", "subtype": "init"}:
                self._began(frame)
            case {"type": "result"}:
                self._result(frame)
            case _ if self.turn and self.turn.running:
                self._show(self.turn, frame)

    def _show(self, current: Turn, frame: Line) -> None:
        answers = frame.get("type") == "assistant" or frame.get("event", {}).get("type") == "message_start"
        if answers and not frame.get("aborted"):
            current.answering()
        for event in current.live.take(frame):
            self._tell(event)

    def _fate(self, uuid: str, state: str) -> None:
        """A word on one input. `cancelled` of one that began says only how its native turn ended: the result does that."""
        current = self.turn
        said = current.said.get(uuid) if current else None
        if current is None or said is None:
            return
        match state:
            case "queued":
                said.queued.set()
            case "started" if not said.closed:
                current.start(said)
                self._foreign_ended()  # it was taken into that one, which is a Turn's now
            case "completed" | "cancelled" | "discarded" | "refused" if not said.started:
                said.drop()
                self.settle()

    def _began(self, frame: Line) -> None:
        """A native turn begins; when nothing that was said has begun, nobody asked for it."""
        if self._foreign or (self.turn and self.turn.running):
            return
        self._foreign = str(frame["uuid"])
        self.foreign_over.clear()
        self._tell(ForeignTurnBegan(self._foreign, "unasked"))
        self._hands.stop_foreign()

    def _foreign_ended(self) -> None:
        if self._foreign:
            self._tell(ForeignTurnEnded(self._foreign))
            self._foreign = ""
            self.foreign_over.set()

    def _result(self, frame: Line) -> None:
        listed = [str(uuid) for uuid in frame.get("user_message_uuids") or ()]
        current = self.turn
        ours = current is not None and (current.running or any(uuid in current.said for uuid in listed))
        self._foreign_ended()
        if current and ours:
            current.result(listed, claude_items.outcome(frame), claude_items.usage(frame["usage"]))
            self.settle()

    def _summary_fate(self, compacting: Compacting, state: str) -> None:
        match state:
            case "started":
                compacting.begin(compacting.native)
            case "cancelled" | "discarded" | "refused" if not compacting.begun:
                compacting.end()

    def _summarise(self, compacting: Compacting, frame: Line) -> None:
        """A native turn of its own, of which nothing is shown. Claude says why not in one of two ways."""
        match frame:
            case {"subtype": "status", "compact_result": str(result)}:
                compacting.done = result == "success"
                compacting.why = self._hide(claude_items.readable(frame.get("compact_error")))
            case {"type": "assistant", "message": {"content": [{"text": str(text)}, *_]}}:
                compacting.why = self._hide(claude_items.readable(text))
            case {"type": "result"}:
                self.compacting = None
                compacting.end()

    def settle(self) -> None:
        """End the Turn if nothing of it runs or is on its way any more, once. One in which nothing began has no end, unless
        somebody wanted it to."""
        current = self.turn
        if current is None or not current.quiet or current.over.is_set():
            return
        if current.ended is None and not current.stopping:
            return
        self.turn = None
        self.requests.clear()
        outcome, reason, detail = _how(current)
        for item in current.live.end(outcome):
            self._tell(item)
        unhandled = current.unhandled()
        current.close()
        self._tell(TurnEnded(current.id, outcome, reason, self._hide(detail), current.spent, unhandled))

    # -- questions ----------------------------------------------------------------------------------------------------

    def asked(self, number: str, about: Line) -> None:
        """A question of Claude's: for a person, where it is the open Turn's; else answered here (G7)."""
        current = self.turn
        match about.get("subtype"):
            case "can_use_tool" if current and current.running and not current.stopping:
                request = RequestId(f"{current.id}-{number}")
                self.requests[request] = number, about
                self._tell(PermissionAsked(current.id, request, *claude_items.question(about)))
            case "can_use_tool":
                self._hands.reply(number, claude_items.verdict(about, Verdict.deny))
            case subtype:
                self._hands.refuse(number, str(subtype))

    def withdrawn(self, number: str) -> None:
        for request in [request for request, asked in self.requests.items() if asked[0] == number]:
            del self.requests[request]
            if self.turn:
                self._tell(PermissionWithdrawn(self.turn.id, request))


def _how(turn: Turn) -> tuple[Outcome, str, str]:
    """The outcome of a whole Turn: of its last native turn, and whether somebody had asked for that end."""
    outcome, reason = turn.ended or (Outcome.interrupted, "")
    if outcome is Outcome.interrupted and not turn.stopping:
        return Outcome.failed, "aborted", "Claude ended this by itself."
    if outcome is Outcome.failed:
        word, told = turn.live.failure
        return outcome, word or reason, told or f"Claude ended this: {reason}."
    return outcome, "", ""
