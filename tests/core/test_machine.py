"""The heart under any order: green without faults, red with each of them."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from amux.core import events as e
from amux.core.steering import Busy
from tests.core.faults import FAULTS, Fault
from tests.core.heart import Heart

FIRST_BUG = settings(
    max_examples=8_000,
    stateful_step_count=40,
    phases=[Phase.generate],  # found is enough; no shrinking
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
HISTORIES = settings(
    max_examples=int(os.environ.get("HEART_HISTORIES", "1500")),  # `make heart` takes its time
    stateful_step_count=24,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.rule("T1", "T3", "T4", "I2", "I3", "I4", "I5", "I6", "S4")
def test_the_heart_holds() -> None:
    run_state_machine_as_test(Heart, settings=HISTORIES)


class Interrupting(Heart):
    """Where a person's message interrupts (I7)."""

    busy = Busy.interrupt

    def teardown(self) -> None:
        super().teardown()
        assert not any(isinstance(event, e.SteerRequested) for event in self.log), "nothing is steered"


@pytest.mark.rule("I7", "T1", "T3", "T4", "I5", "I6", "S4")
def test_the_heart_holds_where_messages_interrupt() -> None:
    run_state_machine_as_test(Interrupting, settings=settings(HISTORIES, max_examples=HISTORIES.max_examples // 3))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_heart_finds(fault: Callable[[], Fault]) -> None:
    class Broken(Heart):
        @property
        def fault(self) -> Fault:  # type: ignore[override]
            return fault()

    with pytest.raises((AssertionError, LookupError)):
        run_state_machine_as_test(Broken, settings=FIRST_BUG)
