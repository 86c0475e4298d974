"""The folders in which agents work: checked when an agent opens, and made where they are a Session's own.

Done by the worker, since only there is the disk of its target. No folder is ever deleted (A11) but what a killed `git
worktree add` has left half made, in which nobody has worked."""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from amux.core.errors import Refused
from amux.core.ids import SessionRef
from amux.core.launch import LaunchSnapshot, WorkspaceUse
from amux.providers.spawn import no_workspace

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
        own, folder = own_folder(self.home, session), Path(launch.workspace)
        try:
            if folder == own:
                _make(own)
                return str(own)
            self._check(folder)
            return str(await _worktree(folder, own) if launch.use is WorkspaceUse.worktree else folder)
        except OSError as why:
            raise Refused(f"{why.filename or folder} cannot be used: {why.strerror}.", key="no_workspace") from why

    def _check(self, folder: Path) -> None:
        if not folder.is_dir():
            raise no_workspace(str(folder))
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


async def _worktree(repository: Path, own: Path) -> Path:
    """The Session's own worktree of that repository, on a branch of its own: made once, then left as it is.

    The note beside it is written when it is whole, and says which folder of it is the one that was named."""
    note = own.with_name(f"{own.name}.worktree")
    if not note.exists():
        _make(own.parent)
        async with _alone(own.with_name(f"{own.name}.lock")) as lock:
            if not note.exists():
                git = Git(repository, lock)
                inside = await git.run("rev-parse", "--show-prefix")
                await git.forget(own)
                await git.run("worktree", "add", "-B", f"amux/{own.name}", str(own), "HEAD")
                _write(note, inside)
    return own / note.read_text(encoding="utf-8")


def _write(note: Path, text: str) -> None:
    """Whole or not at all."""
    new = note.with_name(f"{note.name}.new")
    new.write_text(text, encoding="utf-8")
    new.rename(note)


@dataclass(frozen=True, slots=True)
class Git:
    """One repository's. A command that is cancelled or takes too long is killed; one whose worker was killed goes on holding
    the lock, so that nobody begins anew beside it."""

    repository: Path
    lock: int

    async def run(self, *command: str) -> str:
        """What it answers; no hook of the repository is run. Raises Refused with what git says."""
        code, out, told = await self._ask(command)
        if code == 0:
            return out.decode(errors="replace").rstrip("\n")
        said = " ".join(told.decode(errors="replace").split())[:MAX_SAID]
        raise Refused(
            f"No git worktree of {self.repository} can be made: {said or code}. Start without one, or in another folder.",
            key="no_worktree",
        )

    async def forget(self, own: Path) -> None:
        """What a killed attempt left, in the folder and in the repository; of no other worktree."""
        await self._ask(("worktree", "remove", "--force", "--force", str(own)))
        if own.exists():
            await asyncio.to_thread(shutil.rmtree, own)

    async def _ask(self, command: Sequence[str]) -> tuple[int, bytes, bytes]:
        env = {name: os.environ[name] for name in PASSED if name in os.environ}
        try:
            git = await asyncio.create_subprocess_exec(
                *("git", "-c", "core.hooksPath=/dev/null", "-C", str(self.repository), *command),
                env={**env, "GIT_TERMINAL_PROMPT": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[self.lock],
            )
        except FileNotFoundError:
            raise Refused("There is no git here: install it, or start without a worktree.", key="no_worktree") from None
        try:
            out, told = await git.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                git.kill()
            raise
        return git.returncode or 0, out, told


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[int]:
    """Hold that lock once nobody else does."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(lock):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
