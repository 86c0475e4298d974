"""`expert ls`, `expert show`: which experts and shortcuts a launch can name, and which Packs were refused, and why."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amux.cli.common import client_settings, exits, say_json
from amux.cli.extras import extras
from amux.cli.screen import plain
from amux.core.launch import Asked, Profile, Shortcut

if TYPE_CHECKING:
    from amux.packs.loader import Library

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Workspace = Annotated[Path | None, typer.Option(help="With the Packs of the project in that folder.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Experts and shortcuts for new Sessions.")
    group.command("ls", epilog="Example: amux expert ls --workspace .")(ls)
    group.command("show", epilog="Example: amux expert show builtin/default")(show)
    app.add_typer(group, name="expert")


def ls(workspace: Workspace = None, json: Json = False) -> None:
    """What there is: experts, shortcuts, and on stderr the Packs that were refused, with file and line."""
    with exits():
        library = _library(workspace)
        rows = [_expert(library, one) for one in library.experts.values()]
        rows += [_shortcut(library, one) for one in library.shortcuts.values()]
        if json:
            for row in rows:
                say_json({name: value for name, value in row.items() if name != "instructions"})
        else:
            columns = ("id", "kind", "from", "title")
            _table([("ID", "KIND", "FROM", "TITLE"), *(tuple(str(row[name]) for name in columns) for row in rows)])
        for fault in library.faults:
            print(plain(str(fault)), file=sys.stderr)


def show(expert: str, workspace: Workspace = None, json: Json = False) -> None:
    """One expert or shortcut: what a new Session takes from it."""
    with exits():
        library = _library(workspace)
        if expert in library.shortcuts:
            row = _shortcut(library, library.shortcut(expert))
        else:
            row = _expert(library, library.expert(expert))
        if json:
            say_json(row)
            return
        instructions = row.pop("instructions", "")
        for name, value in row.items():
            for one in value if isinstance(value, list) else [value]:
                if one:
                    print(f"{name:<12} {plain(one)}")
        if isinstance(instructions, str) and instructions:
            print("\n" + "\n".join(map(plain, instructions.splitlines())))


def _library(workspace: Path | None) -> "Library":
    from amux.wiring import library

    settings = client_settings()
    return library(replace(settings, workspace=workspace.resolve()) if workspace else settings)


Row = dict[str, str | list[str]]


def _expert(library: "Library", one: Profile) -> Row:
    asked = Asked(one.engine, one.model, one.effort)
    row = _row(library, "expert", one.id, one.title, asked)
    return {**row, **extras(one), "instructions": one.instructions}


def _shortcut(library: "Library", one: Shortcut) -> Row:
    row = _row(library, "shortcut", one.id, one.title, one.asked)
    return {**row, "expert": one.profile, "permission": one.asked.permission or ""}


def _row(library: "Library", kind: str, id_: str, title: str, asked: Asked) -> Row:
    source = library.sources[id_.partition("/")[0]]
    about = {"id": id_, "kind": kind, "from": str(source), "title": title}
    return {**about, "engine": asked.engine or "", "model": asked.model or "", "effort": asked.effort or ""}


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(plain(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
