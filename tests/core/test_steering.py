"""Steer or queue, as a table: each case of I4 is built so that exactly one obstacle holds."""

import pytest

from amux.core.events import QueueReason
from amux.core.ids import TurnId
from amux.core.inputs import Input, Origin, Permission
from amux.core.session import State
from amux.core.steering import Decision, Queue, Steer, decide
from tests.build import ELSEWHERE, rights, running, said

CASES: dict[str, tuple[Input, State, Decision]] = {
    "the one sender of the Turn": (said("user_a"), running("user_a"), Steer(TurnId(7))),
    "a steer of theirs is under way": (said("user_a"), running("user_a", steering=[said("user_a")]), Steer(TurnId(7))),
    "nothing runs": (said("user_a"), State(), Queue(QueueReason.no_running_turn)),
    "another member": (said("user_b"), running("user_a"), Queue(QueueReason.other_sender)),
    "a Turn of two is nobody's to steer": (
        said("user_a"),
        running("user_a", "user_b"),
        Queue(QueueReason.other_sender),
    ),
    "a Turn of nobody": (said("user_a"), running(), Queue(QueueReason.other_sender)),
    "a group-watch alert": (
        said("user_a", origin=Origin.group_watch),
        running("user_a"),
        Queue(QueueReason.group_watch),
    ),
    "a bot": (said("bot", origin=Origin.bot), running("bot"), Queue(QueueReason.no_sender)),
    "nobody": (said(None), running("user_a"), Queue(QueueReason.no_sender)),
    "an image": (said("user_a", material=["img_1"]), running("user_a"), Queue(QueueReason.has_material)),
    "after an interrupt": (said("user_a"), running("user_a", interrupting=True), Queue(QueueReason.interrupting)),
    "others wait": (
        said("user_a"),
        running("user_a", queue=[said("user_b")]),
        Queue(QueueReason.earlier_input_waiting),
    ),
    "another place": (
        said("user_a", authorization=rights("user_a", place=ELSEWHERE)),
        running("user_a"),
        Queue(QueueReason.other_authorization),
    ),
    "other permission settings": (
        said("user_a", authorization=rights("user_a", permission=Permission.ask)),
        running("user_a"),
        Queue(QueueReason.other_authorization),
    ),
    "an agent that cannot": (said("user_a"), running("user_a", can_steer=False), Queue(QueueReason.cannot_steer)),
}


@pytest.mark.rule("I1", "I3", "I4", "I8")
@pytest.mark.parametrize(("said", "state", "expected"), CASES.values(), ids=CASES)
def test_decide(said: Input, state: State, expected: Decision) -> None:
    assert decide((said,), state) == expected


@pytest.mark.rule("I4")
def test_every_reason_has_a_case() -> None:
    decided = {d.reason for _, _, d in CASES.values() if isinstance(d, Queue)}
    others = {QueueReason.preempts, QueueReason.nothing_steers}  # of the mode of I7
    assert decided == set(QueueReason) - others - {QueueReason.refused}  # which only a provider's certain no writes
