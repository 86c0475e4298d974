"""A proxy before Postgres or Redis, which can swallow an answer, answer by itself, or be away."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict


class Proxy:
    """Passes bytes on. `swallow` answers are read from the server and never given on: the client's connection breaks
    instead, after the server has done its work. While `away` it accepts nobody."""

    def __init__(self, server: Path | tuple[str, int]) -> None:
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow = 0
        self.away = False
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.close()
            return
        self.connections += 1
        if isinstance(self._server, Path):
            from_server, to_server = await asyncio.open_unix_connection(str(self._server))
        else:
            from_server, to_server = await asyncio.open_connection(*self._server)
        self._writers |= {writer, to_server}
        tasks = [
            asyncio.create_task(self._pump(reader, to_server)),
            asyncio.create_task(self._pump(from_server, writer, answers=True)),
        ]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, to_server):
            one.close()
            self._writers.discard(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers and self.swallow:
                    self.swallow -= 1
                    return
                writer.write(data)
                await writer.drain()

    def cut(self) -> None:
        """Every connection breaks now."""
        for writer in tuple(self._writers):
            writer.close()

    def go_away(self) -> None:
        """Nobody answers any more."""
        self.away = True
        self.cut()


@asynccontextmanager
async def postgres_proxy(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy and the URL by which Postgres is reached through it."""
    known = conninfo_to_dict(url)
    host, port = str(known.get("host") or "localhost"), int(known.get("port") or 5432)
    server = Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port)
    async with _listening(Proxy(server), ".s.PGSQL.5432") as (proxy, path):
        split = urlsplit(url)
        query = {**dict(parse_qsl(split.query)), "host": str(path.parent), "port": "5432"}
        user = f"{split.netloc.rpartition('@')[0]}@" if "@" in split.netloc else ""
        yield proxy, f"postgresql://{user}{split.path}?{urlencode(query)}"


@asynccontextmanager
async def redis_proxy(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy and the URL by which Redis is reached through it."""
    split = urlsplit(url)
    unix = split.scheme == "unix"
    server = Path(split.path) if unix else (split.hostname or "localhost", split.port or 6379)
    async with _listening(Proxy(server), "redis.sock") as (proxy, path):
        number = dict(parse_qsl(split.query)).get("db", "0") if unix else split.path.strip("/") or "0"
        yield proxy, f"unix://{path}?db={number}"


@asynccontextmanager
async def _listening(proxy: Proxy, name: str) -> AsyncIterator[tuple[Proxy, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="amux-proxy-"))
    server = await asyncio.start_unix_server(proxy.serve, str(folder / name))
    try:
        yield proxy, folder / name
    finally:
        server.close()
        proxy.cut()
        shutil.rmtree(folder, ignore_errors=True)
