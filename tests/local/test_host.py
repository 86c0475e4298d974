"""A whole supervisor as people run it: signalled, killed, started twice, started by another user."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from amux.local.home import socket_path
from amux.local.warden import PATIENCE_SECONDS
from tests.local.seen import THIS_PYTHON, Program, host, inhabitants, newcomers, ran, ready, until

pytestmark = [pytest.mark.real, pytest.mark.crash]


def committed(home: Path) -> int:
    """Leave one more row behind, and say how many there are."""
    with psycopg.connect(ran(home).urls["postgres"], autocommit=True) as connection:
        connection.execute("create table if not exists kept (n int)")
        connection.execute("insert into kept values (1)")
        row = connection.execute("select count(*) from kept").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_in_good_order(kept_home: Path, number: signal.Signals) -> None:
    with host(kept_home) as process:
        ready(process)
        assert len(inhabitants(kept_home)) >= len(ran(kept_home).processes) + 2
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert inhabitants(kept_home) == set()
    assert not socket_path(kept_home).exists()
    assert "database system is shut down" in (kept_home / "logs" / "postgres.log").read_text()


def test_a_kill_of_the_supervisor_leaves_nothing_and_loses_nothing(kept_home: Path) -> None:
    with host(kept_home) as process:
        ready(process)
        rows = committed(kept_home)
        process.kill()
        until(lambda: not inhabitants(kept_home), seconds=PATIENCE_SECONDS / 2)  # before the warden's patience ends
    with host(kept_home) as again:
        ready(again)
        assert committed(kept_home) == rows + 1


def test_a_start_at_once_after_everything_was_killed(kept_home: Path) -> None:
    with host(kept_home) as process:
        ready(process)
        rows = committed(kept_home)
        run = ran(kept_home)
        for each in (*run.processes.values(), run.supervisor):
            os.kill(each.pid, signal.SIGKILL)
        with host(kept_home) as again:
            ready(again)
            assert committed(kept_home) == rows + 1
            assert ran(kept_home).processes.keys() == {"postgres", "redis", "forker"}


def test_the_second_is_told_and_the_first_goes_on(kept_home: Path) -> None:
    with host(kept_home) as first:
        ready(first)
        said = (
            f"amux already runs in {kept_home} (pid {first.pid}, web http://127.0.0.1:8420); "
            f"use it, stop it with `kill {first.pid}`, or set AMUX_HOME for another one.\n"
        )
        assert refusal(kept_home) == said
        assert committed(kept_home)


def test_what_the_first_forks_meanwhile_is_not_taken_for_the_seconds(kept_home: Path) -> None:
    with host(kept_home) as first:
        ready(first)
        before = inhabitants(kept_home)
        with psycopg.connect(ran(kept_home).urls["postgres"]) as connection:
            backend = connection.info.backend_pid
            assert (backend in inhabitants(kept_home) - before, newcomers(kept_home, before)) == (True, set())
            with subprocess.Popen(["tail", "-f", kept_home / "logs" / "postgres.log"], stdout=subprocess.PIPE) as other:
                until(lambda: newcomers(kept_home, before) == {other.pid})
                other.kill()


def test_an_ordinary_user_runs_it(open_home: Path, as_nobody: Program) -> None:
    shutil.chown(open_home, "nobody", "nogroup")
    with host(open_home, as_nobody) as process:
        ready(process)
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in inhabitants(open_home)}
        assert owners == {process_owner(process)} != {0}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
        assert inhabitants(open_home) == set()


def test_a_home_of_somebody_else_is_refused_in_one_line(open_home: Path, as_nobody: Program) -> None:
    said = (
        f"the home {open_home} cannot be written (Permission denied); "
        "set AMUX_HOME to a folder with room that is yours.\n"
    )
    assert refusal(open_home, as_nobody) == said


@pytest.fixture
def as_nobody() -> Program:
    """How another, ordinary user runs Python with these packages."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user; everybody else is an ordinary one")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    for python in (sys.executable, "/usr/bin/python3"):
        words = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", python)
        script = "import amux.local.services, os, sys; sys.exit(not os.access(sys.executable, os.X_OK))"
        tried = subprocess.run((*words, "-c", script), env=env, capture_output=True, check=False)
        if tried.returncode == 0:
            return Program(words, env)
    pytest.skip("no Python here that another user can run with these packages")


def process_owner(process: subprocess.Popen[str]) -> int:
    return Path(f"/proc/{process.pid}").stat().st_uid


def refusal(home: Path, python: Program = THIS_PYTHON) -> str:
    """What a start says that ends at once with 1 and nothing else."""
    with host(home, python) as process:
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (1, "")
    return err
