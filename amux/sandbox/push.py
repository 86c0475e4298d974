"""How events reach an app: each to one random live connection, acknowledged within the deadline or pushed again by the
schedule; callbacks once, their answer awaited. Keeps the record of every push. Never looks into a payload."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Any

from amux.sandbox import frames
from amux.sandbox.changes import ChangeKind, Changes
from amux.sandbox.faults import Faults, PushFault
from amux.sandbox.frames import Frame
from amux.sandbox.pace import Clock, Pace
from amux.sandbox.records import AppId, ChatId, MessageId


class Outcome(StrEnum):
    """What became of one attempt to push."""

    acknowledged = "acknowledged"
    refused = "refused"
    "answered with another code than 200"
    silent = "silent"
    "not acknowledged within the deadline"
    broken = "broken"
    "the connection went away before the acknowledgement"
    offline = "offline"
    "the app had no connection"


@dataclass(frozen=True, slots=True)
class Attempt:
    at_ms: int
    connection: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Push:
    """One event for one app, and what became of it. `acknowledged_ms` is the first acknowledgement in time; until then
    the app has promised nothing."""

    number: int
    app: AppId
    event_id: str
    event_type: str
    payload: bytes
    chat: ChatId | None = None
    message: MessageId | None = None
    attempts: tuple[Attempt, ...] = ()
    acknowledged_ms: int | None = None


@dataclass(slots=True, eq=False)
class Connection:
    """One live WebSocket of an app. Muted, it swallows all that is sent in either direction and stays open. `send`
    raises ConnectionError when the socket has gone."""

    id: str
    app: AppId
    service: int
    send: Callable[[bytes], Awaitable[None]]
    muted: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: dict[str, asyncio.Future[Frame]] = field(default_factory=dict)


class Courier:
    """The pushing side of the platform. All of it runs on the loop of the server that holds the connections."""

    def __init__(self, clock: Clock, pace: Pace, *, faults: Faults, changes: Changes, rng: random.Random) -> None:
        self._clock, self._pace, self._faults, self._changes, self._rng = clock, pace, faults, changes, rng
        self._pushes: dict[int, Push] = {}
        self._connections: list[Connection] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._held: dict[ChatId, list[int]] = {}
        self._numbers, self._frame_ids = count(1), count(1)

    # -- connections

    def connections(self, app: AppId) -> tuple[Connection, ...]:
        return tuple(c for c in self._connections if c.app == app)

    def attach(self, connection: Connection) -> None:
        self._connections.append(connection)
        self._changes.note(ChangeKind.connected, app=connection.app)

    def detach(self, connection: Connection) -> None:
        """The connection is gone: whatever waited for its acknowledgement has failed."""
        self._connections.remove(connection)
        for future in connection.waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError())
        self._changes.note(ChangeKind.disconnected, app=connection.app)

    def mute(self, app: AppId) -> None:
        """The app's present connections fall silent but stay open: no push, no pong, no acknowledgement taken."""
        for connection in self.connections(app):
            connection.muted.set()

    def drop(self, app: AppId) -> None:
        """Break the app's present connections without a closing frame (1006)."""
        for connection in self.connections(app):
            connection.dropped.set()

    async def receive(self, connection: Connection, frame: Frame) -> None:
        """One frame from an app: a ping, or the acknowledgement of a push."""
        if connection.muted.is_set():
            return
        if frame.method == frames.CONTROL:
            config = json.dumps(self._pace.client_config()).encode()
            pong = Frame(frames.CONTROL, (("type", "pong"),), config, service=frame.service)
            await connection.send(frames.encode(pong))
        elif (future := connection.waiting.get(frame.header("message_id"))) and not future.done():
            future.set_result(frame)

    # -- pushing

    def pushes(self) -> tuple[Push, ...]:
        """Every event for every app so far, in the order in which it happened."""
        return tuple(self._pushes.values())

    def publish(
        self,
        app: AppId,
        event_type: str,
        make: Callable[[str], bytes],
        *,
        chat: ChatId | None = None,
        message: MessageId | None = None,
    ) -> None:
        """Push an event until it is acknowledged or the schedule has run out; returns at once. `make` builds the
        payload of an event id."""
        self._begin(app, event_type, make, chat=chat, message=message)
        if self._faults.push(PushFault.twinned):
            self._begin(app, event_type, make, chat=chat, message=message)

    def _begin(
        self,
        app: AppId,
        event_type: str,
        make: Callable[[str], bytes],
        *,
        chat: ChatId | None,
        message: MessageId | None,
    ) -> None:
        number, event_id = next(self._numbers), uuid.uuid4().hex
        self._pushes[number] = Push(number, app, event_id, event_type, make(event_id), chat, message)
        if chat is not None and chat in self._held:
            self._held[chat].append(number)
        else:
            self._start(number)

    def _start(self, number: int) -> None:
        self._spawn(self._persist(number))
        if self._faults.push(PushFault.doubled):
            self._spawn(self._once(number))

    def reorder(self, chat: ChatId, *, seconds: float) -> None:
        """Hold back what is said in `chat` for so long, then push it in the opposite order."""
        self._held.setdefault(chat, [])
        self._spawn(self._release(chat, seconds))

    def redeliver(self, app: AppId) -> int:
        """Push every event of the app once more, shuffled, with its old event id; answers how many."""
        numbers = [push.number for push in self._pushes.values() if push.app == app]
        self._rng.shuffle(numbers)
        for number in numbers:
            self._spawn(self._once(number))
        return len(numbers)

    async def settled(self, *, seconds: float) -> None:
        """Return when every push is acknowledged or given up. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            while self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def ask(self, app: AppId, payload: bytes) -> tuple[Outcome, bytes | None]:
        """Push a callback once; answers its outcome and, where there is one, the answer's bytes."""
        _, outcome, ack = await self._attempt(app, payload)
        return outcome, _answer(ack)

    async def close(self) -> None:
        """Give up all that is under way and drop all connections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.dropped.set()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, chat: ChatId, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for number in reversed(self._held.pop(chat, [])):
            await self._once(number)
            if self._pushes[number].acknowledged_ms is None:
                self._spawn(self._retry(number))

    async def _persist(self, number: int) -> None:
        if not await self._once(number):
            await self._retry(number)

    async def _retry(self, number: int) -> None:
        for delay in self._pace.retry_seconds:
            await asyncio.sleep(delay * self._pace.scale)
            if await self._once(number):
                return

    async def _once(self, number: int) -> bool:
        """One attempt, noted; answers whether the push is acknowledged."""
        push = self._pushes[number]
        connection, outcome, _ = await self._attempt(push.app, push.payload)
        done = outcome is Outcome.acknowledged
        at_ms = self._clock.now_ms()
        push = self._pushes[number]  # another attempt may have been noted meanwhile
        first = at_ms if done and push.acknowledged_ms is None else push.acknowledged_ms
        attempts = (*push.attempts, Attempt(at_ms, connection, outcome))
        self._pushes[number] = replace(push, attempts=attempts, acknowledged_ms=first)
        kind = ChangeKind.push_acknowledged if done else ChangeKind.push_failed
        self._changes.note(kind, app=push.app, chat=push.chat, message=push.message, reason=outcome)
        return done

    async def _attempt(self, app: AppId, payload: bytes) -> tuple[str, Outcome, Frame | None]:
        live = self.connections(app)
        if not live:
            return "", Outcome.offline, None
        connection, push_id = self._rng.choice(live), str(uuid.uuid4())
        ack = connection.waiting[push_id] = asyncio.get_running_loop().create_future()
        if self._faults.push(PushFault.ack_ignored):
            del connection.waiting[push_id]
        try:
            async with asyncio.timeout(self._pace.ack_seconds):
                if not connection.muted.is_set():
                    await connection.send(frames.encode(self._frame(connection, push_id, payload)))
                frame = await ack
        except TimeoutError:
            return connection.id, Outcome.silent, None
        except ConnectionError:
            return connection.id, Outcome.broken, None
        finally:
            connection.waiting.pop(push_id, None)
        outcome = Outcome.acknowledged if _code(frame) == 200 else Outcome.refused
        return connection.id, outcome, frame

    def _frame(self, connection: Connection, push_id: str, payload: bytes) -> Frame:
        headers = (
            ("type", "event"),
            ("message_id", push_id),
            ("trace_id", uuid.uuid4().hex),
            ("sum", "1"),
            ("seq", "0"),
        )
        number = next(self._frame_ids)
        return Frame(frames.DATA, headers, payload, seq_id=number, log_id=number, service=connection.service)


def _code(frame: Frame) -> int:
    try:
        return int(json.loads(frame.payload)["code"])
    except (ValueError, KeyError, TypeError):
        return 0


def _answer(frame: Frame | None) -> bytes | None:
    """The bytes of a callback's answer; None when there is none, b"" when it cannot be read."""
    if frame is None:
        return None
    try:
        data = json.loads(frame.payload).get("data")
        return None if data is None else base64.b64decode(data, validate=True)
    except (ValueError, AttributeError, TypeError, binascii.Error):
        return b""
