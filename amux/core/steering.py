"""Steer, queue or preempt: what becomes of a burst whose window has closed. The one home of I3, I4, I7 and I8.

Never waits, reads no clock, asks no agent's name: the machine closes the burst, this module judges it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from amux.core.events import QueueReason
from amux.core.ids import TurnId
from amux.core.inputs import Input, Origin
from amux.core.session import State, Turn


@dataclass(frozen=True, slots=True)
class Steer:
    """It joins that Turn, or none."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class Queue:
    """It is one submission for a next Turn; `reason` is told to its sender."""

    reason: QueueReason


@dataclass(frozen=True, slots=True)
class Preempt:
    """It is a submission for the very next Turn, before what waits and does not preempt (I7)."""


Decision = Steer | Queue | Preempt


class Busy(StrEnum):
    """What a person's message from Feishu does while a Turn runs."""

    steer = "steer"
    interrupt = "interrupt"  # the older contract (I7)


STEERING = "steering"  # the optional part of a conversation


def decide(burst: tuple[Input, ...], state: State, busy: Busy = Busy.steer) -> Decision:
    """Judge one closed burst against the running Turn (I3, I4, I7, I8). Raises nothing: every burst has an answer.

    Steer is pinned to the Turn seen here; should that end first, the provider refuses and the burst is queued."""
    if all(preempts(said, busy) for said in burst):
        return Preempt()
    turn = state.turn
    if turn is None:
        return Queue(QueueReason.no_running_turn)
    reason = _obstacle(burst, turn, state)
    if reason is None and busy is Busy.interrupt:
        reason = QueueReason.nothing_steers
    return Queue(reason) if reason else Steer(turn.id)


def preempts(said: Input, busy: Busy) -> bool:
    """Whether it asks for an interruption and goes first: what a person says in Feishu, where that is so (I7)."""
    return busy is Busy.interrupt and from_a_person(said) and said.authorization.place is not None


def joinable(said: Input) -> bool:
    """Whether it may be part of a burst: plain text of a person who is known (I2, I8)."""
    return from_a_person(said) and not said.material


def same_burst(one: Input, other: Input) -> bool:
    """Whether two joinable inputs are one sender's, in one place, under one authorization (I2)."""
    return (one.sender, one.authorization) == (other.sender, other.authorization)


def bursts(inputs: Iterable[Input]) -> list[tuple[Input, ...]]:
    """Texts whose window has passed are one burst per run of one sender, by sending time (I2, H41)."""
    runs: list[list[Input]] = []
    for said in inputs:
        last = runs[-1][-1] if runs else None
        if last and joinable(last) and joinable(said) and same_burst(last, said):
            runs[-1].append(said)
        else:
            runs.append([said])
    return [tuple(sorted(run, key=sent)) for run in runs]


def sent(said: Input) -> tuple[int, str]:
    return said.sent_at, said.id


def from_a_person(said: Input) -> bool:
    """A missing identity is never taken for a person's (I4)."""
    return said.sender is not None and said.origin is Origin.person


def _obstacle(burst: tuple[Input, ...], turn: Turn, state: State) -> QueueReason | None:
    """The first case of I4 that holds, in the order in which it is told to people."""
    senders = {i.sender for i in burst}
    cases = {
        QueueReason.has_material: any(i.material for i in burst),
        QueueReason.group_watch: any(i.origin is Origin.group_watch for i in burst),
        QueueReason.no_sender: not all(map(from_a_person, burst)),
        QueueReason.other_sender: len(senders) != 1 or senders != set(turn.senders),
        QueueReason.interrupting: turn.interrupting,
        QueueReason.earlier_input_waiting: bool(state.queue),  # a steer under way is not waiting (I3)
        QueueReason.other_authorization: {i.authorization for i in burst} != {turn.authorization},
        QueueReason.cannot_steer: not state.can(STEERING),
    }
    return next((reason for reason, holds in cases.items() if holds), None)
