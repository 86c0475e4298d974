"""The audit through the ports: every Session, page after page, and nothing that came later."""

import pytest

from amux.core import events as e
from amux.core.ids import Seq, TurnId
from amux.core.session import fold
from amux.ports import Append, Recorded
from amux.runtime import audit as module
from amux.runtime.audit import Audit
from tests.build import rights, said
from tests.fakes import Worker, World

T1 = TurnId(1)


async def played(world: World, name: str, *events: e.Event) -> None:
    """A Session with that Timeline."""
    key, ports = world.session(name), Worker(world, "w1")
    opened = await ports.timeline.open(key, "w1|t", worker="w1", young=False)
    assert opened
    await ports.timeline.append(key, opened.fence, Append(events, fold(events)))


def turn(*, twice: bool = False) -> list[e.Event]:
    one = said("user_a")
    started = e.TurnStarted(T1, (one.id,), e.Cause.input, rights("user_a"))
    return [e.InputAccepted(one), *([started] * (2 if twice else 1)), e.TurnFinished(T1, e.Outcome.completed)]


@pytest.mark.rule("T3", "T4")
async def test_all_sessions_are_counted_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    world = World()
    for n in range(3):
        await played(world, f"s{n}", *turn())
    ports = Worker(world, "cli")
    total = await Audit(ports.sessions, ports.timeline).all()
    assert (total.sessions, total.turns, total.accepted, total.dispatched) == (3, 3, 3, 3)
    assert (total.broken, total.notes) == (0, [])


async def test_what_is_broken_names_its_session() -> None:
    world = World()
    await played(world, "good", *turn())
    await played(world, "bad", *turn(twice=True))
    ports = Worker(world, "cli")
    total = await Audit(ports.sessions, ports.timeline).all()
    assert (total.doubled, total.broken, total.notes) == (1, 1, ["local/bad: doubled 1"])


async def test_what_came_after_the_row_was_read_does_not_count() -> None:
    world = World()
    await played(world, "live", *turn())
    ports = Worker(world, "cli")
    (session,) = await ports.sessions.list(label=None, target=None, limit=9)
    log = world.timeline[session.key]
    log.append(Recorded(Seq(4), log[-1].at, e.SessionState(e.Label.sleeping)))  # it grew meanwhile
    count = await Audit(ports.sessions, ports.timeline).one(session)
    assert count.broken == 0
