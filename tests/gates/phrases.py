"""The copy is complete: both languages hold the same phrases, and each phrase the same slots.

Run from the root as `python -m tests.gates.phrases`. It reads the files of `amux/feishu/locales` and judges neither
wording nor use.
"""

import string
import sys
import tomllib
from pathlib import Path
from typing import Any

LOCALES = Path("amux/feishu/locales")
LANGUAGES = ("en", "zh")


def judge(locales: Path) -> list[str]:
    """Every difference between the languages, one a line; nothing where they agree."""
    missing = [
        f"{locales / f'{code}.toml'} is missing" for code in LANGUAGES if not (locales / f"{code}.toml").exists()
    ]
    if missing:
        return missing
    first, other = (phrases(locales / f"{code}.toml") for code in LANGUAGES)
    faults = [f"{key}: is in one language only" for key in sorted(first.keys() ^ other.keys())]
    for key in sorted(first.keys() & other.keys()):
        try:
            here, there = slots(first[key]), slots(other[key])
        except ValueError as why:
            faults.append(f"{key}: {why}")
            continue
        if here != there:
            faults.append(f"{key}: {LANGUAGES[0]} has the slots {sorted(here)}, {LANGUAGES[1]} has {sorted(there)}")
    return faults


def phrases(path: Path) -> dict[str, str]:
    """All phrases of one language, tables joined by dots."""
    return dict(_flat(tomllib.loads(path.read_text(encoding="utf-8")), ""))


def slots(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name is not None}


def _flat(table: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, str(value))]
    return found


def main() -> int:
    faults = judge(LOCALES)
    print(*faults or [f"{len(phrases(LOCALES / 'en.toml'))} phrases, the same in {' and '.join(LANGUAGES)}"], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
