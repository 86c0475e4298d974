"""What every command says when nothing runs, when Postgres is away and when Redis is: one line, and what to do."""

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from amux.stores.inputs import PostgresInputs
from amux.stores.postgres import Postgres
from tests.whole import cli, program

pytestmark = pytest.mark.real

READS: dict[str, tuple[str, ...]] = {
    "ls": ("ls",),
    "show": ("show", "7k3"),
    "audit": ("audit",),
    "attach": ("attach", "7k3"),
}
WRITES: dict[str, tuple[str, ...]] = {
    "run": ("run", "hello"),
    "send": ("send", "7k3", "hello"),
    "interrupt": ("interrupt", "7k3"),
    "answer": ("answer", "7k3", "ask-1", "allow"),
}
ALL = {**READS, **WRITES}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for servers that are away on purpose."""
    for waits in (Postgres.ask, PostgresInputs.__init__):
        assert waits.__kwdefaults__
        monkeypatch.setitem(waits.__kwdefaults__, "patience", 0.1)


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses, since nobody listens there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("words", ALL.values(), ids=ALL)
async def test_nothing_runs(words: tuple[str, ...], empty_home: dict[str, str]) -> None:
    said = await cli(empty_home, *words)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "amux is not running here. Start it with `amux up` or `amux demo`, or set AMUX_POSTGRES_URL and "
        "AMUX_REDIS_URL.\n"
    )


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("words", ALL.values(), ids=ALL)
async def test_postgres_is_down(words: tuple[str, ...], tmp_path: Path, dead_port: int, redis_url: str) -> None:
    url = f"postgresql://amux:hush@127.0.0.1:{dead_port}/amux"
    env = {"AMUX_HOME": str(tmp_path), "AMUX_POSTGRES_URL": url, "AMUX_REDIS_URL": redis_url}
    said = await cli(env, *words)
    assert (said.code, said.out) == (1, "")
    assert said.err in (
        "Postgres does not answer; see `amux doctor`.\n",
        "The database does not answer: nothing was taken. See `amux doctor`.\n",
    )


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("words", WRITES.values(), ids=WRITES)
async def test_redis_is_down(words: tuple[str, ...], tmp_path: Path, dead_port: int, postgres_url: str) -> None:
    url = f"redis://127.0.0.1:{dead_port}/0"
    env = {"AMUX_HOME": str(tmp_path), "AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": url}
    said = await cli(env, *words)
    assert (said.code, said.out) == (1, "")
    assert said.err == "Redis does not answer: nothing was sent. See `amux doctor`.\n"


@pytest.mark.usefixtures("hurried")
async def test_what_was_written_is_read_without_redis(tmp_path: Path, dead_port: int, postgres_url: str) -> None:
    url = f"redis://127.0.0.1:{dead_port}/0"
    env = {"AMUX_HOME": str(tmp_path), "AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": url}
    assert (await cli(env, "audit", "--json")).code == 0
    assert (await cli(env, "ls")).out == 'No Sessions yet. Start one: amux run "..."\n'
    assert (await cli(env, "show", "7k3")).err == "no such Session: 7k3. `amux ls` shows what there is.\n"


async def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    home = tmp_path / "file" / "home"
    said = await program({"AMUX_HOME": str(home), "AMUX_WEB_PORT": "0", "PATH": "/usr/bin"}, "up", "worker")
    assert said.code == 1
    assert said.err.splitlines()[-1] == (
        f"the home {home} cannot be written (Not a directory); set AMUX_HOME to a folder with room that is yours."
    )
    assert stat.S_ISREG((tmp_path / "file").stat().st_mode)


async def test_a_port_in_use(empty_home: dict[str, str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        said = await program({**empty_home, "AMUX_WEB_PORT": str(port)}, "up")
    assert said.code == 1
    assert said.err == f"port {port} on 127.0.0.1 is in use; set AMUX_WEB_PORT to another.\n"
    assert not Path(empty_home["AMUX_HOME"]).exists()


async def test_an_unknown_service(empty_home: dict[str, str]) -> None:
    said = await cli(empty_home, "up", "wrker")
    assert (said.code, said.err) == (
        1,
        "there is no service 'wrker'; there are worker, deliver, ingress, web, beat, flower.\n",
    )


async def test_settings_with_faults_are_told_all_at_once(empty_home: dict[str, str]) -> None:
    said = await cli({**empty_home, "AMUX_LEASE": "0", "AMUX_SLOTS": "many"}, "ls")
    assert said.code == 1
    assert [line.partition("=")[0] for line in said.err.splitlines()] == ["AMUX_SLOTS", "AMUX_LEASE"]
