"""Reads Packs: folders of experts that ship, that a person keeps, and that a project brings along.

A Pack with a mistake is refused whole, with file and line, and breaks no other. Nobody can take the place of a Pack that
was there before: what ships comes first, then the person's, then the project's."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from amux.core.errors import Refused
from amux.core.launch import Profile, Shortcut
from amux.packs.reading import NAME, Mistake, expert, shortcuts

SHORTCUTS = "shortcuts.toml"
BUILTIN = Path(__file__).parent / "builtin"
PROJECT = Path(".amux", "packs")  # in a workspace


class Source(StrEnum):
    """Where a Pack comes from."""

    builtin = "builtin"
    user = "user"
    project = "project"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a Pack was refused. `line` counts from 1."""

    pack: str
    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        told = f"{self.file}:{self.line}: {self.what}; the Pack {self.pack} is left out"
        return "".join(c if c.isprintable() else "?" for c in told)  # a project names its files and keys as it likes


@dataclass(frozen=True, slots=True)
class Library:
    """All experts and shortcuts that there are now, by id, and the Packs that were refused."""

    experts: dict[str, Profile] = field(default_factory=dict)
    shortcuts: dict[str, Shortcut] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)  # of each Pack by its name
    faults: list[Fault] = field(default_factory=list)

    def expert(self, id_: str) -> Profile:
        """The expert of that id. Raises Refused, naming what is wrong with its Pack where it was refused."""
        if id_ in self.experts:
            return self.experts[id_]
        raise self._unknown("expert", id_, self.experts)

    def shortcut(self, id_: str) -> Shortcut:
        """The shortcut of that id. Raises Refused, as for an expert."""
        if id_ in self.shortcuts:
            return self.shortcuts[id_]
        raise self._unknown("shortcut", id_, self.shortcuts)

    def _unknown(self, what: str, id_: str, known: Mapping[str, object]) -> Refused:
        if fault := next((fault for fault in self.faults if fault.pack == id_.partition("/")[0]), None):
            return Refused(f"There is no {what} {id_}. {fault}.", key=f"unknown_{what}")
        near = difflib.get_close_matches(id_, known, 1)
        remedy = f"Did you mean {near[0]}?" if near else "`amux expert ls` shows what there is."
        return Refused(f"There is no {what} {id_}. {remedy}", key=f"unknown_{what}")


def load(user: Path, workspace: Path | None = None) -> Library:
    """What ships, what lies in the folder `user`, and what the project in that workspace brings along. Raises nothing."""
    library = Library()
    folders = [(Source.builtin, BUILTIN), *((Source.user, pack) for pack in _folders(user))]
    if workspace:
        folders += [(Source.project, pack) for pack in _folders(workspace / PROJECT)]
    for source, pack in folders:
        try:
            _add(library, source, pack)
        except _Wrong as wrong:
            library.faults.append(Fault(pack.name, wrong.file, wrong.line, str(wrong)))
    return library


class _Wrong(Mistake):
    """A mistake, with its file."""

    def __init__(self, file: Path, line: int, what: str) -> None:
        super().__init__(line, what)
        self.file = file


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(folder for folder in parent.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    except OSError:  # none, or not ours to read
        return []


def _add(library: Library, source: Source, pack: Path) -> None:
    """All of a Pack, or nothing of it."""
    if not NAME.fullmatch(pack.name):
        raise _Wrong(pack, 1, "a Pack is named by one word of a-z, 0-9, dot, dash")
    if there := library.sources.get(pack.name):
        raise _Wrong(pack, 1, f"there is a Pack {pack.name} already ({there}); give this folder another name")
    experts: dict[str, Profile] = {}
    presets: dict[str, Shortcut] = {}
    for file in _files(pack):
        try:
            if file.name == SHORTCUTS:
                presets = shortcuts(pack.name, file)
            else:
                profile = expert(f"{pack.name}/{_name(file)}", file, foreign=source is Source.project)
                if profile.id in experts:
                    raise Mistake(1, f"there is a file {file.stem} already")
                experts[profile.id] = profile
        except Mistake as why:
            raise _Wrong(file, why.line, str(why)) from why
    library.sources[pack.name] = source
    library.experts.update(experts)
    library.shortcuts.update(presets)


def _files(pack: Path) -> Iterator[Path]:
    try:
        files = sorted(pack.iterdir())
    except OSError as why:
        raise _Wrong(pack, 1, f"cannot be read ({why.strerror})") from why
    for file in files:
        about_it = file.name.startswith(".") or file.name.lower() == "readme.md"
        if file.suffix in (".toml", ".md") and file.is_file() and not about_it:
            yield file


def _name(file: Path) -> str:
    if NAME.fullmatch(file.stem):
        return file.stem
    raise Mistake(1, "an expert's file is named by one word of a-z, 0-9, dot, dash")
