"""Long text in parts below a weight, cut where a reader expects it: between paragraphs, then lines, then anywhere.

A code fence that is cut is closed at the end of its part and opened again in the next."""

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r" {0,3}(`{3,})([^`]*)$")
FOR_FENCES = 64  # of the weight: to close a fence and to open it again with its language
Weigh = Callable[[str], int]


def split(text: str, most: int, weigh: Weigh) -> list[str]:
    """Parts that weigh at most `most` each, in order; none for text without a word in it."""
    parts: list[str] = []
    room = most - FOR_FENCES
    current, weight = "", 0
    for piece, heavy in _pieces(text, room, weigh):
        if current and weight + heavy > room:
            parts.append(current)
            current, weight = "", 0
        current, weight = current + piece, weight + heavy
    return [part for part in _mended([*parts, current]) if part.strip()]


def _pieces(text: str, room: int, weigh: Weigh) -> Iterator[tuple[str, int]]:
    """Paragraphs with what ends them; one that is too heavy comes in lines, a line in pieces."""
    for paragraph in _with_ends(text, "\n\n"):
        if (weight := weigh(paragraph)) <= room:
            yield paragraph, weight
            continue
        for line in _with_ends(paragraph, "\n"):
            yield from _cut(line, room, weigh)


def _with_ends(text: str, end: str) -> Iterator[str]:
    *whole, last = text.split(end)
    yield from (piece + end for piece in whole)
    if last:
        yield last


def _cut(line: str, room: int, weigh: Weigh) -> Iterator[tuple[str, int]]:
    while line:
        piece = line[:room]  # nothing weighs less than 1 a character
        while (weight := weigh(piece)) > room:
            piece = piece[: max(1, len(piece) * room // weight)]
        yield piece, weight
        line = line[len(piece) :]


def _mended(parts: list[str]) -> list[str]:
    mark, opening, mended = "", "", []
    for part in parts:
        whole = f"{opening}\n{part}" if mark else part
        for line in part.split("\n"):
            found = _FENCE.match(line)
            if not found:
                continue
            if not mark:
                mark, opening = found[1], f"{found[1]}{found[2][:16]}".rstrip()
            elif len(found[1]) >= len(mark) and not found[2].strip():
                mark = ""
        mended.append(f"{whole.rstrip()}\n{mark}" if mark else whole.strip("\n"))
    return mended
