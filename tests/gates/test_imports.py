"""What an import may cost. The Feishu client takes seconds and 175 MB, so no module pulls it in by being imported; and a
person at the command line, like a worker that is needed again, waits for nothing that is not used (ADR 12).

`ops/bench/engines` are left out: other engines' own programs, run in environments that hold those engines."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERYTHING = """
import importlib, pkgutil, sys
for room in ("amux", "workers", "ops"):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, room + "."):
        if not (module.name.endswith("__main__") or ".migrations." in module.name or ".engines." in module.name):
            importlib.import_module(module.name)
print("lark_oapi" in sys.modules)
"""


def test_no_module_imports_the_feishu_client_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


HEAVY = "alembic celery claude_agent_sdk flower hiredis kombu prompt_toolkit redis sqlalchemy starlette tornado uvicorn"
LOADED = """
import importlib, sys
for name in sys.argv[1].split():
    importlib.import_module(name)
print(*sorted({name.split(".")[0] for name in sys.modules} & set(sys.argv[2].split())))
"""


@pytest.mark.parametrize(
    ("modules", "loaded"),
    [
        ("amux.cli amux.wiring ops.migrations", ""),
        ("workers.program workers.tasks workers.hooks", "celery kombu"),
    ],
)
def test_what_comes_with_it(modules: str, loaded: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, modules, HEAVY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, loaded), done.stderr
