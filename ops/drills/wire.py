"""A wire to a server on this machine, which a drill can cut and mend.

While it is cut, what was sent waits, as packets do on a line that may come back; new connections are taken and hear
nothing. Mended, it carries on all that waited, late as it is; or, severed, drops it and every connection with it."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PIECE = 65536  # bytes


class Wire:
    """All connections to one unix socket."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._whole = asyncio.Event()
        self._whole.set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._whole.clear()

    def mend(self) -> None:
        """What waited goes through, and what is sent from now on."""
        self._whole.set()

    def sever(self) -> None:
        """What waited is gone, with its connections; new ones get through."""
        for task in tuple(self._carrying):
            task.cancel()
        self.mend()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        carrying = asyncio.create_task(self._carry(reader, writer), name="wire")
        self._carrying.add(carrying)
        try:
            await asyncio.wait([carrying])
        finally:
            carrying.cancel()
            self._carrying.discard(carrying)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        with suppress(OSError):
            from_server, to_server = await asyncio.open_unix_connection(str(self._server))
            ways = [
                asyncio.create_task(self._pump(reader, to_server)),
                asyncio.create_task(self._pump(from_server, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                to_server.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def wire(server: Path) -> AsyncIterator[tuple[Wire, Path]]:
    """A wire to that socket, and the socket by which it is used: of the same name, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="amux-wire-", dir="/tmp"))
    one = Wire(server)
    listening = await asyncio.start_unix_server(one.serve, str(folder / server.name))
    try:
        yield one, folder / server.name
    finally:
        listening.close()
        one.sever()
        shutil.rmtree(folder, ignore_errors=True)
