"""Each drill once, small, as a person would run it: every count that must be 0 is 0, and the harm did happen."""

import pytest

from ops.drills.count import ZERO
from ops.drills.drill import drill, verdict

pytestmark = [pytest.mark.real, pytest.mark.crash]

SESSIONS = 4
NAMES = ("failover", "kill-agent", "overload", "partition", "restart-postgres", "rolling")


@pytest.mark.parametrize("name", NAMES)
async def test_every_promise_holds(name: str) -> None:
    told: list[str] = []
    report = await drill(name, rounds=1, seed=1, engine="scripted", sessions=SESSIONS, tell=told.append)
    assert report.notes == []
    assert {count: getattr(report, count) for count in ZERO} == dict.fromkeys(ZERO, 0)
    assert report.accepted >= SESSIONS
    assert verdict(report), report
    assert told[-1] == "everything is quiet"
