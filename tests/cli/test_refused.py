"""Words that name nothing, messages too long, and a disk that is full: refused by name, and nothing is lost."""

import secrets
from pathlib import Path

import psycopg
import pytest

from amux import wiring
from amux.core.ids import InputId, Principal, SessionId, SessionRef
from amux.core.inputs import MAX_TEXT, Authorization, Input
from amux.core.launch import LaunchSnapshot
from amux.ports import Draft
from amux.settings import load
from tests.whole import FULL_DISK, cli, program

pytestmark = pytest.mark.real


@pytest.fixture
def env(tmp_path: Path, fresh_database: str, redis_url: str) -> dict[str, str]:
    """Servers, and nobody who works."""
    return {"AMUX_HOME": str(tmp_path), "AMUX_POSTGRES_URL": fresh_database, "AMUX_REDIS_URL": redis_url}


async def session(env: dict[str, str], name: str) -> None:
    """A Session of that id, begun and not worked on."""
    me = Principal("cli:user_a")
    said = Input(InputId(f"cli:user_a:{secrets.token_hex(4)}"), "hello", me, Authorization(me), 0)
    async with wiring.stores(load(env)) as parts:
        await parts.submit.launch(
            Draft(SessionRef("local", SessionId(name)), LaunchSnapshot("scripted", "/"), "t"), said
        )


def journal(env: dict[str, str]) -> int:
    """How many inputs were taken."""
    with psycopg.connect(env["AMUX_POSTGRES_URL"]) as connection:
        row = connection.execute("select count(*) from inputs").fetchone()
    return int(row[0]) if row else 0


NAMED = {
    "show": ("show", "{}"),
    "send": ("send", "{}", "hello"),
    "attach": ("attach", "{}"),
    "interrupt": ("interrupt", "{}"),
    "answer": ("answer", "{}", "ask-1", "deny"),
    "audit": ("audit", "{}"),
}


@pytest.mark.parametrize("words", NAMED.values(), ids=NAMED)
async def test_no_such_session(env: dict[str, str], words: tuple[str, ...]) -> None:
    said = await cli(env, *(word.format("zzz") for word in words))
    assert (said.code, said.out) == (1, "")
    assert said.err == "no such Session: zzz. `amux ls` shows what there is.\n"


@pytest.mark.parametrize("words", NAMED.values(), ids=NAMED)
async def test_an_ambiguous_prefix(env: dict[str, str], words: tuple[str, ...]) -> None:
    await session(env, "7k3aaaaaaaaaaaaa")
    await session(env, "7k3bbbbbbbbbbbbb")
    said = await cli(env, *(word.format("7k3") for word in words))
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "7k3 is the beginning of several Sessions: local/7k3aaaaaaaaaaaaa, local/7k3bbbbbbbbbbbbb. Type one more letter.\n"
    )
    assert journal(env) == 2


async def test_a_message_of_two_megabytes(env: dict[str, str]) -> None:
    await session(env, "7k3aaaaaaaaaaaaa")
    text = "x" * (2 << 20)
    for words in (("run", text), ("send", "7k3", text)):
        said = await cli(env, *words)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith(f"The message has 2,097,152 characters, and {MAX_TEXT:,} is the most")
        assert "file" in said.err
        assert len(said.err.splitlines()) == 1
    assert journal(env) == 1


async def test_an_empty_message(env: dict[str, str]) -> None:
    assert (await cli(env, "run", "  ")).err == "There is nothing to say: give a text.\n"


async def test_nothing_runs_that_could_be_interrupted(env: dict[str, str]) -> None:
    await session(env, "7k3aaaaaaaaaaaaa")
    said = await cli(env, "interrupt", "7k3")
    assert (said.code, said.err) == (1, "Nothing runs in 7k3aaa, so there is nothing to do.\n")


async def test_the_disk_of_the_journal_is_full(env: dict[str, str]) -> None:
    await session(env, "7k3aaaaaaaaaaaaa")
    with psycopg.connect(env["AMUX_POSTGRES_URL"], autocommit=True) as connection:
        connection.execute(FULL_DISK)
        for words in (("run", "hello"), ("send", "7k3", "hello")):
            said = await cli(env, *words)
            assert (said.code, said.out) == (1, "")
            assert said.err == (
                "The database is full or has no connection left: nothing was taken. See `amux doctor`.\n"
            )
        assert journal(env) == 1
        connection.execute("drop trigger full_disk on inputs")
    said = await cli(env, "run", "hello", "--detach")
    assert (said.code, said.err) == (0, "")
    assert journal(env) == 2


REFUSED = 'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused'


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (
            "postgresql://u:a-password@127.0.0.1:1/x",
            f"Postgres does not let us in: {REFUSED}. Start it, or correct AMUX_POSTGRES_URL.",
        ),
        (
            "postgresql://u:a-password@127.0.0.1:1/x?nonsense=1",
            "Postgres cannot be brought to today's schema (ProgrammingError); see its own log, and check AMUX_POSTGRES_URL.",
        ),
    ],
)
async def test_a_start_on_a_postgres_that_is_not_there(tmp_path: Path, url: str, line: str) -> None:
    env = {"AMUX_HOME": str(tmp_path), "AMUX_POSTGRES_URL": url, "AMUX_REDIS_URL": "redis://127.0.0.1:1/0"}
    said = await program(env, "up", "worker")
    assert (said.code, said.out, said.err) == (1, "", f"Starting amux ...\n{line}\n")


async def test_a_start_where_no_table_can_be_made(env: dict[str, str]) -> None:
    with psycopg.connect(env["AMUX_POSTGRES_URL"], autocommit=True) as connection:
        connection.execute("drop schema public cascade")
    said = await program(env, "up", "worker")
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[1:] == [
        "Postgres cannot be brought to today's schema (InvalidSchemaName); see its own log, and check AMUX_POSTGRES_URL."
    ]


WHERE = {
    "a worktree and shared": (
        ("--workspace", ".", "--worktree", "--shared"),
        "--worktree gives it a folder of its own, --shared one with others: give one of them.\n",
    ),
    "a worktree of nothing": (("--worktree",), "A worktree of what? Name the repository with --workspace.\n"),
    "a short path of another target": (
        ("--target", "far", "--workspace", "work"),
        "work is a folder of another target: write it from / on.\n",
    ),
}


@pytest.mark.parametrize(("words", "told"), WHERE.values(), ids=WHERE)
async def test_a_folder_that_nobody_can_mean(env: dict[str, str], words: tuple[str, ...], told: str) -> None:
    said = await cli(env, "run", "hello", *words)
    assert (said.code, said.out, said.err) == (1, "", told)
    assert journal(env) == 0
