"""Real servers for the tests: one Postgres and one Redis a session, a database of its own for each test that asks.

By default they are the embedded ones (AMUX_PG_BIN and AMUX_REDIS_BIN name other programs), in a process that ends with pytest however that ends. AMUX_TEST_POSTGRES_URL and
AMUX_TEST_REDIS_URL (a user who may create databases; a server whose databases 0 to 15 may be emptied) name others.

As a program (`python -m tests.servers HOME`) it is that process: it prints the URLs as one line of JSON and ends at
the end of its input."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg import sql
from psycopg.rows import TupleRow

from amux.local.binaries import find_binaries
from amux.local.services import Servers, Urls
from ops.migrations import upgrade

REDIS_DATABASES = 16
STOP_SECONDS = 60
_NUMBERS = count(1)
_REDIS_NUMBERS = cycle(range(REDIS_DATABASES))


@pytest.fixture(scope="session")
def urls() -> Iterator[Urls]:
    """The servers of this test session, as their administrator reaches them."""
    postgres, redis_ = os.environ.get("AMUX_TEST_POSTGRES_URL"), os.environ.get("AMUX_TEST_REDIS_URL")
    if postgres and redis_:
        yield Urls(postgres, redis_)
        return
    with short_home() as home, _servers(home) as embedded:
        yield Urls(postgres or embedded.postgres, redis_ or embedded.redis)


@pytest.fixture(scope="session")
def template_database(urls: Urls) -> Iterator[str]:
    """The name of a database with today's schema, to be copied and never written."""
    with _copy(urls.postgres, "template0") as url:
        migrate(url)
        yield urlsplit(url).path.removeprefix("/")


@pytest.fixture(scope="module")
def postgres_url(urls: Urls, template_database: str) -> Iterator[str]:
    """A migrated database that the tests of one file share."""
    with _copy(urls.postgres, template_database) as url:
        yield url


@pytest.fixture
def fresh_database(urls: Urls, template_database: str) -> Iterator[str]:
    """A migrated database for one test alone."""
    with _copy(urls.postgres, template_database) as url:
        yield url


@pytest.fixture
def redis_url(urls: Urls) -> Iterator[str]:
    """An empty Redis database for one test alone. Pub/sub channels are shared by all databases of a server."""
    number = next(_REDIS_NUMBERS)
    with redis.Redis.from_url(urls.redis, db=number) as client:
        client.flushdb()
        yield _numbered(urls.redis, number)
        client.flushdb()


def migrate(url: str) -> None:
    """Bring the database at `url` to today's schema, as an installation does."""
    upgrade(url)


@contextmanager
def short_home() -> Iterator[Path]:
    """A home for servers: pytest's own folders are closed to the user as whom root's Postgres runs."""
    home = Path(tempfile.mkdtemp(prefix="amux-test-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _servers(home: Path) -> Iterator[Urls]:
    words = (sys.executable, "-m", "tests.servers", str(home))
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True, start_new_session=True
    ) as process:
        out, into = process.stdout, process.stdin
        assert out is not None
        assert into is not None
        line = out.readline()
        assert line, f"the servers did not start; see above, and {home}/logs"
        yield Urls(**json.loads(line))
        into.close()
        process.wait(STOP_SECONDS)


async def _serve(home: Path) -> None:
    named = [Path(path) if (path := os.environ.get(name)) else None for name in ("AMUX_PG_BIN", "AMUX_REDIS_BIN")]
    async with Servers(home, find_binaries(*named)) as servers:
        sys.stdout.write(json.dumps({"postgres": servers.urls.postgres, "redis": servers.urls.redis}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def _administrator(url: str) -> Iterator[psycopg.Connection[TupleRow]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@contextmanager
def _copy(server: str, template: str) -> Iterator[str]:
    name = f"amux_test_{os.getpid()}_{next(_NUMBERS)}"
    with _administrator(server) as admin:
        _create(admin, name, template)
    yield _database_url(server, name)
    with _administrator(server) as admin:
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _create(admin: psycopg.Connection[TupleRow], name: str, template: str) -> None:
    named, source = sql.Identifier(name), sql.Identifier(template)
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(named))
    admin.execute(sql.SQL("create database {} template {}").format(named, source))


def _database_url(server: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def _numbered(server: str, number: int) -> str:
    """The URL of another numbered database of the same Redis."""
    url = urlsplit(server)
    if url.scheme == "unix":
        return f"unix://{url.netloc}{url.path}?db={number}"
    return url._replace(path=f"/{number}").geturl()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
