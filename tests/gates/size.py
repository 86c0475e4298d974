"""The size budget: a file is read in one sitting, a function at one glance.

Run from the root as `python -m tests.gates.size`. Files of more than 300 lines are named, more than 500 fail; so do
functions whose median is above 10 lines or whose 95th percentile is above 40. It judges length alone: complexity is
ruff's.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LIKED, FILE_MOST = 300, 500  # lines
MEDIAN, P95 = 10, 40  # lines of a function
FILES_OF = ("amux", "workers", "ops", "tests")
FUNCTIONS_OF = ("amux", "workers")


@dataclass(frozen=True, slots=True)
class Measured:
    lines: int
    where: str


@dataclass(frozen=True, slots=True)
class Verdict:
    said: list[str]
    faults: list[str]


def judge(root: Path) -> Verdict:
    """Measure the tree below `root`: what is worth saying, and what fails."""
    long = sorted((file for file in files(root) if file.lines > FILE_LIKED), key=lambda f: -f.lines)
    said = [f"{f.where}: {f.lines} lines, {FILE_LIKED} are liked" for f in long if f.lines <= FILE_MOST]
    faults = [f"{f.where}: {f.lines} lines, {FILE_MOST} are the most" for f in long if f.lines > FILE_MOST]
    found = sorted(functions(root), key=lambda f: f.lines)
    if found:
        lines = [f.lines for f in found]
        median, p95 = statistics.median(lines), lines[int(0.95 * len(lines))]
        said.append(f"{len(found)} functions: median {median:g} lines, 95th percentile {p95}")
        if median > MEDIAN or p95 > P95:
            longest = ", ".join(f"{f.where} {f.lines}" for f in found[:-6:-1])
            faults.append(f"functions: the budget is median {MEDIAN}, 95th percentile {P95}; longest: {longest}")
    return Verdict(said, faults)


def files(root: Path) -> Iterator[Measured]:
    for path in sources(root, FILES_OF):
        yield Measured(len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(root)))


def functions(root: Path) -> Iterator[Measured]:
    for path in sources(root, FUNCTIONS_OF):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                where = f"{path.relative_to(root)}:{node.lineno} {node.name}"
                yield Measured(node.end_lineno - node.lineno + 1, where)


def sources(root: Path, rooms: tuple[str, ...]) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((root / room).rglob("*.py"))


def main() -> int:
    verdict = judge(Path.cwd())
    print(*verdict.said, *verdict.faults, sep="\n")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
