"""The wire that a drill cuts: late is not never, and never is not refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from ops.drills.wire import Wire, wire

DEADLINE = 10.0
T = TypeVar("T")


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(DEADLINE):
        return await what


@dataclass(slots=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, path: Path) -> "Client":
        return cls(*await soon(asyncio.open_unix_connection(str(path))))

    def say(self, word: bytes) -> None:
        self.writer.write(word + b"\n")

    async def hear(self) -> bytes:
        return (await soon(self.reader.readline())).strip()


@dataclass(slots=True)
class Line:
    """A server that repeats every word, directly and by the wire."""

    wire: Wire
    path: Path
    server: Path
    heard: list[bytes] = field(default_factory=list)

    async def pass_by(self) -> None:
        """Something is said directly and answered; what got through before is heard by then."""
        for _ in range(3):
            direct = await Client.to(self.server)
            direct.say(b"direct")
            assert await direct.hear() == b"direct"
            direct.writer.close()


@pytest.fixture
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    heard: list[bytes] = []

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.readline():
            heard.append(word.strip())
            writer.write(word)
        writer.close()

    path = tmp_path_factory.mktemp("w") / "s"
    server = await asyncio.start_unix_server(repeat, str(path))
    with wire(path) as (one, by):
        yield Line(one, by, path, heard)
    server.close()


async def test_it_carries(line: Line) -> None:
    client = await Client.to(line.path)
    client.say(b"hello")
    assert await client.hear() == b"hello"


async def test_what_was_said_while_it_was_cut_comes_late(line: Line) -> None:
    client = await Client.to(line.path)
    client.say(b"first")
    assert await client.hear() == b"first"
    line.wire.cut()
    client.say(b"late")
    newcomer = await Client.to(line.path)  # taken, and not refused
    newcomer.say(b"later")
    await line.pass_by()
    assert not {b"late", b"later"} & set(line.heard)
    line.wire.mend()
    assert await client.hear() == b"late"
    assert await newcomer.hear() == b"later"


async def test_what_was_said_before_it_was_severed_never_comes(line: Line) -> None:
    client = await Client.to(line.path)
    client.say(b"first")
    assert await client.hear() == b"first"
    line.wire.cut()
    client.say(b"never")
    await line.pass_by()
    line.wire.sever()
    assert await soon(client.reader.read()) == b""
    again = await Client.to(line.path)
    again.say(b"again")
    assert await again.hear() == b"again"
    assert b"never" not in line.heard


async def test_a_server_that_is_away_ends_the_connection(tmp_path_factory: pytest.TempPathFactory) -> None:
    with wire(tmp_path_factory.mktemp("w") / "nobody") as (_, by):
        client = await Client.to(by)
        assert await soon(client.reader.read()) == b""
