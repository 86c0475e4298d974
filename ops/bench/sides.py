"""Two sides that do the same work in a closed loop: amux as people use it, and plain Celery with a Redis lock.

Each Session says the next thing when a viewer has seen the end of the last. Both are driven from this process."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from celery import Celery
from kombu.messaging import Producer

from amux import wiring
from amux.core.events import Outcome, OwnerOpened, TurnFinished
from amux.core.ids import InputId, Seq, SessionKey
from amux.local.restarter import Service
from amux.settings import kombu_url
from amux.stores.redis import Redis
from ops.bench import other
from ops.bench.ground import TARGET, Ground, beside, ms, new_session, percentile, prompt

EVENTS = 20
SCRIPT = f"!many {EVENTS} x {other.TEXT}"
LOOK_SECONDS, SWEEP_SECONDS = 0.1, 1.0
TURN_SECONDS = 120.0  # a Turn that takes longer is a fault of the run


@dataclass(slots=True)
class Round:
    """What one round of one side came to. Latencies are in seconds, from the accepted input to its end, seen."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Turns a second."""
        return len(self.latencies) / self.seconds

    def figures(self) -> dict[str, object]:
        """What is told of it."""
        spent = {part: round(used / len(self.latencies) * 1e6) for part, used in self.cpu.items() if used}
        return {
            "turns_s": round(self.rate, 1),
            "p50_ms": ms(percentile(self.latencies, 0.5)),
            "p99_ms": ms(percentile(self.latencies, 0.99)),
            "cpu_us_a_turn": spent,
        }


async def closed_loop(
    sessions: Sequence[int], turns: int, one: Callable[[int], Awaitable[float]], place: Ground
) -> Round:
    """Every Session does so many Turns, one after the other; all Sessions at once."""
    done = Round()

    async def session(key: int) -> None:
        for _ in range(turns):
            done.latencies.append(await one(key))

    before, began = place.cpu(), time.perf_counter()
    await asyncio.gather(*map(session, sessions))
    done.seconds = time.perf_counter() - began
    done.cpu = {part: used - before[part] for part, used in place.cpu().items()}
    return done


@dataclass(slots=True)
class Ours:
    """amux: submitted here, owned in the worker, seen by a viewer here."""

    parts: wiring.Stores
    keys: list[SessionKey]
    faults: list[str] = field(default_factory=list)
    finished: int = 0
    woken: int = 0  # owners that began
    _said: int = 0
    _waits: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)

    async def turn(self, key: int) -> float:
        """Say one thing and see its Turn end; answers how long that took after it was accepted."""
        self._said += 1
        ended = self._waits[key] = asyncio.get_running_loop().create_future()
        session = SessionKey(key)
        await self.parts.submit.to(session, prompt(InputId(f"bench:{key}:{self._said}"), SCRIPT))
        accepted = time.perf_counter()
        async with asyncio.timeout(TURN_SECONDS):
            await ended
        return time.perf_counter() - accepted

    async def view(self, key: SessionKey) -> None:
        """One viewer of one Session, for ever: every event, decoded, in its order."""
        seen = 0
        async for grown in self.parts.attach.follow(key, Seq(0)):
            for recorded in grown:
                if recorded.seq != seen + 1:
                    self.faults.append(f"session {key}: seq {recorded.seq} after {seen}")
                seen = recorded.seq
                match recorded.event:
                    case TurnFinished() as ended:
                        self._ended(key, ended)
                    case OwnerOpened():
                        self.woken += 1

    def _ended(self, key: SessionKey, ended: TurnFinished) -> None:
        self.finished += 1
        if ended.outcome is not Outcome.completed:
            self.faults.append(f"session {key}: Turn {ended.turn} ended {ended.outcome} {ended.reason}")
        wait = self._waits.pop(key, None)
        if wait is None:
            self.faults.append(f"session {key}: Turn {ended.turn} ended and nobody asked")
        elif not wait.done():
            wait.set_result(None)

    async def first(self) -> None:
        """What made each Session becomes its first Turn; then all sleep."""
        self._waits = {key: asyncio.get_running_loop().create_future() for key in self.keys}
        waits = list(self._waits.values())
        for key in self.keys:
            await self.parts.waker.drive(key, TARGET)
        async with asyncio.timeout(TURN_SECONDS):
            await asyncio.gather(*waits)
        await self.rest()

    async def rest(self) -> None:
        """Wait until nobody owns anything."""
        async with asyncio.timeout(TURN_SECONDS):
            while await self.parts.sessions.named():  # noqa: ASYNC110 - it is for Postgres to say
                await asyncio.sleep(LOOK_SECONDS)

    async def sweep(self) -> None:
        """What beat does in a house, for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.parts.sweep.round()


@asynccontextmanager
async def ours(parts: wiring.Stores, sessions: int) -> AsyncIterator[Ours]:
    """New Sessions, each with its viewer, all asleep."""
    keys = [await new_session(parts) for _ in range(sessions)]
    side = Ours(parts, keys)
    tasks = [asyncio.create_task(side.view(key), name="viewer") for key in keys]
    tasks.append(asyncio.create_task(side.sweep(), name="sweep"))
    try:
        await side.first()
        yield side
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


CHECK = """
select (select count(*) from (select session from timeline group by session
          having max(seq) <> count(*) or min(seq) <> 1) gaps),
       (select count(*) from timeline where kind = 'turn_started'), (select count(*) from timeline where kind = 'turn_finished'),
       (select count(*) from timeline where kind = 'item'), (select count(*) from inputs where accepted_seq is null),
       (select count(*) from sessions where open_turn is not null)"""


def check(place: Ground, side: Ours, turns: int) -> list[str]:
    """What Postgres holds against what was asked of it; empty when all is right."""
    with psycopg.connect(place.urls.postgres) as connection:
        row: Any = connection.execute(CHECK).fetchone()
    gaps, started, finished, items, pending, still_open = row
    first = len(side.keys)
    wanted = {
        "sessions with gaps": (gaps, 0),
        "Turns started": (started, turns + first),
        "Turns finished": (finished, turns + first),
        "Turns seen to finish": (side.finished, turns + first),
        "items": (items, turns * EVENTS + first),
        "inputs pending": (pending, 0),
        "Turns open": (still_open, 0),
    }
    return [*side.faults[:5], *(f"{what}: {is_} and not {due}" for what, (is_, due) in wanted.items() if is_ != due)]


@dataclass(slots=True)
class Other:
    """Plain Celery with a Redis lock."""

    producer: Producer
    app: Celery
    _waits: dict[tuple[int, int], "asyncio.Future[None]"] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)

    async def turn(self, key: int) -> float:
        """Send one task and hear that it is done; answers how long that took after it was sent."""
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        done = self._waits[key, number] = asyncio.get_running_loop().create_future()
        self.app.send_task("turn", (key, number), producer=self.producer, ignore_result=True)
        sent = time.perf_counter()
        async with asyncio.timeout(TURN_SECONDS):
            await done
        return time.perf_counter() - sent

    def heard(self, _channel: str, message: bytes) -> None:
        """One is done."""
        session, _, number = message.partition(b" ")
        if wait := self._waits.pop((int(session), int(number)), None):
            wait.set_result(None)


@asynccontextmanager
async def celery_side(place: Ground) -> AsyncIterator[Other]:
    """The other side, its worker running and warm."""
    with psycopg.connect(place.urls.postgres, autocommit=True) as connection:
        connection.execute("drop table if exists other_turns")
        connection.execute(other.TABLE)
    ready = place.home / "ready" / "celery"
    env = {
        **place.env,
        "BENCH_POSTGRES_URL": place.urls.postgres,
        "BENCH_REDIS_URL": place.other_redis,
        "BENCH_READY_FILE": str(ready),
    }
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    command = (sys.executable, "-m", "celery", "-A", "ops.bench.other:app", "worker", "-P", "threads")
    argv = (*command, "-c", str(other.THREADS), "-l", "WARNING", *quiet)

    async def is_ready() -> bool:
        return ready.exists()

    app, redis = Celery("driver", broker=kombu_url(place.other_redis)), Redis(place.other_redis)
    async with beside(place, Service("celery", argv, env, is_ready)):
        with app.connection_for_write() as broker:
            side = Other(app.amqp.Producer(broker), app)
            listening = asyncio.Event()
            subscription = redis.subscription(side.heard, lambda _channel: listening.set())
            subscription.listen(other.DONE)
            try:
                await listening.wait()
                await asyncio.gather(*[side.turn(-1 - n) for n in range(2 * other.THREADS)])
                yield side
            finally:
                with suppress(Exception):
                    await subscription.close()
                await redis.close()


def check_other(place: Ground, turns: int) -> list[str]:
    """The same for the other side."""
    with psycopg.connect(place.urls.postgres) as connection:
        row: Any = connection.execute("select count(*) from other_turns where session >= 0").fetchone()
    return [] if row[0] == turns * other.ROWS else [f"Celery's rows: {row[0]} and not {turns * other.ROWS}"]
