"""Which agents there are, for `amux doctor`: their programs, their keys, and by a live probe what each can do.

The probe opens a conversation in a folder of its own and closes it again; nothing is said to any model."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from amux.cli.findings import Finding, Mark
from amux.core.errors import Refused, Unavailable, Uncertain
from amux.core.ids import SessionId, SessionRef
from amux.core.launch import Extra, LaunchSnapshot
from amux.extensions import Opening, Provider
from amux.providers import claude, codex

VERSION_SECONDS = 15.0
PROBE_SECONDS = 60.0
INSTALL = 'pip install "amux[agents]"'
NOWHERE = "http://127.0.0.1:9"
PROBED_WITH = {  # a probe needs no account, and its agents reach nobody
    codex.KEY: "probe",
    "OPENAI_BASE_URL": f"{NOWHERE}/v1",
    claude.KEYS[0]: "probe",
    "ANTHROPIC_BASE_URL": NOWHERE,
}


@dataclass(frozen=True, slots=True)
class Agent:
    """One that comes with an extra: where its program is (raises Unavailable), and the keys of which one must be set."""

    engine: str
    program: Callable[[], Path]
    keys: tuple[str, ...]


AGENTS = (
    Agent("codex", codex.packaged, (codex.KEY,)),
    Agent("claude", claude.packaged, claude.KEYS),
)


async def engines(chosen: str, env: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Each agent that ships. One that is not there is a fault only when Sessions start on it (`chosen`)."""
    yield Finding(Mark.fine, "scripted", "built in")
    for agent in AGENTS:
        yield await _agent(agent, env, chosen=agent.engine == chosen)
    if chosen not in ("scripted", *(agent.engine for agent in AGENTS)):
        from amux.wiring import providers

        if chosen not in providers(env):
            remedy = "set AMUX_ENGINE to scripted, codex or claude, or install the plug-in that brings it"
            yield Finding(Mark.broken, "engine", f"there is no agent {chosen}", remedy)


async def _agent(agent: Agent, env: Mapping[str, str], *, chosen: bool) -> Finding:
    try:
        program = agent.program()
        version = await _version(program)
    except Unavailable as why:
        return Finding(Mark.broken if chosen else Mark.absent, agent.engine, str(why).split(". ")[0], INSTALL)
    if not any(env.get(key) for key in agent.keys):
        remedy = "set it in the environment of the worker"
        mark = Mark.warning if chosen else Mark.absent
        return Finding(mark, agent.engine, f"{version}, without {agent.keys[0]} in this environment", remedy)
    return Finding(Mark.fine, agent.engine, version)


async def _version(program: Path) -> str:
    """What it says of itself. Raises Unavailable when it says nothing."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            str(program), "--version", stdin=null, stdout=pipe, stderr=null, cwd="/"
        )
    except OSError as why:
        raise Unavailable(f"{program} cannot be run ({why.strerror})") from why
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        said = b""
    version = re.search(rb"\d+\.\d+[^\s]*", said)
    if process.returncode or not version:
        raise Unavailable(f"{program} does not tell its version")
    return f"{version[0].decode()} at {program}"


async def matrix(env: Mapping[str, str]) -> AsyncIterator[Finding]:
    """What each agent can do, found on the live one."""
    from amux.wiring import providers

    for engine, provider in sorted(providers({**env, **PROBED_WITH}).items()):
        yield await _probed(engine, provider)


async def _probed(engine: str, provider: Provider) -> Finding:
    from amux.providers.process import boottime

    with tempfile.TemporaryDirectory(prefix="amux-doctor-", ignore_cleanup_errors=True) as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        launch = LaunchSnapshot(engine=engine, workspace=str(workspace))
        home, deadline = str(Path(folder, "home")), boottime() + PROBE_SECONDS
        opening = Opening(SessionRef("local", SessionId("doctor")), launch, home, deadline, None)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                conversation = await provider.open(opening, lambda _event: None)
        except (Refused, Unavailable, Uncertain, TimeoutError) as why:
            return Finding(Mark.absent, engine, "not probed, it does not open", str(why) or "it took too long")
        parts = {"steering": conversation.steering, "compaction": conversation.compaction}
        await conversation.close()
    extras = getattr(provider, "extras", ())  # a plug-in of before there were extras has none
    can = {name: part is not None for name, part in parts.items()} | {extra: extra in extras for extra in Extra}
    told = ", ".join(f"{name}: {'yes' if there else 'no'}" for name, there in can.items())
    return Finding(Mark.fine, engine, told)
