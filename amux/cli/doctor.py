"""`amux doctor`: what is installed, reachable and misconfigured, one line each, with what mends it.

It looks and asks, and changes nothing: no server is started, and what it writes to try the disk is gone at once. It exits 1 only when something is broken;
what is merely not there (a bot, an agent that nobody chose) is said, and is no fault."""

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import typer

from amux.cli.common import FAILED, client_settings, exits, say_json
from amux.cli.findings import Finding, Mark, line
from amux.core.errors import Refused, Unavailable
from amux.local.binaries import Program, find_binaries
from amux.local.home import Run, running
from amux.local.probes import free_or_refuse, http_answers
from amux.settings import BadSettings, Settings, load

OLDEST_PYTHON = (3, 11)
ROOM = 1 << 30  # bytes that the disk of the home should have left
OTHER_PORT = "set AMUX_WEB_PORT to another"


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", epilog="Example: amux doctor --matrix")(doctor)


def doctor(
    matrix: Annotated[bool, typer.Option("--matrix", help="Start each agent, and say what it can do.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Look at everything that amux needs, and say what mends what is broken. Exits 0 when nothing is."""
    with exits():
        if asyncio.run(_tell(matrix=matrix, as_json=json)):
            raise typer.Exit(FAILED)


async def _tell(*, matrix: bool, as_json: bool) -> bool:
    """Print each finding as it is made; answers whether anything is broken."""
    found = False
    async for finding in examine(matrix=matrix):
        if as_json:
            say_json(finding.row())
        else:
            print(line(finding), flush=True)
        found = found or finding.mark is Mark.broken
    return found


async def examine(*, matrix: bool) -> AsyncIterator[Finding]:
    """Every finding, the quickest first."""
    yield _python()
    try:
        given, settings = load(os.environ), client_settings()
    except BadSettings as faults:
        for fault in str(faults).splitlines():
            what, _, remedy = fault.partition(": ")
            yield Finding(Mark.broken, "settings", what, remedy)
        return
    run = running(given.home)
    yield _settings(given, run)
    yield _home(given.home, run)
    for finding in await _ports(given, run):
        yield finding
    async for finding in _servers(given, settings, run):
        yield finding
    for finding in _packs(given):
        yield finding
    from amux.cli import agents, reach

    async for finding in agents.engines(given.engine, os.environ):
        yield finding
    yield await reach.feishu(given.feishu)
    if matrix:
        async for finding in agents.matrix(os.environ):
            yield finding


async def _servers(given: Settings, settings: Settings, run: Run | None) -> AsyncIterator[Finding]:
    """The servers in use; or the programs that `amux up` would start, where none is."""
    if settings.postgres_url and settings.redis_url:
        from amux.cli import reach

        async for finding in reach.servers(settings, at_home=run is not None):
            yield finding
        return
    for finding in await asyncio.to_thread(lambda: list(_programs(given))):
        yield finding


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding(Mark.broken, "python", version, "amux needs Python 3.11 or later")
    return Finding(Mark.fine, "python", f"{version} at {sys.executable}")


def _settings(given: Settings, run: Run | None) -> Finding:
    names = sorted(name for name in os.environ if name.startswith("AMUX_"))
    file = [str(Path("amux.toml").resolve())] if Path("amux.toml").exists() else []
    if bool(given.postgres_url) != bool(given.redis_url) and run is None:
        alone, other = ("POSTGRES", "REDIS") if given.postgres_url else ("REDIS", "POSTGRES")
        remedy = f"set AMUX_{other}_URL too, or neither and have both brought along"
        return Finding(Mark.broken, "settings", f"AMUX_{alone}_URL is set alone", remedy)
    return Finding(Mark.fine, "settings", f"from {', '.join([*file, *names]) or 'defaults alone'}")


def _home(home: Path, run: Run | None) -> Finding:
    """Whether it can be written, seen by writing; where it is not there yet, whether it could be made."""
    remedy = "set AMUX_HOME to a folder with room that is yours"
    place = next(folder for folder in (home, *home.parents) if os.path.lexists(folder))
    if not place.is_dir():
        return Finding(Mark.broken, "home", f"{place} is no folder", remedy)
    try:
        os.rmdir(tempfile.mkdtemp(dir=place))
    except OSError as why:
        return Finding(Mark.broken, "home", f"{home} cannot be written ({why.strerror})", remedy)
    free = shutil.disk_usage(place).free
    if free < ROOM:
        return Finding(Mark.warning, "home", f"{home} has {free >> 20} MiB left", "make room on its disk")
    state = f", amux runs here (pid {run.supervisor.pid})" if run else "" if home.exists() else ", not made yet"
    return Finding(Mark.fine, "home", f"{home}, {free >> 30} GiB free{state}")


def _packs(settings: Settings) -> Iterator[Finding]:
    """Each Pack that is left out, by its mistake."""
    from amux.wiring import library

    known = library(settings)
    for fault in known.faults:
        yield Finding(Mark.warning, "pack", str(fault), "mend that line, or move the Pack away")
    yield Finding(Mark.fine, "packs", f"{len(known.sources)} read, with {len(known.experts)} experts")


async def _ports(settings: Settings, run: Run | None) -> list[Finding]:
    """Whether what should listen does; or, where nothing runs, whether it could."""
    if run is None:
        return [_free(settings)]
    found = []
    for name, port in run.ports.items():
        answers = await http_answers(f"http://127.0.0.1:{port}{'/healthz' if name == 'web' else '/'}")()
        if answers:
            found.append(Finding(Mark.fine, name, f"answers on port {port}"))
        else:
            remedy = f"it may be starting; else see {settings.home / 'logs' / name}.log"
            found.append(Finding(Mark.warning, name, f"does not answer on port {port}", remedy))
    return found


def _free(settings: Settings) -> Finding:
    ports = [settings.web_port + more for more in range(3)] if settings.web_port else []
    try:
        for port in ports:
            free_or_refuse(port, host="127.0.0.1", remedy=OTHER_PORT)
    except Refused as why:
        state, _, remedy = str(why).rstrip(".").partition("; ")
        return Finding(Mark.broken, "ports", state, remedy)
    return Finding(Mark.fine, "ports", f"{', '.join(map(str, ports)) or 'any'} free for web, Flower and the sandbox")


def _programs(settings: Settings) -> Iterator[Finding]:
    try:
        found = find_binaries(settings.pg_bin, settings.redis_bin)
    except (Refused, Unavailable) as why:
        state, _, remedy = str(why).rstrip(".").rpartition(": ")
        yield Finding(Mark.broken, "servers", state, remedy)
        return
    yield Finding(Mark.fine, "postgres", f"{_version(found.postgres)}, not running; `amux up` starts it")
    yield Finding(Mark.fine, "redis", f"{_version(found.redis)}, not running; `amux up` starts it")


def _version(program: Program) -> str:
    return f"{program.path.name} {'.'.join(map(str, program.version))} at {program.path}"
