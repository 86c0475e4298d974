"""Celery's programs without its command line are set up as that would: what we rely on, named."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = """
import os, sys
from workers import program
made = program.made_worker("w", ["target.local", "sweep"], 7)
print(
    made.hostname.split("@")[0],
    made.pool_cls.__module__,
    made.concurrency,
    *sorted(made.app.amqp.queues.consume_from),
    made.task_events,
    made.app.conf.worker_disable_prefetch,
    made.prefetch_multiplier,
    flush=True,
)
os._exit(0)
"""


@pytest.mark.real
def test_the_worker_is_what_we_say_it_is(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    done = python(MADE, tmp_path, AMUX_POSTGRES_URL=postgres_url, AMUX_REDIS_URL=redis_url)
    wanted = "w celery.concurrency.thread 7 sweep target.local True True 1\n"
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr


@pytest.mark.parametrize("name", ["worker", "deliver"])
def test_a_service_that_cannot_start_says_so_by_its_code(name: str, tmp_path: Path) -> None:
    done = python(f"import sys; sys.argv = ['amux', 'serve', '{name}']; from amux.cli import main; main()", tmp_path)
    assert done.returncode == 1
    assert "amux is not running here" in done.stderr


DRAINS = """
import asyncio, os
from workers import hooks
async def nothing(seconds): pass
class Endless:
    async def deliver(self, session): await asyncio.Event().wait()
one = hooks.Process(hooks.settings)
one.host, one._deliverer = type("Host", (), {"drain": staticmethod(nothing)}), Endless()
before = asyncio.run_coroutine_threadsafe(one.deliver(1), one.loop)
one.run(one._drain())
one.run(one.deliver(2))
print(before.cancelled() or before.exception(), flush=True)
os._exit(0)
"""


@pytest.mark.rule("D2")
def test_a_wake_that_comes_with_the_term_keeps_no_deliverer_alive(tmp_path: Path) -> None:
    done = python(DRAINS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def python(program: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "AMUX_HOME": str(home), **settings}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
