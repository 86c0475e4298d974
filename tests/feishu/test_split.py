"""A long answer in parts: nothing is lost, each is below its weight, and code stays code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amux.feishu.split import FOR_FENCES, split


def size(text: str) -> int:
    return len(text.encode())


def words(parts: list[str]) -> str:
    """All but the white space at which it was cut."""
    return "".join("".join(parts).split())


def test_a_short_text_is_one_part_as_it_stands() -> None:
    assert split("one\n\ntwo", 1_000, size) == ["one\n\ntwo"]


@pytest.mark.parametrize("text", ["", "\n\n", "  \n \n"])
def test_nothing_is_no_part(text: str) -> None:
    assert split(text, 1_000, size) == []


def test_it_is_cut_between_paragraphs() -> None:
    paragraphs = ["a" * 40, "b" * 40, "c" * 40]
    assert split("\n\n".join(paragraphs), FOR_FENCES + 90, size) == [f"{'a' * 40}\n\n{'b' * 40}", "c" * 40]


def test_a_heavy_paragraph_is_cut_between_lines() -> None:
    lines = ["a" * 40, "b" * 40, "c" * 40]
    assert split("\n".join(lines), FOR_FENCES + 90, size) == [f"{'a' * 40}\n{'b' * 40}", "c" * 40]


@pytest.mark.parametrize("letter", ["x", "长", "👋", '"', "\x01"])
def test_a_heavy_line_is_cut_at_whole_characters(letter: str) -> None:
    parts = split(letter * 1_000, FOR_FENCES + 100, size)
    assert "".join(parts) == letter * 1_000
    assert all(size(part) <= FOR_FENCES + 100 for part in parts)
    assert min(size(part) for part in parts[:-1]) > 90  # and no smaller than need be


def test_it_is_weighed_and_not_counted() -> None:
    parts = split("\n\n".join(["长" * 60] * 3), FOR_FENCES + 100, size)
    assert words(parts) == "长" * 180
    assert all(size(part) <= FOR_FENCES + 100 for part in parts)


def test_a_fence_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(20))
    parts = split(f"Look:\n```python\n{code}\n```\nDone.", FOR_FENCES + 120, size)
    assert len(parts) > 2
    assert all(part.count("```") == 2 for part in parts[:-1])
    assert all(part.startswith("```python\n") for part in parts[1:])
    assert parts[-1].endswith("```\nDone.")
    assert all(size(part) <= FOR_FENCES + 120 for part in parts)


def test_a_fence_inside_a_longer_one_is_code() -> None:
    inner = "\n".join(["```python", "x = 1", "```"] * 20)
    parts = split(f"````markdown\n{inner}\n````\n\nafter", FOR_FENCES + 100, size)
    assert all(part.startswith("````markdown\n") for part in parts[:-1])
    assert all(part.endswith("\n````") for part in parts[:-1])


def test_code_in_a_line_opens_no_fence() -> None:
    text = "```x = 1``` is a span\n" * 30
    assert all("```\n```" not in part and part.count("```") % 2 == 0 for part in split(text, FOR_FENCES + 100, size))


def test_a_fence_that_nobody_closed_is_closed() -> None:
    """While the agent still writes, or because it forgot."""
    assert split("```\nx = 1", 1_000, size) == ["```\nx = 1\n```"]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab长👋`\n "<', max_size=400), st.integers(FOR_FENCES + 20, FOR_FENCES + 200))
def test_nothing_is_lost_and_nothing_too_heavy(text: str, most: int) -> None:
    parts = split(text, most, size)
    assert all(size(part) <= most and part.strip() for part in parts)
    assert words(parts).replace("`", "") == words([text]).replace("`", "") or "```" in text
