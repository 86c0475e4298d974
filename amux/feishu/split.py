"""Long text in parts below a size, cut where a reader expects it: between paragraphs, then lines, then anywhere.

A code fence that is cut is closed at the end of its part and opened again in the next."""

from collections.abc import Iterator

FENCE = "```"


def split(text: str, most: int) -> list[str]:
    """Parts of at most `most` bytes of UTF-8, in order; none for empty text."""
    parts: list[str] = []
    room = most - 2 * (len(FENCE) + 1) - 32  # for closing and reopening a fence with its language
    current = ""
    for piece in _pieces(text, room):
        if current and len((current + piece).encode()) > room:
            parts.append(current)
            current = ""
        current += piece
    if current.strip():
        parts.append(current)
    return _mended(parts)


def _pieces(text: str, room: int) -> Iterator[str]:
    """Paragraphs with what ends them; one that is too long comes in lines, a line in pieces."""
    for paragraph in _with_ends(text, "\n\n"):
        if len(paragraph.encode()) <= room:
            yield paragraph
            continue
        for line in _with_ends(paragraph, "\n"):
            yield from _cut(line, room)


def _with_ends(text: str, end: str) -> Iterator[str]:
    *whole, last = text.split(end)
    yield from (piece + end for piece in whole)
    if last:
        yield last


def _cut(line: str, room: int) -> Iterator[str]:
    while len(line.encode()) > room:
        piece = line.encode()[:room].decode(errors="ignore")  # whole characters
        yield piece
        line = line[len(piece) :]
    if line:
        yield line


def _mended(parts: list[str]) -> list[str]:
    opening, mended = "", []
    for part in parts:
        whole = f"{opening}\n{part}" if opening else part
        for line in part.splitlines():
            if line.lstrip().startswith(FENCE):
                opening = "" if opening else line.strip()[:24]
        mended.append(f"{whole.rstrip()}\n{FENCE}" if opening else whole.strip("\n"))
    return mended
