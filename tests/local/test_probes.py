"""Probes ask real listeners, and a port that is taken is told in one line."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from amux.core.errors import Refused
from amux.local import probes
from amux.local.probes import free_or_refuse, http_answers, postgres_answers, redis_answers

pytestmark = pytest.mark.real


@asynccontextmanager
async def answering(path: Path, words: bytes) -> AsyncIterator[None]:
    """A listener at a unix socket that says `words` to everybody, and no more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        yield


async def test_nobody_there_is_not_ready(tmp_path: Path) -> None:
    assert await redis_answers(tmp_path / "none")() is False
    assert await postgres_answers(tmp_path / "none", user="amux", database="postgres")() is False
    assert await http_answers("http://127.0.0.1:1/healthcheck")() is False


@pytest.mark.parametrize(
    ("words", "ready"),
    [(b"+PONG\r\n", True), (b"-LOADING Redis is loading the dataset in memory\r\n", False), (b"", False)],
)
async def test_redis_is_ready_when_it_has_loaded(
    tmp_path: Path,
    words: bytes,
    ready: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.2)
    async with answering(tmp_path / "sock", words):
        assert await redis_answers(tmp_path / "sock")() is ready


async def test_postgres_that_is_starting_up_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.2)
    async with answering(tmp_path / "sock", b"E\0\0\0\x1aSFATAL\0C57P03\0Mstarting\0\0"):
        assert await postgres_answers(tmp_path / "sock", user="amux", database="postgres")() is False


@pytest.mark.parametrize(("status", "ready"), [("200 OK", True), ("204 No Content", True), ("503 Busy", False)])
async def test_http_is_ready_by_its_status(status: str, ready: bool) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await http_answers(f"http://127.0.0.1:{port}/healthcheck?x=1")() is ready
    assert asked == [b"GET /healthcheck?x=1 HTTP/1.0\r\n"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_refused_by_number(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused) as told:
            free_or_refuse(port, host=host, remedy="set AMUX_WEB_PORT to another one")
    assert str(told.value) == f"port {port} on {host} is in use; set AMUX_WEB_PORT to another one."
    assert free_or_refuse(port, host=host, remedy="-") == port


def test_a_port_that_cannot_be_had_says_why() -> None:
    with pytest.raises(Refused, match=r"^port 65536 on 127\.0\.0\.1 is not to be had \(.*must be 0-65535.*\); x\.$"):
        free_or_refuse(65536, host="127.0.0.1", remedy="x")
    with pytest.raises(
        Refused, match=r"^port 8420 on 192\.0\.2\.1 is not to be had \(Cannot assign requested address\)"
    ):
        free_or_refuse(8420, host="192.0.2.1", remedy="x")
