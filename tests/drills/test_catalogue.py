"""Which drills there are, what `chaos` draws, and what the verdict rests on. Nothing is started here."""

from collections import Counter
from dataclasses import replace

import pytest

from amux.core.errors import Refused
from ops.drills.catalogue import DRILLS, HARMS, Lost, Need
from ops.drills.chaos import drawn
from ops.drills.count import ZERO, Report
from ops.drills.drill import drill, verdict

NAMES = [
    "chaos",
    "failover",
    "freeze-worker",
    "kill-agent",
    "kill-all",
    "kill-beat",
    "kill-deliver",
    "kill-ingress",
    "kill-worker",
    "overload",
    "partition",
    "redeliver",
    "restart-postgres",
    "rolling",
    "stop-redis",
    "wipe-redis",
]
WITHOUT_LOSS = {
    "kill-deliver",
    "kill-ingress",
    "overload",
    "redeliver",
    "restart-postgres",
    "rolling",
    "stop-redis",
    "wipe-redis",
}
GOOD = Report("kill-worker", 1, 4, 3.0, accepted=6, dispatched=3, steered=2, failed=1, recover_max_s=4.9)


def test_the_drills_are_those_that_people_can_name() -> None:
    assert sorted(DRILLS) == NAMES
    assert {name for name, one in DRILLS.items() if one.lost is Lost.none} == WITHOUT_LOSS


async def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refused, match=f"there is no drill 'flood'; there are {', '.join(NAMES)}"):
        await drill("flood", rounds=1, seed=1, engine="scripted", tell=print)


def test_chaos_has_whatever_any_harm_needs() -> None:
    assert DRILLS["chaos"].needs == frozenset(Need) == frozenset.union(*(one.needs for one in HARMS.values()))


def test_chaos_draws_every_harm_as_often_and_by_its_seed_alone() -> None:
    order = [drawn(HARMS, 7, number) for number in range(2 * len(HARMS))]
    assert order == [drawn(reversed_names(), 7, number) for number in range(2 * len(HARMS))]
    assert Counter(order) == dict.fromkeys(HARMS, 2)
    assert order[: len(HARMS)] != order[len(HARMS) :]
    assert order != [drawn(HARMS, 8, number) for number in range(2 * len(HARMS))]


def reversed_names() -> list[str]:
    return list(reversed(list(HARMS)))


def test_a_good_report_holds() -> None:
    assert verdict(GOOD)
    assert verdict(replace(GOOD, lost_turns=3))


def with_one(name: str) -> Report:
    """A report in which that count is 1."""
    report = replace(GOOD)
    setattr(report, name, 1)
    return report


BROKEN = {
    **{name: with_one(name) for name in ZERO},
    "a note": replace(GOOD, notes=["it did not become quiet"]),
    "a Turn lost where none may be": replace(GOOD, drill="rolling", lost_turns=1),
    "too late": replace(GOOD, recover_max_s=5.1),
    "a sum that does not hold": replace(GOOD, accepted=7),
}


@pytest.mark.parametrize("report", BROKEN.values(), ids=BROKEN)
def test_a_broken_promise_is_told(report: Report) -> None:
    assert not verdict(report)
