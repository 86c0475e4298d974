"""How an agent is put behind its Guard: its home, its environment, the Guard's program, and why it did not start.

The environment is built from an allow-list, so that no secret of amux and nothing of its operator passes (H21, H30)."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from amux.core.errors import Refused, Stale, Unavailable
from amux.providers import guard

PASSED = {"PATH", "LANG", "LANGUAGE", "TZ", "TERM", "USER", "LOGNAME", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR"}


def lock_of(home: Path) -> str:
    """The lock of a home stands beside it, out of the agent's way."""
    return f"{home}.lock"


def environment(worker: Mapping[str, str], given: Mapping[str, str], home: Path) -> dict[str, str]:
    """What the agent sees: a few harmless names of the worker's, what its provider gives, and its own home (H21)."""
    passed = {name: value for name, value in worker.items() if name in PASSED or name.startswith("LC_")}
    return {**passed, **given, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def prepare(home: Path, cwd: Path, name: str) -> None:
    """Make the home and its temp folder. Raises Unavailable; Refused when the workspace is not there."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "tmp").mkdir(mode=0o700, exist_ok=True)
    except OSError as e:
        raise Unavailable(f"{name} needs {home} for itself: {e.strerror}. Make AMUX_HOME writable for amux.") from e
    if not cwd.is_dir():
        raise Refused(f"The workspace {cwd} is no folder here. Create it, or start in another one.", key="no_workspace")


def spawn(
    argv: Sequence[str], lock: str, deadline: float, cwd: Path, env: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The Guard, which will run `argv`, and our end of its control channel. Raises OSError."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    fd = theirs.fileno()
    with contextlib.ExitStack() as unless_started, theirs:
        unless_started.callback(ours.close)
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, lock, repr(deadline), str(fd), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            cwd=cwd,
            pass_fds=[fd],
            start_new_session=True,
        )
        unless_started.pop_all()
    return popen, ours


def not_started(name: str, why: str, home: Path, remedy: str) -> Stale | Unavailable:
    """What the Guard's `failed WHAT ERRNO` means to the owner."""
    what, _, number = why.partition(" ")
    reason = os.strerror(int(number)) if number else ""
    match what:
        case "late":
            return Stale(f"{name} was not started: the permission to act has run out")
        case "exec":
            return Unavailable(f"{name} cannot be run: {reason}. {remedy}")
        case "lock":
            return Unavailable(f"{lock_of(home)} cannot be used: {reason}. Make AMUX_HOME writable for amux.")
        case "held":
            return Unavailable(f"{home} is held by a process that cannot be killed from here. End it, then try again.")
        case _:
            return Unavailable(f"The Guard of {name} ended before it began. {remedy}")
