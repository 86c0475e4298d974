"""What every command says of itself."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from amux.cli import app
from tests.whole import cli


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that people see, by its words."""
    for name, command in sorted(getattr(group, "commands", {}).items()):
        if not command.hidden:
            below = list(commands(command, (*path, name)))
            yield from below or [(*path, name)]


ALL = list(commands(typer.main.get_command(app)))


def test_these_are_the_commands() -> None:
    named = [
        "demo",
        "up",
        "run",
        "send",
        "resend",
        "attach",
        "ls",
        "show",
        "interrupt",
        "answer",
        "sleep",
        "resume",
        "restart",
        "archive",
        "compact",
        "clear",
        "queue",
        "audit",
        "expert",
        "doctor",
        "drill",
        "bench",
    ]
    assert {words[0] for words in ALL} == set(named)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
async def test_help_has_an_example(words: tuple[str, ...]) -> None:
    said = await cli({}, *words, "--help")
    assert said.code == 0
    assert f"Example: amux {' '.join(words)}" in said.out


async def test_wrong_usage_is_2() -> None:
    assert (await cli({}, "send")).code == 2
    assert (await cli({}, "ls", "--state", "asleep-ish")).code == 2
    assert (await cli({}, "answer", "7k3", "ask-1", "maybe")).code == 2
