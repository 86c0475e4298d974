"""The embedded servers, run for real: what they promise, what they survive, and what they refuse to run on."""

import os
import re
from contextlib import AsyncExitStack
from glob import glob
from pathlib import Path

import psycopg
import pytest
from redis.asyncio import Redis

from amux.core.errors import Refused, Unavailable
from amux.local import restarter
from amux.local.binaries import SYSTEM_POSTGRES, find_binaries
from amux.local.home import running
from amux.local.restarter import State
from amux.local.services import Servers
from tests.local.seen import inhabitants

pytestmark = [pytest.mark.real, pytest.mark.crash]


async def asked(servers: Servers, query: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(servers.urls.postgres, autocommit=True) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall() if cursor.description else []


async def test_they_run_as_the_house_needs_them(kept_home: Path) -> None:
    names = ["max_connections", "fsync", "synchronous_commit", "listen_addresses", "server_encoding", "TimeZone"]
    async with Servers(kept_home) as servers, Redis.from_url(servers.urls.redis) as redis:
        settings = await asked(servers, f"select {','.join(f'''current_setting('{name}')''' for name in names)}")
        assert settings == [("200", "on", "on", "", "UTF8", "UTC")]
        assert await asked(servers, "select upper('é'), 'É' ~* 'é'") == [("É", True)]
        config = await redis.config_get("port", "appendonly", "appendfsync", "save", "maxmemory-policy")
        run = running(kept_home)
    assert config == {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    assert run is not None
    assert (set(run.processes), run.urls) == (
        {"postgres", "redis"},
        {"postgres": servers.urls.postgres, "redis": servers.urls.redis},
    )


async def test_what_was_written_outlives_a_kill_of_both(kept_home: Path) -> None:
    async with Servers(kept_home) as servers:
        await asked(servers, "create table outlived as select 1 as n")
        async with Redis.from_url(servers.urls.redis) as redis:
            await redis.set("kept", "1")
        await servers.supervisor.restart("redis", down_seconds=0.05)
        before = {name: servers.supervisor.process(name) for name in ("postgres", "redis")}
        for name in before:
            servers.supervisor.kill(name)
        for name, process in before.items():
            await servers.supervisor.reaches(name, State.ready)
            assert servers.supervisor.process(name) != process
        assert await asked(servers, "select n from outlived") == [(1,)]
        async with Redis.from_url(servers.urls.redis) as redis:
            assert await redis.get("kept") == b"1"
    assert inhabitants(kept_home) == set()


async def test_a_stop_does_not_wait_for_sessions_that_are_open(kept_home: Path) -> None:
    async with AsyncExitStack() as outlasting:
        async with Servers(kept_home) as servers:
            connect = psycopg.AsyncConnection.connect(servers.urls.postgres)
            session = await outlasting.enter_async_context(await connect)
            await session.execute("select 1")
            await servers.supervisor.stop("postgres")
        log = (kept_home / "logs" / "postgres.log").read_text()
        assert ("received fast shutdown request" in log, "database system is shut down" in log) == (True, True)
        with pytest.raises(psycopg.OperationalError):
            await session.execute("select 1")


async def test_the_log_keeps_nothing_that_people_wrote(kept_home: Path) -> None:
    async with Servers(kept_home) as servers:
        await asked(servers, "create table once (said text primary key)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await asked(servers, "insert into once values ('between us'), ('between us')")
    log = (kept_home / "logs" / "postgres.log").read_text()
    assert "duplicate key value" in log
    assert "between us" not in log


async def test_data_of_another_postgres_are_refused_with_the_way_out(kept_home: Path) -> None:
    async with Servers(kept_home):
        pass
    version = kept_home / "pg" / "PG_VERSION"
    wrote = version.read_text()
    version.write_text("13\n")
    try:
        with pytest.raises(Refused) as told:
            await Servers(kept_home).__aenter__()
    finally:
        version.write_text(wrote)
    program = re.search(
        r"(/\S+/bin/postgres) is 18", str(told.value)
    )  # a copy, where its user cannot reach the package
    assert program
    assert str(told.value) == (
        f"{kept_home}/pg was written by PostgreSQL 13, and {program[1]} is 18: set AMUX_PG_BIN to the bin folder of a "
        "PostgreSQL 13; or, with that one, `pg_dumpall`, move the folder away, start, and load the dump."
    )
    assert running(kept_home) is None


async def test_a_redis_that_cannot_read_its_data_says_that_they_may_go(
    kept_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarter, "PAUSES_SECONDS", (0.02,))
    async with Servers(kept_home):
        pass
    manifest = kept_home / "redis" / "appendonlydir" / "appendonly.aof.manifest"
    whole = manifest.read_bytes()
    manifest.write_text("nonsense\n")
    try:
        with pytest.raises(Unavailable) as told:
            await Servers(kept_home).__aenter__()
    finally:
        manifest.write_bytes(whole)
    said, remedy = str(told.value).split("; next try")
    assert said.startswith("redis ended (exit 1): ")
    assert remedy == (
        f" in 30 s; see {kept_home}/logs/redis.log; "
        f"if it cannot read its data, remove {kept_home}/redis: nothing is lost with it"
    )
    assert inhabitants(kept_home) == set()


async def test_a_home_with_spaces_whose_first_start_was_cut_short(open_home: Path) -> None:
    home = open_home / "a home, ü"
    (home / "pg.tmp" / "base").mkdir(parents=True)
    home.chmod(0o711)
    async with Servers(home) as servers:
        assert await asked(servers, "select 1") == [(1,)]
    assert not (home / "pg.tmp").exists()


@pytest.mark.parametrize("pg_bin", sorted(glob(SYSTEM_POSTGRES)))
async def test_the_postgres_of_the_system_serves_too(open_home: Path, pg_bin: str) -> None:
    async with Servers(open_home, find_binaries(Path(pg_bin), None)) as servers:
        assert await asked(servers, "select upper('é')") == [("É",)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root's servers run as another user")
async def test_a_home_closed_to_the_servers_of_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as told:
        await Servers(tmp_path / "home").__aenter__()
    assert "is closed to the user" in str(told.value)
    assert str(told.value).endswith("set AMUX_HOME to a folder that it may pass through, such as /var/lib/amux.")
