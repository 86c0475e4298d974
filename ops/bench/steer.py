"""`steer`: from an input to its commit in a running Turn, beyond the burst window, against fsynced commits of the same
run. On its way lie three of them: the journal, the request to steer, and what the agent committed.

The agent does nothing but listen, and takes at once what is steered."""

import asyncio
import time
from dataclasses import dataclass, field

import psycopg

from amux import wiring
from amux.core.events import Event, InputQueued, InputSteered, TurnFinished, TurnStarted
from amux.core.ids import InputId, Seq, SessionKey, TurnId
from amux.core.inputs import Interrupt
from ops.bench.ground import PERSON, TARGET, Ground, ground, median, ms, new_session, percentile, prompt
from ops.bench.report import Report

STEERS, ROUNDS = 60, 3
WINDOW_SECONDS = 0.1
COMMITS = 4  # of the limit
WITHIN_MS = 10.0
STEER_SECONDS = 30.0  # a steer that takes longer is a fault of the run

CHECK = """
select (select count(*) from timeline where kind = 'turn_started'),
       (select count(*) from timeline where kind = 'input_steered'),
       (select count(*) from timeline where kind = 'input_queued'),
       (select count(*) from timeline where kind = 'turn_finished'),
       (select count(*) from inputs where accepted_seq is null)"""


@dataclass(slots=True)
class Running:
    """A Session in the midst of a long Turn, seen by one viewer."""

    parts: wiring.Stores
    key: SessionKey
    faults: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _said: int = 0
    _waits: dict[InputId, "asyncio.Future[float]"] = field(default_factory=dict)

    async def steer(self) -> float:
        """Say one thing more; answers how many seconds beyond the window it took until it was seen committed."""
        self._said += 1
        said = prompt(InputId(f"bench:{self.key}:{self._said}"), "!say and this")
        committed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waits[said.id] = committed
        began = time.perf_counter()
        await self.parts.submit.to(self.key, said)
        async with asyncio.timeout(STEER_SECONDS):
            return await committed - began - WINDOW_SECONDS

    async def begin(self) -> None:
        """Wake it; returns when its Turn runs, with connections, plans and pages warm."""
        await self.parts.waker.drive(self.key, TARGET)
        async with asyncio.timeout(STEER_SECONDS):
            await self.started.wait()
        await self.steer()

    async def end(self) -> None:
        """Interrupt the Turn, which would never end."""
        await self.parts.submit.to(self.key, Interrupt(InputId(f"bench:{self.key}:end"), PERSON, TurnId(1)))
        async with asyncio.timeout(STEER_SECONDS):
            await self.finished.wait()

    async def view(self) -> None:
        """Every event, for ever."""
        async for grown in self.parts.attach.follow(self.key, Seq(0)):
            now = time.perf_counter()
            for recorded in grown:
                self._see(recorded.event, now)

    def _see(self, event: Event, now: float) -> None:
        match event:
            case TurnStarted():
                self.started.set()
            case TurnFinished():
                self.finished.set()
            case InputSteered(_, inputs):
                for said in inputs:
                    self._waits[said].set_result(now)
            case InputQueued():
                self.faults.append(f"session {self.key}: queued, {event.reason}")


async def steer(report: Report, *, each: int = STEERS, rounds: int = ROUNDS) -> None:
    """The p50 beyond the burst window, against the p50 of four commits in a row; each steer has its commits beside it."""
    ours: list[list[float]] = []
    commits: list[list[float]] = []
    async with (
        ground(slots=4, extra={"AMUX_BURST_WINDOW": f"{WINDOW_SECONDS:g}"}) as place,
        wiring.stores(place.settings) as parts,
    ):
        side = Running(parts, await new_session(parts, prompt(InputId("bench:first"), "!listen")))
        viewer = asyncio.create_task(side.view(), name="viewer")
        try:
            await side.begin()
            with psycopg.connect(place.urls.postgres, autocommit=True) as connection:
                connection.execute("create table commits (n int)")
                for _ in range(rounds):
                    steered, committed = await _round(side, connection, each)
                    ours.append(steered)
                    commits.append(committed)
            await side.end()
        finally:
            viewer.cancel()
            await asyncio.gather(viewer, return_exceptions=True)
        report.faults = [*side.faults, *_check(place, 1 + each * rounds)]
    _tell(report, ours, commits)
    report.shape = {"steers": each, "window_s": WINDOW_SECONDS, "rounds": rounds}


async def _round(
    side: Running, connection: psycopg.Connection[tuple[object, ...]], each: int
) -> tuple[list[float], list[float]]:
    steered: list[float] = []
    committed: list[float] = []
    for _ in range(each):
        steered.append(await side.steer())
        began = time.perf_counter()
        for _ in range(COMMITS):
            connection.execute("insert into commits values (1)", prepare=True)
        committed.append(time.perf_counter() - began)
    return steered, committed


def _tell(report: Report, ours: list[list[float]], commits: list[list[float]]) -> None:
    middle, limit = median(map(_p50, ours)), median(map(_p50, commits))
    worst = max(percentile(one, 0.99) for one in ours)
    report.ours = {"p50_ms": ms(middle), "p99_ms": ms(worst)}
    report.limit = {"commits": COMMITS, "p50_ms": ms(limit), "or_within_ms": WITHIN_MS}
    report.ratio = round(median(_p50(mine) / _p50(theirs) for mine, theirs in zip(ours, commits, strict=True)), 2)
    report.due = ms(middle) < WITHIN_MS or report.ratio < 1.0


def _p50(seconds: list[float]) -> float:
    return percentile(seconds, 0.5)


def _check(place: Ground, steers: int) -> list[str]:
    """What Postgres holds against what was asked of it; empty when all is right."""
    with psycopg.connect(place.urls.postgres) as connection:
        row = connection.execute(CHECK).fetchone()
    due = (1, steers, 0, 1, 0)
    return [] if row == due else [f"{row} and not {due}: Turns, steered, queued, finished, pending"]
