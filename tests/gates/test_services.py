"""Procfile, compose.yaml and Dockerfile name the same services, and a real Compose accepts the file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ["ingress", "web", "worker", "deliver", "beat", "flower"]
COMPOSE = shutil.which("docker-compose", path=Path(sys.executable).parent)


def compose(folder: Path, *words: str, password: str = "") -> subprocess.CompletedProcess[str]:
    assert COMPOSE, "docker-compose is not in this environment; make it with `python3 run.py setup`"
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"} | ({"POSTGRES_PASSWORD": password} if password else {})
    command = [COMPOSE, "-f", "compose.yaml", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "compose.yaml", tmp_path)
    return tmp_path


def test_procfile_has_one_plain_line_a_service() -> None:
    lines = (ROOT / "Procfile").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{service}: amux serve {service}" for service in SERVICES]


def test_compose_accepts_the_file_with_every_service(folder: Path) -> None:
    done = compose(folder, "config", "--services", password="x1")
    assert (done.returncode, sorted(done.stdout.split())) == (0, sorted([*SERVICES, "schema", "postgres", "redis"])), (
        done.stderr
    )


def test_compose_runs_what_the_procfile_runs() -> None:
    commands = re.findall(r"^    command: \[serve, (\w+)\]$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    assert commands == SERVICES


def test_no_password_is_no_start(folder: Path) -> None:
    done = compose(folder, "config", "-q")
    assert (done.returncode, "POSTGRES_PASSWORD" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("real", "planted"), [("depends_on:", "dependson:"), ("condition: service_healthy", "condition: service_helthy")]
)
def test_a_fault_in_the_file_is_seen(folder: Path, real: str, planted: str) -> None:
    text = (folder / "compose.yaml").read_text()
    assert real in text
    (folder / "compose.yaml").write_text(text.replace(real, planted))
    assert compose(folder, "config", "-q", password="x1").returncode != 0
