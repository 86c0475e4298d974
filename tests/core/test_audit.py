"""The record read back: the sum holds, and each broken rule is counted by its name."""

from dataclasses import asdict

import pytest

from amux.core import events as e
from amux.core.audit import NUMBERS, Count, Projection, examine, fates_of
from amux.core.ids import InputId, Seq, TurnId
from tests.build import rights, said

ONE, TWO, THREE, FOUR, FIVE = (said("user_a", id=f"om_{n}") for n in range(1, 6))
T1, T2 = TurnId(1), TurnId(2)
IDLE, RUNNING = e.Label.idle, e.Label.running


def started(turn: TurnId, *ids: InputId) -> e.Event:
    return e.TurnStarted(turn, ids, e.Cause.input, rights("user_a"))


def numbered(*events: e.Event) -> list[tuple[Seq, e.Event]]:
    return [(Seq(n), event) for n, event in enumerate(events, start=1)]


def judge(
    log: list[tuple[Seq, e.Event]], *, label: e.Label = IDLE, turn: TurnId | None = None, owned: str | None = None
) -> dict[str, int]:
    """What is not 0, and how many rules are broken."""
    count = examine("local/7k3m", log, Projection(label, Seq(len(log)), turn), owned=owned)
    return {name: getattr(count, name) for name in (*NUMBERS, "broken") if getattr(count, name)} | {
        "notes": len(count.notes)
    }


GOOD = numbered(
    *map(e.InputAccepted, (ONE, TWO, THREE, FOUR, FIVE)),
    started(T1, ONE.id),
    e.InputSteered(T1, (TWO.id,)),
    e.InputQueued((THREE.id,), e.QueueReason.other_sender),
    e.SubmissionFailed((FOUR.id,), e.FailReason.uncertain),
    e.InputSteered(T1, (FIVE.id,)),
    e.InputCancelled((FIVE.id,), e.CancelReason.interrupted),
    e.TurnFinished(T1, e.Outcome.lost),
)
FATES = {"sessions": 1, "turns": 1, "accepted": 5, "lost_turns": 1}
EACH = {"dispatched": 1, "steered": 1, "waiting": 1, "failed": 1, "cancelled": 1}


@pytest.mark.rule("T3", "T4", "I5")
def test_a_clean_record_has_one_fate_for_each_input() -> None:
    assert judge(GOOD) == {**FATES, **EACH, "notes": 0}


END = e.TurnFinished(T1, e.Outcome.completed)
TURN: list[e.Event] = [e.InputAccepted(ONE), started(T1, ONE.id), END]
ONE_TURN = {"sessions": 1, "turns": 1, "accepted": 1, "dispatched": 1}
BAD: dict[str, tuple[list[tuple[Seq, e.Event]], dict[str, int]]] = {
    "run twice": (
        numbered(*TURN, started(T2, ONE.id), e.TurnFinished(T2, e.Outcome.completed)),
        {**ONE_TURN, "turns": 2, "doubled": 1},
    ),
    "steered and started": (
        numbered(TURN[0], e.InputSteered(T1, (ONE.id,)), *TURN[1:]),
        {**ONE_TURN, "doubled": 1},
    ),
    "ended twice": (numbered(*TURN, END), {**ONE_TURN, "double_finish": 1}),
    "a hole": ([(seq if seq < 3 else Seq(4), event) for seq, event in numbered(*TURN)], {**ONE_TURN, "gaps": 1}),
    "twice the same seq": ([(Seq(1), TURN[0]), (Seq(2), TURN[1]), (Seq(2), TURN[2])], {**ONE_TURN, "gaps": 1}),
}


@pytest.mark.parametrize(("log", "expected"), BAD.values(), ids=BAD)
def test_what_is_broken_is_counted_and_named(log: list[tuple[Seq, e.Event]], expected: dict[str, int]) -> None:
    assert judge(log) == {**expected, "broken": 1, "notes": 1}


def test_a_head_that_the_log_does_not_reach_is_a_gap() -> None:
    count = examine("x", numbered(*TURN), Projection(IDLE, Seq(4), None), owned=None)
    assert (count.gaps, count.notes) == (1, ["x: gaps 1"])


@pytest.mark.rule("S10")
def test_a_projection_that_differs_from_the_fold_has_drifted() -> None:
    """The label says idle, and a Turn is open: the Timeline is right."""
    open_ = numbered(*TURN[:2])
    assert judge(open_, label=RUNNING, turn=T1, owned="w1") == {**ONE_TURN, "notes": 0}
    drifted = {**ONE_TURN, "drifted": 2, "open_turns": 1, "broken": 2, "notes": 1}
    assert judge(open_, label=IDLE, turn=None) == drifted
    assert judge(open_, label=RUNNING, turn=T1) == {**ONE_TURN, "open_turns": 1, "notes": 0}


def test_a_sum_that_does_not_hold_is_broken() -> None:
    assert Count(accepted=3, dispatched=1, waiting=1).broken == 1
    assert Count(accepted=2, dispatched=1, waiting=1).broken == 0


UNEVEN = {
    "started and never accepted": numbered(started(T1, ONE.id), END),
    "accepted twice": numbered(TURN[0], *TURN),
}


@pytest.mark.parametrize("log", UNEVEN.values(), ids=UNEVEN)
def test_what_was_accepted_is_counted_apart_from_what_became_of_it(log: list[tuple[Seq, e.Event]]) -> None:
    """Counted together they would agree whatever happened."""
    assert judge(log)["broken"] == 1


def test_the_last_fate_counts() -> None:
    fates, given = fates_of(event for _, event in GOOD)
    assert fates[FIVE.id] == "cancelled"
    assert given == {ONE.id: 1, TWO.id: 1, FIVE.id: 1}


def test_counts_of_sessions_add_up() -> None:
    total = Count()
    for _ in range(2):
        total.add(examine("x", GOOD, Projection(IDLE, Seq(len(GOOD)), None), owned=None))
    assert asdict(total) == {name: 2 * (FATES | EACH).get(name, 0) for name in NUMBERS} | {"notes": []}


def test_an_empty_session_is_clean() -> None:
    assert judge([], label=e.Label.created) == {"sessions": 1, "notes": 0}
