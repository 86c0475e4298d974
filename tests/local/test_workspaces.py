"""Where agents work: what is checked, what is made, and a git worktree that is whole whatever was killed."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amux.core.errors import Refused
from amux.core.ids import SessionId, SessionRef
from amux.core.launch import LaunchSnapshot, WorkspaceUse
from amux.local import workspaces
from amux.local.workspaces import Workspaces
from amux.local.workspaces import _locked as locked

REF = SessionRef("local", SessionId("7k3m"))
# A git that is killed with its worker when it has written half of a worktree.
HALF = """\
#!{python}
import os, signal, sys
if "add" in sys.argv:
    os.makedirs(sys.argv[-2])
    open(os.path.join(sys.argv[-2], "half"), "w").close()
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
os.execv({git!r}, ["git", *sys.argv[1:]])
"""


# A filter that kills the git which makes the worktree: one of those above it.
DEADLY = """\
pid=$PPID
while [ "$pid" -gt 1 ]; do
  if tr '\\0' ' ' < "/proc/$pid/cmdline" | grep -q 'worktree add'; then kill -9 "$pid"; fi
  pid=$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f2)
done
cat
"""


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=User A", "-c", "user.email=user.a@example.org"]
    line = ["git", *who, "-C", str(folder), *command]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One with a file in a folder, and a hook that would leave a trace."""
    made = tmp_path / "repository"
    (made / "inside").mkdir(parents=True)
    (made / "inside" / "a.txt").write_text("one\n")
    git(made, "init", "-q", "-b", "main")
    git(made, "add", ".")
    git(made, "commit", "-qm", "One file")
    hook = made / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'hooked'}\n")
    hook.chmod(0o755)
    return made


def launch(folder: Path, use: WorkspaceUse = WorkspaceUse.alone) -> LaunchSnapshot:
    return LaunchSnapshot("scripted", str(folder), use=use)


async def refused(asked: LaunchSnapshot, where: Workspaces) -> tuple[str, str]:
    with pytest.raises(Refused) as why:
        await where.ready(REF, asked)
    return why.value.key, str(why.value)


@pytest.mark.rule("S1")
async def test_a_session_that_names_no_folder_has_one_made(tmp_path: Path) -> None:
    own = tmp_path / "workspaces" / "7k3m"
    for _ in range(2):
        assert await Workspaces(tmp_path).ready(REF, launch(own)) == str(own)
        assert own.is_dir()


@pytest.mark.rule("S5")
async def test_a_named_folder_must_be_there_and_is_never_made(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    told = f"The workspace {folder} is no folder here. Create it, or start in another one."
    assert await refused(launch(folder), Workspaces(tmp_path)) == ("no_workspace", told)
    assert not folder.exists()
    folder.mkdir()
    assert await Workspaces(tmp_path).ready(REF, launch(folder)) == str(folder)


async def test_a_home_in_which_nothing_can_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("a file")
    key, told = await refused(launch(tmp_path / "workspaces" / "7k3m"), Workspaces(tmp_path))
    assert (key, told.partition(":")[2]) == (
        "no_workspace",
        " name one with --workspace, or set AMUX_HOME to a folder that is amux's.",
    )


async def test_a_folder_outside_of_the_roots_is_refused_whatever_it_is_called(tmp_path: Path) -> None:
    root, outside = tmp_path / "allowed", tmp_path / "secret"
    (root / "inside").mkdir(parents=True)
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (tmp_path / "alias").symlink_to(root / "inside")
    where = Workspaces(tmp_path / "home", (root,))
    for fine in (root, root / "inside", tmp_path / "alias"):
        assert await where.ready(REF, launch(fine)) == str(fine)
    for folder in (outside, root / "link", root / ".." / "secret", tmp_path):
        key, told = await refused(launch(folder), where)
        assert key == "outside_roots"
        assert told.endswith("Start in one of these, or add it to AMUX_WORKSPACE_ROOTS.")
    own = tmp_path / "home" / "workspaces" / "7k3m"
    assert await where.ready(REF, launch(own)) == str(own)


@pytest.mark.rule("S1")
async def test_a_worktree_is_the_sessions_own_and_is_made_once(tmp_path: Path, repository: Path) -> None:
    where, own = Workspaces(tmp_path / "home"), tmp_path / "home" / "workspaces" / "7k3m"
    asked = launch(repository / "inside", WorkspaceUse.worktree)
    assert await where.ready(REF, asked) == str(own / "inside")
    assert git(own, "rev-parse", "--abbrev-ref", "HEAD") == "amux/7k3m\n"
    (own / "inside" / "a.txt").write_text("two\n")
    git(own, "commit", "-qam", "Two")
    assert await where.ready(REF, asked) == str(own / "inside")
    assert (own / "inside" / "a.txt").read_text() == "two\n"
    assert (repository / "inside" / "a.txt").read_text() == "one\n"
    other = SessionRef("local", SessionId("9z9z"))
    assert await where.ready(other, asked) == str(own.with_name("9z9z") / "inside")
    assert not (tmp_path / "hooked").exists()


def killed_in_the_midst(tmp_path: Path, repository: Path) -> None:
    """A worker and its git die when half of the worktree is written."""
    found = shutil.which("git")
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(HALF.format(python=sys.executable, git=found))
    program.chmod(0o755)
    worker = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom tests.local.test_workspaces import *\n"
        "asked = launch(Path(sys.argv[2]), WorkspaceUse.worktree)\n"
        "asyncio.run(Workspaces(Path(sys.argv[1])).ready(REF, asked))"
    )
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    argv = [sys.executable, "-c", worker, str(tmp_path / "home"), str(repository)]
    died = subprocess.run(argv, env=env, cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL


@pytest.mark.rule("S1")
async def test_a_worktree_that_was_half_made_when_its_worker_died_is_made_anew(
    tmp_path: Path, repository: Path
) -> None:
    home, own = tmp_path / "home", tmp_path / "home" / "workspaces" / "7k3m"
    killed_in_the_midst(tmp_path, repository)
    assert (own / "half").exists()
    assert await Workspaces(home).ready(REF, launch(repository, WorkspaceUse.worktree)) == str(own)
    assert sorted(path.name for path in own.iterdir()) == [".git", "inside"]
    assert git(own, "status", "--porcelain") == ""


async def test_what_git_cannot_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, plain = Workspaces(tmp_path / "home"), tmp_path / "plain"
    plain.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    key, told = await refused(launch(plain, WorkspaceUse.worktree), where)
    assert key == "no_worktree"
    assert told.startswith(f"No git worktree of {plain} can be made: fatal: not a git repository")
    monkeypatch.setenv("PATH", str(tmp_path))
    told = "There is no git here: install it, or start without a worktree."
    assert await refused(launch(plain, WorkspaceUse.worktree), where) == ("no_worktree", told)


@pytest.mark.rule("S1")
async def test_a_worktree_whose_git_was_killed_is_made_anew_and_no_other_is_touched(
    tmp_path: Path, repository: Path
) -> None:
    """Git itself dies at the first file it writes: it has locked what it made, and the branch is taken."""
    theirs, away = tmp_path / "theirs", tmp_path / "away"
    git(repository, "worktree", "add", "-q", str(theirs))
    theirs.rename(away)  # as on a disk that is not mounted just now
    (repository / ".gitattributes").write_text("*.txt filter=deadly\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "A filter")
    (tmp_path / "deadly").write_text(DEADLY)
    git(repository, "config", "filter.deadly.smudge", f"sh {tmp_path / 'deadly'}")
    where, own = Workspaces(tmp_path / "home"), tmp_path / "home" / "workspaces" / "7k3m"
    asked = launch(repository, WorkspaceUse.worktree)
    assert (await refused(asked, where))[0] == "no_worktree"
    git(repository, "config", "filter.deadly.smudge", "cat")
    assert await where.ready(REF, asked) == str(own)
    assert sorted(path.name for path in own.iterdir()) == [".git", ".gitattributes", "inside"]
    away.rename(theirs)
    assert git(theirs, "status", "--porcelain") == ""


async def test_a_worktree_that_another_worker_makes_is_waited_for(tmp_path: Path, repository: Path) -> None:
    where, own = Workspaces(tmp_path / "home"), tmp_path / "home" / "workspaces" / "7k3m"
    own.parent.mkdir(parents=True)
    asked = launch(repository, WorkspaceUse.worktree)
    tried = asyncio.Event()

    def trying(lock: int) -> bool:
        tried.set()
        return locked(lock)

    async with workspaces._alone(own.with_name("7k3m.lock")):  # as another worker holds it
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workspaces, "_locked", trying)
            waits = asyncio.create_task(where.ready(REF, asked))
            await tried.wait()
        assert not waits.done()
        assert not own.exists()
    assert await waits == str(own)


async def test_no_secret_of_the_worker_reaches_a_repositorys_own_programs(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    (repository / ".gitattributes").write_text("* filter=spy\n")
    git(repository, "config", "filter.spy.smudge", f"sh -c 'env >> {seen}; cat'")
    git(repository, "config", "filter.spy.clean", "cat")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "A filter")
    monkeypatch.setenv("AMUX_FEISHU_APP_SECRET", "hush")
    await Workspaces(tmp_path / "home").ready(REF, launch(repository, WorkspaceUse.worktree))
    assert "PATH=" in seen.read_text()
    assert "hush" not in seen.read_text()
