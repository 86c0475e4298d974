"""How a Timeline looks in a terminal: the words of what happens, one live line while it happens, JSON where it is asked.

ANSI names only, so that the reader's theme decides; off a terminal the same words without colour and without live line.
What agents and people wrote is shown without control characters (H30)."""

import json
import os
import re
import sys
import time
from dataclasses import dataclass, field

from amux.core import events as e
from amux.core import watchdog
from amux.core.ids import ItemId
from amux.core.inputs import Verdict
from amux.ports import Recorded, Session
from amux.runtime.rows import event_row

GLYPHS = {"live": "●", "turn": "▸", "joined": "↳", "waits": "⋯", "asks": "◆", "done": "✓", "failed": "✗", "lost": "◌"}
ASCII = {"live": "*", "turn": ">", "joined": "+", "waits": "...", "asks": "?", "done": "ok", "failed": "x", "lost": "~"}
COLOURS = {"live": 34, "turn": 1, "joined": 34, "waits": 33, "asks": 33, "done": 32, "failed": 31, "lost": 35, "dim": 2}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

REASONS = {
    e.QueueReason.no_running_turn: "no Turn that we know of is running",
    e.QueueReason.has_material: "files and quotes start their own Turn",
    e.QueueReason.group_watch: "group alerts never join a Turn",
    e.QueueReason.no_sender: "messages from bots never join a Turn",
    e.QueueReason.other_sender: "somebody else's Turn is running",
    e.QueueReason.interrupting: "the running Turn is being interrupted",
    e.QueueReason.earlier_input_waiting: "earlier messages go first",
    e.QueueReason.other_authorization: "it has other permissions than the running Turn",
    e.QueueReason.cannot_steer: "this agent takes nothing while it works",
    e.QueueReason.refused: "the agent did not take it into the running Turn",
    e.QueueReason.preempts: "it is next, as soon as the running Turn has stopped",
    e.QueueReason.nothing_steers: "nothing joins a running Turn in this installation",
}
CANCELLED = {
    e.CancelReason.interrupted: "cancelled with the interrupted Turn",
    e.CancelReason.archived: "cancelled with the Session",
    e.CancelReason.withdrawn: "withdrawn",
}
VERDICTS = {Verdict.allow: "allowed once", Verdict.always: "allowed for this Session", Verdict.deny: "denied"}
OUTCOMES = {
    e.Outcome.completed: ("done", "completed"),
    e.Outcome.interrupted: ("failed", "interrupted; finished steps stay"),
    e.Outcome.failed: ("failed", "failed"),
    e.Outcome.lost: ("lost", "cut off: the worker or its agent died. Nothing was run again"),
}


ANEW = {
    e.Fresh.engine_lost: "nobody knows any more which agent held it before",
    e.Fresh.history_gone: "the agent has its own record of it no longer",
}
ENDS = {
    watchdog.SILENT: "the agent gave no sign of life for too long; its processes are gone",
    watchdog.TOO_LONG: "the Turn took longer than is allowed here; its processes are gone",
}


def plain(text: str) -> str:
    """Text without what could steer a terminal."""
    return _CONTROL.sub("", text)


@dataclass(slots=True)
class Screen:
    """Draws one Session's events as they come."""

    session: Session
    as_json: bool = False
    _tty: bool = field(init=False)
    _said: dict[ItemId, int] = field(default_factory=dict)  # characters of each message that are printed
    _column: int = 0
    _live: bool = False

    def __post_init__(self) -> None:
        self._tty = sys.stdout.isatty()

    def show(self, recorded: Recorded) -> None:
        """One event."""
        if self.as_json:
            print(json.dumps(event_row(self.session, recorded), ensure_ascii=False), flush=True)
            return
        self._draw(recorded.event, recorded.at)
        sys.stdout.flush()

    def _draw(self, event: e.Event, at: float) -> None:  # noqa: C901, PLR0912 - one line a kind of event
        match event:
            case e.TurnStarted(turn):
                self._line("turn", f"Turn {turn}", time.strftime("%H:%M:%S", time.localtime(at)))
            case e.InputAccepted(said):
                self._line("dim", f"{said.name or 'somebody'}: {_short(said.text)}")
            case e.InputQueued(_, reason):
                self._line("waits", f"waits: {REASONS[reason]}")
            case e.InputSteered(turn):
                self._line("joined", f"joined Turn {turn}")
            case e.InputCancelled(_, reason, _, name):
                self._line("failed", f"{CANCELLED[reason]}{f' by {plain(name)}' if name else ''}")
            case e.InputPreferred(_, _, name):
                self._line("waits", f"put first by {plain(name) or 'somebody'}")
            case e.SubmissionFailed(_, reason, detail):
                self._line("lost", _failed(reason, detail))
            case e.Delta(_, item, offset, text):
                self._say(item, offset, text)
            case e.Item():
                self._item(event)
            case e.PermissionRequested(_, request, title):
                self._line("asks", f"asks: {plain(title)}")
                self._line("dim", f"  amux answer {self.session.ref.id[:6]} {request} allow | deny")
            case e.PermissionResolved(_, _, how, verdict):
                answered = how is e.Resolution.answered and verdict is not None
                self._line("dim", f"  {VERDICTS[verdict]}" if answered and verdict else f"  closed: {how}")
            case e.InterruptRequested():
                self._line("dim", "asked to stop")
            case e.TurnFinished():
                glyph, words = OUTCOMES[event.outcome]
                why = ENDS.get(event.reason) or event.detail
                detail = f": {_short(why)}" if why and event.outcome is e.Outcome.failed else ""
                self._line(glyph, f"Turn {event.turn} {words}{detail}")
            case _:
                self._life(event)

    def _life(self, event: e.Event) -> None:
        """What happens to the Session as a whole."""
        match event:
            case e.ActionRequested(action, _, name):
                self._line("dim", f"{plain(name) or 'somebody'} asked for: {action}")
            case e.SessionState(label):
                self._line("dim", f"{label}")
            case e.ConversationFailed(_, detail):
                self._line("failed", f"the agent did not start: {_short(detail, 400)}")
            case e.ContextQueued(wish):
                self._line("waits", f"{plain(wish.name) or 'somebody'} asked for: {wish.what}")
            case e.CompactRequested():
                self._line("dim", "the agent summarises its context")
            case e.ContextCompacted():
                self._line("done", "the agent has summarised its context")
            case e.ContextFailed(_, detail):
                self._line("failed", f"the context was not summarised: {_short(detail, 400)}")
            case e.ContextCleared(_, _, name):
                self._line("done", f"context cleared by {plain(name) or 'somebody'}; finished steps stay")
            case e.ConversationOpening(_, _, fresh) if fresh:
                self._line("lost", f"begins anew: {ANEW[fresh]}; the agent is told what amux has of it")
            case _:
                pass

    def _item(self, item: e.Item) -> None:
        if item.type is e.ItemType.message:
            if item.status is not e.ItemStatus.superseded:
                self._say(item.item, 0, item.text)
            self._newline()
        elif item.status is e.ItemStatus.started:
            self._status(f"{self._glyph('live')} {_short(item.title)}")
        elif item.type in (e.ItemType.tool, e.ItemType.file):
            self._line("done" if item.status is e.ItemStatus.completed else "failed", _short(item.title), indent=2)

    def _say(self, item: ItemId, offset: int, text: str) -> None:
        """Text of a message, from where it was printed so far."""
        seen = self._said.get(item, 0)
        fresh = plain(text)[max(0, seen - offset) :]
        if not fresh:
            return
        self._erase()
        self._said[item] = max(seen, offset + len(text))
        for piece in fresh.splitlines(keepends=True):
            if not self._column:
                sys.stdout.write("  ")
            sys.stdout.write(piece)
            self._column = 0 if piece.endswith("\n") else 1

    def _line(self, kind: str, text: str, aside: str = "", *, indent: int = 0) -> None:
        self._newline()
        glyph = "" if kind == "dim" else self._glyph(kind) + " "
        tail = f"  {self._paint('dim', aside)}" if aside else ""
        print(f"{' ' * indent}{self._paint(kind, glyph + text)}{tail}")

    def _glyph(self, kind: str) -> str:
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        return (GLYPHS if utf8 else ASCII)[kind]

    def _paint(self, kind: str, text: str) -> str:
        if not self._tty or os.environ.get("NO_COLOR"):
            return text
        return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m"

    def _newline(self) -> None:
        self._erase()
        if self._column:
            print()
            self._column = 0

    def _status(self, text: str) -> None:
        """The one live line, erased by whatever comes next."""
        if self._tty:
            self._newline()
            sys.stdout.write(self._paint("live", text))
            self._live = True

    def _erase(self) -> None:
        if self._live:
            sys.stdout.write("\r\x1b[K")
            self._live = False


def _short(text: str, most: int = 160) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _failed(reason: e.FailReason, detail: str) -> str:
    if reason is e.FailReason.uncertain:
        return "may not have arrived; not sent again, so that nothing runs twice"
    return f"not run: {_short(detail, 400)}"
