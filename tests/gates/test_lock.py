"""uv.lock: resolved from the public index alone, for the dependencies that stand in pyproject.toml today."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
FILES = re.compile(
    r"/packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/[^/]+"
)  # the public index's own layout; mirrors differ


def faults(lock: str) -> Iterator[str]:
    """What does not come from the public index: paths, a second index, a mirror's layout, a port, a password."""
    packages: list[dict[str, Any]] = tomllib.loads(lock)["package"]
    sources = [package["source"] for package in packages]
    yield from (f"source {source}" for source in sources if source != {"editable": "."} and [*source] != ["registry"])
    registries = {source["registry"] for source in sources if "registry" in source}
    files = [file.get("url", "") for p in packages for file in [p.get("sdist", {}), *p.get("wheels", [])] if file]
    yield from (f"registry {url}" for url in sorted(registries) if not plain(url) or urlsplit(url).path != "/simple")
    yield from (f"file {url}" for url in files if not plain(url) or not FILES.fullmatch(urlsplit(url).path))
    yield from (f"{len(h)} hosts {h}" for h in (hosts(registries), hosts(files)) if len(h) != 1)


def plain(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(re.fullmatch(r"[a-z.]+\.[a-z]+", parts.netloc)) and not parts.query


def hosts(urls: set[str] | list[str]) -> list[str]:
    return sorted({urlsplit(url).netloc for url in urls})


def test_the_lock_holds_no_mirror_and_no_path() -> None:
    assert not list(faults((ROOT / "uv.lock").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("real", "planted"),
    [
        ('source = { registry = "https://', 'source = { registry = "https://index.example/'),
        ('source = { registry = "https://', 'source = { registry = "http://127.0.0.1:3141/'),
        ('{ url = "https://', '{ url = "https://user:pw@'),
        ("/packages/", "/root/mirror/"),
        ('source = { editable = "." }', 'source = { editable = "/srv/clone" }'),
        ('{ url = "https://', '{ path = "../wheels/'),
    ],
)
def test_a_lock_made_elsewhere_is_seen(real: str, planted: str) -> None:
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert real in lock
    assert list(faults(lock.replace(real, planted, 1)))


def test_the_lock_is_of_todays_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [(line, "") for line in project["dependencies"]]
    wanted += [(line, extra) for extra, lines in project["optional-dependencies"].items() for line in lines]
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (here,) = (package for package in packages if package["name"] == project["name"])
    locked = {
        (row["name"], frozenset(row.get("extras", [])), SpecifierSet(row.get("specifier", "")), extra_of(row))
        for row in here["metadata"]["requires-dist"]
    }
    asked = [(Requirement(line), extra) for line, extra in wanted]
    assert locked == {(one.name, frozenset(one.extras), one.specifier, extra) for one, extra in asked}


def extra_of(row: dict[str, str]) -> str:
    found = re.search(r"extra == '([^']+)'", row.get("marker", ""))
    return found[1] if found else ""
