"""How an agent is put behind its Guard: its home, its environment, the Guard's program, and why it did not start.

The environment is built from an allow-list, so that no secret of amux and nothing of its operator passes (H21, H30)."""

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amux.core.errors import Refused, Stale, Unavailable
from amux.core.launch import WorkspaceUse
from amux.extensions import Opening
from amux.providers import guard

PASSED = {"PATH", "LANG", "LANGUAGE", "TZ", "TERM", "USER", "LOGNAME", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR"}


@dataclass(frozen=True, slots=True)
class Locks:
    """What a Guard holds: the home's lock file; and the workspace's, alone or shared."""

    home: str
    workspace: str
    shared: bool


def locks_of(opening: Opening) -> Locks:
    """A home's stands beside it, out of the agent's way; a workspace's among those of its target, since hosts that share
    the disk share that folder too, and by what its path really is."""
    real = os.path.realpath(opening.launch.workspace)
    place = Path(opening.home).parent / ".workspaces" / hashlib.sha256(os.fsencode(real)).hexdigest()
    return Locks(f"{opening.home}.lock", str(place), opening.launch.use is WorkspaceUse.shared)


def environment(worker: Mapping[str, str], given: Mapping[str, str], home: Path) -> dict[str, str]:
    """What the agent sees: a few harmless names of the worker's, what its provider gives, and its own home (H21)."""
    passed = {name: value for name, value in worker.items() if name in PASSED or name.startswith("LC_")}
    return {**passed, **given, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def prepare(opening: Opening, name: str) -> Locks:
    """Make the home, its temp folder, and the folder of the locks. Raises Unavailable; Refused when the workspace is not
    there."""
    home, cwd, locks = Path(opening.home), opening.launch.workspace, locks_of(opening)
    try:
        for folder in (home, home / "tmp", Path(locks.workspace)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise Unavailable(f"{name} needs {home} for itself: {e.strerror}. Make AMUX_HOME writable for amux.") from e
    if not Path(cwd).is_dir():
        raise no_workspace(cwd)
    return locks


def no_workspace(folder: str) -> Refused:
    """What people read when the folder to work in is not there."""
    return Refused(f"The workspace {folder} is no folder here. Create it, or start in another one.", key="no_workspace")


def spawn(
    argv: Sequence[str], locks: Locks, opening: Opening, env: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The Guard, which will run `argv`, and our end of its control channel. Raises OSError."""
    place = f"{'shared' if locks.shared else 'alone'}:{locks.workspace}"
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    fd = theirs.fileno()
    guarded = [locks.home, place, repr(opening.deadline), str(fd), *argv]
    with contextlib.ExitStack() as unless_started, theirs:
        unless_started.callback(ours.close)
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, *guarded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            cwd=opening.launch.workspace,
            pass_fds=[fd],
            start_new_session=True,
        )
        unless_started.pop_all()
    return popen, ours


def not_started(name: str, why: str, opening: Opening, remedy: str) -> Stale | Unavailable | Refused:
    """What the Guard's `failed WHAT ERRNO` means to the owner."""
    home, (what, _, number) = opening.home, why.partition(" ")
    reason = os.strerror(int(number)) if number else ""
    match what:
        case "late":
            return Stale(f"{name} was not started: the permission to act has run out")
        case "exec":
            return Unavailable(f"{name} cannot be run: {reason}. {remedy}")
        case "lock" | "place":
            locks = locks_of(opening)
            path = locks.home if what == "lock" else locks.workspace
            return Unavailable(f"{path} cannot be used: {reason}. Make AMUX_HOME writable for amux.")
        case "held":
            return Unavailable(f"{home} is held by a process that cannot be killed from here. End it, then try again.")
        case "taken":
            return Refused(taken(opening.launch.workspace), key="workspace_taken")
        case _:
            return Unavailable(f"The Guard of {name} ended before it began. {remedy}")


def taken(workspace: str) -> str:
    """What people read when an agent of another Session, or what it left running, did not leave in time."""
    return (
        f"Another agent works in {workspace}, and two never write one folder at a time. Say it again when that one has "
        "ended; or start Sessions there with --worktree or --shared."
    )
