"""`turns --peers`: engines that make a similar promise, installed for this run and removed with it.

Each is a program in `ops/bench/engines`, in an environment of its own. What cannot be had here is named, not failed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from ops.bench import other
from ops.bench.ground import Ground, say

ENGINES = Path(__file__).parent / "engines"
COMMON = ("psycopg[binary,pool]>=3.3",)
INSTALL_SECONDS, RUN_SECONDS = 300.0, 300.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine: what pip brings, and what npm does."""

    name: str
    wheels: Sequence[str]
    npm: str | None = None


PEERS = (
    Peer("restate", ("restate-sdk[serde]", "hypercorn", "httpx"), "@restatedev/restate-server"),
    Peer("dbos", ("dbos",)),
    Peer("procrastinate", ("procrastinate",)),
)


class Absent(Exception):
    """This engine cannot be had or does not run here."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer and how to start it."""

    peer: Peer
    python: Path
    env: Mapping[str, str]


@asynccontextmanager
async def installed(missing: dict[str, str]) -> AsyncIterator[list[Installed]]:
    """All that can be had, in a temporary folder; `missing` is told why the others cannot."""
    with TemporaryDirectory(prefix="amux-peers-") as folder:
        ready: list[Installed] = []
        for peer in PEERS:
            say(f"installing {peer.name} for this run ...")
            try:
                ready.append(await _install(peer, Path(folder) / peer.name))
            except (Absent, OSError, TimeoutError) as why:
                missing[peer.name] = f"not installed: {why}"[:200]
        yield ready


async def turns_a_second(one: Installed, place: Ground, sessions: int, each: int) -> float:
    """One round of one engine on our Postgres, in a database of its own. Raises Absent when it does not run."""
    base = place.urls.postgres
    database = f"peer_{one.peer.name}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"drop database if exists {database} with (force)".encode())
        connection.execute(f"create database {database}".encode())
    url = base.replace("/postgres?", f"/{database}?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(other.TABLE)
    env = {
        **one.env,
        "BENCH_POSTGRES_URL": url,
        "BENCH_SESSIONS": str(sessions),
        "BENCH_TURNS": str(each),
        "BENCH_ROWS": str(other.ROWS),
        "BENCH_PAYLOAD": other.PAYLOAD,
    }
    said = await _run([str(one.python), str(ENGINES / f"{one.peer.name}_engine.py")], env, RUN_SECONDS)
    try:
        row = json.loads(said.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Absent("it said nothing") from None
    with psycopg.connect(url) as connection:
        found = connection.execute("select count(*) from other_turns where session >= 0").fetchone()
    if not found or found[0] != sessions * each * other.ROWS:
        raise Absent(f"it wrote {found} rows and not {sessions * each * other.ROWS}")
    return float(row["turns"]) / float(row["seconds"])


async def _install(peer: Peer, folder: Path) -> Installed:
    env = dict(os.environ)
    await _run([sys.executable, "-m", "venv", str(folder)], env, INSTALL_SECONDS)
    python = folder / "bin" / "python"
    await _run([str(python), "-m", "pip", "install", "-q", *COMMON, *peer.wheels], env, INSTALL_SECONDS)
    if peer.npm:
        await _run(["npm", "install", "--silent", "--prefix", str(folder), peer.npm], env, INSTALL_SECONDS)
        binary = next((p for p in folder.glob("node_modules/**/bin/restate-server") if p.is_file()), None)
        if binary is None:
            raise Absent("its package brought no program for this machine")
        env["RESTATE_BIN"] = str(binary)
    return Installed(peer, python, env)


async def _run(words: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    """What it wrote to stdout. Raises Absent with its last words when it failed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, env=env, stdout=pipe, stderr=pipe, cwd=ENGINES, start_new_session=True
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        raise Absent(f"{Path(words[0]).name} took more than {seconds:g} s") from None
    finally:
        with suppress(ProcessLookupError):  # whatever it left behind
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        raise Absent(lines[-1] if lines else f"exit {process.returncode}")
    return out.decode()
