"""Each benchmark once, small: the line has its shape and the run's own check finds nothing. No time is judged."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amux.core.errors import Refused
from amux.providers.scripted_agent import parse
from ops.bench.bench import BENCHES, bench
from ops.bench.idle import idle
from ops.bench.report import Report, drawing
from ops.bench.rows import append, attach
from ops.bench.sides import EVENTS, SCRIPT
from ops.bench.steer import steer
from ops.bench.turns import lone, turns

SHAPE = {"bench", "ours", "limit", "ratio", "due", "shape", "faults", "load_before"}
SMALL: dict[str, tuple[Callable[..., Awaitable[None]], dict[str, Any]]] = {
    "append": (append, {"seconds": 0.2, "rounds": 1, "batches": (5, 50)}),
    "attach": (attach, {"events": 2_000, "rounds": 1}),
    "idle": (idle, {"sessions": 3, "seconds": 0.5}),
    "lone": (lone, {"each": 3, "rounds": 1}),
    "steer": (steer, {"each": 3, "rounds": 1}),
    "turns": (turns, {"sessions": 4, "each": 2, "rounds": 1}),
}


@pytest.mark.real
@pytest.mark.parametrize("name", SMALL)
async def test_a_small_run_is_sound(name: str) -> None:
    run, numbers = SMALL[name]
    report = Report(name, 0.0)
    await run(report, **numbers)
    assert report.faults == []
    assert set(report.row()) >= SHAPE
    assert report.ours
    assert report.limit
    assert isinstance(report.ratio, float) or name == "idle"
    assert name in drawing(report)


def test_every_benchmark_has_a_small_run() -> None:
    assert set(SMALL) == set(BENCHES)


def test_the_script_says_exactly_so_many_things() -> None:
    assert len(parse(SCRIPT)) == EVENTS


async def test_an_unknown_name_and_peers_of_nothing_are_refused() -> None:
    with pytest.raises(
        Refused, match="there is no benchmark 'speed'; there are append, attach, idle, lone, steer, turns"
    ):
        await bench("speed")
    with pytest.raises(Refused, match="only `turns` has peers"):
        await bench("lone", ("peers",))
