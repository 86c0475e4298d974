"""A home has one holder, tells a second one where to go, and is rid of what a dead one left."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from amux.core.errors import Refused, Unavailable
from amux.local import home as home_module
from amux.local.home import AlreadyRuns, Home, Run, fresh_sockets, hold, running, socket_path
from amux.local.pids import ProcessId, kill_group, started, world

pytestmark = pytest.mark.real
US = ProcessId(os.getpid(), started(os.getpid()))


def sleeper(*argv: str, keep: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    words = argv or ("sleep", "1000")
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True, pass_fds=keep)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


async def test_the_second_is_told_who_runs_and_where(home: Home) -> None:
    home.note(urls={"web": "http://127.0.0.1:8420", "redis": "unix:///tmp/r.sock"}, ports={"web": 8420})
    with pytest.raises(AlreadyRuns) as told:
        async with hold(home.path):
            pass
    assert str(told.value) == (
        f"amux already runs in {home.path} (pid {US.pid}, web http://127.0.0.1:8420); "
        f"use it, stop it with `kill {US.pid}`, or set AMUX_HOME for another one."
    )
    urls = {"web": "http://127.0.0.1:8420", "redis": "unix:///tmp/r.sock"}
    assert told.value.run == running(home.path) == Run(US, world(), {}, urls, {"web": 8420})


async def test_nothing_is_left_when_it_is_let_go(open_home: Path) -> None:
    async with hold(open_home) as held:
        sockets = fresh_sockets(held.path)
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert running(open_home) is None
    assert not sockets.exists()
    async with hold(open_home):
        pass


async def test_what_a_dead_holder_left_is_killed_also_when_its_leader_has_ended(
    open_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "LEFTOVER_SECONDS", 0.05)
    left = [sleeper(), sleeper("sh", "-c", "sleep 1000 >&- & echo $!")]
    stranger = sleeper()
    forked = int(said(left[1]))
    noted = {str(process.pid): ProcessId(process.pid, started(process.pid)) for process in left}
    noted["reused"] = ProcessId(stranger.pid, "1")  # the pid of a stranger, who began at another time
    left[1].wait()
    dead = ProcessId(left[1].pid, "7")
    open_home.joinpath("run.json").write_bytes(msgspec.json.encode(Run(dead, world(), noted)))
    try:
        async with hold(open_home) as held:
            assert held.run.processes == {}
            assert left[0].wait(5) == -signal.SIGKILL
            assert (started(forked), stranger.poll()) == ("", None)
    finally:
        kill_group(stranger.pid)
        stranger.wait()


async def test_pids_of_another_boot_or_container_mean_nothing(open_home: Path) -> None:
    open_home.joinpath("run.json").write_bytes(msgspec.json.encode(Run(US, "another", {"web": US})))
    assert running(open_home) is None
    async with hold(open_home) as held:
        assert held.run == Run(US, world())


async def test_a_service_waits_for_all_that_its_former_life_forked(home: Home) -> None:
    lock = await home.service_lock("postgres", seconds=1)
    forked = sleeper(keep=(lock,))
    os.close(lock)
    with pytest.raises(Unavailable, match=r"^a former postgres of .* still runs and does not end"):
        await home.service_lock("postgres", seconds=0.05)
    forked.kill()
    forked.wait()
    os.close(await home.service_lock("postgres", seconds=5))


async def test_a_home_that_cannot_be_written_is_refused(open_home: Path) -> None:
    (open_home / "file").write_text("")
    with pytest.raises(Refused) as told:
        async with hold(open_home / "file" / "home"):
            pass
    assert str(told.value) == (
        f"the home {open_home}/file/home cannot be written (Not a directory); "
        "set AMUX_HOME to a folder with room that is yours."
    )


async def test_a_relative_home_is_refused() -> None:
    with pytest.raises(Refused, match=r"^the home some/where must be a whole path, from / on\.$"):
        async with hold(Path("some/where")):
            pass


def test_a_socket_path_that_the_system_would_not_take_is_refused(open_home: Path) -> None:
    base = open_home / ("long" * 20)
    with pytest.raises(Refused, match="have paths over 103 bytes"):
        socket_path(open_home, base)


def test_what_stands_in_the_place_of_the_sockets_is_told(open_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "SOCKETS", open_home)
    planted = socket_path(open_home, open_home)
    monkeypatch.setattr(home_module, "socket_path", lambda _: planted)
    planted.symlink_to(open_home)
    with pytest.raises(Refused, match=rf"^the folder {planted} cannot be made \(File exists\); remove what stands"):
        fresh_sockets(open_home)
