"""Named places where a test may stop, raise or kill a process. In production nothing is armed and `hit` is a look-up.

Every place on the way of an input has one, so that "any process may be killed at any instant" can be tried."""

import os
import signal
from collections.abc import Callable

PLACES = frozenset(
    {
        "after_journal",
        "before_take",
        "after_take",
        "after_open",
        "before_append",
        "after_accept",
        "before_start",
        "after_start",
        "after_finish",
        "before_sign_off",
        "after_card_row",
        "after_send",
        "before_ack",
    }
)
_armed: dict[str, Callable[[], None]] = {}


def hit(place: str) -> None:
    """Do what a test armed here, if any did."""
    if _armed and (act := _armed.get(place)):
        act()


def arm(place: str, act: Callable[[], None]) -> None:
    """Let `act` happen at each hit of that place. Raises ValueError for a place that the code does not have."""
    if place not in PLACES:
        raise ValueError(f"no failpoint {place!r}; there are {', '.join(sorted(PLACES))}")
    _armed[place] = act


def disarm() -> None:
    """Nothing happens anywhere any more."""
    _armed.clear()


def arm_from(text: str) -> None:
    """Arm from a process' environment: `after_accept=kill,after_send=stop@3` (the third hit counts)."""
    for part in filter(None, text.split(",")):
        place, _, act = part.partition("=")
        name, _, nth = act.partition("@")
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[name]
        arm(place, _at_hit(int(nth or 1), number))


def _at_hit(nth: int, number: signal.Signals) -> Callable[[], None]:
    hits = 0

    def act() -> None:
        nonlocal hits
        hits += 1
        if hits == nth:
            os.kill(os.getpid(), number)

    return act
