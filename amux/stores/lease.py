"""Leases in Redis: the right to try to own a Session. Who may write is Postgres' to say, who may act the Guard's.

A Lease's value is its owner's token, `worker|random`, so that a post finds the worker's bell in it."""

import asyncio
from collections.abc import Sequence

from amux.core.ids import SessionKey
from amux.ports import Renewal, Taken
from amux.stores.inbox import inbox_key, lease_key, wake_key
from amux.stores.redis import Redis, Script

CHUNK = 1_000  # keys of one MGET

# The mark goes even when the Lease is taken: somebody came, and the next wake must not wait for it to lapse. A Lease
# that is ours already was taken by a call whose answer was lost.
TAKE = Script("""
redis.call('DEL', KEYS[3])
if redis.call('GET', KEYS[2]) ~= ARGV[1] and not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return false
end
local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
return {newest and newest[1] or '0-0', (now - born < tonumber(ARGV[2])) and 1 or 0}""")

RENEW = Script("""
local held = redis.call('GET', KEYS[2])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return held and 1 or 2""")

# Whoever lets go takes the mark along: a wake that was sent meanwhile found an owner, and must not stop the next one.
RELEASE = Script("""
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2], KEYS[3]) end
return 1""")

RELEASE_IF_DRAINED = Script("""
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
if newest and newest[1] ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
return 1""")


class RedisLeases:
    """Taken, renewed and given up by scripts of their own: two commands would race."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def take(self, session: SessionKey, token: str, *, seconds: float) -> Taken | None:
        taken = await self._redis.run(TAKE, _keys(session), token, _ms(seconds))
        return Taken(taken[0].decode(), young=taken[1] == 1) if taken else None

    async def renew(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[Renewal]:
        calls = [self._redis.run(RENEW, (lease_key(session),), token, _ms(seconds)) for session, token in held]
        answers = await asyncio.gather(*calls)
        return [Renewal(held=answer != 0, anew=answer == 2) for answer in answers]

    async def held(self, sessions: Sequence[SessionKey]) -> Sequence[bool]:
        keys = [lease_key(session) for session in sessions]
        chunks = [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]
        return [value is not None for chunk in chunks for value in await self._redis.command("MGET", *chunk)]

    async def release(self, session: SessionKey, token: str) -> None:
        await self._redis.run(RELEASE, _keys(session), token)

    async def release_if_drained(self, session: SessionKey, token: str, *, last_read: str) -> bool:
        released = await self._redis.run(RELEASE_IF_DRAINED, _keys(session), token, last_read)
        return bool(released == 1)


def _keys(session: SessionKey) -> tuple[str, str, str]:
    """KEYS[2] to KEYS[4]."""
    return lease_key(session), wake_key(session), inbox_key(session)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
