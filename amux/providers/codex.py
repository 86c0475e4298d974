"""The provider for Codex: finds the program, gives it a home and a configuration of its own, opens a thread in it.

One app-server process a Session, behind its Guard. It reaches its model by OPENAI_BASE_URL with OPENAI_API_KEY, which its
tools do not see, and no more do they what its MCP servers alone are given. Nothing of a person's own ~/.codex is read or
written."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from amux.core.inputs import Permission
from amux.extensions import Emit, Extra, LaunchSnapshot, McpServer, Opening, Refused, Unavailable
from amux.providers import guard
from amux.providers.codex_thread import Thread
from amux.providers.codex_turn import PATIENCE, Patience
from amux.providers.given import check_servers, given, of_servers_alone
from amux.providers.opening import REMEDY, folder, greeting, installed
from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.unanswered import Rejected

OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
CLIENT = {"name": "amux", "title": "amux", "version": "0.1"}
PERMISSIONS = {
    Permission.bypass: {"approvalPolicy": "never", "sandbox": "danger-full-access"},
    Permission.ask: {"approvalPolicy": "on-request", "sandbox": "workspace-write"},
}
GONE = ("no rollout found", "invalid session id", "is archived")
# Half-shown text stays when somebody steers; tools see what they were given, whatever its name, and no key; a server that
# fails is asked again for some seconds.
CONFIG = """\
model_provider = "amux"
[features]
instant_interrupt = false
[shell_environment_policy]
ignore_default_excludes = true
exclude = {hidden}
[model_providers.amux]
name = "amux"
base_url = {base_url}
wire_api = "responses"
env_key = "{key}"
request_max_retries = 3
stream_max_retries = 3
"""


class Codex:
    """A Provider. `env` is the worker's environment; `program`, where it is given, is run in place of the packaged one."""

    engine = "codex"
    extras = frozenset(Extra)

    def __init__(self, env: Mapping[str, str], *, program: Path | None = None, patience: Patience = PATIENCE) -> None:
        self._worker = env
        self._base_url = env.get("OPENAI_BASE_URL") or OPENAI
        self._key = env.get(KEY, "")
        self._program, self._patience = program, patience

    async def open(self, opening: Opening, emit: Emit) -> Thread:
        program = self._program or packaged()
        if not self._key:
            raise Unavailable(f"Codex needs {KEY}. Set it in the environment of the worker.")
        home = Path(opening.home)
        own = {"CODEX_HOME": str(home / "codex"), KEY: self._key, "RUST_LOG": "error"}
        variables = given(opening.launch, self._worker, own=own)
        check_servers(opening.launch)
        _configure(home / "codex", self._base_url, (KEY, *of_servers_alone(opening.launch)))
        process = await Process.start(
            [str(program), "app-server", "--strict-config"],
            opening,
            env={**variables, **own},
            hidden=variables.values(),
            remedy=REMEDY,
        )
        thread = Thread(process, self._patience)
        async with greeting("Codex", process):
            await self._greet(thread, opening)
        thread.hand_over(emit)
        return thread

    async def _greet(self, thread: Thread, opening: Opening) -> None:
        greeting = {"clientInfo": CLIENT, "capabilities": {"experimentalApi": True}}
        await thread.peer.ask("initialize", greeting, seconds=self._patience.opening)
        await thread.peer.tell("initialized")
        if self._base_url == OPENAI:  # elsewhere only the server knows what it serves
            await self._check(thread, opening.launch)
        if opening.native_id is None:
            await self._begin(thread, opening)
        else:
            await self._resume(thread, opening.launch, opening.native_id)

    async def _check(self, thread: Thread, launch: LaunchSnapshot) -> None:
        answer = await thread.peer.ask("model/list", {"includeHidden": True}, seconds=self._patience.opening)
        models: dict[str, Line] = {model["id"]: model for model in answer.get("data") or ()}
        if launch.model and models and launch.model not in models:
            raise Refused(f"Codex has no model {launch.model}. It has: {', '.join(models)}.", key="no_model")

    async def _begin(self, thread: Thread, opening: Opening) -> None:
        seconds = self._patience.opening
        answer = await thread.peer.ask("thread/start", _settings(opening.launch), seconds=seconds)
        thread.native_id = str(answer["thread"]["id"])
        # A thread without a turn has no file and could not be resumed; its name gives it one (H56).
        name = {"threadId": thread.native_id, "name": f"amux {opening.session}"}
        await thread.peer.ask("thread/name/set", name, seconds=seconds)

    async def _resume(self, thread: Thread, launch: LaunchSnapshot, native_id: str) -> None:
        thread.native_id = native_id
        await thread.pause_goal()  # a resume would start an active one at once (H52)
        params = {"threadId": native_id, **_settings(launch), "excludeTurns": True}
        try:
            await thread.peer.ask("thread/resume", params, seconds=self._patience.opening)
        except Rejected as error:
            if any(words in error.message for words in GONE):
                raise Refused(f"Codex no longer has this conversation: {error.message}", key="no_history") from error
            raise


def packaged() -> Path:
    """The program of the package `openai-codex-cli-bin`. Raises Unavailable, saying what to do, when it is missing."""
    return installed("Codex", "codex_cli_bin", "bin", "codex")


def _configure(state: Path, base_url: str, hidden: Sequence[str]) -> None:
    """Make Codex's own folder with our configuration in it; Codex writes into both, so they are the Session's own.
    `hidden` are the variables that its tools do not see."""
    with folder("Codex", state):
        text = CONFIG.format(base_url=json.dumps(base_url), key=KEY, hidden=json.dumps(hidden))
        (state / "config.toml").write_text(text, encoding="utf-8")


def _settings(launch: LaunchSnapshot) -> dict[str, object]:
    """What is recorded, told at every start and resume: it outranks what Codex would take by itself (S5)."""
    settings: dict[str, object] = {"cwd": launch.workspace, **PERMISSIONS[launch.permission]}
    if launch.instructions:
        settings["developerInstructions"] = launch.instructions
    if launch.model:
        settings["model"] = launch.model
    config: dict[str, object] = {"model_reasoning_effort": launch.effort} if launch.effort else {}
    if launch.mcp:
        config["mcp_servers"] = {server.name: _server(server) for server in launch.mcp}
    return {**settings, "config": config} if config else settings


def _server(server: McpServer) -> dict[str, object]:
    """A server as Codex spells it. It gives a program little of its own environment, and these names beside."""
    if server.url:
        return {"url": server.url}
    program, *arguments = server.command
    return {"command": program, "args": arguments, "env_vars": [guard.MARK, *server.environment]}
