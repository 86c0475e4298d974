"""Places where a test may stop, raise or kill: none by mistake, and nothing in production."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from amux.runtime import failpoints


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    failpoints.disarm()


def test_nothing_is_armed_by_itself() -> None:
    for place in failpoints.PLACES:
        failpoints.hit(place)


def test_a_place_that_the_code_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no failpoint 'after_lunch'; there are after_accept, "):
        failpoints.arm("after_lunch", lambda: None)


@pytest.mark.parametrize(("text", "at", "number"), [("kill", 1, signal.SIGKILL), ("stop@3", 3, signal.SIGSTOP)])
def test_an_environment_arms_the_nth_hit(
    text: str, at: int, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, which: sent.append((pid, which)))
    failpoints.arm_from(f"after_send={text},before_take=kill@99")
    for n in range(1, 5):
        failpoints.hit("after_send")
        assert len(sent) == int(n >= at)
    assert sent == [(os.getpid(), number)]


def test_every_place_is_on_the_way() -> None:
    """A place that nobody hits would try nothing."""
    amux = Path(failpoints.__file__).parent.parent
    code = "\n".join(path.read_text() for path in amux.rglob("*.py"))
    assert [place for place in failpoints.PLACES if f'hit("{place}")' not in code] == []
