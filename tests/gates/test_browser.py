"""Where no Chromium is found, browser tests are left out by name in one line; with CI=true they fail."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.browser
def test_page(chromium): assert chromium

@pytest.mark.browser
def test_click(chromium): assert chromium

def test_plain(): pass
"""
MISSING = "no Chromium is found: set CHROMIUM_PATH, or install it (Debian: apt-get install chromium)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests/gates").mkdir(parents=True)
    shutil.copy(ROOT / "tests/gates/rules.py", tmp_path / "tests/gates")
    conftest = (ROOT / "tests/conftest.py").read_text(encoding="utf-8")
    alone, count = re.subn(
        r"^pytest_plugins = .*$", 'pytest_plugins = ["tests.gates.rules"]', conftest, flags=re.MULTILINE
    )
    assert count == 1
    (tmp_path / "tests/conftest.py").write_text(alone)
    (tmp_path / "tests/test_it.py").write_text(TESTS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/requirements.md").write_text("")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, **env: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rN", "--tb=line"]
    everything = {"PATH": str(project), "HOME": str(project), **env}
    done = subprocess.run(command, cwd=project, env=everything, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


def test_left_out_by_name(project: Path) -> None:
    code, said = run(project)
    assert (code, f"left out, {MISSING}: test_page, test_click" in said) == (0, True), said


def test_a_failure_where_the_proof_is_made(project: Path) -> None:
    code, said = run(project, CI="true")
    assert (code, said.count(MISSING)) == (1, 2), said


def test_the_one_that_is_named_is_used(project: Path) -> None:
    (project / "browser").write_text("#!/bin/sh\n")
    (project / "browser").chmod(0o755)
    code, said = run(project, CI="true", CHROMIUM_PATH=str(project / "browser"))
    assert (code, [line for line in said if "Chromium" in line]) == (0, []), said
