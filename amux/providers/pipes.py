"""An agent's three pipes, served from the event loop: lines out, lines in, and the last words on stderr.

They are always read, however slow the consumer is, so that no agent stalls on a full pipe (H33); what is kept is bounded.
Nothing here knows what a line means, and nothing that was read is logged."""

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from amux.core.errors import Unavailable, Uncertain

CHUNK = 256 * 1024
LAST_WORDS_BYTES = 16 * 1024
ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)

Line = dict[str, Any]


def plain(text: str) -> str:
    """Without ANSI sequences and control characters; line breaks and tabs stay."""
    return ESCAPES.sub("", text)


def decode(raw: bytes) -> Line | None:
    """One object, or None. What is nearly UTF-8 is read all the same; a lone surrogate becomes a question mark."""
    try:
        line = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        line = _decode_leniently(raw)
    return line if isinstance(line, dict) else None


def _decode_leniently(raw: bytes) -> object:
    try:
        loose = json.dumps(json.loads(raw.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(loose.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


class Reader:
    """Reads one pipe for as long as it is open, and hands every chunk on."""

    def __init__(self, fd: int, take: Callable[[bytes], None], finished: Callable[[], None]) -> None:
        self._fd, self._take, self._finished = fd, take, finished
        self._loop = asyncio.get_running_loop()
        self._open = True
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if chunk:
            self._take(chunk)
        else:
            self.close()
        return bool(chunk)

    def drain(self) -> None:
        """Take what is left in the pipe of a tree that is dead, then close."""
        while self._open and self._read():
            pass
        self.close()

    def close(self) -> None:
        """Read no more. The descriptor stays its owner's to close."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)
            self._finished()


class Lines:
    """Bytes in, whole lines out. Keeps at most `unread_bytes` of lines that nobody took, but always one line.

    Past a bound it tells `overflow` why, once, and drops what comes from then on."""

    def __init__(self, *, line_bytes: int, unread_bytes: int, overflow: Callable[[str], None]) -> None:
        self._line_bytes, self._unread_bytes, self._overflow = line_bytes, unread_bytes, overflow
        self._begun = bytearray()
        self._whole: deque[bytes] = deque()
        self._unread = 0
        self._more = asyncio.Event()
        self._over = False

    def take(self, chunk: bytes) -> None:
        """Add what was read."""
        if self._over:
            return
        first, *rest = chunk.split(b"\n")
        self._begun += first
        for part in rest:
            self._add(bytes(self._begun))
            self._begun = bytearray(part)
        if len(self._begun) > self._line_bytes:
            self._stop(f"wrote a line of more than {self._line_bytes} bytes")

    def _add(self, line: bytes) -> None:
        if len(line) > self._line_bytes:
            self._stop(f"wrote a line of more than {self._line_bytes} bytes")
        elif self._whole and self._unread + len(line) > self._unread_bytes:
            self._stop(f"wrote {self._unread_bytes} bytes faster than they could be taken")
        elif line.strip() and not self._over:
            self._whole.append(line)
            self._unread += len(line)
            self._more.set()

    def _stop(self, why: str) -> None:
        if not self._over:
            self.finish()
            self._begun.clear()
            self._overflow(why)

    def finish(self) -> None:
        """Nothing more comes; a line without its end is dropped."""
        self._over = True
        self._more.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Every line, without its break; ends when the pipe has. For one consumer at a time."""
        while True:
            while self._whole:
                line = self._whole.popleft()
                self._unread -= len(line)
                yield line
            if self._over:
                return
            self._more.clear()
            await self._more.wait()


class LastWords:
    """The last lines that an agent wrote on stderr, made plain. They may quote anything: show them, never log them."""

    def __init__(self, lines: int) -> None:
        self._lines, self._tail = lines, b""

    def take(self, chunk: bytes) -> None:
        """Add what was read; all but the newest is forgotten."""
        self._tail = (self._tail + chunk)[-LAST_WORDS_BYTES:]

    def lines(self) -> list[str]:
        """Oldest first, none of them empty."""
        text = plain(self._tail.decode("utf-8", "replace").replace("\r", "\n"))
        return [line.strip() for line in text.splitlines() if line.strip()][-self._lines :]


@dataclass(slots=True, eq=False)
class _Written:
    rest: memoryview
    done: asyncio.Future[None]
    begun: bool = False


class Writer:
    """Writes to one pipe, in order, and knows whether any of it may have arrived."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self._name = fd, name
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Written] = deque()
        self._open = True
        os.set_blocking(fd, False)

    async def write(self, data: bytes) -> None:
        """Return when the pipe has taken all of it, which does not say that anyone read it.

        Raises Unavailable when nothing of it was written, Uncertain when some of it was. Cancelled, it is forgotten
        if nothing was written yet and else goes out whole: the next write never follows half a line."""
        if not self._open:
            raise Unavailable(f"{self._name} has ended; nothing was sent to it.")
        one = _Written(memoryview(data), self._loop.create_future())
        self._waiting.append(one)
        if len(self._waiting) == 1:
            self._flush()
        try:
            await one.done
        except asyncio.CancelledError:
            if not one.begun and one in self._waiting:
                self._waiting.remove(one)
            raise

    def _flush(self) -> None:
        while self._waiting:
            one = self._waiting[0]
            try:
                count = os.write(self._fd, one.rest)
            except BlockingIOError:
                self._loop.add_writer(self._fd, self._flush)
                return
            except OSError:
                self.close()
                return
            one.begun, one.rest = True, one.rest[count:]
            if not one.rest:
                self._waiting.popleft()
                _settle(one.done, None)
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Write no more and fail what waits. The descriptor stays its owner's to close."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_writer(self._fd)
        while self._waiting:
            one = self._waiting.popleft()
            begun = f"{self._name} ended while it was written to; it may have taken it."
            _settle(one.done, Uncertain(begun) if one.begun else Unavailable(f"{self._name} ended; nothing was sent."))


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # its writer was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
