"""A document that is made from the tree: written on request, and otherwise only compared."""

from collections.abc import Sequence
from pathlib import Path


def keep(document: Path, wanted: str, words: Sequence[str], *, otherwise: str, shows: str) -> int:
    """0 when the document is what it should be, after it was written where `words` hold --write; 1 and a line when not."""
    if "--write" in words:
        document.write_text(wanted, encoding="utf-8")
    kept = document.exists() and document.read_text(encoding="utf-8") == wanted
    print(f"{document} {shows if kept else otherwise}")
    return 0 if kept else 1
