"""Becomes an MCP server, with the variables that it was promised and no others: an agent that starts its servers with all
that it has itself, its key to the model included, starts this in their place.

Run by path with one argument, `{"command": [...], "names": [...]}`; standard library only. No variable stands in the
argument, and no `$`, since the agent may fill in what follows one."""

import json
import os
import sys
from collections.abc import Mapping, Sequence


def spelled(command: Sequence[str], names: Sequence[str]) -> str:
    """The argument for that server."""
    return json.dumps({"command": [*command], "names": [*names]}).replace("$", "\\u0024")


def kept(env: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Of an environment, these names, and the language that people set."""
    return {name: value for name, value in env.items() if name in names or name.startswith("LC_")}


def main() -> None:
    told = json.loads(sys.argv[1])
    os.execvpe(told["command"][0], told["command"], kept(os.environ, told["names"]))


if __name__ == "__main__":
    main()
