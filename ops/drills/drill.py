"""One drill from its name to its line: a stage, a crowd, harm again and again, quiet, and the count."""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from amux import wiring
from amux.core.errors import Refused
from amux.local.home import running
from amux.settings import Settings, load
from ops.drills.count import ZERO, Broken, Report, count, open_turns, quiet, recovered
from ops.drills.crowd import Crowd
from ops.drills.harm import HARMS, NO_LOST_TURNS, Scene
from ops.drills.stage import Stage, stage

SESSIONS = 50
WORK_SECONDS = 4.0  # of a Turn: longer than a burst, so that some join
Tell = Callable[[str], None]


async def drill(name: str, *, rounds: int, seed: int, engine: str, sessions: int = SESSIONS, tell: Tell) -> Report:
    """Run it. Raises Refused for a name that there is not."""
    if name not in HARMS:
        raise Refused(f"there is no drill {name!r}; there are {', '.join(sorted(HARMS))}.")
    report = Report(name, rounds, sessions, 3.0)
    tell(f"{name}: {rounds} rounds, {sessions} Sessions, seed {seed}")
    async with stage(
        engine=engine, lease=report.lease_s, seconds=WORK_SECONDS, extra={"AMUX_SLOTS": str(sessions + 10)}
    ) as one:
        async with wiring.stores(stage_settings(one)) as parts:
            crowd = Crowd(one.world, sessions, sessions / 5, random.Random(seed))
            broken = await _harm(name, rounds, one, parts, crowd, tell)
            still = await quiet(parts, crowd.accepted())
            tell("everything is quiet" if still else "it did not become quiet")
            await count(report, parts, crowd.accepted(), one)
            times = await recovered(parts, broken)
            if times:
                report.recover_p50_s, report.recover_max_s = round(statistics.median(times), 2), round(max(times), 2)
        await one.stop()
        report.orphans = len(one.orphans())
    return report


async def _harm(name: str, rounds: int, one: Stage, parts: wiring.Stores, crowd: Crowd, tell: Tell) -> list[Broken]:
    crowd.open()
    await _busy(parts, crowd.sessions)
    crowd.talk()
    broken: list[Broken] = []
    for number in range(rounds):
        await _busy(parts, crowd.sessions)
        began = time.monotonic()
        now = await HARMS[name](Scene(one, parts, number))
        if not await _mended(parts, now):
            tell("Turns are still broken; the next harm comes all the same")
        broken += now
        tell(f"round {number + 1}: {time.monotonic() - began:.1f} s, {len(broken)} Turns broken so far")
    await crowd.hush()
    return broken


async def _busy(parts: wiring.Stores, sessions: int) -> None:
    """Wait until a good part of the Sessions works, or some time has passed: harm in an idle house shows little."""
    for _ in range(150):
        if len(await open_turns(parts)) >= sessions / 4:
            return
        await asyncio.sleep(0.2)


async def _mended(parts: wiring.Stores, broken: Sequence[Broken]) -> bool:
    """Wait until no Turn that the harm broke is open, or some time has passed: the next harm would be counted as its."""
    waiting = {(one.session, one.turn) for one in broken}
    for _ in range(150):
        if not waiting & {(session.key, turn) for session, turn in await open_turns(parts)}:
            return True
        await asyncio.sleep(0.2)
    return False


def stage_settings(one: Stage) -> Settings:
    settings = load(one.env, Path("/nonexistent/amux.toml"))
    run = running(settings.home)
    urls = run.urls if run else {}
    return replace(settings, postgres_url=urls.get("postgres"), redis_url=urls.get("redis"))


def verdict(report: Report) -> bool:
    """Whether every promise held."""
    held = all(getattr(report, name) == 0 for name in ZERO)
    kept = report.drill not in NO_LOST_TURNS or report.lost_turns == 0
    in_time = report.recover_max_s is None or report.recover_max_s <= report.lease_s + 2
    told = report.dispatched + report.steered + report.waiting + report.failed + report.cancelled + report.lost
    return held and kept and in_time and report.accepted == told


def say(line: str) -> None:
    """Progress goes to stderr; the report alone to stdout."""
    print(line, file=sys.stderr, flush=True)
