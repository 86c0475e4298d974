"""The embedded Postgres and Valkey of one home: prepared here, kept alive by the supervisor.

They listen on unix sockets in a folder that only we may enter, and on no port. Their data is `<home>/pg` and
`<home>/redis`. This module reads no data and holds no connection."""

import os
import pwd
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from amux.core.errors import Refused, Unavailable
from amux.local.binaries import Binaries, Program, closed, find_binaries, reachable
from amux.local.child import User, enters, spawn
from amux.local.home import Home, fresh_sockets, hold, socket_path
from amux.local.probes import postgres_answers, redis_answers
from amux.local.restarter import Service, Told, last_line
from amux.local.supervisor import Supervisor

POSTGRES, REDIS = "postgres", "redis"
BUILTIN_LOCALE_SINCE = 17
DATABASE_GRACE_SECONDS = 15.0
DATABASE_READY_SECONDS = 600.0  # after a crash there is a log to be read, and killing it would begin that again
ROOTS_SERVERS_RUN_AS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the servers are, in the one form that settings use: a libpq URI, and redis:// or unix://."""

    postgres: str
    redis: str


def urls(home: Path) -> Urls:
    """Where the embedded servers of `home` are reached."""
    sockets = socket_path(home)
    return Urls(f"postgresql://amux@/postgres?host={sockets}&port=5432", f"unix://{sockets}/redis.sock")


async def embedded(home: Home, binaries: Binaries) -> tuple[Service, Service]:
    """Postgres and Valkey as services, their data folders ready. At a first start this takes a second.

    Raises Refused when the home does not serve or its data are of another Postgres, Unavailable when initdb fails."""
    try:
        return await _prepared(home, binaries, _server_user(home.path / "pg"))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Refused(
            f"the home {home.path} does not serve ({why}); set AMUX_HOME to a local folder with room."
        ) from error


async def _prepared(home: Home, binaries: Binaries, user: User | None) -> tuple[Service, Service]:
    runtime = home.path / "runtime"
    postgres = reachable(binaries.postgres, user, runtime)
    redis = reachable(binaries.redis, user, runtime)
    sockets = fresh_sockets(home.path)
    _own(sockets, user)
    await _postgres_data(home, postgres, user)
    _folder(home.path / REDIS, user)
    return _postgres(home, postgres, sockets, user), _redis(home, redis, sockets, user)


class Servers:
    """Postgres and Valkey of `home` while the context is open, restarted when they die. To be entered in the main thread.

    Raises what `hold`, `find_binaries`, `embedded` and `Supervisor.ready` raise."""

    def __init__(
        self, home: Path, binaries: Binaries | None = None, *, tell: Callable[[Told], None] = lambda _: None
    ) -> None:
        self._path, self._binaries, self._tell = home, binaries, tell
        self._open = AsyncExitStack()
        self._supervisor: Supervisor | None = None

    @property
    def urls(self) -> Urls:
        return urls(self._path)

    @property
    def supervisor(self) -> Supervisor:
        """What keeps them: kill, freeze, thaw, stop, start and restart by the names "postgres" and "redis"."""
        if self._supervisor is None:
            raise Unavailable("the servers have not been started.")
        return self._supervisor

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            home = await opening.enter_async_context(hold(self._path))
            services = await embedded(home, self._binaries or find_binaries(None, None))
            self._supervisor = await opening.enter_async_context(Supervisor(home, services, tell=self._tell))
            await self._supervisor.ready()
            home.note(urls={POSTGRES: self.urls.postgres, REDIS: self.urls.redis})
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, trace)


def _postgres(home: Home, program: Program, sockets: Path, user: User | None) -> Service:
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(sockets),
        "port": "5432",
        "cluster_name": "amux",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "fsync": "on",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "log_min_error_statement": "panic",  # a statement, or the detail of its error, may hold what people wrote
        "log_error_verbosity": "terse",
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    return Service(
        name=POSTGRES,
        argv=(str(program.path), "-D", str(home.path / "pg"), *settings),
        env=_plain_environment(),
        ready=postgres_answers(sockets / ".s.PGSQL.5432", user="amux", database="postgres"),
        stop_signal=signal.SIGINT,  # SIGTERM waits for every open session
        death_signal=signal.SIGINT,
        grace_seconds=DATABASE_GRACE_SECONDS,
        ready_seconds=DATABASE_READY_SECONDS,
        user=user,
    )


def _redis(home: Home, program: Program, sockets: Path, user: User | None) -> Service:
    path, data = sockets / "redis.sock", home.path / REDIS
    words = "--port 0 --unixsocketperm 700 --appendonly yes --appendfsync everysec --maxmemory-policy noeviction"
    return Service(
        name=REDIS,
        argv=(str(program.path), *words.split(), "--save", "", "--unixsocket", str(path), "--dir", str(data)),
        env=_plain_environment(),
        ready=redis_answers(path),
        death_signal=signal.SIGTERM,
        grace_seconds=DATABASE_GRACE_SECONDS,
        ready_seconds=DATABASE_READY_SECONDS,
        user=user,
        remedy=f"if it cannot read its data, remove {data}: nothing is lost with it",
    )


async def _postgres_data(home: Home, program: Program, user: User | None) -> None:
    data, half = home.path / "pg", home.path / "pg.tmp"
    if (data / "PG_VERSION").exists():
        _same_major(data, program)
        return
    shutil.rmtree(half, ignore_errors=True)
    _folder(half, user)
    locale = ["--locale=C.UTF-8"]
    if program.version[0] >= BUILTIN_LOCALE_SINCE:  # the same order and case on every system
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    words = ["-U", "amux", "-A", "trust", "-E", "UTF8", *locale, "--no-instructions"]
    log = home.log("initdb")
    code = await _run(home, (str(program.path.with_name("initdb")), "-D", str(half), *words), user)
    if code:
        raise Unavailable(f"initdb could not make {data} (exit {code}): {last_line(log)}; see {log}.")
    half.rename(data)  # initdb has synced what is in it
    _sync(home.path)


async def _run(home: Home, argv: tuple[str, ...], user: User | None) -> int:
    with ExitStack() as ours:
        lock = await home.service_lock(POSTGRES, seconds=DATABASE_GRACE_SECONDS)
        ours.callback(os.close, lock)
        output = ours.enter_context(home.log("initdb").open("wb")).fileno()
        death = signal.SIGKILL
        child = await spawn(argv, _plain_environment(), output=output, death_signal=death, user=user, keep=(lock,))
        ours.callback(child.kill_group)
        return await child.process.wait()


def _same_major(data: Path, program: Program) -> None:
    wrote, now = (data / "PG_VERSION").read_text().strip(), str(program.version[0])
    if wrote != now:
        raise Refused(
            f"{data} was written by PostgreSQL {wrote}, and {program.path} is {now}: set AMUX_PG_BIN to the bin folder "
            f"of a PostgreSQL {wrote}; or, with that one, `pg_dumpall`, move the folder away, start, and load the dump."
        )


def _server_user(data: Path) -> User | None:
    """Whom the servers run as: ourselves, but for root, whom Postgres refuses; then who owns the data, once there is."""
    if os.getuid() != 0:
        return None
    accounts = pwd.getpwall()
    owner = data.stat().st_uid if data.exists() else 0
    owners = [account for account in accounts if account.pw_uid == owner != 0]
    named = [account for name in ROOTS_SERVERS_RUN_AS for account in accounts if account.pw_name == name]
    for account in [*owners, *named]:
        return User(account.pw_name, account.pw_uid, account.pw_gid)
    raise Refused("as root, Postgres needs the user postgres or nobody; add one, or run amux as another user.")


def _folder(path: Path, user: User | None) -> None:
    """A folder of mode 0700 that the servers own. Raises Refused when they cannot get there."""
    path.mkdir(mode=0o700, exist_ok=True)
    _own(path, user)
    if user is not None and not enters(user, path):
        raise closed(path, user)


def _own(path: Path, user: User | None) -> None:
    if user is not None:
        os.chown(path, user.uid, user.gid)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain_environment() -> Mapping[str, str]:
    """Nothing of ours: no setting for a client of Postgres, no secret."""
    return {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC"}
