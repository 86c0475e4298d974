"""Nothing acts longer than its owner may: frozen, killed and late owners, killed Guards, agents that leave things behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from amux.core.errors import Refused, Stale, Unavailable
from amux.core.ids import SessionId, SessionRef
from amux.core.launch import LaunchSnapshot, WorkspaceUse
from amux.extensions import Opening
from amux.providers import guard, process
from amux.providers.guard import NICE
from amux.providers.process import End, Why, boottime
from amux.providers.spawn import locks_of, not_started
from tests.providers.conftest import World, carriers, eventually, gone, last_tick, status

pytestmark = pytest.mark.crash

LEASE = 5.0  # seconds; long enough for a busy machine to renew it in time

# An agent with two tools, as real agents have them: each in a session of its own, one of them a child of a child that
# has ended. Both write the time, as fast as a file takes it.
TOOLS = """
import os, sys, time
def tool(name):
    if os.fork():
        return
    os.setsid()
    if name == "orphan" and os.fork():
        os._exit(0)
    with open(name, "w", buffering=1) as clock:
        while True:
            clock.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
            time.sleep(0.01)
tool("child")
tool("orphan")
"""
# One that took care not to be recognised.
UNMARKED = """
import os, sys
if not os.fork():
    os.setsid()
    hides = "import os, time; open('unmarked', 'w').write(str(os.getpid())); time.sleep(60)"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", hides], {})
"""
STAYS = TOOLS + "sys.stdin.read()\ntime.sleep(60)\n"
LEAVES = TOOLS + "while not (os.path.exists('child') and os.path.exists('orphan')): time.sleep(0.005)\nsys.exit(7)\n"


@dataclass
class Owner:
    """The owner's process and what it has written."""

    popen: subprocess.Popen[bytes]
    out: Path

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def until(self) -> float:
        """The newest deadline it gave its Guard."""
        return float([line for line in self.lines() if line.startswith("until ")][-1].split()[1])


def launch(world: World, out: Path) -> Owner:
    argv = [sys.executable, "-m", "tests.providers.owner", str(world.home), str(world.workspace), str(LEASE), STAYS]
    with out.open("wb") as stdout:
        root = Path(__file__).parents[2]
        return Owner(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=stdout, cwd=root), out)


@pytest.fixture
async def owner(world: World, tmp_path: Path) -> AsyncIterator[Owner]:
    """One whose agent's tools both run, and that has renewed once."""
    owner = launch(world, tmp_path / "owner.out")
    try:
        await world.written("child")
        await world.written("orphan")
        await eventually(lambda: sum(line.startswith("until ") for line in owner.lines()) > 1)
        yield owner
    finally:
        owner.popen.kill()
        owner.popen.communicate()


def quiet(world: World) -> bool:
    return not carriers(world.home)


async def left_alone(world: World, owner: Owner) -> None:
    """Owner and Guard are killed, the agent with them; its two tools live on."""
    owner.popen.send_signal(signal.SIGSTOP)
    agent = int(owner.lines()[0].split()[1])
    os.kill(status(agent)[1], signal.SIGKILL)
    owner.popen.kill()
    await eventually(lambda: gone(agent))
    assert len(carriers(world.home)) == 2


async def test_a_frozen_owners_tools_fall_silent_before_its_lease_ends(world: World, owner: Owner) -> None:
    owner.popen.send_signal(signal.SIGSTOP)
    frozen_at, until = boottime(), owner.until()
    await eventually(lambda: quiet(world))
    for tool in ("child", "orphan"):
        assert frozen_at < last_tick(world.file(tool)) < until + LEASE * 0.2
    owner.popen.send_signal(signal.SIGCONT)
    assert owner.popen.stdin is not None
    owner.popen.stdin.write(b"speak\n")
    owner.popen.stdin.flush()
    await eventually(lambda: owner.lines()[-1] == "nothing was sent")


async def test_a_killed_owner_leaves_no_process(world: World, owner: Owner) -> None:
    owner.popen.kill()
    killed_at = boottime()
    await eventually(lambda: quiet(world))
    assert last_tick(world.file("orphan")) < killed_at + LEASE * 0.2


async def test_a_killed_guard_takes_the_agent_along_and_its_owner_kills_the_rest(world: World) -> None:
    agent = await world.run(STAYS)
    await world.written("orphan")
    os.kill(status(agent.pid)[1], signal.SIGKILL)
    assert await agent.wait() == End(Why.guard_lost, None, "died with its Guard")
    assert quiet(world)


async def test_what_a_guard_and_its_owner_left_is_killed_by_the_next_guard(world: World, owner: Owner) -> None:
    await left_alone(world, owner)
    second = await world.run("import time; time.sleep(60)")
    assert carriers(world.home) == [second.pid]


async def test_an_owner_that_lost_its_guard_spares_the_next_ones_agent(world: World) -> None:
    first = await world.run(STAYS)
    os.kill(status(first.pid)[1], signal.SIGSTOP)
    second = await world.run(STAYS)
    assert (await first.wait()).why is Why.guard_lost
    guard.clear(f"{world.home}.lock")
    assert not gone(second.pid)


@pytest.mark.parametrize("harm", [signal.SIGCONT, signal.SIGSTOP], ids=["alive", "frozen"])
async def test_the_next_guard_of_a_home_kills_the_one_before(world: World, harm: signal.Signals) -> None:
    first = await world.run(UNMARKED + STAYS)
    await world.written("orphan")
    unmarked = int(await world.written("unmarked"))
    os.kill(status(first.pid)[1], harm)
    second = await world.run("import time; time.sleep(60)")
    assert carriers(world.home) == [second.pid]
    assert gone(unmarked)
    assert (await first.wait()).code in {-signal.SIGKILL, None}


async def test_a_guard_that_is_stopped_is_killed_with_its_tree(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GUARD_SECONDS", 0.1)
    agent = await world.run(STAYS)
    await world.written("orphan")
    os.kill(status(agent.pid)[1], signal.SIGSTOP)
    assert (await agent.kill()).why is Why.guard_lost
    assert quiet(world)


async def test_a_late_guard_harms_nobody(world: World) -> None:
    first = await world.run(STAYS)
    with pytest.raises(Stale):
        await world.run(STAYS, seconds=-1)
    assert not gone(first.pid)
    await first.kill()
    with pytest.raises(Stale):
        await world.run("open('ran', 'w').close()", seconds=-1)
    assert not world.file("ran").exists()


async def test_homes_do_not_meet(world: World) -> None:
    world.use = WorkspaceUse.shared
    first = await world.run(STAYS)
    await world.run(STAYS, home=world.home.with_name("other"))
    assert not gone(first.pid)


async def test_what_an_agent_leaves_behind_goes_with_it(world: World) -> None:
    agent = await world.run(LEAVES)
    assert await agent.wait() == End(Why.exited, 7, "ended by itself with code 7")
    assert quiet(world)
    assert world.home.with_name("session.lock").read_bytes() == b""  # so that the next Guard looks for nothing


async def test_an_end_that_crosses_a_kill_is_its_own(world: World) -> None:
    agent = await world.run("import sys\nsys.stdin.readline()\nsys.exit(7)")
    watcher = status(agent.pid)[1]
    os.kill(watcher, signal.SIGSTOP)
    await agent.send({})
    await eventually(lambda: gone(agent.pid))
    killing = asyncio.create_task(agent.kill())
    await anyio.lowlevel.checkpoint()
    os.kill(watcher, signal.SIGCONT)
    assert await killing == End(Why.exited, 7, "ended by itself with code 7")


async def test_the_deadline_ends_the_tree(world: World) -> None:
    agent = await world.run(STAYS, seconds=2)
    end = await agent.wait()
    assert (end.why, end.code) == (Why.deadline, -signal.SIGKILL)
    assert quiet(world)


async def test_the_deadline_can_be_moved_on_before_the_agent_runs(world: World) -> None:
    """H3: an agent may need longer to open than a Lease lasts; even one that never runs has had its Guard told."""
    with pytest.raises(Unavailable):
        await world.start(["/nowhere/agent"])
    assert len(world.extends) == 1


async def test_an_agent_gives_way_to_its_owner(world: World) -> None:
    """H67: its tools inherit it; the Guard, which must kill in time, does not give way."""
    agent = await world.run(STAYS)
    ours, guards, its = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, agent.guard_pid, agent.pid))
    assert (guards, its) == (ours, min(ours + NICE, 19))


async def test_a_deadline_may_be_moved_on(world: World) -> None:
    first = boottime() + 2
    agent = await world.run(STAYS, seconds=2)
    agent.extend(boottime() + 60)
    await world.written("child")
    await eventually(lambda: last_tick(world.file("child")) > first + 0.3)
    assert len(carriers(world.home)) == 3


POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('{}', flush=True)
time.sleep(60)
"""


async def test_an_agent_that_is_asked_may_end_by_itself(world: World) -> None:
    agent = await world.run(POLITE)
    async for _ in agent.lines():
        break
    end = await agent.stop(10)
    assert (end.why, end.code) == (Why.stopped, 0)


async def test_an_agent_that_does_not_listen_is_killed_after_its_grace(world: World) -> None:
    agent = await world.run(POLITE.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN"))
    async for _ in agent.lines():
        break
    stopping = asyncio.create_task(agent.stop(0.2))
    await anyio.lowlevel.checkpoint()
    agent.extend(boottime() + 60)  # a renewal, meanwhile
    end = await stopping
    assert (end.why, end.code) == (Why.stopped, -signal.SIGKILL)


@contextmanager
def told(words: bytes | None = b"", *, deadline: float | None = None) -> Iterator[tuple[guard.Owner, socket.socket]]:
    """What a Guard knows of an owner that wrote `words`, with that owner's end; of one that is gone, for None."""
    ours, its = socket.socketpair()
    its.setblocking(False)
    with ours, its:
        if words is None:
            ours.close()
        else:
            ours.sendall(words)
        yield guard.Owner(its.fileno(), guard.now() + 60 if deadline is None else deadline), ours


def test_a_lock_that_no_guard_holds_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "TAKE_OVER_SECONDS", 0.2)
    path = str(tmp_path / "home.lock")
    with told() as (owner, _):
        held = guard.hold(path, owner)
        os.ftruncate(held, 0)  # as if its holder lived where it cannot be seen
        with pytest.raises(guard.Failed, match="held"):
            guard.hold(path, owner)
        os.close(held)
        os.close(guard.hold(path, owner))


async def test_a_guard_that_could_not_run_for_a_while_reads_before_it_judges(world: World) -> None:
    """On a busy machine; its owner has kept its Lease all the time."""
    agent = await world.run(STAYS, seconds=2.0)
    old = boottime() + 2.0
    await world.written("child")
    guards = status(agent.pid)[1]
    os.kill(guards, signal.SIGSTOP)
    agent.extend(boottime() + 60)
    await eventually(lambda: boottime() > old)
    os.kill(guards, signal.SIGCONT)
    thawed = boottime()
    await eventually(lambda: last_tick(world.file("child")) > thawed + 0.2)
    assert (await agent.stop(10)).why is Why.stopped


@pytest.mark.parametrize(
    ("deadline", "words", "why"),
    [
        (60, b"", None),
        (-1, b"", "deadline"),
        (-1, b"until %d\n", None),
        (-1, b"until %d", "deadline"),
        (60, b"kill\n", "killed"),
        (60, b"until %d\nkill\nuntil %d\nstop 9\n", "killed"),
        (60, b"stop 0\nuntil %d\n", "stopped"),
        (60, None, "owner_gone"),
    ],
)
@pytest.mark.parametrize("lock_is", ["free", "held"])
def test_a_guard_hears_its_owner_before_and_while_it_waits_for_the_lock(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deadline: float,
    words: bytes | None,
    why: str | None,
    lock_is: str,
) -> None:
    monkeypatch.setattr(guard, "TAKE_OVER_SECONDS", 0.05)
    path, later = str(tmp_path / "home.lock"), int(guard.now() + 60)
    with told() as (other, _), ExitStack() as ours:
        if lock_is == "held":
            ours.callback(os.close, guard.hold(path, other))
            os.truncate(path, 0)  # as if its holder lived where it cannot be seen
        with told(words and words.replace(b"%d", b"%d" % later), deadline=guard.now() + deadline) as (owner, _):
            if why is None and lock_is == "free":
                os.close(guard.hold(path, owner))
            else:
                with pytest.raises(guard.Failed, match="held" if why is None else "late"):
                    guard.hold(path, owner)
            assert owner.why == (why or "deadline")


def test_nothing_starts_when_the_time_ran_out_while_leftovers_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with told() as (owner, ours):
        monkeypatch.setattr(guard, "_finish", lambda *_: ours.sendall(b"kill\n"))
        with pytest.raises(guard.Failed, match="late"):
            guard.hold(str(tmp_path / "home.lock"), owner)


def test_a_stop_that_comes_after_the_deadline_is_none() -> None:
    with told(b"stop 9\n", deadline=guard.now() - 1) as (owner, _):
        assert (owner.hear(), owner.why) == (False, "deadline")


def test_a_record_of_another_boot_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "home.lock"
    path.write_bytes(b"%d 1 an-earlier-boot" % os.getpid())
    with told() as (owner, _):
        os.close(guard.hold(str(path), owner))
    assert path.read_bytes().split()[0] == b"%d" % os.getpid()


# -- the workspace ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("S1")
async def test_two_agents_are_never_in_one_workspace(world: World) -> None:
    first = await world.run(STAYS)
    second = asyncio.create_task(world.run("import time; time.sleep(60)", home=world.home.with_name("other")))
    await eventually(lambda: world.wanted)  # its owner may leave when its Turn is over
    assert not second.done()
    await first.kill()
    assert not gone((await second).pid)
    assert set(world.wanted) == {"session"}


@pytest.mark.rule("S1")
async def test_one_that_shares_waits_for_one_that_does_not(world: World) -> None:
    alone = await world.run(STAYS)
    world.use = WorkspaceUse.shared
    homes = [world.home.with_name(name) for name in ("one", "two")]
    sharing = [asyncio.create_task(world.run(STAYS, home=home)) for home in homes]
    await eventually(lambda: len(world.wanted) > 1)
    assert not any(one.done() for one in sharing)
    await alone.kill()
    both = [await one for one in sharing]
    assert [gone(one.pid) for one in both] == [False, False]


@pytest.mark.rule("S1")
async def test_a_sharer_that_goes_takes_no_other_along(world: World) -> None:
    """Whoever stays is still asked to leave, and what it leaves behind when its Guard is killed is still known."""
    world.use = WorkspaceUse.shared
    stays, goes = [
        await world.run("import time; time.sleep(60)", home=world.home.with_name(n)) for n in ("stays", "goes")
    ]
    await goes.kill()
    world.use = WorkspaceUse.alone
    alone = asyncio.create_task(world.run("import time; time.sleep(60)"))
    await eventually(lambda: world.wanted)
    assert (set(world.wanted), alone.done()) == ({"stays"}, False)
    await stays.kill()
    assert not gone((await alone).pid)


@pytest.mark.rule("S1")
async def test_what_a_killed_guard_left_in_a_workspace_is_killed_before_another_agent_comes(
    world: World, owner: Owner
) -> None:
    await left_alone(world, owner)
    second = await world.run("import time; time.sleep(60)", home=world.home.with_name("other"))
    assert not gone(second.pid)
    assert quiet(world)


@pytest.mark.rule("S1")
async def test_one_that_takes_no_leave_is_named_to_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_SECONDS", 0.2)
    (tmp_path / "place").mkdir()
    place = f"alone:{tmp_path / 'place'}"
    with told() as (owner, _):
        held, record = guard.enter(place, "/home.lock", owner)
        Path(record).unlink()  # as if its holder lived where it cannot be seen
        with pytest.raises(guard.Failed, match="taken"):
            guard.enter(place, "/other.lock", owner)
        os.close(held)
    opening = Opening(SessionRef("local", SessionId("7k3m")), LaunchSnapshot("fake", "/work"), "/home", 0.0)
    why = not_started("fake", "taken", opening, "")
    assert (type(why), getattr(why, "key", "")) == (Refused, "workspace_taken")
    assert str(why).startswith("Another agent works in /work, ")


def test_a_workspace_is_one_by_whatever_path(tmp_path: Path) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    work.mkdir()
    link.symlink_to(work)
    ref = SessionRef("local", SessionId("7k3m"))
    openings = [Opening(ref, LaunchSnapshot("fake", str(path)), str(tmp_path / "home"), 0.0) for path in (work, link)]
    assert locks_of(openings[0]) == locks_of(openings[1])
