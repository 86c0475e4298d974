"""The long connection of one app: events come in over it, each handled and then acknowledged; it never dies silently.

It drives the real client's wire parts and replaces its loop, which has no stop and no watchdog. It gives the handler raw
bytes and reads none of them. It de-duplicates nothing: an acknowledgement may be lost, so the same event may come again.
"""

import asyncio
import base64
import json
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from amux.feishu import wire
from amux.feishu.codes import Trouble, link_refused
from amux.feishu.openapi import is_loopback

log = structlog.get_logger()

Handle = Callable[[bytes], Awaitable[Mapping[str, Any] | None]]
T = TypeVar("T")

MAX_FRAME = 32 << 20  # bytes; at the library's own 1 MiB the connection dropped with the event


class Link(StrEnum):
    """How the connection stands. `up` means open and heard; an open socket alone is not health."""

    connecting = "connecting"
    up = "up"
    down = "down"
    stopped = "stopped"


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one app's connection. Times are seconds since 1970, None: not yet. `last_error` stays after it."""

    app: str
    link: Link
    since: float
    last_inbound: float | None = None
    last_pong: float | None = None
    reconnects: int = 0
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Feishu waits 3 s for an acknowledgement; the rest is ours to choose."""

    acknowledge: float = 2.5
    connect: float = 15  # for the endpoint and for the handshake, each
    ping: float = 30  # at most between two pings; Feishu may ask for a shorter time, and says 120 by default
    silence: float = 10  # after a ping, before the peer counts as mute
    retry_first: float = 0.5
    retry_longest: float = 30
    retry_refused: float = 60  # where a person has to mend something
    steady: float = 10  # so long up, and the next failure is the first again


class _Stopped(Exception):
    pass


class _Mute(Exception):
    pass


class LongConnection:
    """`run` holds the connection until `stop`. `handle` may be called for several events at once, and again for one
    that it had before; what it returns answers a click. When it raises or is late, Feishu is asked to send again."""

    def __init__(
        self,
        *,
        app: str,
        secret: str,
        domain: str,
        handle: Handle,
        timing: Timing = Timing(),
        watch: Callable[[Health], None] = lambda _: None,
    ) -> None:
        self.health = Health(app, Link.connecting, time.time())
        self._app, self._secret, self._domain = app, secret, domain
        self._handle = handle
        self._timing = timing
        self._watch = watch
        self._stopping = asyncio.Event()
        self._heard = asyncio.Event()
        self._late: set[asyncio.Future[Mapping[str, Any] | None]] = set()

    def stop(self) -> None:
        """Take no more; what is being handled is still acknowledged, then `run` returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Connect, and again whenever it is lost, whatever the reason. Returns only after `stop`; raises nothing."""
        try:
            module = await self._unless_stopped(wire.load())
            parts = wire.Wire(module, app=self._app, secret=self._secret, domain=self._domain)
            try:
                await self._keep(parts)
            finally:
                parts.close()
        except _Stopped:
            pass
        finally:
            self._is(Link.stopped)

    async def _keep(self, parts: wire.Wire) -> None:
        failures = 0
        while True:
            try:
                await self._hold(parts)
            except _Stopped:
                raise
            except Exception as e:  # noqa: BLE001 (no error is final: a bot that is deaf looks alive)
                was = self.health
                steady = was.link is Link.up and time.time() - was.since > self._timing.steady
                failures = 0 if steady else failures
                await self._rest(self._trouble(e, parts), failures)
            failures += 1

    async def _rest(self, trouble: Trouble, failures: int) -> None:
        """Say what went wrong and wait: longer each time, and longest where only a person can mend it."""
        longest = self._timing.retry_refused if trouble.mendable else self._timing.retry_longest
        seconds = min(longest, self._timing.retry_first * 2 ** min(failures, 16))
        self._is(Link.down, last_error=trouble.words, reconnects=self.health.reconnects + 1)
        await self._unless_stopped(asyncio.sleep(random.uniform(0.5, 1) * seconds))
        self._is(Link.connecting)

    async def _hold(self, parts: wire.Wire) -> None:
        """One connection, from the endpoint to its end. Raises what ended it.

        What is being handled is finished first, so that a click on a lost connection is stored all the same."""
        socket, service = await self._unless_stopped(self._connect(parts))
        try:
            async with asyncio.TaskGroup() as frames:
                both = (self._receive(socket, parts, frames), self._ping(socket, parts, service))
                ended = await self._first_error(*map(asyncio.ensure_future, both))
            raise ended
        finally:
            await _close(socket)

    async def _connect(self, parts: wire.Wire) -> tuple[ClientConnection, int]:
        async with asyncio.timeout(self._timing.connect):
            url = await parts.endpoint()
        service = int(parse_qs(urlsplit(url).query)["service_id"][0])
        socket = await connect(
            url,
            proxy=None if is_loopback(url) else True,
            open_timeout=self._timing.connect,
            ping_interval=None,  # its pings prove that a gateway lives, not that it still speaks Feishu's protocol
            close_timeout=1,
            max_size=MAX_FRAME,
        )
        return socket, service

    async def _first_error(self, *tasks: asyncio.Task[None]) -> Exception:
        """What ended the first of these, or _Stopped; the others are ended with it."""
        try:
            done, _ = await self._unless_stopped(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
            return next(e for task in done if isinstance(e := task.exception(), Exception))
        except _Stopped as e:
            return e
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self, socket: ClientConnection, parts: wire.Wire, frames: asyncio.TaskGroup) -> None:
        while True:
            message = await socket.recv()
            due = asyncio.get_running_loop().time() + self._timing.acknowledge
            self._heard.set()
            self.health = replace(self.health, last_inbound=time.time())
            if self.health.link is not Link.up:
                self._is(Link.up)
            if isinstance(message, bytes):
                frames.create_task(self._frame(socket, parts, message, due))

    async def _ping(self, socket: ClientConnection, parts: wire.Wire, service: int) -> None:
        """Ping and listen. Raises _Mute when nothing at all has come after a ping."""
        while True:
            self._heard.clear()
            try:
                async with asyncio.timeout(self._timing.silence):
                    await socket.send(parts.ping(service))
                    await self._heard.wait()
            except TimeoutError:
                raise _Mute from None
            await asyncio.sleep(min(parts.ping_seconds or self._timing.ping, self._timing.ping))

    async def _frame(self, socket: ClientConnection, parts: wire.Wire, message: bytes, due: float) -> None:
        """One frame, whatever it holds. Raises nothing: a poisoned one must not end the connection."""
        try:
            part = parts.read(message)
            if part.pong:
                self.health = replace(self.health, last_pong=time.time())
            if part.payload is not None:
                verdict, took_ms = await self._verdict(part.payload, due)
                await socket.send(parts.acknowledgement(part, verdict, took_ms=took_ms))
        except ConnectionClosed:
            log.info("feishu_not_acknowledged", app=self._app)
        except Exception:
            log.exception("feishu_frame_unreadable", app=self._app, size=len(message))

    async def _verdict(self, payload: bytes, due: float) -> tuple[dict[str, Any], int | None]:
        """Handle it, then say 200 (stored, with the answer to a click) or 500 (send it again); and the time it took."""
        began = time.monotonic()
        try:
            answer = await self._handled(payload, due)
        except TimeoutError:
            log.warning("feishu_handled_late", app=self._app, seconds=round(time.monotonic() - began, 3))
            return {"code": 500}, None
        except Exception:
            log.warning("feishu_not_stored", app=self._app, exc_info=True)
            return {"code": 500}, None
        took_ms = round((time.monotonic() - began) * 1000)
        if answer is None:
            return {"code": 200}, took_ms
        data = json.dumps(answer, ensure_ascii=False).encode()
        return {"code": 200, "data": base64.b64encode(data).decode()}, took_ms

    async def _handled(self, payload: bytes, due: float) -> Mapping[str, Any] | None:
        """What the handler returns or raises; TimeoutError when it is due, even if it cannot be called back (H37)."""
        work = asyncio.ensure_future(self._handle(payload))
        try:
            await asyncio.wait([work], timeout=due - asyncio.get_running_loop().time())
            if work.done():
                return work.result()
            raise TimeoutError
        finally:
            if not work.done():
                work.cancel()
                self._late.add(work)
                work.add_done_callback(self._forget)

    def _forget(self, work: asyncio.Future[Mapping[str, Any] | None]) -> None:
        self._late.discard(work)
        if not work.cancelled() and (why := work.exception()):
            log.info("feishu_late_failed", app=self._app, why=type(why).__name__)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer of `work`; it is given up, and _Stopped raised, as soon as `stop` is called."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _Stopped
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    def _is(self, link: Link, **changes: Any) -> None:
        self.health = replace(self.health, link=link, since=time.time(), **changes)
        if link is Link.down:
            log.warning("feishu_link_down", app=self._app, why=self.health.last_error)
        else:
            log.info("feishu_link", app=self._app, link=link.value)
        self._watch(self.health)

    def _trouble(self, error: Exception, parts: wire.Wire) -> Trouble:
        match error:
            case _Mute():
                return Trouble(f"Feishu was silent for {self._timing.silence:g} s after a ping.")
            case ConnectionClosed():
                return Trouble(f"The connection was closed (code {error.rcvd.code if error.rcvd else 1006}).")
            case InvalidStatus():
                headers = error.response.headers
                code = headers.get("handshake-autherrcode") or headers.get("handshake-status") or "0"
                return link_refused(int(code), f"HTTP {error.response.status_code}")
            case TimeoutError():
                return Trouble(f"Feishu did not answer within {self._timing.connect:g} s.")
            case OSError():  # those of requests are among them
                return Trouble("Feishu cannot be reached: check the network, a proxy, and AMUX_FEISHU_DOMAIN.")
        if refused := parts.refusal(error):
            return refused
        log.error("feishu_link_failed", app=self._app, exc_info=error)
        return Trouble(f"Unexpected: {type(error).__name__}; the log has it.")


async def _close(socket: ClientConnection) -> None:
    """Say goodbye, but do not wait for one: a mute peer would hold us for a second."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await socket.close()
    socket.transport.abort()
