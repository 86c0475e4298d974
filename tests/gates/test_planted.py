"""Each gate goes red when its fault is planted, and the tree as it stands shows none of the planted ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from amux.core import machine, moves
from tests.gates import phrases, rooms, size, states

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SOURCES = ("amux", "workers", "ops")


def run(*command: str | Path, at: Path, stdin: str = "") -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(at), "NO_COLOR": "1"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=at,
        env=env,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the house to plant faults in."""
    for room in SOURCES:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


FLOORS = {
    "core reads a setting": ("amux/core/planted.py", "import amux.settings", "amux.core.planted -> amux.settings"),
    "core reads the clock": ("amux/core/planted.py", "import time", "amux.core.planted -> time"),
    "one edge knows another": (
        "amux/providers/planted.py",
        "import amux.feishu",
        "amux.providers.planted -> amux.feishu",
    ),
    "a use case knows its database": ("amux/runtime/planted.py", "import psycopg", "amux.runtime.planted -> psycopg"),
    "the house knows its entry": ("amux/core/planted.py", "import workers", "amux.core.planted -> workers"),
    "a room of no floor": ("amux/utils.py", "", "utils"),
}


@pytest.mark.parametrize(("path", "line", "told"), FLOORS.values(), ids=FLOORS)
def test_floors(house: Path, path: str, line: str, told: str) -> None:
    (house / path).write_text(f'"""Planted."""\n{line}\n')
    code, said = run(BIN / "lint-imports", "--no-cache", "--no-logo", at=house)
    assert (code, told in said) == (1, True), said


LINES = {
    "Any in core": ("amux/core/planted.py", "import typing\n\ndef f(x: typing.Any) -> None:\n    print(x)\n", "ANN401"),
    "a boolean parameter": ("amux/core/planted.py", "def f(x: bool) -> None:\n    assert x\n", "FBT001"),
    "print": ("amux/runtime/planted.py", "def f() -> None:\n    print()\n", "T201"),
    "every exception": ("amux/stores/planted.py", "try:\n    f()\nexcept Exception:\n    g()\n", "BLE001"),
    "no opening paragraph": ("amux/core/planted.py", "x = 1\n", "D100"),
    "an unfinished mark": ("amux/core/planted.py", "# " + "TO" + "DO: later\n", "FIX002"),
    "a maze": (
        "amux/core/planted.py",
        "def f(x: int) -> int:\n"
        + "".join(f"    if x == {n}:\n        x += 1\n" for n in range(13))
        + "    return x\n",
        "C901",
    ),
}


@pytest.mark.parametrize(("path", "code", "rule"), LINES.values(), ids=LINES)
def test_lint(path: str, code: str, rule: str) -> None:
    command = (BIN / "ruff", "check", "--no-cache", "--output-format=concise", "--stdin-filename", path, "-")
    ended, said = run(*command, at=ROOT, stdin=code)
    assert (ended, rule in said) == (1, True), said


def test_format() -> None:
    command = (BIN / "ruff", "format", "--no-cache", "--check", "--stdin-filename", "amux/core/planted.py", "-")
    assert run(*command, at=ROOT, stdin="x = {'a':1}\n")[0] == 1


def test_types(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "planted.py").write_text("def f(x):\n    return x\n")
    ended, said = run(BIN / "mypy", "--no-incremental", "planted.py", at=tmp_path)
    assert (ended, "no-untyped-def" in said) == (1, True), said


def lines(count: int) -> str:
    return "x = 1\n" * count


def function(name: str, count: int) -> str:
    return f"def {name}():\n" + "    x = 1\n" * (count - 1)


SIZES = {
    "a file that is liked": ({"amux/a.py": lines(300)}, [], 0),
    "a long file": ({"tests/a.py": lines(301)}, ["tests/a.py: 301 lines, 300 are liked"], 0),
    "a file too long": ({"ops/a.py": lines(501)}, ["ops/a.py: 501 lines, 500 are the most"], 1),
    "functions of 10": ({"amux/a.py": function("f", 10)}, ["1 functions: median 10 lines, 95th percentile 10"], 0),
    "functions of 11": (
        {"workers/a.py": function("f", 11)},
        [
            "1 functions: median 11 lines, 95th percentile 11",
            "functions: the budget is median 10, 95th percentile 40; longest: workers/a.py:1 f 11",
        ],
        1,
    ),
    "one giant in nineteen": (
        {"amux/a.py": "".join(function(f"f{n}", 5) for n in range(18)) + function("g", 41)},
        [
            "19 functions: median 5 lines, 95th percentile 41",
            "functions: the budget is median 10, 95th percentile 40; longest: amux/a.py:91 g 41, "
            + ", ".join(f"amux/a.py:{n * 5 + 1} f{n} 5" for n in range(17, 13, -1)),
        ],
        1,
    ),
}


@pytest.mark.parametrize(("tree", "said", "faults"), SIZES.values(), ids=SIZES)
def test_size(tmp_path: Path, tree: dict[str, str], said: list[str], faults: int) -> None:
    for path, code in tree.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(code)
    verdict = size.judge(tmp_path)
    assert (verdict.said + verdict.faults, len(verdict.faults)) == (said, faults)


PHRASES = {
    "alike": ('[card]\na = "{n} of {m}"', '[card]\na = "{m} 之 {n}"', []),
    "one language only": (
        'a = "x"\nb = "x"',
        'a = "x"\nc = "x"',
        ["b: is in one language only", "c: is in one language only"],
    ),
    "a slot lost": ('a = "{n} waits"', 'a = "等待"', ["a: en has the slots ['n'], zh has []"]),
    "a brace left open": ('a = "{n"', 'a = "{n}"', ["a: expected '}' before end of string"]),
}


@pytest.mark.parametrize(("en", "zh", "faults"), PHRASES.values(), ids=PHRASES)
def test_phrases(tmp_path: Path, en: str, zh: str, faults: list[str]) -> None:
    (tmp_path / "en.toml").write_text(en)
    (tmp_path / "zh.toml").write_text(zh)
    assert phrases.judge(tmp_path) == faults


def test_a_language_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "en.toml").write_text("")
    assert phrases.judge(tmp_path) == [f"{tmp_path}/zh.toml is missing"]


def test_rooms(tmp_path: Path) -> None:
    (tmp_path / "amux/core").mkdir(parents=True)
    (tmp_path / "amux/core/__init__.py").write_text("")
    (tmp_path / "amux/core/a.py").write_text('"""Says this (H1, e.g. that).\nAnd more. Then rests."""')
    said = "- `a.py` Says this (H1, e.g. that).\n"
    assert rooms.render(tmp_path) == f"{rooms.HEAD}\n## amux/core\n{said}"
    (tmp_path / "docs").mkdir()
    command = (sys.executable, "-m", "tests.gates.rooms")
    shutil.copytree(ROOT / "tests/gates", tmp_path / "tests/gates", ignore=shutil.ignore_patterns("__pycache__"))
    codes = [run(*command, *words, at=tmp_path)[0] for words in ([], ["--write"], [])]
    (tmp_path / "amux/core/a.py").write_text('"""Says that."""')
    assert [*codes, run(*command, at=tmp_path)[0]] == [1, 0, 0, 1]


def test_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    codes = [states.main(words) for words in ([], ["--write"], [])]
    drawn = states.DOCUMENT.read_text()
    states.DOCUMENT.write_text(drawn.replace("running --> idle", "running --> created"))
    assert [*codes, states.main([])] == [1, 0, 0, 1]


def test_the_states_are_those_of_the_machine() -> None:
    uncertain = ("steering", "failed")
    assert states.explore().input[uncertain] == {"uncertain"}
    with patch.object(machine, "_steer_came_out", lambda *_: None), patch.object(moves, "fail_steers", lambda _: None):
        assert uncertain not in states.explore().input


TESTED = """
import pytest

@pytest.mark.rule("S1", "I3")
@pytest.mark.parametrize("n", [1, 2])
def test_both(n): assert n

@pytest.mark.rule("S1")
def test_one(): raise AssertionError("collected, never run")
"""
TABLE = "| id | rule |\n|---|---|\n| S1 | One. |\n| S2 | Two. |\n| I3 | Three. |\n"
COUNTS = ["S1 3 tests", "S2 no test", "I3 2 tests", "2 of 3 rules have tests"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A small project with rules, two of three with tests."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/requirements.md").write_text(TABLE)
    (tmp_path / "tests/gates").mkdir(parents=True)
    shutil.copy(ROOT / "tests/gates/rules.py", tmp_path / "tests/gates")
    (tmp_path / "tests/conftest.py").write_text('pytest_plugins = ["tests.gates.rules"]')
    (tmp_path / "tests/test_it.py").write_text(TESTED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "code", "last"),
    [
        ([], 1, COUNTS),
        (["--rules-due", ""], 0, COUNTS),
        (["--rules-due", "I"], 0, COUNTS),
        (["--rules-due", "IS"], 1, [*COUNTS, "due, and without a test: S2"]),
    ],
)
def test_rules(rules: Path, options: list[str], code: int, last: list[str]) -> None:
    ended, said = run(BIN / "pytest", "-p", "no:cacheprovider", "--rules", *options, at=rules)
    assert (ended, said.strip().splitlines()[:-1]) == (code, last)


def test_a_rule_that_does_not_exist(rules: Path) -> None:
    (rules / "tests/test_it.py").write_text(TESTED.replace("I3", "I33"))
    ended, said = run(BIN / "pytest", "-p", "no:cacheprovider", "--rules", at=rules)
    assert (ended, "ERROR: docs/requirements.md has no rule I33" in said.splitlines()) == (4, True)


def test_a_test_that_cannot_be_read_is_no_green(rules: Path) -> None:
    (rules / "tests/test_it.py").write_text("import nothing_of_this_name\n")
    assert run(BIN / "pytest", "-p", "no:cacheprovider", "--rules", "--rules-due", "", at=rules)[0] == 2
