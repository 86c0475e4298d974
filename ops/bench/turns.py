"""`turns` and `lone`: Turns in a closed loop, amux and plain Celery in turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from amux import wiring
from ops.bench.ground import Ground, ground, median, percentile, say
from ops.bench.report import Report
from ops.bench.sides import EVENTS, Other, Ours, Round, celery_side, check, check_other, closed_loop, ours

SESSIONS, TURNS, ROUNDS = 200, 10, 3
LONE_TURNS = 200
LINGER_SECONDS = 20.0  # owners stay between a Session's Turns, and are gone when the next cold round begins


@dataclass(slots=True)
class Rounds:
    """What was measured, round by round."""

    cold: list[Round] = field(default_factory=list)
    warm: list[Round] = field(default_factory=list)
    other: list[Round] = field(default_factory=list)


async def turns(report: Report, *, sessions: int = SESSIONS, each: int = TURNS, rounds: int = ROUNDS) -> None:
    """Turns a second: cold with each Session's first wake, warm over owned ones, and the other side's."""
    extra = {"AMUX_LINGER": f"{LINGER_SECONDS:g}"}
    async with (
        ground(slots=sessions, extra=extra) as place,
        wiring.stores(place.settings) as parts,
        celery_side(place) as other,
        ours(parts, sessions) as side,
    ):
        seen = await _interleaved(place, side, other, each=each, rounds=rounds)
        done = rounds * each * sessions
        report.faults = check(place, side, 2 * done) + check_other(place, done)
    report.shape = {"sessions": sessions, "turns": each, "events": EVENTS, "rounds": rounds}
    report.ours = {"warm": _best(seen.warm), "cold": _best(seen.cold)}
    report.limit = {"celery_with_lock": _best(seen.other)}
    pairs = list(zip(seen.warm, seen.cold, seen.other, strict=True))
    report.ratio = round(median(warm.rate / limit.rate for warm, _, limit in pairs), 2)
    report.more["ratio_cold"] = round(median(cold.rate / limit.rate for _, cold, limit in pairs), 2)
    report.due = report.ratio >= 4.0


async def _interleaved(place: Ground, side: Ours, other: Other, *, each: int, rounds: int) -> Rounds:
    seen = Rounds()
    for number in range(rounds):
        seen.cold.append(await closed_loop(side.keys, each, side.turn, place))
        woken = side.woken
        seen.warm.append(await closed_loop(side.keys, each, side.turn, place))
        if side.woken > woken:
            side.faults.append(f"{side.woken - woken} Sessions were not owned all through round {number + 1}")
        await side.rest()
        seen.other.append(await closed_loop(side.keys, each, other.turn, place))
        last = (seen.cold[-1], seen.warm[-1], seen.other[-1])
        cold, warm, limit = (f"{one.rate:,.0f}" for one in last)
        say(f"round {number + 1}: cold {cold}, warm {warm}, Celery with lock {limit} Turns/s")
    return seen


def _best(rounds: Sequence[Round]) -> dict[str, object]:
    """The round in the middle, by its rate."""
    return sorted(rounds, key=lambda one: one.rate)[len(rounds) // 2].figures()


async def lone(report: Report, *, each: int = LONE_TURNS, rounds: int = ROUNDS) -> None:
    """One owned Session alone: the p50 from submit to its end, seen."""
    mine: list[Round] = []
    theirs: list[Round] = []
    async with (
        ground(slots=4) as place,
        wiring.stores(place.settings) as parts,
        celery_side(place) as other,
        ours(parts, 1) as side,
    ):
        await closed_loop(side.keys, 1, side.turn, place)  # owned from here on
        for _ in range(rounds):
            mine.append(await closed_loop(side.keys, each, side.turn, place))
            theirs.append(await closed_loop(side.keys, each, other.turn, place))
        report.faults = check(place, side, rounds * each + 1) + check_other(place, rounds * each)
    report.shape = {"sessions": 1, "turns": each, "events": EVENTS, "rounds": rounds}
    report.ours, report.limit = _best(mine), {"celery_with_lock": _best(theirs)}
    halves = [
        percentile(one.latencies, 0.5) / percentile(two.latencies, 0.5) for one, two in zip(mine, theirs, strict=True)
    ]
    report.ratio = round(median(halves), 2)
    report.due = report.ratio <= 1.5
