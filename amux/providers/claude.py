"""The provider for Claude Code: its program from the Agent SDK, a home of its own, a conversation new or resumed in it.

By the SDK, and without running it: what is taken from it is its program, its command line and its lines. Its client would
start the program itself, with this process' whole environment and without a Guard, hides the frames that tell an input's
fate, and stalls on a hundred unread ones; to import it takes seconds, which a worker's loop that renews Leases does not
have. So the lines are spoken straight on a `Process`, as with any other agent, and a test holds the command to the one that
the SDK spells. The price: both are the SDK's inside, and its version is bounded for it.

Nothing of a person's own ~/.claude is read or written. Claude never runs a broken prompt again by itself (H56)."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from amux.core.inputs import Permission
from amux.extensions import Emit, Extra, LaunchSnapshot, McpServer, Opening, Refused, Unavailable
from amux.providers import mcp_start
from amux.providers.claude_dialogue import Dialogue
from amux.providers.claude_turn import PATIENCE, Patience
from amux.providers.given import check_servers, given, harmless, of_servers_alone
from amux.providers.opening import REMEDY, folder, greeting, installed
from amux.providers.process import Process

EFFORTS = ("low", "medium", "high", "xhigh", "max")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
PASSED = ("ANTHROPIC_BASE_URL", *KEYS)
IN_USE, GONE = "is already in use", "No conversation found"
# They reach into other conversations, start turns by themselves, or want an answer that is no yes or no.
WITHHELD = (
    *("ListAgents", "SendMessage", "ScheduleWakeup", "CronCreate", "Monitor", "Workflow"),
    *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode"),
)
FIXED = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # one that ends would start a turn that nobody asked for (H55)
    "CLAUDE_CODE_MAX_RETRIES": "4",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
}
# Claude's tools run through this: what they print is shown to people, and its keys are none of it, nor what its MCP servers
# alone are given. They run through it too, marked, and then by `mcp_start`.
SERVER = "AGENT_MCP"
SHELL = """\
#!/bin/sh
[ -n "${server}" ] || unset {hidden}
unset {keys}
exec bash -c "$1"
"""


@dataclass(frozen=True, slots=True)
class Native:
    """A native conversation by its id, and whether there is one to resume."""

    id: str
    resumed: bool


class Claude:
    """A Provider. `env` is the worker's environment; `program`, where it is given, is run in place of the bundled one."""

    engine = "claude"
    extras = frozenset(Extra)

    def __init__(self, env: Mapping[str, str], *, program: Path | None = None, patience: Patience = PATIENCE) -> None:
        self._worker = env
        self._env = {name: env[name] for name in PASSED if env.get(name)}
        self._program, self._patience = program, patience

    async def open(self, opening: Opening, emit: Emit) -> Dialogue:
        program = self._program or packaged()
        if not any(name in self._env for name in KEYS):
            raise Unavailable(f"Claude needs {KEYS[0]} or {KEYS[1]}. Set it in the environment of the worker.")
        _check(opening.launch)
        check_servers(opening.launch)
        unused = _prepared(Path(opening.home) / "claude", of_servers_alone(opening.launch)) / "unused"
        native = _native(opening.native_id, unused)
        try:
            dialogue = await self._begin(program, opening, native, unused)
        except _InUse:  # something was said in it after all: the owner before died at that moment (H56)
            dialogue = await self._begin(program, opening, Native(native.id, resumed=True), unused)
        dialogue.hand_over(emit)
        return dialogue

    async def _begin(self, program: Path, opening: Opening, native: Native, unused: Path) -> Dialogue:
        own = {**self._env, **FIXED, **_places(Path(opening.home))}
        variables = given(opening.launch, self._worker, own=own)
        process = await Process.start(
            command(program, opening.launch, native),
            opening,
            env={**variables, **own},
            hidden=variables.values(),
            name="claude",
            remedy=REMEDY,
        )
        used = partial(unused.unlink, missing_ok=True)
        dialogue = Dialogue(process, native.id, self._patience, used=used, hide=self._hidden)
        async with greeting("Claude", process, meaning=_meaning):
            await dialogue.control.ask("initialize", seconds=self._patience.opening, hooks=None)
        return dialogue

    def _hidden(self, text: str) -> str:
        """Without our keys, which a model server may repeat when it does not like them."""
        for secret in (self._env[name] for name in KEYS if name in self._env):
            text = text.replace(secret, "[secret]")
        return text


class _InUse(Exception):
    """A conversation of that id is there already."""


def packaged() -> Path:
    """The program of the package `claude-agent-sdk`. Raises Unavailable, saying what to do, when it is missing."""
    return installed("Claude", "claude_agent_sdk", "_bundled", "claude")


def _check(launch: LaunchSnapshot) -> None:
    if launch.model and launch.model.startswith("-"):
        raise Refused(f"{launch.model} is no name of a model. Start a Session with another one.", key="no_model")
    if launch.effort and launch.effort not in EFFORTS:
        raise Refused(f"Claude has no effort {launch.effort}. It has: {', '.join(EFFORTS)}.", key="no_effort")


def _prepared(state: Path, hidden: Sequence[str]) -> Path:
    """Claude's own folder, with the shell of its tools, which do not see the `hidden` variables; Claude keeps its settings
    and conversations there."""
    shell = SHELL.format(server=SERVER, hidden=" ".join(hidden), keys=" ".join(KEYS))
    with folder("Claude", state):
        (state / "shell").write_text(shell, encoding="utf-8")
        (state / "shell").chmod(0o700)
    return state


def _native(native_id: str | None, unused: Path) -> Native:
    """Which one to open. Claude keeps nothing of a conversation in which nothing was said, so it is written down that an id
    was given and not used: such a one begins, and only one that was used can be gone."""
    if native_id is None:
        native_id = str(uuid4())
        unused.write_text(native_id, encoding="utf-8")
    with suppress(FileNotFoundError):
        return Native(native_id, resumed=unused.read_text(encoding="utf-8") != native_id)
    return Native(native_id, resumed=True)


def _places(home: Path) -> dict[str, str]:
    places = {
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_TMPDIR": str(home / "tmp"),
        "CLAUDE_CODE_SHELL_PREFIX": str(home / "claude" / "shell"),
        "SHELL": shutil.which("bash") or "/bin/bash",
    }
    return {**places, "IS_SANDBOX": "1"} if os.geteuid() == 0 else places  # else it does not bypass as root


def command(program: Path, launch: LaunchSnapshot, native: Native) -> list[str]:
    """The command line, word for word as the SDK spells it. The preset prompt is the one without a word about it."""
    line = [str(program), "--output-format", "stream-json", "--verbose"]
    if launch.instructions:
        line += ["--append-system-prompt", launch.instructions]
    line += ["--disallowedTools", ",".join(WITHHELD)]
    if launch.model:
        line += ["--model", launch.model]
    if launch.permission is Permission.ask:
        line += ["--permission-prompt-tool", "stdio", "--permission-mode", "default"]
    else:
        line += ["--permission-mode", "bypassPermissions"]
    line += [f"--resume={native.id}" if native.resumed else f"--session-id={native.id}"]
    if launch.mcp:
        line += ["--mcp-config", json.dumps({"mcpServers": servers(launch.mcp)})]
    line += ["--include-partial-messages", "--strict-mcp-config", "--setting-sources=project"]
    if launch.effort:
        line += ["--effort", launch.effort]
    return [*line, "--input-format", "stream-json"]


def servers(mcp: Sequence[McpServer]) -> dict[str, dict[str, object]]:
    """The MCP servers as Claude spells them, without anything that it would fill in: it puts its own variables, its key too,
    wherever it reads `${NAME}`."""
    return {server.name: _server(server) for server in mcp}


def _server(server: McpServer) -> dict[str, object]:
    if server.url:
        return {"type": "http", "url": server.url.replace("${", "$%7B")}
    told = mcp_start.spelled(server.command, harmless(server.environment))
    arguments = ["-I", "-S", mcp_start.__file__, told]
    return {"type": "stdio", "command": sys.executable, "args": arguments, "env": {SERVER: server.name}}


def _meaning(last_words: str) -> Exception | None:
    """What it means that Claude ended with these while it opened."""
    if IN_USE in last_words:
        return _InUse()
    if GONE in last_words:
        return Refused(f"Claude no longer has this conversation ({GONE}).", key="no_history")
    return None
