"""One drill from its name to its line: a stage, a crowd, harm again and again, quiet, and the count."""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from amux import wiring
from amux.core.errors import Refused
from amux.local.home import running
from amux.local.services import Urls
from amux.sandbox import feishu
from amux.settings import Settings, load
from ops.drills.catalogue import DRILLS, Drill, Lost, Need
from ops.drills.count import ZERO, Broken, Report, count, lost_so_far, open_turns, quiet, recovered
from ops.drills.crowd import MORE, OPENING, Crowd
from ops.drills.far import Far, far_worker
from ops.drills.scene import LOOK_SECONDS, LOOKS, Scene, Tell, ended
from ops.drills.stage import Stage, stage
from ops.drills.standby import Pair, pair

SESSIONS = 50
LEASE_SECONDS = 3.0
WORK_SECONDS = 4.0  # of a Turn: longer than a burst, so that some join


@dataclass(frozen=True, slots=True)
class Ground:
    """All that stands while harm is done."""

    stage: Stage
    parts: wiring.Stores
    crowd: Crowd
    slots: int  # of all workers
    pair: Pair | None
    far: Far | None
    faults: list[str] = field(default_factory=list)

    def scene(self, number: int, seed: int, tell: Tell) -> Scene:
        """The round of that number."""
        return Scene(
            self.stage, self.parts, self.crowd, seed, number, self.slots, tell, self.pair, self.far, self.faults
        )


async def drill(name: str, *, rounds: int, seed: int, engine: str, sessions: int = SESSIONS, tell: Tell) -> Report:
    """Run it. Raises Refused for a name that there is not."""
    if name not in DRILLS:
        raise Refused(f"there is no drill {name!r}; there are {', '.join(sorted(DRILLS))}.")
    report = Report(name, rounds, sessions, LEASE_SECONDS)
    tell(f"{name}: {rounds} rounds, {sessions} Sessions, seed {seed}")
    async with AsyncExitStack() as beside:
        two = await beside.enter_async_context(pair()) if Need.standby in DRILLS[name].needs else None
        extra = {"AMUX_SLOTS": str(DRILLS[name].slots(sessions)), **(_addresses(two.urls) if two else {})}
        async with stage(engine=engine, lease=report.lease_s, seconds=WORK_SECONDS, extra=extra) as one:
            if two:
                one.others.append(two.pids)
            async with _ground(one, DRILLS[name], two, sessions, seed) as ground:
                await _play(ground, name, report, seed, tell)
            await one.stop()
            report.orphans = len(one.orphans())
    return report


@asynccontextmanager
async def _ground(one: Stage, what: Drill, two: Pair | None, sessions: int, seed: int) -> AsyncIterator[Ground]:
    settings = stage_settings(one)
    async with AsyncExitStack() as beside:
        parts = await beside.enter_async_context(wiring.stores(settings))
        far = None
        if Need.far in what.needs:
            urls = Urls(settings.postgres_url or "", settings.redis_url or "")
            far = await beside.enter_async_context(far_worker(one, urls))
        workers = one.names.count("worker") + (1 if far else 0)
        crowd = Crowd(one.world, sessions, sessions / 5, random.Random(seed))
        yield Ground(one, parts, crowd, workers * what.slots(sessions), two, far)


async def _play(ground: Ground, name: str, report: Report, seed: int, tell: Tell) -> None:
    """Harm, quiet, and the count."""
    parts, crowd = ground.parts, ground.crowd
    broken = await _harm(ground, name, report.rounds, seed, tell)
    still = await quiet(parts, crowd.accepted())
    tell("everything is quiet" if still else "it did not become quiet")
    await count(report, parts, crowd.accepted(), ground.stage)
    report.notes += ground.faults if still else [*ground.faults, "it did not become quiet"]
    told = ground.stage.logs_with([OPENING, MORE, feishu.CODER_SECRET])
    report.notes += [f"{log} holds what people said, or a secret" for log in told]  # (H30)
    times = await recovered(parts, broken)
    if times:
        report.recover_p50_s, report.recover_max_s = round(statistics.median(times), 2), round(max(times), 2)


async def _harm(ground: Ground, name: str, rounds: int, seed: int, tell: Tell) -> list[Broken]:
    crowd, parts = ground.crowd, ground.parts
    crowd.open()
    await _busy(parts, crowd.sessions)
    crowd.talk()
    broken: list[Broken] = []
    for number in range(rounds):
        await _busy(parts, crowd.sessions)
        began = time.monotonic()
        now = await DRILLS[name].harm(ground.scene(number, seed, tell))
        if not await ended(parts, now):
            tell("Turns are still broken; the next harm comes all the same")
        broken += now
        tell(f"round {number + 1}: {time.monotonic() - began:.1f} s, {await _came_of(parts, now)}")
    await crowd.hush()
    return broken


async def _came_of(parts: wiring.Stores, broken: Sequence[Broken]) -> str:
    slowest = max(await recovered(parts, broken), default=0.0)
    return f"{len(broken)} Turns broken, the last ended after {slowest:.1f} s; {await lost_so_far(parts)} lost so far"


async def _busy(parts: wiring.Stores, sessions: int) -> None:
    """Wait until a good part of the Sessions works, or some time has passed: harm in an idle house shows little."""
    for _ in range(LOOKS):
        if len(await open_turns(parts)) >= sessions / 4:
            return
        await asyncio.sleep(LOOK_SECONDS)


def _addresses(urls: Urls) -> dict[str, str]:
    return {"AMUX_POSTGRES_URL": urls.postgres, "AMUX_REDIS_URL": urls.redis}


def stage_settings(one: Stage) -> Settings:
    settings = load(one.env, Path("/nonexistent/amux.toml"))
    run = running(settings.home)
    urls = run.urls if run else {}
    return replace(settings, postgres_url=urls.get("postgres"), redis_url=urls.get("redis"))


def verdict(report: Report) -> bool:
    """Whether every promise held."""
    held = all(getattr(report, name) == 0 for name in ZERO) and not report.notes
    kept = DRILLS[report.drill].lost is Lost.some or report.lost_turns == 0
    in_time = report.recover_max_s is None or report.recover_max_s <= report.lease_s + 2
    told = report.dispatched + report.steered + report.waiting + report.failed + report.cancelled + report.lost
    return held and kept and in_time and report.accepted == told


def say(line: str) -> None:
    """Progress goes to stderr; the report alone to stdout."""
    print(line, file=sys.stderr, flush=True)
