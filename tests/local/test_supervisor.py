"""The supervisor: order, restarts, ends. Its services are shells, since what matters is how processes come and go."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from amux.core.errors import Broken, Refused, Unavailable
from amux.local import restarter, supervisor
from amux.local.home import Home
from amux.local.pids import started
from amux.local.restarter import Probe, Readiness, Service, State, Told
from amux.local.supervisor import Ending, Supervisor, ending_on_signals
from tests.local.seen import inhabitants, until

pytestmark = [pytest.mark.real, pytest.mark.crash]
PAUSES = (0.02, 0.04)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarter, "PAUSES_SECONDS", PAUSES)


@pytest.fixture
def told() -> list[Told]:
    return []


def shell(
    name: str,
    script: str = "exec sleep 1000",
    *,
    up: Path | None = None,
    after: tuple[str, ...] = (),
    grace_seconds: float = 10,
    ready_seconds: float = 60,
) -> Service:
    """A service that runs `script`, and is ready once `up` is there (None: at once)."""
    return Service(
        name,
        ("/bin/sh", "-c", script),
        {"PATH": os.environ["PATH"]},
        ready=exists(up) if up else None,
        after=after,
        grace_seconds=grace_seconds,
        ready_seconds=ready_seconds,
    )


def exists(path: Path) -> Probe:
    async def ready() -> bool:
        return path.exists()

    return ready


def states(told: list[Told]) -> list[tuple[str, State]]:
    return [(change.name, change.state) for change in told]


async def test_the_start_follows_the_order_and_the_stop_goes_back(home: Home, told: list[Told]) -> None:
    mark = home.path / "mark"
    services = (
        shell("first", f"sleep 0.1; : > '{mark}'; exec sleep 1000", up=mark),
        shell("second", after=("first",)),
        shell("third", after=("first", "second")),
    )
    async with Supervisor(home, services, tell=told.append) as kept:
        await kept.ready()
        assert kept.states == dict.fromkeys(("first", "second", "third"), State.ready)
        assert set(home.run.processes) == {"first", "second", "third"}
    begun = [(name, state) for name in ("first", "second", "third") for state in (State.starting, State.ready)]
    ended = [(name, state) for name in ("third", "second", "first") for state in (State.stopping, State.stopped)]
    assert states(told) == begun + ended
    assert home.run.processes == {}


async def test_a_crashed_service_is_started_again_after_longer_and_longer_pauses(home: Home, told: list[Told]) -> None:
    bad = shell("bad", "echo hello; echo 'no such thing' >&2; exit 3")
    async with Supervisor(home, (bad,), tell=told.append) as kept:
        assert await kept.reaches("bad", State.degraded) is State.degraded
    why = "ended (exit 3): no such thing; next try in"
    log = home.log("bad")
    up = [Told("bad", State.starting), Told("bad", State.ready)]
    assert told == [
        *up,
        Told("bad", State.restarting, f"{why} 0.02 s"),
        *up,
        Told("bad", State.restarting, f"{why} 0.04 s"),
        *up,
        Told("bad", State.degraded, f"{why} 30 s; see {log}"),
        Told("bad", State.stopping),
        Told("bad", State.stopped),
    ]
    assert log.read_text() == "hello\nno such thing\n" * 3


async def test_a_start_that_fails_says_so_in_one_line(home: Home) -> None:
    bad = Service("bad", ("/no/such/program",), {}, remedy="install it")
    async with Supervisor(home, (bad, shell("later", after=("bad",)))) as kept:
        with pytest.raises(Unavailable) as why:
            await kept.ready()
        assert kept.states == {"bad": State.degraded, "later": State.waiting}
    assert str(why.value) == (
        "bad cannot be started: [Errno 2] No such file or directory: '/no/such/program'; "
        f"next try in 30 s; see {home.log('bad')}; install it"
    )


async def test_a_degraded_service_is_started_at_once_on_demand(home: Home) -> None:
    mended = home.path / "mended"
    bad = shell("bad", f"test -e '{mended}' && exec sleep 1000; exit 1", up=mended)
    async with Supervisor(home, (bad,)) as kept:
        await kept.reaches("bad", State.degraded)
        mended.write_text("")
        await asyncio.wait_for(kept.start("bad"), 5)
        assert kept.states == {"bad": State.ready}


async def test_one_that_is_never_ready_is_killed_and_tried_again(home: Home, told: list[Told]) -> None:
    deaf = shell("deaf", up=home.path / "never", ready_seconds=0.05)
    async with Supervisor(home, (deaf,), tell=told.append) as kept:
        await kept.reaches("deaf", State.restarting)
    assert told[:2] == [
        Told("deaf", State.starting),
        Told("deaf", State.restarting, "was not ready in 0.05 s; next try in 0.02 s"),
    ]


async def test_a_service_beside_the_start_is_not_waited_for(home: Home) -> None:
    slow = Service("slow", ("/bin/sleep", "1000"), {}, ready=exists(home.path / "never"), readiness=Readiness.aside)
    async with Supervisor(home, (slow, shell("quick"))) as kept:
        await asyncio.wait_for(kept.ready(), 5)
        await kept.reaches("slow", State.starting)
        assert kept.states == {"slow": State.starting, "quick": State.ready}


async def test_no_more_start_at_once_than_there_are_cores(
    home: Home, told: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_cores", lambda: 2)
    marks = {name: home.path / name for name in ("one", "two", "three", "four")}
    services = [shell(name, up=mark) for name, mark in marks.items()]
    async with Supervisor(home, services, tell=told.append) as kept:
        for name in ("one", "two"):
            await kept.reaches(name, State.starting)
        for name, then in (("two", "three"), ("three", "four"), ("one", ""), ("four", "")):
            marks[name].touch()
            await kept.reaches(name, State.ready)
            if then:
                await kept.reaches(then, State.starting)
        assert states(told) == [
            ("one", State.starting),
            ("two", State.starting),
            ("two", State.ready),
            ("three", State.starting),
            ("three", State.ready),
            ("four", State.starting),
            ("one", State.ready),
            ("four", State.ready),
        ]


async def test_one_that_hangs_keeps_nobody_from_starting(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_cores", lambda: 1)
    monkeypatch.setattr(supervisor, "CORE_SECONDS", 0.05)
    async with Supervisor(home, (shell("hangs", up=home.path / "never"), shell("next"))) as kept:
        await asyncio.wait_for(kept.reaches("next", State.ready), 5)
        assert kept.states == {"hangs": State.starting, "next": State.ready}


async def test_one_that_was_stopped_before_its_start_stays_down(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_cores", lambda: 1)
    mark = home.path / "mark"
    async with Supervisor(home, (shell("first", up=mark), shell("second"), shell("third"))) as kept:
        await kept.reaches("first", State.starting)
        await kept.stop("second")
        mark.touch()
        await kept.reaches("third", State.ready)
        assert kept.states["second"] is State.waiting


async def test_kill_is_a_crash_and_counts_as_no_failure(home: Home, told: list[Told]) -> None:
    async with Supervisor(home, (shell("one"),), tell=told.append) as kept:
        await kept.ready()
        pids = {kept.process("one").pid}
        for _ in range(len(PAUSES) + 2):
            kept.kill("one")
            await kept.reaches("one", State.ready)
            pids.add(kept.process("one").pid)
        assert len(pids) == len(PAUSES) + 3
    assert {change.detail for change in told} == {
        "",
        "killed on demand",
        "was killed by SIGKILL; next try in 0.02 s",
    }


async def test_down_for_a_while_and_up_again(home: Home, told: list[Told]) -> None:
    async with Supervisor(home, (shell("one"),), tell=told.append) as kept:
        await kept.ready()
        before = kept.process("one")
        await kept.restart("one", down_seconds=0.05)
        assert (before.alive(), kept.process("one").alive()) == (False, True)
        await kept.stop("one")
        with pytest.raises(Unavailable, match=r"^one is stopped: it has no process"):
            kept.process("one")
        with pytest.raises(Refused, match=r"^there is no service two; there are one"):
            await kept.start("two")
    up, down = [State.starting, State.ready], [State.stopping, State.stopped]
    assert [change.state for change in told] == [*up, *down, *up, *down]


async def test_stop_ends_a_pause_between_two_tries(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarter, "PAUSES_SECONDS", (1000.0,))
    async with asyncio.timeout(5), Supervisor(home, (shell("bad", "exit 1"),)) as kept:
        await kept.reaches("bad", State.restarting)
        await kept.stop("bad")
        assert kept.states == {"bad": State.stopped}


@pytest.mark.parametrize("sends", [signal.SIGSTOP, None], ids=["frozen", "deaf"])
async def test_one_that_does_not_stop_is_killed_with_its_group(home: Home, sends: signal.Signals | None) -> None:
    up = home.path / "up"
    deaf = shell("deaf", f"trap '' TERM; sleep 1000 & : > '{up}'; wait", up=up, grace_seconds=0.2)
    async with Supervisor(home, (deaf,)) as kept:
        await kept.ready()
        assert len(inhabitants(home.path)) == 2
        if sends:
            kept.process("deaf").signal(sends)
    until(lambda: not inhabitants(home.path))


async def test_one_that_is_frozen_stops_in_good_order(home: Home, told: list[Told]) -> None:
    up, mark = home.path / "up", home.path / "mark"
    script = f"trap ': > \"{mark}\"; exit 0' TERM; : > '{up}'; while :; do sleep 0.01; done"
    polite = shell("polite", script, up=up, grace_seconds=1000)
    async with asyncio.timeout(5), Supervisor(home, (polite,), tell=told.append) as kept:
        await kept.ready()
        kept.freeze("polite")
        await kept.stop("polite")
    assert mark.exists()


async def test_freeze_and_thaw(home: Home) -> None:
    async with Supervisor(home, (shell("one"),)) as kept:
        await kept.ready()
        stat = Path(f"/proc/{kept.process('one').pid}/stat")
        kept.freeze("one")
        until(lambda: ") T " in stat.read_text())
        kept.thaw("one")
        until(lambda: ") T " not in stat.read_text())


async def test_what_a_crashed_service_forked_goes_with_it(home: Home) -> None:
    up = home.path / "up"
    service = shell("forker", f"sleep 1000 & echo $! > '{up}.new'; mv '{up}.new' '{up}'; wait", up=up)
    async with Supervisor(home, (service,)) as kept:
        await kept.ready()
        forked = int(up.read_text())
        kept.kill("forker")
        await asyncio.to_thread(until, lambda: started(forked) == "")


async def test_two_logs_are_kept(home: Home) -> None:
    for text in ("one", "two", "three"):
        async with Supervisor(home, (shell("talker", f"echo {text}; exit 1"),)) as kept:
            await kept.reaches("talker", State.restarting)
    assert home.log("talker").read_text().splitlines()[0] == "three"
    assert home.log("talker").with_suffix(".log.1").read_text().splitlines()[0] == "two"
    assert sorted(path.name for path in (home.path / "logs").iterdir()) == ["talker.log", "talker.log.1"]


async def test_a_bug_in_a_probe_ends_everything_loudly(home: Home) -> None:
    async def buggy() -> bool:
        raise ZeroDivisionError

    bad = Service("bad", ("/bin/sleep", "1000"), {}, ready=buggy)
    with pytest.raises(ExceptionGroup) as raised:
        async with Supervisor(home, (shell("good"), bad)):
            await asyncio.get_running_loop().create_future()
    assert isinstance(raised.value.exceptions[0], ZeroDivisionError)
    until(lambda: not inhabitants(home.path))


async def test_the_error_of_the_body_leaves_as_it_is(home: Home) -> None:
    async def fails() -> None:
        async with Supervisor(home, (shell("good"),)) as kept:
            await kept.ready()
            raise Unavailable("mine")

    with pytest.raises(Unavailable, match=r"^mine$"):
        await fails()
    until(lambda: not inhabitants(home.path))


async def test_an_order_that_cannot_be_is_broken(home: Home) -> None:
    with pytest.raises(Broken, match=r"service one: listed twice, or before \['two'\]"):
        Supervisor(home, (shell("one", after=("two",)), shell("two")))
    with pytest.raises(Broken, match="service one: listed twice"):
        Supervisor(home, (shell("one"), shell("one")))


async def test_off_the_main_thread_nothing_is_spawned(home: Home) -> None:
    async def elsewhere() -> None:
        async with Supervisor(home, (shell("one"),)) as kept:
            await kept.ready()

    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.to_thread(asyncio.run, elsewhere())
    assert [type(error) for error in raised.value.exceptions] == [Broken]


def raises(number: signal.Signals) -> Callable[[], None]:
    return lambda: signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_unwinds_the_body_in_order(home: Home, told: list[Told], number: signal.Signals) -> None:
    services = (shell("first"), shell("second", after=("first",)))
    with ending_on_signals() as ending:
        async with Supervisor(home, services, tell=told.append) as kept:
            await kept.ready()
            asyncio.get_running_loop().call_soon(raises(number))
            asyncio.get_running_loop().call_soon(raises(number))  # as a launcher passes it on
            await asyncio.get_running_loop().create_future()
    assert ending == Ending(number)
    assert states(told)[-4:] == [
        (name, state) for name in ("second", "first") for state in (State.stopping, State.stopped)
    ]


async def test_a_second_signal_breaks_the_stop_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amux.local.supervisor.TWICE_SECONDS", 0.0)
    deaf = home.path / "deaf"
    script = f"trap '' TERM; : > '{deaf}'; while :; do sleep 1000; done"
    service = shell("deaf", script, up=deaf, grace_seconds=1000)
    async with asyncio.timeout(10):
        with ending_on_signals() as ending:
            async with Supervisor(home, (service,)) as kept:
                await kept.ready()
                asyncio.get_running_loop().call_soon(raises(signal.SIGTERM))
                asyncio.get_running_loop().call_later(0.2, raises(signal.SIGINT))
                await asyncio.get_running_loop().create_future()
    assert ending == Ending(signal.SIGTERM)
    until(lambda: not inhabitants(home.path))
