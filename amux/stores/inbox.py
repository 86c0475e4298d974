"""A Session's stream in Redis: what was said, carried to its owner. The journal holds the same, and counts.

A stream lives from the first post to its owner's release, at most a day; a sleeping Session has no key."""

from collections.abc import Sequence

import msgspec
import structlog

from amux.core import codec
from amux.core.ids import SessionKey
from amux.core.inputs import Said
from amux.ports import Posted, Rung
from amux.stores.redis import Redis, Script

log = structlog.stdlib.get_logger()
DAY_MS = 86_400_000
MARK_SECONDS = 60  # a wake that nobody took is asked for again after so long

# Redis takes one script at a time, so that no input falls between an owner that looks and lets go and a sender that
# looks for an owner.
POST = Script(f"""
redis.call('XADD', KEYS[2], '*', 'k', ARGV[1], 'p', ARGV[2])
redis.call('PEXPIRE', KEYS[2], {DAY_MS})
local held = redis.call('GET', KEYS[3])
if held then
  redis.call('PUBLISH', ARGV[4] .. 'bell:' .. string.match(held, '^[^|]*'), ARGV[3])
  return 0
end
return redis.call('SET', KEYS[4], 'due', 'NX', 'EX', {MARK_SECONDS}) and 1 or 0""")

# A stream whose newest entry lies before the reader's position began anew under a clock that went back (H7).
READ = Script("""
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if not newest then return {} end
local function number(id) local ms, n = string.match(id, '(%d+)-(%d+)') return tonumber(ms), tonumber(n) end
local ms, n = number(newest[1])
local after_ms, after_n = number(ARGV[1])
if ms < after_ms or (ms == after_ms and n < after_n) then return redis.call('XRANGE', KEYS[2], '-', '+') end
return redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+')""")


class RedisInbox:
    """Posts, reads and trims streams."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def post(self, session: SessionKey, said: Said) -> Rung:
        keys = (inbox_key(session), lease_key(session), wake_key(session))
        wake = await self._redis.run(POST, keys, *codec.encode_said(said), session, self._redis.channels)
        return Rung(wake=wake == 1)

    async def read(self, session: SessionKey, after: str) -> Sequence[Posted]:
        entries = await self._redis.run(READ, (inbox_key(session),), after)
        posted = {entry: _posted(session, entry, parts) for entry, parts in entries}
        if unreadable := [entry for entry, one in posted.items() if one is None]:
            await self._redis.command("XDEL", inbox_key(session), *unreadable)  # or its owner could never let go
        return [one for one in posted.values() if one]

    async def trim(self, session: SessionKey, through: str) -> None:
        milliseconds, number = through.split("-")
        await self._redis.command("XTRIM", inbox_key(session), "MINID", f"{milliseconds}-{int(number) + 1}")


def inbox_key(session: SessionKey) -> str:
    """The braces keep all of a Session's keys on one node of a cluster."""
    return f"inbox:{{{session}}}"


def lease_key(session: SessionKey) -> str:
    return f"lease:{{{session}}}"


def wake_key(session: SessionKey) -> str:
    return f"wake:{{{session}}}"


def _posted(session: SessionKey, entry: bytes, parts: list[bytes]) -> Posted | None:
    """What was posted; None for what this release cannot read: the journal knows it, and says so to its owner."""
    _, kind, _, payload = parts
    try:
        return Posted(entry.decode(), codec.decode_said(kind.decode(), payload))
    except (KeyError, msgspec.DecodeError):
        log.warning("unreadable_post", session=session, entry=entry.decode())
        return None
