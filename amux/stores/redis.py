"""This process' connections to Redis: whatever is asked at once goes in one pipeline, and a subscription comes back by
itself. It knows no key but `born`, and remembers nothing: all of Redis may be gone at any moment.

Replies are read straight from redis-py's connection: its own pipeline costs 35 us a command more, which is a fifth of
what a whole Turn may cost (H20)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any

import hiredis
import structlog
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from amux.core.errors import Broken, Unavailable
from amux.stores.batch import Batch

log = structlog.stdlib.get_logger()
SECONDS = 3.0  # for one pipeline
PING_SECONDS = 10.0  # of silence on a subscription
LONGEST_WAIT = 1.0  # seconds between two attempts to subscribe
AWAY = (RedisError, OSError, TimeoutError)
FULL = ("OOM", "READONLY", "MISCONF", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY")

# Every script begins by noting when Redis was first seen empty. A clock that was put back counts as a new birth (H7).
BORN = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local born = tonumber(redis.call('GET', KEYS[1]))
if not born or born > now then born = now redis.call('SET', KEYS[1], string.format('%.0f', now)) end
"""
Part = str | int | bytes
Answer = Any  # what Redis replied


class Script:
    """A Lua script of ours. `KEYS[1]` is `born` in all of them."""

    def __init__(self, text: str) -> None:
        self.text = BORN + text
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def load(self, parts: Sequence[Part]) -> bytes:
        """The same call for a Redis that does not know the script yet."""
        return packed("EVAL", self.text, *parts)

    def call(self, parts: Sequence[Part]) -> bytes:
        """The call by the script's digest."""
        return packed("EVALSHA", self.digest, *parts)


class Redis:
    """The connections of one process: one for calls, one for news to readers, and its subscriptions."""

    def __init__(self, url: str) -> None:
        self._pool = ConnectionPool.from_url(
            url, protocol=2, socket_timeout=None, socket_connect_timeout=SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._calls, self._news = Line(self._connection()), Line(self._connection())
        # all databases of a server share their channels
        number = self._pool.connection_kwargs.get("db") or 0
        self.channels = f"{number}:" if number else ""

    async def run(self, script: Script, keys: Sequence[str], *arguments: Part) -> Answer:
        """What the script answers. Raises Unavailable when Redis is away or full, Broken when the script is wrong."""
        parts = (len(keys) + 1, "born", *keys, *arguments)
        try:
            return await self._calls.ask(script.call(parts))
        except NoScriptError:  # Redis was emptied or restarted
            return await self._answer(script.load(parts))
        except ResponseError as refusal:
            raise _judged(refusal) from refusal

    async def command(self, *parts: Part) -> Answer:
        """What one plain command answers; raises as `run` does."""
        return await self._answer(packed(*parts))

    async def _answer(self, call: bytes) -> Answer:
        try:
            return await self._calls.ask(call)
        except ResponseError as refusal:
            raise _judged(refusal) from refusal

    def publish(self, channel: str, message: str) -> "asyncio.Future[Answer]":
        """Tell readers, on a connection of its own, so that it delays no call. Whether it worked is in the future."""
        return self._news.ask(packed("PUBLISH", self.channels + channel, message))

    def subscription(self, heard: Callable[[str, bytes], None], listening: Callable[[str], None]) -> "Subscription":
        """A connection that listens; see Subscription."""
        return Subscription(self._connection(), self.channels, heard, listening)

    async def close(self) -> None:
        """Let go of the connections for calls and news."""
        await self._calls.close()
        await self._news.close()

    def _connection(self) -> AbstractConnection:
        made: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return made


class Line:
    """One connection that carries pipelines, one after the other."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._batch: Batch[bytes, Answer] = Batch(self._flush)
        self.ask = self._batch.ask

    async def close(self) -> None:
        """Drop the connection; the next call opens it again."""
        await self._connection.disconnect(nowait=True)

    async def _flush(self, commands: list[bytes]) -> Sequence[Answer]:
        """Each reply, its own error included. Tried twice, since an idle connection may have died meanwhile; what was done
        twice so is a post or a wake, and both may be doubled."""
        pipeline = b"".join(commands)
        for last in (False, True):
            try:
                async with asyncio.timeout(SECONDS):
                    if not self._connection.is_connected:
                        await self._connection.connect()  # type: ignore[no-untyped-call]
                    await self._connection.send_packed_command(pipeline, check_health=False)
                    return [await self._reply() for _ in commands]
            except AWAY as why:
                await self._connection.disconnect(nowait=True)
                if last or isinstance(why, TimeoutError):
                    raise Unavailable("Redis does not answer; see `amux doctor`.") from why
            except BaseException:  # cancelled: replies are under way that nobody will read
                await self._connection.disconnect(nowait=True)
                raise
        raise AssertionError  # the second attempt returns or raises

    async def _reply(self) -> Answer:
        try:
            return await self._connection.read_response()
        except ResponseError as refusal:
            return refusal


class Subscription:
    """Listens to channels for ever, over any outage. `heard` takes each message, `listening` each channel whenever it
    begins to be heard: what came before was missed, and whoever cares must look for itself."""

    def __init__(
        self,
        connection: AbstractConnection,
        prefix: str,
        heard: Callable[[str, bytes], None],
        listening: Callable[[str], None],
    ) -> None:
        self._connection, self._prefix, self._heard, self._listening = connection, prefix, heard, listening
        self._wanted: set[str] = set()
        self._changed = asyncio.Event()
        self._heard_at = 0.0  # by the loop's clock
        self._task: asyncio.Task[None] | None = None

    def listen(self, channel: str) -> None:
        """Listen to this one too, from some moment on; needs the running loop."""
        if channel not in self._wanted:
            self._wanted.add(channel)
            self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="subscription")

    def leave(self, channel: str) -> None:
        """Not any more."""
        self._wanted.discard(channel)
        self._changed.set()

    async def close(self) -> None:
        """End it for good."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        wait = 0.0
        while True:
            await asyncio.sleep(wait)
            try:
                await self._connection.connect()  # type: ignore[no-untyped-call]
                wait = 0.0
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._ask())
                    tasks.create_task(self._hear())
            except* Exception as why:  # noqa: BLE001 - whatever it was: a listener that ended would never be missed
                log.warning("subscription_lost", why=type(why.exceptions[0]).__name__)
            finally:
                await self._connection.disconnect(nowait=True)
            wait = min(wait * 2 or 0.05, LONGEST_WAIT)

    async def _ask(self) -> None:
        """Keep Redis' list of our channels up to date, and the connection from falling asleep unnoticed."""
        loop, asked = asyncio.get_running_loop(), set[str]()
        self._heard_at = pinged = loop.time()
        while loop.time() < self._heard_at + 2 * PING_SECONDS:
            self._changed.clear()
            wanted = set(self._wanted)
            for word, channels in (("SUBSCRIBE", wanted - asked), ("UNSUBSCRIBE", asked - wanted)):
                if channels:
                    names = [self._prefix + channel for channel in sorted(channels)]
                    await self._connection.send_command(word, *names, check_health=False)
            asked = wanted
            if loop.time() >= pinged + PING_SECONDS:
                await self._connection.send_command("PING", check_health=False)
                pinged = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(pinged + PING_SECONDS):
                    await self._changed.wait()
        raise TimeoutError("not even a pong")

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            news = await self._connection.read_response()
            self._heard_at = loop.time()
            match news:
                case [b"message", channel, message]:
                    self._heard(channel.decode().removeprefix(self._prefix), message)
                case [b"subscribe", channel, _]:
                    self._listening(channel.decode().removeprefix(self._prefix))
                case _:  # unsubscribed, or a pong
                    pass


def packed(*parts: Part) -> bytes:
    """One command as Redis reads it."""
    command: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]  # its annotation knows tuples of one
    return command


def _judged(refusal: ResponseError) -> Exception:
    if str(refusal).startswith(FULL):
        return Unavailable("Redis takes nothing now; see `amux doctor`.")
    return Broken(f"Redis refused a command: {refusal}")
