"""docs/rooms.md: every module of the house with the first sentence of its opening paragraph.

Run from the root as `python -m tests.gates.rooms`; it fails when the file is not up to date, and `--write` writes it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.gates.kept import keep

ROOMS = ("amux", "workers", "ops")
DOCUMENT = Path("docs/rooms.md")
HEAD = """# Rooms

Every module, in the words that it opens with. Written by `make rooms-write`; a gate keeps it true.
"""


def render(root: Path) -> str:
    """The document for the tree below `root`."""
    lines = [HEAD]
    for room in ROOMS:
        for folder in [root / room, *sorted(path for path in (root / room).rglob("*") if path.is_dir())]:
            if rows := [row for path in sorted(folder.glob("*.py")) for row in describe(path)]:
                lines += [f"## {folder.relative_to(root)}", *rows, ""]
    return "\n".join(lines)


def describe(path: Path) -> Iterator[str]:
    """One row; none for a module that says nothing, as an empty `__init__` does."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if said:
        yield f"- `{path.name}` {first_sentence(said)}"


def first_sentence(paragraph: str) -> str:
    text = " ".join(paragraph.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text, maxsplit=1)[0]


def main(words: list[str]) -> int:
    wanted = render(Path.cwd())
    shows = f"says what the {wanted.count('- `')} modules say"
    return keep(DOCUMENT, wanted, words, otherwise="is not what the modules say: make rooms-write", shows=shows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
