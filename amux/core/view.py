"""What people see of a Session, folded from its Timeline: one card per Turn, a receipt per message that did not start
one, a request that waits for an answer. Pure; knows no language and no Feishu."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from amux.core import events as e
from amux.core.ids import InputId, ItemId, RequestId, Seq, TurnId
from amux.core.inputs import Input, Place, Verdict
from amux.core.session import NEW, State, apply


class Fate(StrEnum):
    """What became of a submission, as its sender reads it."""

    waiting = "waiting"
    joined = "joined"
    started = "started"
    failed = "failed"
    cancelled = "cancelled"


@dataclass(slots=True)
class ItemView:
    """One tool, message or note of a Turn."""

    type: e.ItemType
    status: e.ItemStatus
    title: str
    text: str


@dataclass(slots=True)
class TurnView:
    """One Turn. Times are seconds since 1970; `seq` is the newest event that changed it, `first` its start's."""

    turn: TurnId
    place: Place | None
    reply_to: InputId
    title: str
    by: str
    engine: str
    started: float
    first: Seq
    seq: Seq
    now: float
    items: dict[ItemId, ItemView] = field(default_factory=dict)
    joined: list[Input] = field(default_factory=list)
    cancelled: list[Input] = field(default_factory=list)
    stopping: bool = False
    stopped_by: str = ""
    asking: bool = False
    finished: e.TurnFinished | None = None

    def answer(self) -> str:
        """The newest message that stands."""
        standing = [i for i in self.items.values() if i.type is e.ItemType.message and i.text]
        return next((i.text for i in reversed(standing) if i.status is not e.ItemStatus.superseded), "")

    def doing(self) -> str:
        """The tool at work now, or "" between tools."""
        started = (i for i in reversed(self.items.values()) if i.status is e.ItemStatus.started)
        return next((i.title for i in started if i.type in (e.ItemType.tool, e.ItemType.file)), "")

    def tools(self) -> list[ItemView]:
        """What it ran and changed, in order."""
        return [i for i in self.items.values() if i.type in (e.ItemType.tool, e.ItemType.file)]


@dataclass(slots=True)
class ReceiptView:
    """What became of one submission that could not start a Turn at once."""

    inputs: tuple[Input, ...]
    fate: Fate
    first: Seq
    seq: Seq
    since: float
    now: float
    turn: TurnId | None = None
    reason: e.QueueReason | e.FailReason | e.CancelReason | None = None
    owner: str = ""  # whose Turn it waits for
    ahead: int = 0
    detail: str = ""

    @property
    def place(self) -> Place | None:
        return self.inputs[-1].authorization.place

    @property
    def reply_to(self) -> InputId:
        return self.inputs[-1].id


@dataclass(slots=True)
class AskView:
    """A permission request, open or closed."""

    turn: TurnId
    request: RequestId
    place: Place | None
    reply_to: InputId
    title: str
    detail: str
    first: Seq
    seq: Seq
    how: e.Resolution | None = None
    verdict: Verdict | None = None
    name: str = ""


@dataclass(slots=True)
class Board:
    """All that is to be seen of one Session, and which of it changed. Slots are named as card rows are."""

    turns: dict[TurnId, TurnView] = field(default_factory=dict)
    receipts: dict[InputId, ReceiptView] = field(default_factory=dict)  # by the submission's last input
    asks: dict[RequestId, AskView] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    _inputs: dict[InputId, Input] = field(default_factory=dict)  # accepted, their fate not told yet
    _state: State = NEW  # from the same position on: what runs and what waits is what the owner sees

    @property
    def _running(self) -> TurnId | None:
        return self._state.turn.id if self._state.turn else None

    def settled(self) -> bool:
        """Whether nothing is open, so that reading may go on from here."""
        waits = any(r.fate is Fate.waiting for r in self.receipts.values())
        return self._running is None and not waits and not self._inputs

    def apply(self, seq: Seq, at: float, event: e.Event) -> None:  # noqa: C901, PLR0912 - one line a kind of event
        """Take in one event."""
        self._state = apply(self._state, event)
        match event:
            case e.InputAccepted(said):
                self._inputs[said.id] = said
            case e.TurnStarted():
                self._start(seq, at, event)
            case e.Item():
                self._item(seq, at, event)
            case e.Delta():
                self._delta(seq, at, event)
            case e.InputQueued(ids, reason):
                self._receipt(seq, at, ids, Fate.waiting, reason=reason)
            case e.InputSteered(turn, ids):
                self._join(seq, at, turn, ids)
            case e.SubmissionFailed(ids, reason, detail):
                self._receipt(seq, at, ids, Fate.failed, reason=reason, detail=detail)
            case e.InputCancelled(ids, reason):
                self._cancel(seq, at, ids, reason)
            case e.InputPreferred():
                self._recount(seq, at)
            case e.PermissionRequested():
                self._ask(seq, at, event)
            case e.PermissionResolved():
                self._resolve(seq, at, event)
            case e.InterruptRequested(turn, _, name):
                if view := self._touch(turn, seq, at):
                    view.stopping, view.stopped_by = True, name
            case e.TurnFinished(turn):
                if view := self._touch(turn, seq, at):
                    view.finished, view.asking = event, False
            case _:
                pass

    def _start(self, seq: Seq, at: float, event: e.TurnStarted) -> None:
        inputs = self._take(event.inputs)
        place = event.authorization.place if event.authorization else None
        first = inputs[0] if inputs else None
        self.turns[event.turn] = TurnView(
            turn=event.turn,
            place=place,
            reply_to=event.inputs[-1],
            title=first.text if first else "",
            by=first.name if first else "",
            engine=event.engine,
            started=at,
            first=seq,
            seq=seq,
            now=at,
        )
        self.changed.add(f"turn:{event.turn}")
        if (receipt := self.receipts.get(event.inputs[-1])) and receipt.fate is Fate.waiting:
            receipt.fate, receipt.turn, receipt.seq, receipt.now = Fate.started, event.turn, seq, at
            self.changed.add(f"receipt:{receipt.reply_to}")
        self._recount(seq, at)

    def _item(self, seq: Seq, at: float, event: e.Item) -> None:
        if view := self._touch(event.turn, seq, at):
            old = view.items.get(event.item)
            text = event.text or (old.text if old else "")
            view.items[event.item] = ItemView(event.type, event.status, event.title or (old.title if old else ""), text)

    def _delta(self, seq: Seq, at: float, event: e.Delta) -> None:
        if view := self._touch(event.turn, seq, at):
            started = ItemView(e.ItemType.message, e.ItemStatus.started, "", "")
            item = view.items.setdefault(event.item, started)
            item.text = item.text[: event.offset] + event.text

    def _join(self, seq: Seq, at: float, turn: TurnId, ids: tuple[InputId, ...]) -> None:
        inputs = self._receipt(seq, at, ids, Fate.joined, turn=turn)
        if view := self._touch(turn, seq, at):
            view.joined += inputs

    def _cancel(self, seq: Seq, at: float, ids: tuple[InputId, ...], reason: e.CancelReason) -> None:
        turn = self.turns.get(self._running) if self._running else None
        gone = [i for i in turn.joined if i.id in ids] if turn else []
        gone += self._take(tuple(i for i in ids if i not in {g.id for g in gone}))
        self._show(seq, at, tuple(gone), Fate.cancelled, reason=reason)
        if turn and reason is e.CancelReason.interrupted:
            turn.cancelled += gone

    def _ask(self, seq: Seq, at: float, event: e.PermissionRequested) -> None:
        if view := self._touch(event.turn, seq, at):
            view.asking = True
            ask = AskView(event.turn, event.request, view.place, view.reply_to, event.title, event.detail, seq, seq)
            self.asks[event.request] = ask
            self.changed.add(f"ask:{event.request}")

    def _resolve(self, seq: Seq, at: float, event: e.PermissionResolved) -> None:
        if ask := self.asks.get(event.request):
            ask.how, ask.verdict, ask.name, ask.seq = event.how, event.verdict, event.name, seq
            self.changed.add(f"ask:{event.request}")
        if view := self._touch(event.turn, seq, at):
            view.asking = any(a.turn == view.turn and a.how is None for a in self.asks.values())

    def _receipt(
        self,
        seq: Seq,
        at: float,
        ids: tuple[InputId, ...],
        fate: Fate,
        *,
        turn: TurnId | None = None,
        reason: e.QueueReason | e.FailReason | None = None,
        detail: str = "",
    ) -> list[Input]:
        inputs = self._take(ids)
        self._show(seq, at, tuple(inputs), fate, turn=turn, reason=reason, detail=detail)
        return inputs

    def _show(
        self,
        seq: Seq,
        at: float,
        inputs: tuple[Input, ...],
        fate: Fate,
        *,
        turn: TurnId | None = None,
        reason: e.QueueReason | e.FailReason | e.CancelReason | None = None,
        detail: str = "",
    ) -> None:
        if not inputs:
            return
        old = self.receipts.get(inputs[-1].id)
        first, since = (old.first, old.since) if old else (seq, at)
        new = ReceiptView(inputs, fate, first, seq, since, at, turn, reason, detail=detail)
        self.receipts[inputs[-1].id] = new
        self.changed.add(f"receipt:{inputs[-1].id}")
        self._recount(seq, at)

    def _recount(self, seq: Seq, at: float) -> None:
        """Places in the line move as it gets shorter."""
        running = self.turns.get(self._running) if self._running else None
        lined_up = [self.receipts.get(s.inputs[-1].id) for s in self._state.queue if s.inputs]
        for ahead, receipt in enumerate(r for r in lined_up if r and r.fate is Fate.waiting):
            turn, owner = (running.turn, running.by) if running else (receipt.turn, receipt.owner)
            if (receipt.ahead, receipt.turn, receipt.owner) != (ahead, turn, owner):
                receipt.ahead, receipt.turn, receipt.owner, receipt.seq, receipt.now = ahead, turn, owner, seq, at
                self.changed.add(f"receipt:{receipt.reply_to}")

    def _touch(self, turn: TurnId, seq: Seq, at: float) -> TurnView | None:
        if view := self.turns.get(turn):
            view.seq, view.now = seq, at
            self.changed.add(f"turn:{turn}")
        return view

    def _take(self, ids: Iterable[InputId]) -> list[Input]:
        """These inputs, no more without a fate; those that wait are known by their receipt."""
        waiting = {i.id: i for r in self.receipts.values() for i in r.inputs}
        return [said for i in ids if (said := self._inputs.pop(i, None) or waiting.get(i))]
