"""The documents are true where a machine can tell: links, named files, commands, settings, the form of each ADR."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from amux.settings import BadSettings, load

ROOT = Path(__file__).parents[1]
AMUX = Path(sys.executable).parent / "amux"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADRS = sorted((ROOT / "docs/adr").glob("0*.md"))


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_file_that_is_named_exists(document: Path) -> None:
    named = re.findall(r"`((?:amux|workers|ops|tests|docs)/[\w./-]*)`", document.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def commands() -> Iterator[tuple[str, ...]]:
    """Every amux command that a reader is told to type, as its words."""
    for document in DOCUMENTS:
        for block in re.findall(r"```console\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
            for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
                words = shlex.split(line, comments=True)
                if words[:2] in (["python3", "run.py"], ["uv", "run"]):
                    words = ["amux", *words[2:]] if words[0] == "python3" else words[2:]
                if words[0] == "amux" and words[1] not in ("test", "setup"):  # these two are run.py's own
                    yield tuple(words[1:])


@cache
def help_of(*command: str) -> tuple[int, str]:
    env = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [AMUX, *command, "--help"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("words", sorted(set(commands())), ids=" ".join)
def test_every_command_shown_exists_with_its_options(words: tuple[str, ...]) -> None:
    code, said = help_of(words[0])
    if "COMMAND [ARGS]" in said:  # a group of commands
        code, said = help_of(*words[:2])
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert (code, [option for option in options if option not in said]) == (0, []), said


def test_the_settings_table_is_the_settings(tmp_path: Path) -> None:
    (tmp_path / "amux.toml").write_text("xyzzy = 1")
    with pytest.raises(BadSettings) as told:
        load({}, tmp_path / "amux.toml")
    known = {f"AMUX_{key.upper()}" for key in str(told.value).split("it can hold ")[1].split(", ")}
    rows = re.findall(r"^\| (`AMUX_.*?) \|", (ROOT / "docs/guides/run.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name for row in rows for name in re.findall(r"AMUX_\w+", row)}
    assert shown == known


@pytest.mark.parametrize("adr", ADRS, ids=names)
def test_an_adr_fits_one_screen_and_says_four_things(adr: Path) -> None:
    text = adr.read_text(encoding="utf-8")
    parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
    assert (parts, len(text.splitlines()) <= 40) == (["Forces", "Choice", "Price", "Left"], True)
    assert text.startswith(f"# {int(adr.name[:4])} · ")
    assert f"]({adr.name})" in (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")


@pytest.mark.rule("D4")
def test_the_docs_keep_the_record_and_the_map_that_the_model_asks_for() -> None:
    record = (ROOT / "docs/adr/0005-one-timeline-many-readers.md").read_text(encoding="utf-8")
    assert re.search(r"The Timeline owns Turns", record)
    assert re.search(r"\*\*Left\.\*\* Turn ids from provider or client", record)
    chart = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("(D4)")[2].partition("\n## ")[0]
    subsystems = "state and queue|Timeline|topic decisions|routing|singletons|control dispatch|command policies|TaskRuns|instance store|thread context|memory"
    assert [name for name in subsystems.split("|") if name not in chart] == []


@pytest.mark.rule("D5")
def test_the_docs_say_that_goals_were_not_accepted_on_live_feishu() -> None:
    not_seen = (ROOT / "docs/status.md").read_text(encoding="utf-8").partition("## Not seen")[2]
    assert "**Goals** have not been accepted end to end on live Feishu" in not_seen


@pytest.mark.rule("D1")
def test_the_top_level_is_the_one_that_was_asked_for() -> None:
    asked = ["pyproject.toml", "README.md", "amux", "workers", "tests", "ops", "compose.yaml", "Procfile"]
    assert [name for name in asked if not (ROOT / name).exists()] == []
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    libraries = ["celery", "redis", "kombu", "sqlalchemy", "psycopg", "lark-oapi", "flower", "pytest"]
    assert [name for name in libraries if f'"{name}' not in project] == []
