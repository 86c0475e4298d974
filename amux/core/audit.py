"""Reads one Session's Timeline back and counts: what became of every input, and every rule that it breaks. Pure.

The sum must hold: accepted = dispatched + steered + waiting + failed + cancelled. All of `broken` must be 0."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from amux.core import events as e
from amux.core.ids import InputId, Seq, TurnId
from amux.core.inputs import Input
from amux.core.session import State, fold


@dataclass(slots=True)
class Count:
    """What was found, of one Session or of many."""

    sessions: int = 0
    turns: int = 0
    accepted: int = 0
    dispatched: int = 0
    steered: int = 0
    waiting: int = 0
    failed: int = 0
    cancelled: int = 0
    doubled: int = 0
    open_turns: int = 0
    double_finish: int = 0
    gaps: int = 0
    drifted: int = 0  # projections that differ from the fold
    lost_turns: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: "Count") -> None:
        """Take in another Session's."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes += other.notes

    @property
    def fates(self) -> int:
        """How many inputs have a fate; as many as were accepted."""
        return self.dispatched + self.steered + self.waiting + self.failed + self.cancelled

    @property
    def broken(self) -> int:
        """How many rules are broken; 0 is the only good answer."""
        return self.doubled + self.double_finish + self.gaps + self.drifted + int(self.accepted != self.fates)


NUMBERS = tuple(name for name in Count.__dataclass_fields__ if name != "notes")


@dataclass(frozen=True, slots=True)
class Projection:
    """What the Session's row says, to be held against the fold."""

    label: e.Label
    head: Seq
    open_turn: TurnId | None


def examine(name: str, log: Sequence[tuple[Seq, e.Event]], row: Projection, *, owned: str | None) -> Count:
    """Count one Session. An open Turn without an owner that could end it is one too many."""
    state = fold(event for _, event in log)
    count = Count(sessions=1)
    seqs = [seq for seq, _ in log]
    count.gaps = int(seqs != list(range(1, len(seqs) + 1)) or row.head != (seqs[-1] if seqs else 0))
    _turns(count, [event for _, event in log])
    _fates(count, [event for _, event in log])
    _drift(count, state, row)
    count.drifted += _waits_elsewhere([event for _, event in log], state)
    if state.turn and not owned:
        count.open_turns = 1
    count.notes = [
        f"{name}: {what} {getattr(count, what)}"
        for what in ("doubled", "double_finish", "gaps", "drifted")
        if getattr(count, what)
    ]
    if count.accepted != count.fates:
        count.notes.append(f"{name}: accepted {count.accepted}, fates {count.fates}")
    return count


def _turns(count: Count, events: Iterable[e.Event]) -> None:
    ends: Counter[TurnId] = Counter()
    for event in events:
        match event:
            case e.TurnStarted():
                count.turns += 1
            case e.TurnFinished(turn, outcome):
                ends[turn] += 1
                count.lost_turns += outcome is e.Outcome.lost
            case _:
                pass
    count.double_finish = sum(n - 1 for n in ends.values())


def _fates(count: Count, events: Sequence[e.Event]) -> None:
    """Each input's last fate; started or steered twice is doubled."""
    fates, given = fates_of(events)
    count.accepted = sum(isinstance(event, e.InputAccepted) for event in events)
    count.doubled = sum(n - 1 for n in given.values() if n > 1)
    for fate, number in Counter(fates.values()).items():
        setattr(count, fate, number)


def fates_of(events: Iterable[e.Event]) -> tuple[dict[InputId, str], Counter[InputId]]:
    """Each input's last fate, and how often each was handed to the provider by the record."""
    fates: dict[InputId, str] = {}
    given: Counter[InputId] = Counter()
    for event in events:
        match event:
            case e.InputAccepted(Input(id=id)):
                fates[id] = "waiting"
            case e.TurnStarted(_, ids):
                fates |= dict.fromkeys(ids, "dispatched")
                given.update(ids)
            case e.InputSteered(_, ids):
                fates |= dict.fromkeys(ids, "steered")
                given.update(ids)
            case e.SubmissionFailed(ids):
                fates |= dict.fromkeys(ids, "failed")
            case e.InputCancelled(ids):
                fates |= dict.fromkeys(ids, "cancelled")
            case _:
                pass
    return fates, given


def _waits_elsewhere(events: Sequence[e.Event], state: State) -> bool:
    """Whether the state keeps other inputs than those that have no fate yet."""
    waiting = {id_ for id_, fate in fates_of(events)[0].items() if fate == "waiting"}
    kept = {i.id for s in (*state.queue, *state.steering) for i in s.inputs} | {i.id for i in state.arriving}
    return waiting != kept


def _drift(count: Count, state: State, row: Projection) -> None:
    turn = state.turn.id if state.turn else None
    count.drifted = int(state.label is not row.label) + int(turn != row.open_turn)
