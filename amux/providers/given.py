"""What a launch gives its agent beyond the rest: variables of the worker's by their names, and MCP servers (S5).

A value is looked up anew at each opening and stands in the environment of the agent's process: in no file, no command line
and nothing that is told."""

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from amux.core.launch import PRIVATE
from amux.extensions import LaunchSnapshot, Refused
from amux.providers import guard
from amux.providers.spawn import PASSED

PLACES = ("HOME", "TMPDIR", guard.MARK)  # set for each agent anew
ANOTHER = "or start a new Session with another expert."


def given(launch: LaunchSnapshot, worker: Mapping[str, str], *, own: Collection[str] = ()) -> dict[str, str]:
    """All variables that its agent and its servers are given. Raises Refused, with each that cannot be, by name.

    `own` are those that the provider sets itself: one of them would be another than the one that was promised."""
    names = dict.fromkeys([*launch.environment, *_of_servers(launch)])
    if kept := [name for name in names if name.startswith(PRIVATE) or name in PLACES or name in own]:
        told = f"{', '.join(kept)} cannot be given to this agent: amux sets or keeps it itself."
        raise Refused(f"{told} Start a new Session with another expert.", key="no_environment")
    if missing := [name for name in names if name not in worker]:
        told = f"This Session is given {', '.join(missing)}, which the worker does not have."
        raise Refused(f"{told} Set it in the environment of the worker, {ANOTHER}", key="no_environment")
    return {name: worker[name] for name in names}


def of_servers_alone(launch: LaunchSnapshot) -> list[str]:
    """The names that servers are given and the agent's own tools are not."""
    return [name for name in dict.fromkeys(_of_servers(launch)) if name not in launch.environment]


def harmless(names: Collection[str]) -> list[str]:
    """The whole environment of a server that is given these: what every agent has, and them."""
    return sorted({*PASSED, *PLACES, *names})


def check_servers(launch: LaunchSnapshot) -> None:
    """Raises Refused for a server whose program is no longer there: an agent would go on without it (S5)."""
    for server in launch.mcp:
        program = server.command[0] if server.command else ""
        where = str(Path(launch.workspace, program)) if "/" in program else program
        if program and shutil.which(where, path=os.environ.get("PATH")) is None:
            told = f"The MCP server {server.name} cannot be started: there is no program {program}."
            raise Refused(f"{told} Install it again, {ANOTHER}", key="no_server")


def _of_servers(launch: LaunchSnapshot) -> list[str]:
    return [name for server in launch.mcp for name in server.environment]
