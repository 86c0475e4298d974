"""A wire to a server on this machine, which a drill can cut and mend.

While it is cut, what was sent waits, as packets do on a line that may come back; new connections are taken and hear
nothing. Mended, it carries on all that waited, late as it is; or, severed, drops it and every connection with it. It
works in a thread of its own: a drill that counts for seconds must cut nobody off by that."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PIECE = 65536  # bytes


class Wire:
    """All connections to one unix socket. `cut`, `mend` and `sever` hold when they return."""

    def __init__(self, server: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self._whole = asyncio.Event()
        self._whole.set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._there(self._whole.clear)

    def mend(self) -> None:
        """What waited goes through, and what is sent from now on."""
        self._there(self._whole.set)

    def sever(self) -> None:
        """What waited is gone, with its connections; new ones get through."""
        self._there(self._drop)
        self.mend()

    def _drop(self) -> None:
        for task in tuple(self._carrying):
            task.cancel()

    def _there(self, act: Callable[[], None]) -> None:
        async def done() -> None:
            act()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result()

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


@contextmanager
def wire(server: Path) -> Iterator[tuple[Wire, Path]]:
    """A wire to that socket, and the socket by which it is used: of the same name, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="amux-wire-", dir="/tmp"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="wire", daemon=True)
    thread.start()
    one = Wire(server, loop)
    listening = asyncio.start_unix_server(one.serve, str(folder / server.name))
    served = asyncio.run_coroutine_threadsafe(listening, loop).result()
    try:
        yield one, folder / server.name
    finally:
        loop.call_soon_threadsafe(served.close)
        one.sever()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        shutil.rmtree(folder, ignore_errors=True)
