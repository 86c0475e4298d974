"""run.py on a small project of its own: real environments, made by uv where there is one and by venv otherwise.

The small project builds itself without downloads, so that these tests ask no registry.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = """
[project]
name = "amux"
version = "0.1"
[project.optional-dependencies]
agents = []
e2e = []
test = []
[project.scripts]
amux = "small:main"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
SMALL = """
import os, sys
def main():
    print("amux", os.getcwd(), *sys.argv[1:])
    sys.exit(7)
"""
BACKEND = """
import zipfile
NAME = "amux-0.1-py3-none-any.whl"
META = "Metadata-Version: 2.1\\nName: amux\\nVersion: 0.1\\nProvides-Extra: agents\\nProvides-Extra: e2e\\nProvides-Extra: test\\n"
FILES = {
    "small.py": open("small.py").read(),
    "amux-0.1.dist-info/METADATA": META,
    "amux-0.1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: small\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "amux-0.1.dist-info/entry_points.txt": "[console_scripts]\\namux = small:main\\n",
}
def build_wheel(folder, settings=None, metadata=None):
    with open("builds", "a") as builds:
        builds.write("x")
    record = "".join(f"{name},,\\n" for name in FILES) + "amux-0.1.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(f"{folder}/{NAME}", "w") as wheel:
        for name, text in {**FILES, "amux-0.1.dist-info/RECORD": record}.items():
            wheel.writestr(name, text)
    return NAME
build_editable = build_wheel
"""
MAKING = "Making the environment in .venv, once. This takes some seconds, or minutes on a slow line.\n"
WAITING = "Another start is making the environment; waiting for it.\n"


class Clone:
    """A small project with run.py in a folder whose name has a space in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for name, text in {"pyproject.toml": PROJECT, "small.py": SMALL, "backend.py": BACKEND}.items():
            (root / name).write_text(text)
        shutil.copy(ROOT / "run.py", root)

    def start(self, *words: str, path: str = os.environ["PATH"], cwd: str = "/") -> "subprocess.Popen[str]":
        base = getattr(sys, "_base_executable", sys.executable)
        env = {"PATH": path, "HOME": str(self.root.parent)}
        pipe = subprocess.PIPE
        command = [base, str(self.root / "run.py"), *words]
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, path: str = os.environ["PATH"]) -> tuple[int, str, str]:
        process = self.start(*words, path=path)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def builds(self) -> int:
        return len((self.root / "builds").read_text())

    def extras(self) -> list[str]:
        found: list[str] = json.loads((self.root / ".venv/amux-stamp.json").read_text())["extras"]
        return found


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "a clone")


def test_it_parses_where_only_its_message_is_wanted() -> None:
    ast.parse((ROOT / "run.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_gets_one_line(clone: Clone) -> None:
    code = "import sys, runpy; sys.version_info = (3, 10, 1); sys.argv = ['run.py', 'ls']; runpy.run_path('run.py', None, '__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=clone.root, capture_output=True, text=True, check=False)
    said = "amux needs Python 3.11 or newer, this one is 3.10. Try: python3.11 run.py\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_the_environment_is_made_once_and_the_words_are_handed_on(clone: Clone) -> None:
    assert clone.run("ls", "--state", "running") == (7, "amux / ls --state running\n", MAKING)
    assert clone.run("ls") == (7, "amux / ls\n", "")
    assert (clone.builds(), clone.extras()) == (1, [])


def test_by_venv_where_there_is_no_uv(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert clone.run("ls", path=str(tmp_path / "bin")) == (7, "amux / ls\n", MAKING)


def test_a_richer_environment_serves_a_poorer_mode(clone: Clone) -> None:
    assert clone.run("setup") == (0, "", MAKING)
    assert clone.run("demo", "--engine=codex") == (7, "amux / demo --engine=codex\n", "")
    assert (clone.builds(), clone.extras()) == (1, ["agents", "e2e", "test"])


def test_a_poorer_environment_is_added_to_and_keeps_what_it_had(clone: Clone) -> None:
    clone.run("run", "hello", "--engine", "claude")
    assert clone.extras() == ["agents"]
    (clone.root / "pyproject.toml").write_text(PROJECT + "# changed\n")
    assert clone.run("ls") == (7, "amux / ls\n", MAKING)
    assert (clone.builds(), clone.extras()) == (2, ["agents"])


def test_two_at_once_make_it_once(clone: Clone) -> None:
    both = [clone.start("ls"), clone.start("ls")]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [7, 7]
    assert [out for out, _ in said] == ["amux / ls\n"] * 2
    assert clone.builds() == 1
    assert sorted(err for _, err in said) in ([WAITING, MAKING], ["", MAKING])


def test_what_was_broken_off_or_moved_is_made_again(clone: Clone, tmp_path: Path) -> None:
    clone.run("ls")
    (clone.root / ".venv/amux-stamp.json").write_text('{"of"')
    assert clone.run("ls") == (7, "amux / ls\n", MAKING)
    clone.root = clone.root.rename(tmp_path / "elsewhere")
    assert clone.run("ls") == (7, "amux / ls\n", MAKING)
    assert str(clone.root) in (clone.root / ".venv/bin/activate").read_text()


def test_a_python_without_venv_gets_one_line(clone: Clone) -> None:
    code = "import sys, runpy; sys.modules['ensurepip'] = None; sys.argv = ['run.py', 'ls']; runpy.run_path('run.py', None, '__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=clone.root, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == MAKING + (
        "This Python cannot make an environment, its venv is missing. "
        "On Debian or Ubuntu: apt-get install python3-venv. Then run this again.\n"
    )


def test_a_build_that_fails_says_so_and_leaves_no_stamp(clone: Clone) -> None:
    clone.run("ls")
    (clone.root / "backend.py").write_text("raise RuntimeError('planted')")
    code, out, err = clone.run("setup")
    assert (code, out, err.splitlines()[0] + "\n") == (1, "", MAKING)
    assert err.splitlines()[-1].startswith("The environment could not be made: ")
    assert not (clone.root / ".venv/amux-stamp.json").exists()


def test_no_words_is_wrong_usage_and_help_is_not(clone: Clone) -> None:
    (none, told, _), (asked, same, _) = clone.run(), clone.run("--help")
    assert (none, asked, told) == (2, 0, same)
    assert "python3 run.py demo [--once]" in told
