"""What every command shares: settings, errors as exit codes and one line, and where a running amux is found."""

import asyncio
import getpass
import json as json_
import os
import secrets
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from amux.core.errors import Broken, Refused, Stale, Unavailable, Uncertain
from amux.core.ids import InputId, Principal
from amux.local.home import running
from amux.settings import BadSettings, Settings, load

if TYPE_CHECKING:  # a wired house takes long to import, and help must not wait for it
    from amux.wiring import Stores

T = TypeVar("T")
FAILED, UNCERTAIN, DETACHED = 1, 3, 130


@contextmanager
def exits() -> Iterator[None]:
    """Turn the five families of failure into one line and an exit code."""
    try:
        yield
    except (Refused, Unavailable, Broken, Stale, BadSettings) as why:
        print(why, file=sys.stderr)
        raise typer.Exit(FAILED) from why
    except Uncertain as why:
        print(why, file=sys.stderr)
        raise typer.Exit(UNCERTAIN) from why
    except KeyboardInterrupt as why:
        raise typer.Exit(DETACHED) from why


def client_settings() -> Settings:
    """Settings, with the servers of the amux that runs in this home when no others are set."""
    settings = load(os.environ)
    run = running(settings.home) if not (settings.postgres_url and settings.redis_url) else None
    if run and {"postgres", "redis"} <= set(run.urls):
        return replace(settings, postgres_url=run.urls["postgres"], redis_url=run.urls["redis"])
    return settings


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it, with the errors of `exits`."""
    with exits():
        return asyncio.run(work)


def say_json(row: dict[str, Any]) -> None:
    """One JSON object a line, and nothing else on stdout."""
    print(json_.dumps(row, ensure_ascii=False), flush=True)


async def hears(parts: "Stores") -> None:
    """Whether somebody would be woken. A person who waits is told before anything is stored, and not afterwards."""
    try:
        await parts.redis.command("PING")
    except Unavailable as why:
        raise Unavailable("Redis does not answer: nothing was sent. See `amux doctor`.") from why


def new_id() -> InputId:
    """Of what is said by this command: never twice the same."""
    return InputId(f"cli:{getpass.getuser()}:{secrets.token_hex(8)}")


def me() -> Principal:
    """Who types."""
    return Principal(f"cli:{getpass.getuser()}")


def my_name() -> str:
    """What others call whoever types."""
    return getpass.getuser()


def now() -> int:
    """The time, in the milliseconds that an input is sent at."""
    return int(time.time() * 1000)


def finish(code: int) -> None:
    """End with that code."""
    if code:
        raise typer.Exit(code)
