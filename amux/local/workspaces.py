"""The folders in which agents work: checked when an agent opens, and made where they are a Session's own.

Done by the worker, since only there is the disk of its target. No folder is ever deleted (A11) but what a killed `git
worktree add` has left half made, in which nobody has worked."""

import asyncio
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from amux.core.errors import Refused
from amux.core.ids import SessionRef
from amux.core.launch import LaunchSnapshot, WorkspaceUse

GIT_SECONDS = 240.0  # for one git command; a large repository is many files
LOCK_SECONDS = 250.0  # for another worker that makes the same worktree
POLL_SECONDS = 0.05
PASSED = ("PATH", "HOME", "LANG", "LC_ALL")  # a repository's filters are programs: they see no secret of the worker
MAX_SAID = 300  # characters of what git says


def own_folder(home: Path, session: SessionRef) -> Path:
    """Where a Session works that names no folder, and where its git worktree is."""
    return home / "workspaces" / session.id


@dataclass(frozen=True, slots=True)
class Workspaces:
    """Those of this target. `roots`: where named folders must lie; none: anywhere."""

    home: Path
    roots: tuple[Path, ...] = ()

    async def ready(self, session: SessionRef, launch: LaunchSnapshot) -> str:
        """The folder in which that Session's agent works. Raises Refused, saying what to do."""
        try:
            return str(await asyncio.to_thread(self._ready, own_folder(self.home, session), launch))
        except OSError as why:
            raise Refused(
                f"{why.filename or launch.workspace} cannot be used: {why.strerror}.", key="no_workspace"
            ) from why

    def _ready(self, own: Path, launch: LaunchSnapshot) -> Path:
        folder = Path(launch.workspace)
        if folder == own:
            _make(own)
            return own
        self._check(folder)
        return _worktree(folder, own) if launch.use is WorkspaceUse.worktree else folder

    def _check(self, folder: Path) -> None:
        if not folder.is_dir():
            raise Refused(
                f"The workspace {folder} is no folder here. Create it, or start in another one.", key="no_workspace"
            )
        real = folder.resolve()
        if self.roots and not any(real.is_relative_to(root.resolve()) for root in self.roots):
            allowed = ", ".join(map(str, self.roots))
            raise Refused(
                f"The workspace {folder} lies outside of {allowed}, where this target works. Start in one of these, or "
                "add it to AMUX_WORKSPACE_ROOTS.",
                key="outside_roots",
            )


def _make(own: Path) -> None:
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise Refused(
            f"No workspace can be made in {own.parent} ({why.strerror}): name one with --workspace, or set AMUX_HOME to "
            "a folder that is amux's.",
            key="no_workspace",
        ) from why


def _worktree(repository: Path, own: Path) -> Path:
    """The Session's own worktree of that repository, on a branch of its own: made once, then left as it is.

    The note beside it is written when it is whole, and says which folder of it is the one that was named."""
    _make(own.parent)
    note = own.with_name(f"{own.name}.worktree")
    with _alone(own.with_name(f"{own.name}.lock")) as lock:
        if not note.exists():
            inside = _git(repository, lock, "rev-parse", "--show-prefix")
            _clear(repository, lock, own)
            _git(repository, lock, "worktree", "add", "-B", f"amux/{own.name}", str(own), "HEAD")
            _write(note, inside)
        return own / note.read_text(encoding="utf-8")


def _write(note: Path, text: str) -> None:
    """Whole or not at all."""
    new = note.with_name(f"{note.name}.new")
    new.write_text(text, encoding="utf-8")
    new.rename(note)


def _clear(repository: Path, lock: int, own: Path) -> None:
    """What a killed attempt left."""
    if own.exists():
        shutil.rmtree(own)
    _git(repository, lock, "worktree", "prune")


def _git(repository: Path, lock: int, *command: str) -> str:
    """What it answers. It holds the lock too, so that nobody begins anew beside one whose worker was killed.

    No hook of the repository is run. Raises Refused with what git says."""
    env = {name: os.environ[name] for name in PASSED if name in os.environ}
    line = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(repository), *command]
    try:
        done = subprocess.run(
            line,
            env={**env, "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=[lock],
            timeout=GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise Refused("There is no git here: install it, or start without a worktree.", key="no_worktree") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"git did not end within {GIT_SECONDS:g} s in {repository}.", key="no_worktree") from None
    if done.returncode == 0:
        return done.stdout.decode(errors="replace").rstrip("\n")
    said = " ".join(done.stderr.decode(errors="replace").split())[:MAX_SAID]
    raise Refused(
        f"No git worktree of {repository} can be made: {said or done.returncode}. Start without one, or in another folder.",
        key="no_worktree",
    )


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Hold that lock, which also a git goes on holding whose worker was killed."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up = time.monotonic() + LOCK_SECONDS
        while not _locked(lock):
            if time.monotonic() >= give_up:
                raise Refused(f"{path} is held by another process. End it, then try again.", key="no_worktree")
            time.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
