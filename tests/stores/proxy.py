"""A proxy before Postgres or Redis, which can swallow an answer, stand still, or be away."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict


class Proxy:
    """Passes bytes on. While `away` it accepts nobody."""

    def __init__(self, server: Path | tuple[str, int], done: Callable[[bytes], bool]) -> None:
        self._server, self._done = server, done
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallow = 0
        self._spare = 0
        self._moves = asyncio.Event()
        self._moves.set()
        self.away = False

    def freeze(self) -> None:
        """The server stands still, as under SIGSTOP: whatever is sent to it is taken, and not answered until `thaw`."""
        self._moves.clear()

    def thaw(self) -> None:
        """It goes on with all that was sent meanwhile."""
        self._moves.set()

    def swallow(self, answers: int = 1, *, after: int = 0) -> None:
        """So many answers are read from the server and never given on, the first `after` excepted: the client's
        connection breaks instead, once the server has done its work."""
        self._swallow, self._spare = answers, after

    def _swallows(self, answer: bytes) -> bool:
        if not (self._swallow and self._done(answer)):
            return False
        if self._spare:
            self._spare -= 1
            return False
        self._swallow -= 1
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.close()
            return
        await self._moves.wait()
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
                if answers and self._swallows(data):
                    return
                await self._moves.wait()
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


def _executed(answer: bytes) -> bool:
    """Whether Postgres has executed something here: not merely greeted or prepared. Answers in tests come in one piece."""
    at = 0
    while at + 5 <= len(answer):
        if answer[at : at + 1] == b"C":  # CommandComplete
            return True
        at += 1 + int.from_bytes(answer[at + 1 : at + 5], "big")
    return False


@asynccontextmanager
async def postgres_proxy(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy and the URL by which Postgres is reached through it."""
    known = conninfo_to_dict(url)
    host, port = str(known.get("host") or "localhost"), int(known.get("port") or 5432)
    server = Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port)
    async with _listening(Proxy(server, _executed), ".s.PGSQL.5432") as (proxy, path):
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
    async with _listening(Proxy(server, bool), "redis.sock") as (proxy, path):
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
