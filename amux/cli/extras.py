"""What an expert or a Session brings beyond the rest, for people: names of variables and MCP servers, never a value."""

import shlex

from amux.core.launch import McpServer, Profile, Saved


def extras(of: Profile | Saved) -> dict[str, list[str]]:
    """One line for each server: its name, how it is reached, and the names of what it is given."""
    return {"environment": [*of.environment], "mcp": [_line(server) for server in of.mcp]}


def _line(server: McpServer) -> str:
    names = f" (given {', '.join(server.environment)})" if server.environment else ""
    return f"{server.name}: {server.url or shlex.join(server.command)}{names}"
