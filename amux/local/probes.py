"""Questions that tell whether a service is ready, and whether a port is free. They never raise: not yet is False."""

import asyncio
import errno
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from amux.core.errors import Refused
from amux.local.restarter import Probe

ANSWER_SECONDS = 2.0
POSTGRES_PROTOCOL = 3 << 16
READY_FOR_QUERY = b"Z\0\0\0\x05I"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def postgres_answers(path: Path, *, user: str, database: str) -> Probe:
    """Ready when the server at the unix socket `path`, which trusts us, has taken a connection up to its first query.

    In bytes and not by psycopg, whose import takes longer than the start of the server."""
    words = f"user\0{user}\0database\0{database}\0\0".encode()
    hello = struct.pack("!ii", 8 + len(words), POSTGRES_PROTOCOL) + words

    async def ready(reader: asyncio.StreamReader) -> bool:
        return bool(await reader.readuntil(READY_FOR_QUERY))

    return lambda: _asked(lambda: asyncio.open_unix_connection(path), hello, ready)


def redis_answers(path: Path) -> Probe:
    """Ready when the server at the unix socket `path` has loaded its data and answers PING."""

    async def ready(reader: asyncio.StreamReader) -> bool:
        return await reader.readline() == b"+PONG\r\n"

    return lambda: _asked(lambda: asyncio.open_unix_connection(path), b"PING\r\n", ready)


def http_answers(url: str) -> Probe:
    """Ready when `url` (http only) answers with a status of 2xx."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    request = f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode()

    async def ready(reader: asyncio.StreamReader) -> bool:
        return re.match(rb"HTTP/1\.\d 2\d\d", await reader.readline()) is not None

    return lambda: _asked(lambda: asyncio.open_connection(parts.hostname, parts.port or 80), request, ready)


async def _asked(
    connect: Callable[[], Awaitable[Streams]], request: bytes, ready: Callable[[asyncio.StreamReader], Awaitable[bool]]
) -> bool:
    with suppress(OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError):  # no right answer: not yet
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await connect()
            try:
                writer.write(request)
                return await ready(reader)
            finally:
                writer.close()
    return False


def free_or_refuse(port: int, *, host: str, remedy: str) -> int:
    """`port`, when a server of ours may listen there (0: any). Raises Refused with `remedy` when not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closing connections do not count
        try:
            tried.bind((host, port))
        except (OSError, OverflowError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "in use" if in_use else f"not to be had ({getattr(error, 'strerror', None) or error})"
            raise Refused(f"port {port} on {host} is {why}; {remedy}.") from error
    return port
