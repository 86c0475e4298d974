"""Logs: what may be said about work without repeating what was said in it (H30)."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from amux.core.errors import Stale
from amux.logs import NEVER, NOT_LOGGED, configure

WORDS = "what user_a told the agent"


@dataclass(frozen=True)
class Said:
    text: str = WORDS


class Log:
    """One configured process and the lines it has written."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        configure("worker", secrets={"hush-hush", "abc"}, stream=self._out)

    def lines(self) -> list[dict[str, Any]]:
        assert WORDS not in self._out.getvalue()
        assert "hush-hush" not in self._out.getvalue()
        rows = [json.loads(line) for line in self._out.getvalue().splitlines()]
        assert all(row.pop("timestamp").endswith("Z") for row in rows)
        return rows


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield Log()
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


def test_a_line_holds_its_facts_and_its_context(log: Log) -> None:
    with structlog.contextvars.bound_contextvars(session="7k3"):
        structlog.get_logger().info("turn_finished", turn=7, outcome="completed", seconds=12.4, home=Path("/srv"))
    assert log.lines() == [
        {"event": "turn_finished", "process": "worker", "session": "7k3", "turn": 7, "outcome": "completed"}
        | {"seconds": 12.4, "home": "/srv", "level": "info"}
    ]


@pytest.mark.parametrize("key", sorted(NEVER))
def test_a_key_that_carries_words_is_never_logged(log: Log, key: str) -> None:
    structlog.get_logger().info("sent", **{key: WORDS, key.upper(): WORDS})
    assert log.lines() == [
        {"event": "sent", "process": "worker", key: NOT_LOGGED, key.upper(): NOT_LOGGED, "level": "info"}
    ]


def test_objects_are_named_and_not_opened(log: Log) -> None:
    structlog.get_logger().info("sent", said=Said(), many=[Said(), 3], raw=WORDS.encode(), row={"t": WORDS})
    assert log.lines() == [
        {"event": "sent", "process": "worker", "said": "[Said, not logged]", "many": ["[Said, not logged]", 3]}
        | {"raw": "[bytes, not logged]", "row": "[dict, not logged]", "level": "info"}
    ]


def test_secrets_go_by_value_and_a_line_stays_a_line(log: Log) -> None:
    structlog.get_logger().info("odd", why="key hush-hush\r\n\x1b[31mred\u2028abc", all=["hush-hush"])
    assert log.lines() == [
        {"event": "odd", "process": "worker", "why": "key [secret] [31mred abc", "all": ["[secret]"], "level": "info"}
    ]


def test_an_error_of_ours_speaks_and_a_foreign_one_only_says_where(log: Log) -> None:
    try:
        try:
            int(WORDS)
        except ValueError as why:
            raise Stale("session 3 is past epoch 4") from why
    except Stale:
        structlog.get_logger().exception("owner_ended")
    (line,) = log.lines()
    here = [step.partition(":")[0] for step in line["error"]]
    assert here == ["Stale", "at test_logs.py", "of ValueError", "at test_logs.py"]
    assert line["error"][0] == "Stale: session 3 is past epoch 4"


def test_a_group_tells_its_parts(log: Log) -> None:
    structlog.get_logger().error("ended", exc_info=ExceptionGroup(WORDS, [KeyError(WORDS), Stale("past epoch 4")]))
    assert [line["error"] for line in log.lines()] == [["ExceptionGroup", "of KeyError", "of Stale: past epoch 4"]]


def test_known_libraries_speak_and_unknown_ones_only_say_where(log: Log) -> None:
    logging.getLogger("celery.worker").info("ready with %s", "hush-hush")
    logging.getLogger("vendor").info(WORDS)
    logging.getLogger("vendor").warning("got %s", WORDS)
    known, unknown = log.lines()
    assert known == {"event": "ready with [secret]", "process": "worker", "logger": "celery.worker", "level": "info"}
    assert unknown.pop("where").startswith("test_logs.py:")
    assert unknown == {"event": NOT_LOGGED, "process": "worker", "logger": "vendor", "level": "warning"}


def test_a_library_that_reports_an_error_does_not_repeat_its_words(log: Log) -> None:
    try:
        int(WORDS)
    except ValueError:
        logging.getLogger("celery.app.trace").exception("Task drive raised %s", WORDS)
    (line,) = log.lines()
    assert (line["event"], line["error"][0]) == ("raised", "ValueError")


def test_what_nobody_caught_ends_in_the_log_too() -> None:
    code = f"import amux.logs; amux.logs.configure('web'); raise RuntimeError({WORDS!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    line = json.loads(ended.stderr)
    assert (line["event"], line["process"], line["error"][0]) == ("uncaught", "web", "RuntimeError")
    assert WORDS not in ended.stderr
