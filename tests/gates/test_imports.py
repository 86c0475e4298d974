"""What an import may cost: the Feishu client takes seconds and 175 MB, so no module pulls it in by being imported.

`ops/bench/engines` are left out: other engines' own programs, run in environments that hold those engines."""

import subprocess
import sys
from pathlib import Path

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
