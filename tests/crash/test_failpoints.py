"""Any process may die anywhere on the way of an input, and nothing acknowledged is lost, run twice or left open."""

import signal

import pytest

from amux.runtime.failpoints import PLACES
from tests.crash.conftest import Ward

pytestmark = [pytest.mark.real, pytest.mark.crash]

AGAIN, LOST, DONE = ["completed", "completed"], ["lost", "completed"], ["completed", "completed"]
# Where a worker dies: how the Turn ends that it worked on, and the next one. Before the intent is written nothing has
# happened and all is done again; after it (it stands in the append that accepts), nobody knows what the agent did, so it is told and not repeated.
WORKERS: dict[str, list[str]] = {
    "before_take": AGAIN,
    "after_take": AGAIN,
    "after_open": AGAIN,
    "before_append": AGAIN,
    "after_accept": LOST,
    "before_start": LOST,
    "after_start": LOST,
    "after_finish": DONE,
    "before_sign_off": DONE,
    "after_card_row": DONE,
    "after_send": DONE,
}
EARS = ("after_journal", "before_ack")


def test_every_failpoint_is_tried() -> None:
    assert {*WORKERS, *EARS} == PLACES


async def whole(ward: Ward) -> None:
    """What holds after any crash."""
    count = await ward.audit()
    assert (count.broken, count.notes) == (0, [])
    assert count.accepted == len(ward.said)
    handed = ward.handed()
    assert len(handed) == len(set(handed))


@pytest.mark.rule("T3", "T8")
@pytest.mark.parametrize("place", WORKERS)
async def test_a_worker_dies(ward: Ward, place: str) -> None:
    first = ward.worker(f"{place}=kill@1")
    session = await ward.begin("!say hello")
    assert await ward.death(first) == -signal.SIGKILL
    ward.worker()
    await ward.rested()
    await ward.add(session, "!say hello again")
    await ward.rested()
    outcomes = await ward.outcomes(session)
    assert outcomes == WORKERS[place]
    assert ward.cards() == ["cut off" if outcomes[0] == "lost" else "done"]
    await whole(ward)


@pytest.mark.rule("T7")
@pytest.mark.parametrize("place", EARS)
async def test_an_ear_dies_before_it_has_acknowledged(ward: Ward, place: str) -> None:
    said = ward.speak("!say hello")
    (push,) = ward.world.courier.pushes()
    assert await ward.death(ward.ear(push.payload, f"{place}=kill@1")) == -signal.SIGKILL
    assert await ward.death(ward.ear(push.payload)) == 0  # it was not acknowledged, so Feishu sends it again
    ward.said.append(said.id)
    ward.worker()
    await ward.rested()
    (session,) = await ward.parts.sessions.list(label=None, target=None, limit=10)
    assert await ward.outcomes(session) == ["completed"]
    assert ward.cards() == ["done"]
    await whole(ward)
