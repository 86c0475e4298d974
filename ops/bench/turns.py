"""`turns` and `lone`: Turns in a closed loop, amux and plain Celery in turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from amux import wiring
from ops.bench.ground import Ground, ground, median, percentile, say
from ops.bench.peers import Absent, Installed, installed, turns_a_second
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
    peers: dict[str, list[float]] = field(default_factory=dict)

    def last(self) -> str:
        """Turns a second of the last round."""
        sides = {"cold": self.cold[-1].rate, "warm": self.warm[-1].rate, "Celery with lock": self.other[-1].rate}
        sides |= {name: rates[-1] for name, rates in self.peers.items()}
        return ", ".join(f"{name} {rate:,.0f}" for name, rate in sides.items()) + " Turns/s"


async def turns(
    report: Report,
    *,
    sessions: int = SESSIONS,
    each: int = TURNS,
    rounds: int = ROUNDS,
    peers: Sequence[Installed] = (),
    missing: dict[str, str] | None = None,
) -> None:
    """Turns a second: cold with each Session's first wake, warm over owned ones, and the other sides'."""
    absent = missing if missing is not None else {}
    extra = {"AMUX_LINGER": f"{LINGER_SECONDS:g}"}
    async with (
        ground(slots=sessions, extra=extra) as place,
        wiring.stores(place.settings) as parts,
        celery_side(place) as other,
        ours(parts, sessions) as side,
    ):
        seen = Rounds()
        for number in range(rounds):
            await _round(seen, place, side, other, each=each)
            await _peers(seen, place, peers, absent, sessions=sessions, each=each)
            say(f"round {number + 1}: {seen.last()}")
        done = rounds * each * sessions
        report.faults = check(place, side, 2 * done) + check_other(place, done)
    report.shape = {"sessions": sessions, "turns": each, "events": EVENTS, "rounds": rounds}
    report.ours = {"warm": _best(seen.warm), "cold": _best(seen.cold)}
    report.limit = {"celery_with_lock": _best(seen.other)}
    pairs = list(zip(seen.warm, seen.cold, seen.other, strict=True))
    report.ratio = round(median(warm.rate / limit.rate for warm, _, limit in pairs), 2)
    report.more["ratio_cold"] = round(median(cold.rate / limit.rate for _, cold, limit in pairs), 2)
    report.due = report.ratio >= 4.0
    if peers or absent:
        report.more["peers"] = {name: _against(seen.warm, rates) for name, rates in seen.peers.items()}
        report.more["absent"] = absent


async def turns_and_peers(report: Report, *, sessions: int = SESSIONS, each: int = TURNS, rounds: int = ROUNDS) -> None:
    """The same with other engines in the run, each once a round."""
    missing: dict[str, str] = {}
    async with installed(missing) as peers:
        await turns(report, sessions=sessions, each=each, rounds=rounds, peers=peers, missing=missing)


async def _round(seen: Rounds, place: Ground, side: Ours, other: Other, *, each: int) -> None:
    seen.cold.append(await closed_loop(side.keys, each, side.turn, place))
    woken = side.woken
    seen.warm.append(await closed_loop(side.keys, each, side.turn, place))
    if side.woken > woken:
        side.faults.append(f"{side.woken - woken} Sessions were not owned all through a warm round")
    await side.rest()
    seen.other.append(await closed_loop(side.keys, each, other.turn, place))


async def _peers(
    seen: Rounds, place: Ground, peers: Sequence[Installed], absent: dict[str, str], *, sessions: int, each: int
) -> None:
    for peer in peers:
        name = peer.peer.name
        if name not in absent:
            try:
                seen.peers.setdefault(name, []).append(await turns_a_second(peer, place, sessions, each))
            except Absent as why:
                absent[name] = f"did not run: {why}"[:200]


def _against(warm: Sequence[Round], rates: Sequence[float]) -> dict[str, float]:
    ratios = [ours.rate / theirs for ours, theirs in zip(warm, rates, strict=False)]
    return {"turns_s": round(median(rates), 1), "ratio": round(median(ratios), 2)}


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
