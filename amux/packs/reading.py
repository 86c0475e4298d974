"""One file of a Pack as people write it, to an expert or to shortcuts; a mistake is told with its line.

TOML, or Markdown with TOML between two lines of `+++` and the instructions below. Nothing in a file is run or followed."""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amux.core.inputs import Permission
from amux.core.launch import DEFAULT_PROFILE, PRIVATE, Asked, McpServer, Profile, Shortcut

MAX_FILE = 256 * 1024  # bytes
MAX_INSTRUCTIONS = 20_000  # characters: an agent may get them as one argument of its command line
MAX_TITLE = 200
MAX_NAMES = 32  # variables in one list
MAX_SERVERS = 8  # all of them are one argument of a command line too, with each letter spelled in up to seven
MAX_COMMAND = 1_000  # characters
MAX_URL = 500
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
ID = re.compile(rf"{NAME.pattern}/{NAME.pattern}")
SERVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
# Without user and password, since it is recorded; without braces, since an agent may fill in variables between them.
URL = re.compile(r"https?://[a-zA-Z0-9.:\[\]-]+([/?][!-z|~]*)?")
_MODEL = re.compile(r"[^\s-]\S{0,127}")
_FENCE = "+++"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OWN_PACK = "put this expert into a Pack of your own, in packs/ of AMUX_HOME"
_PERMISSION_HINT = "permissions are given with a launch, or by a shortcut, and belong to no expert"


class Mistake(Exception):
    """What is wrong in a file, and in which line of it, from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, slots=True)
class Table:
    """One TOML table with the lines it stands in, so that what is wrong with a value can be shown."""

    values: Mapping[str, Any]
    lines: list[str]
    first: int  # the number of the first of them

    def line_of(self, *keys: str) -> int:
        """Where the first of these keys that is found is set."""
        for key in keys:
            key_set = re.compile(rf"""\s*(\[\s*)?["']?{re.escape(key)}["']?\s*[=\].]""")
            if found := next((n for n, line in enumerate(self.lines, self.first) if key_set.match(line)), None):
                return found
        return self.first

    def only(self, *known: str, hints: Mapping[str, str]) -> None:
        """Raises Mistake for a key that is none of those."""
        for key in self.values:
            if key in hints:
                raise Mistake(self.line_of(key), f"{key}: {hints[key]}")
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                remedy = f"write {near[0]}" if near else f"it can hold {', '.join(known)}"
                raise Mistake(self.line_of(key), f"there is no key {key}; {remedy}")

    def inner(self, *path: str) -> "Table":
        """The table there, with the lines from its own on. Raises Mistake where there is something else."""
        line, values = self.line_of(".".join(path), path[0]), self.values
        for key in path:
            values = values[key]
            if not isinstance(values, dict):
                raise Mistake(line, f"write a table [{'.'.join(path)}]")
        return Table(values, self.lines[line - self.first :], line)

    def texts(self, key: str, fits: Callable[[str], object], form: str) -> tuple[str, ...]:
        """The list of texts at that key; empty where there is none. Raises Mistake where one does not fit."""
        value = self.values.get(key, [])
        if isinstance(value, list) and all(isinstance(each, str) and fits(each) for each in value):
            return tuple(value)
        raise Mistake(self.line_of(key), f"{key} must be a list of {form}")

    def text(self, key: str, fits: Callable[[str], object], form: str) -> str | None:
        """The text at that key; None where there is none. Raises Mistake where it does not fit."""
        value = self.values.get(key)
        if value is None or (isinstance(value, str) and fits(value)):
            return value
        raise Mistake(self.line_of(key), f"{key} must be {form}")


def read(path: Path) -> str:
    """The whole text of a file. Raises Mistake."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as why:
        raise Mistake(1, f"cannot be read ({why.strerror})") from why
    if len(raw) > MAX_FILE:
        raise Mistake(1, f"is larger than {MAX_FILE // 1024} KB")
    try:
        text = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as why:
        raise Mistake(raw[: why.start].count(b"\n") + 1, "is not written in UTF-8") from why
    if found := _CONTROL.search(text):
        raise Mistake(text[: found.start()].count("\n") + 1, "holds a control character")
    return text


def expert(id_: str, path: Path, *, foreign: bool) -> Profile:
    """The expert that a file describes. Raises Mistake.

    A `foreign` one came with a project: whoever wrote it may pull none of this machine's variables into an agent."""
    text = read(path)
    table, body = _front_matter(text) if path.suffix == ".md" else (_table(text.split("\n"), 1), None)
    known = ("title", *(() if body is not None else ("instructions",)), *_SETTINGS, "environment", "mcp")
    hints = {"permission": _PERMISSION_HINT}
    if body is not None:
        hints["instructions"] = f"they stand below the second line of {_FENCE}"
    table.only(*known, hints=hints)
    line = table.first + len(table.lines) + 1
    if body is None:
        line, body = table.line_of("instructions"), table.text("instructions", lambda _: True, "a text") or ""
    instructions = body.strip()
    if len(instructions) > MAX_INSTRUCTIONS:
        raise Mistake(
            line, f"the instructions have {len(instructions):,} characters, and {MAX_INSTRUCTIONS:,} is the most"
        )
    environment, servers = _environment(table, foreign=foreign), _servers(table, foreign=foreign)
    return Profile(id_, _title(table), instructions, **_settings(table), environment=environment, mcp=servers)


def shortcuts(pack: str, path: Path) -> dict[str, Shortcut]:
    """The shortcuts of a Pack by their ids: a table each. Raises Mistake."""
    whole = _table(read(path).split("\n"), 1)
    found: dict[str, Shortcut] = {}
    for name, values in whole.values.items():
        line = whole.line_of(name)
        if not (isinstance(values, dict) and NAME.fullmatch(name)):
            raise Mistake(line, f"write a table [name] for each shortcut, not {name}")
        table = Table(values, whole.lines[line - 1 :], line)
        table.only("title", "expert", "permission", *_SETTINGS, hints={})
        profile = table.text("expert", ID.fullmatch, "the id of an expert, like builtin/default")
        permission = table.text("permission", lambda word: word in set(Permission), "bypass or ask")
        asked = Asked(**_settings(table), permission=Permission(permission) if permission else None)
        found[f"{pack}/{name}"] = Shortcut(f"{pack}/{name}", _title(table), profile or DEFAULT_PROFILE, asked)
    return found


def _environment(table: Table, *, foreign: bool) -> tuple[str, ...]:
    """Names of variables, and no values. Raises Mistake for those that are given to no agent."""
    names = table.texts("environment", VARIABLE.fullmatch, "names like GITHUB_TOKEN, of at most 64 characters")
    line = table.line_of("environment")
    if len(names) > MAX_NAMES:
        raise Mistake(line, f"environment has {len(names)} names, and {MAX_NAMES} is the most")
    if names and foreign:
        raise Mistake(line, f"environment: a project's Pack is given no variable; {_OWN_PACK}")
    if own := next((name for name in names if name.startswith(PRIVATE)), None):
        raise Mistake(line, f"environment: {own} is amux's own or its database's, and is given to no agent")
    return names


def _servers(table: Table, *, foreign: bool) -> tuple[McpServer, ...]:
    """The MCP servers, a table each. Raises Mistake."""
    if "mcp" not in table.values:
        return ()
    names = table.inner("mcp").values
    if len(names) > MAX_SERVERS:
        raise Mistake(table.line_of("mcp"), f"mcp has {len(names)} servers, and {MAX_SERVERS} is the most")
    return tuple(_server(name, table.inner("mcp", name), foreign=foreign) for name in names)


def _server(name: str, table: Table, *, foreign: bool) -> McpServer:
    if not SERVER.fullmatch(name):
        raise Mistake(table.first, f"an MCP server is named by one word of a-z, 0-9, dash, not {name}")
    table.only("command", "url", "environment", hints={})
    command = table.texts("command", lambda word: "\0" not in word, 'texts, like ["prog", "argument"]')
    url = table.text("url", URL.fullmatch, "an address like https://host/mcp, without a password") or ""
    if ("command" in table.values) is ("url" in table.values):
        raise Mistake(table.first, f"mcp.{name} must have a command or a url, and not both")
    if "command" in table.values and not (command and command[0]):
        raise Mistake(table.line_of("command"), "command must begin with a program")
    if sum(map(len, command)) > MAX_COMMAND or len(url) > MAX_URL:
        raise Mistake(table.first, f"mcp.{name}: {MAX_COMMAND} characters of a command, {MAX_URL} of a url is the most")
    if url and "environment" in table.values:
        raise Mistake(table.line_of("environment"), "environment: a server at a url runs elsewhere and gets none")
    return McpServer(name, command, url, _environment(table, foreign=foreign))


_SETTINGS = ("engine", "model", "effort")


def _settings(table: Table) -> dict[str, str | None]:
    word = "one word of a-z, 0-9, dot, dash"
    return {
        "engine": table.text("engine", NAME.fullmatch, word),
        "model": table.text("model", _MODEL.fullmatch, "the name of a model"),
        "effort": table.text("effort", NAME.fullmatch, word),
    }


def _title(table: Table) -> str:
    fits = f"one line of at most {MAX_TITLE} characters"
    return table.text("title", lambda text: "\n" not in text and len(text) <= MAX_TITLE, fits) or ""


def _front_matter(text: str) -> tuple[Table, str]:
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise Mistake(1, f"must begin with settings in TOML between two lines of {_FENCE}")
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise Mistake(len(lines), f"has no second line of {_FENCE}")
    return _table(lines[1:end], 2), "\n".join(lines[end + 1 :])


def _table(lines: list[str], first: int) -> Table:
    try:
        return Table(tomllib.loads("\n".join(lines)), lines, first)
    except tomllib.TOMLDecodeError as why:
        what, at, place = str(why).partition(" (at line ")
        number = int(place.partition(",")[0]) if at and place[0].isdigit() else len(lines)
        raise Mistake(first + number - 1, f"is no TOML: {what}") from why
    except (ValueError, RecursionError) as why:  # a number of thousands of digits, a thousand brackets
        raise Mistake(first, "is no TOML that can be read: a number or its nesting is too long") from why
