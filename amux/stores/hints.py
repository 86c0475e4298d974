"""Hints that may be lost or doubled: nudges to readers, bells to owners, wakes to workers. Nothing rests on any of them.

A wake is one Celery message, written here as Celery writes it (its message protocol 2) and pushed in the same script
that keeps its mark: asking Celery itself costs half a millisecond and blocks the loop."""

import asyncio
import base64
import json
import socket
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec

from amux.core import codec
from amux.core.errors import Unavailable
from amux.core.ids import Seq, SessionKey
from amux.ports import Recorded
from amux.runtime.pause import Pause
from amux.stores.appends import Encoded
from amux.stores.inbox import MARK_SECONDS, lease_key, wake_key
from amux.stores.redis import Redis, Script, Subscription

DELIVER_QUEUE = "deliver"
MOST_UNSENT = 10_000  # nudges; beyond that readers look for themselves
SILENCE = 0.3  # seconds after news until a reader is told to look once, for a last nudge that was lost
LONG_SILENCE = 5.0  # seconds between two looks while nothing comes

# An owner that is there hears the bell instead: whatever the wake is about lies in the stream or in the journal.
# Asked again by the sweep, a wake is sent only if the one before was lost: it is not in the queue any more, or was never
# sent. So overload leaves one message for each waiting Session (H9).
DRIVE = Script(f"""
local held = redis.call('GET', KEYS[4])
if held then return redis.call('PUBLISH', ARGV[4] .. 'bell:' .. string.match(held, '^[^|]*'), ARGV[3]) end
if ARGV[2] == 'again' and redis.call('GET', KEYS[2]) == 'sent' and redis.call('LLEN', KEYS[3]) > 0 then return 0 end
redis.call('SET', KEYS[2], 'sent', 'EX', {MARK_SECONDS})
return redis.call('LPUSH', KEYS[3], ARGV[1])""")

DELIVER = Script(f"""
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if redis.call('EXISTS', KEYS[3]) == 1 and (ARGV[2] ~= 'again' or redis.call('LLEN', KEYS[4]) > 0) then return 0 end
redis.call('SET', KEYS[3], 'sent', 'EX', {MARK_SECONDS})
return redis.call('LPUSH', KEYS[4], ARGV[1])""")

DELIVERING = Script("""
redis.call('DEL', KEYS[3])
if tonumber(ARGV[1]) > 0 then return redis.call('SET', KEYS[2], '1', 'PX', ARGV[1]) end
return redis.call('DEL', KEYS[2])""")


class CeleryWaker:
    """Puts `drive` and `deliver` into Celery's queues. The worker's app names the same tasks and queues."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def drive(self, session: SessionKey, target: str, *, again: bool = False) -> None:
        queue = drive_queue(target)
        message = celery_message("drive", session, queue)
        keys, word = (wake_key(session), queue, lease_key(session)), "again" if again else ""
        await self._redis.run(DRIVE, keys, message, word, session, self._redis.channels)

    async def deliver(self, session: SessionKey, *, again: bool = False) -> None:
        message = celery_message("deliver", session, DELIVER_QUEUE)
        keys = (_at_work_key(session), _deliver_key(session), DELIVER_QUEUE)
        await self._redis.run(DELIVER, keys, message, "again" if again else "")

    async def delivering(self, session: SessionKey, *, seconds: float) -> None:
        await self._redis.run(DELIVERING, (_at_work_key(session), _deliver_key(session)), round(seconds * 1000))

    async def waiting(self, target: str) -> int:
        try:
            return int(await self._redis.command("LLEN", drive_queue(target)))
        except Unavailable:
            return 0


class RedisBells:
    """One worker's bell: one subscription, however many Sessions it owns."""

    def __init__(self, redis: Redis, worker: str) -> None:
        self._rings: dict[SessionKey, Callable[[], None]] = {}
        self._channel = f"bell:{worker}"
        self._subscription = redis.subscription(self._heard, self._listening)

    def register(self, session: SessionKey, ring: Callable[[], None]) -> None:
        self._rings[session] = ring
        self._subscription.listen(self._channel)

    def unregister(self, session: SessionKey) -> None:
        self._rings.pop(session, None)

    async def close(self) -> None:
        """Hear nothing more."""
        await self._subscription.close()

    def _heard(self, _channel: str, message: bytes) -> None:
        if message.isdigit() and (ring := self._rings.get(SessionKey(int(message)))):
            ring()

    def _listening(self, _channel: str) -> None:
        """What was rung before is lost, so every owner looks."""
        for ring in tuple(self._rings.values()):
            ring()


class RedisNudges:
    """What was appended, on a channel a Session; one subscription for all readers of the process."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._unsent = 0
        self._readers: defaultdict[str, set[Reader]] = defaultdict(set)
        self._subscription: Subscription | None = None

    def publish(self, session: SessionKey, first: int, at: float, events: Encoded) -> None:
        """Tell readers. Never waits, never fails."""
        if self._unsent >= MOST_UNSENT:
            return
        self._unsent += 1
        self._redis.publish(_live_channel(session), nudge(first, at, events)).add_done_callback(self._sent)

    async def follow(self, session: SessionKey) -> AsyncGenerator[Sequence[Recorded], None]:
        channel, reader = _live_channel(session), Reader()
        if self._subscription is None:
            self._subscription = self._redis.subscription(self._heard, self._listening)
        first = not self._readers[channel]
        self._readers[channel].add(reader)
        if first:
            self._subscription.listen(channel)
        else:
            reader.put(b"")
        try:
            async for message in reader.messages():
                yield recorded(message) if message else ()
        finally:
            self._readers[channel].discard(reader)
            if not self._readers[channel]:
                del self._readers[channel]
                self._subscription.leave(channel)

    async def close(self) -> None:
        """Hear nothing more."""
        if self._subscription:
            await self._subscription.close()

    def _sent(self, done: "asyncio.Future[object]") -> None:
        self._unsent -= 1
        done.cancelled() or done.exception()  # seen: readers mend what was not told

    def _heard(self, channel: str, message: bytes) -> None:
        for reader in self._readers.get(channel, ()):
            reader.put(message)

    def _listening(self, channel: str) -> None:
        for reader in self._readers.get(channel, ()):
            reader.put(b"")


class Reader:
    """One follower's messages; an empty one means: look for yourself."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._pause = Pause()

    def put(self, message: bytes) -> None:
        """One more; a reader that is too slow loses it and finds the gap itself."""
        if len(self._messages) < MOST_UNSENT:
            self._messages.append(message)
            self._pause.end()

    async def messages(self) -> AsyncIterator[bytes]:
        """For ever, with an empty one after each silence."""
        patience = LONG_SILENCE
        while True:
            if not self._messages:
                await self._pause.take(patience)
            if self._messages:
                patience = SILENCE
                yield self._messages.popleft()
            else:
                patience = LONG_SILENCE
                yield b""


def nudge(first: int, at: float, events: Encoded) -> str:
    """The message for readers; the payloads go as they were encoded for the append."""
    rows = zip(events.kinds, events.versions, events.turns, events.payloads, strict=True)
    parts = [f'["{kind}",{v},{"null" if turn is None else turn},{payload}]' for kind, v, turn, payload in rows]
    return f"[{first},{at!r},[{','.join(parts)}]]"


def recorded(message: bytes) -> Sequence[Recorded]:
    """The events of a nudge; none when another release wrote what this one cannot read."""
    try:
        first, at, events = _decoder.decode(message)
        decode = codec.decode
        return [
            Recorded(Seq(seq), at, decode(kind, version, payload))
            for seq, (kind, version, _, payload) in enumerate(events, first)
        ]
    except (KeyError, msgspec.DecodeError):
        return ()


def celery_message(task: str, session: SessionKey, queue: str) -> str:
    """A task as Celery's own producer writes it into Redis: it expires with its mark, and its result is dropped."""
    id_ = str(uuid4())
    expires = datetime.now(UTC) + timedelta(seconds=MARK_SECONDS)
    body = f'[[{session}], {{}}, {{"callbacks": null, "errbacks": null, "chain": null, "chord": null}}]'
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {
                "lang": "py",
                "task": task,
                "id": id_,
                "shadow": None,
                "eta": None,
                "expires": expires.isoformat(),
                "group": None,
                "group_index": None,
                "retries": 0,
                "timelimit": [None, None],
                "root_id": id_,
                "parent_id": None,
                "argsrepr": f"({session},)",
                "kwargsrepr": "{}",
                "origin": _HOST,
                "ignore_result": True,
                "replaced_task_nesting": 0,
                "stamped_headers": None,
                "stamps": {},
            },
            "properties": {
                "correlation_id": id_,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )


def drive_queue(target: str) -> str:
    """The queue of a target's workers."""
    return f"target.{target}"


def _live_channel(session: SessionKey) -> str:
    return f"live:{session}"


def _at_work_key(session: SessionKey) -> str:
    return f"at_work:{{{session}}}"


def _deliver_key(session: SessionKey) -> str:
    return f"deliver:{{{session}}}"


_HOST = f"amux@{socket.gethostname()}"
_decoder = msgspec.json.Decoder(tuple[int, float, list[tuple[str, int, int | None, msgspec.Raw]]])
