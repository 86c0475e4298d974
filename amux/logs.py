"""Logging of every process: one line an event, its name a word, its facts as keys.

Modules ask `structlog.get_logger()` themselves; an entry point calls `configure` once. Lines of the standard library
(Celery, uvicorn, a vendor) leave in the same form. What people or agents wrote never gets through: neither under a key
of NEVER, nor inside an object, nor in the text of a foreign exception, nor in the line of a library we do not know.
"""

import logging
import re
import sys
import threading
from collections.abc import Collection, MutableMapping
from pathlib import Path
from traceback import extract_tb
from typing import Any, TextIO

import structlog

from amux.core.errors import Broken, Refused, Stale, Unavailable, Uncertain

Line = MutableMapping[str, Any]

WORDS = ("answer", "body", "content", "objective", "output", "payload", "prompt", "query", "text")
KEYS = ("authorization", "email", "env", "environ", "headers", "password", "secret", "token", "url")
NEVER = frozenset(WORDS + KEYS)
NOT_LOGGED = "[not logged]"
KNOWN = ("amux", "workers", "ops", "celery", "kombu", "alembic", "uvicorn.error", "asyncio", "py.warnings")
HOUSE, OURS = Path(__file__).parents[1], ("amux", "workers", "ops")
FAMILIES = (Refused, Unavailable, Uncertain, Stale, Broken)
SHORTEST_SECRET = 4  # characters; a shorter one would be found in ordinary words
MAX_FRAMES = 12
MAX_LINKS = 4  # of a chain of causes, or of an exception group
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def configure(process: str, *, secrets: Collection[str] = (), stream: TextIO | None = None) -> None:
    """Send every line of this process, ours and the libraries', to `stream` (stderr); call it once, at start.

    `process` stands in each line. `secrets` are redacted by value wherever they show up. A terminal gets lines for
    eyes, anything else one JSON object a line.
    """
    out = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        only_where,
        only_plain,
        _Cleaner(process, secrets),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(lambda record: _known(record) or record.levelno >= logging.WARNING)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(out)],
            foreign_pre_chain=[_foreign, *shared],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def quiet() -> None:
    """For a program that speaks to a person, who is told what goes wrong in one line: errors alone, and on stderr."""
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            only_where,
            only_plain,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def only_plain(_: object, __: str, line: Line) -> Line:
    """Keep numbers, words and lists of them; say of everything else only that it was there."""
    return {key: NOT_LOGGED if key.lower() in NEVER else _plain(value) for key, value in line.items()}


def only_where(_: object, __: str, line: Line) -> Line:
    """Turn `exc_info` into the error's type and the places it passed; its text only when it is one of ours."""
    info = line.pop("exc_info", None)
    error = info if isinstance(info, BaseException) else (sys.exc_info() if info is True else info or (None, None))[1]
    if isinstance(error, BaseException):
        line["error"] = told(error)
    return line


def told(error: BaseException, links: int = MAX_LINKS) -> list[str]:
    """The error as lines that hold no foreign text: `Stale: ...` or `KeyError`, its frames, then its causes."""
    name = type(error).__name__
    lines = [f"{name}: {error}"[:300] if isinstance(error, FAMILIES) else name]
    lines += [f"at {_short(f.filename)}:{f.lineno} {f.name}" for f in extract_tb(error.__traceback__)[-MAX_FRAMES:]]
    parts = error.exceptions[:links] if isinstance(error, BaseExceptionGroup) else ()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for link in (*parts, cause):
        if link is not None and links > 0:
            lines += [f"of {line}" if nth == 0 else line for nth, line in enumerate(told(link, links - 1))]
    return lines


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case _:
            return f"[{type(value).__name__}, not logged]"


class _Cleaner:
    """Last before the renderer: names the process, redacts secrets by value, and keeps every value on one line."""

    def __init__(self, process: str, secrets: Collection[str]) -> None:
        self._process = process
        found = sorted((s for s in secrets if len(s) >= SHORTEST_SECRET), key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None

    def __call__(self, _: object, __: str, line: Line) -> Line:
        clean = {key: value if key.startswith("_") else self._clean(value) for key, value in line.items()}
        return {"event": clean.pop("event", ""), "process": self._process, **clean}

    def _clean(self, value: object) -> object:
        if isinstance(value, list):
            return [self._clean(each) for each in value]
        if not isinstance(value, str):
            return value
        text = self._secrets.sub("[secret]", value) if self._secrets else value
        return _CONTROL.sub(" ", text)


def _foreign(_: object, __: str, line: Line) -> Line:
    """A line of the standard library's logging: its words only from those we know, and never with an exception."""
    record: logging.LogRecord = line["_record"]
    line["logger"] = record.name
    if record.exc_info:
        line["event"], line["exc_info"] = "raised", record.exc_info
    elif not _known(record):
        line["event"], line["where"] = NOT_LOGGED, f"{_short(record.pathname)}:{record.lineno}"
    return line


def _known(record: logging.LogRecord) -> bool:
    """Whether its words may be read: our own lines (structlog hands over a dict) and those of KNOWN libraries."""
    ours = isinstance(record.msg, dict)
    return ours or any(record.name == name or record.name.startswith(f"{name}.") for name in KNOWN)


def _renderer(out: TextIO) -> structlog.typing.Processor:
    if out.isatty():
        return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    return structlog.processors.JSONRenderer(ensure_ascii=False)


def _short(path: str) -> str:
    """The file from its package on: enough to find it, without the machine's folders."""
    file, parts = Path(path), Path(path).parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :])
    if file.is_relative_to(HOUSE) and file.relative_to(HOUSE).parts[0] in OURS:
        return str(file.relative_to(HOUSE))
    return parts[-1] if parts else path


def _uncaught(kind: type[BaseException], error: BaseException | None, _: object) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    structlog.get_logger().error("uncaught", exc_info=error or kind())
