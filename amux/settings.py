"""What can be set, read once at start from `AMUX_*` and `amux.toml` (the environment wins).

`load` builds one frozen Settings or names every fault at once, each with its remedy. It touches no server and makes no
folder; after it, nobody asks the environment again. Secrets never appear in a repr or in a fault.
"""

import difflib
import os
import pwd
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from amux.core.launch import WorkspaceUse
from amux.core.steering import Busy

FEISHU = "https://open.feishu.cn"
AGENT_BYTES = 400 * 1024 * 1024  # what one agent program needs, as measured; the default of `slots` rests on it
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_REDIS_FORM = "redis://[:password@]host:port/number, rediss://... or unix:///absolute/path.sock[?db=number]"
_POSTGRES_FORM = "postgresql://user[:password]@host:port/name or postgresql:///name?host=/folder/of/the/socket"


class BadSettings(Exception):
    """All faults at once, one a line, each with its remedy."""


@dataclass(frozen=True, slots=True)
class FeishuSettings:
    """The one bot of this installation, in open_ids of people. `owner` is who is in charge, where one is named;
    `drivers` are who may drive it beside the owner, None for every member of its chats (B7)."""

    app_id: str
    app_secret: str = field(repr=False)
    domain: str
    owner: str | None
    drivers: frozenset[str] | None = None
    calls_per_minute: int = 1_000  # what the platform grants this app


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked. `None` for a URL means: the embedded server; for a program: look for it."""

    home: Path
    postgres_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    pg_bin: Path | None
    redis_bin: Path | None
    target: str
    slots: int  # Sessions owned at once by one worker
    lease: float  # seconds
    linger: float  # seconds that an owner stays after its last Turn
    burst_window: float  # seconds; 0 judges every message at once
    busy_input: Busy  # what a person's message from Feishu does while a Turn runs
    silence_limit: float  # seconds without a sign of an agent that works, then its Turn fails (T8)
    turn_limit: float  # seconds of a whole Turn
    answer_limit: float  # seconds for a person to answer a permission request; then it is denied (H40)
    workspace: Path | None  # of Sessions started without one; None: <home>/workspaces/<session id>
    workspace_use: WorkspaceUse  # of new Sessions that do not say
    workspace_roots: tuple[Path, ...]  # in which workspaces must lie, beside those that amux makes; none: anywhere
    engine: str  # of Sessions started without one
    web_host: str
    web_port: int
    feishu: FeishuSettings | None

    def secrets(self) -> frozenset[str]:
        """Every value that must appear in no log: passwords in URLs and the bot's secret."""
        urls = [urlsplit(url) for url in (self.postgres_url, self.redis_url) if url]
        quoted = [url.password for url in urls if url.password]
        found = [*quoted, *map(unquote, quoted)]
        return frozenset([*found, self.feishu.app_secret] if self.feishu else found)


def load(env: Mapping[str, str], toml_path: Path = Path("amux.toml")) -> Settings:
    """Read all settings, an empty value counting as unset. Raises BadSettings with every fault at once."""
    read = _Reader(env, {}, [], toml_path.name)
    read.toml.update(_toml(toml_path, read.faults))
    settings = Settings(
        home=read.path("home") or _default_home(env),
        postgres_url=read.url("postgres_url", ("postgresql",), _POSTGRES_FORM),
        redis_url=read.url("redis_url", ("redis", "rediss", "unix"), _REDIS_FORM),
        pg_bin=read.path("pg_bin"),
        redis_bin=read.path("redis_bin"),
        target=read.word("target", "local"),
        slots=read.whole("slots", _slots_by_memory(), 1, 1024),
        lease=read.seconds("lease", 15, 2, 120),
        linger=read.seconds("linger", 30, 0, 3600),
        burst_window=read.seconds("burst_window", 2, 0, 30),
        busy_input=_busy_input(read),
        silence_limit=read.seconds("silence_limit", 900, 1, 86_400),
        turn_limit=read.seconds("turn_limit", 86_400, 1, 604_800),
        answer_limit=read.seconds("answer_limit", 43_200, 1, 604_800),
        workspace=read.path("workspace"),
        workspace_use=_workspace_use(read),
        workspace_roots=_roots(read),
        engine=read.word("engine", "scripted"),
        web_host=read.raw("web_host") or "127.0.0.1",
        web_port=read.whole("web_port", 8420, 0, 65535),
        feishu=_feishu(read),
    )
    read.unknown_keys()
    if read.faults:
        raise BadSettings("\n".join(read.faults))
    return settings


def environment(env: Mapping[str, str], toml_path: Path = Path("amux.toml")) -> dict[str, str]:
    """The environment with what amux.toml sets in it too, for processes that run in another folder."""
    return {**{_env_name(key): value for key, value in _toml(toml_path, []).items()}, **env}


def kombu_url(redis_url: str) -> str:
    """The same Redis as Celery's broker spells it: unix:///p.sock?db=1 becomes redis+socket:///p.sock?virtual_host=1."""
    url = urlsplit(redis_url)
    if url.scheme != "unix":
        return redis_url
    db = dict(parse_qsl(url.query)).get("db")
    query = f"?{urlencode({'virtual_host': db})}" if db else ""
    return f"redis+socket://{url.netloc}{url.path}{query}"


def sqlalchemy_url(postgres_url: str) -> str:
    """The same Postgres as SQLAlchemy spells it, with its driver named."""
    return "postgresql+psycopg" + postgres_url.removeprefix("postgresql")


@dataclass(frozen=True, slots=True)
class _Reader:
    """One value at a time out of both sources; faults gather instead of raising."""

    env: Mapping[str, str]
    toml: dict[str, str]
    faults: list[str]
    file: str
    asked: set[str] = field(default_factory=set)

    def raw(self, key: str) -> str | None:
        self.asked.add(key)
        return self.env.get(_env_name(key)) or self.toml.get(key) or None

    def fault(self, key: str, shown: str, remedy: str) -> None:
        where = f"{_env_name(key)}={shown}" if self.env.get(_env_name(key)) else f"{key} = {shown} in {self.file}"
        self.faults.append(f"{where}: {remedy}")

    def seconds(self, key: str, default: float, low: float, high: float) -> float:
        raw = self.raw(key)
        if raw is None:
            return default
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", raw) and low <= float(raw) <= high:
            return float(raw)
        self.fault(key, repr(raw), f"must be seconds from {low:g} to {high:g}; leave it out for {default:g}")
        return default

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        raw = self.raw(key)
        if raw is None:
            return default
        if re.fullmatch(r"[0-9]{1,9}", raw) and low <= int(raw) <= high:
            return int(raw)
        self.fault(key, repr(raw), f"must be a whole number from {low} to {high}; leave it out for {default}")
        return default

    def path(self, key: str) -> Path | None:
        raw = self.raw(key)
        if raw is None:
            return None
        path = _person(self.env) / raw[2:] if raw.startswith("~/") else Path(raw)
        if path.is_absolute() and "\0" not in raw:
            return path
        self.fault(key, repr(raw), "must be an absolute path; write it from / or ~/ on")
        return None

    def word(self, key: str, default: str) -> str:
        raw = self.raw(key)
        if raw is None or _WORD.fullmatch(raw):
            return raw or default
        self.fault(key, repr(raw), f"must be one word of a-z, 0-9, dot, dash; leave it out for {default}")
        return default

    def url(self, key: str, schemes: tuple[str, ...], form: str) -> str | None:
        raw = self.raw(key)
        if raw is None or _is_url(raw, schemes):
            return raw
        self.fault(key, "(not shown, it may hold a password)", f"must be {form}; leave it out for the embedded server")
        return None

    def unknown_keys(self) -> None:
        for key in sorted(self.toml.keys() - self.asked):
            near = difflib.get_close_matches(key, self.asked, 1)
            remedy = f"write {near[0]}" if near else f"it can hold {', '.join(sorted(self.asked))}"
            self.faults.append(f"{key} in {self.file}: there is no such setting; {remedy}")


def _env_name(key: str) -> str:
    return f"AMUX_{key.upper()}"


def _toml(path: Path, faults: list[str]) -> dict[str, str]:
    """The plain values of the file as text. No file is no fault; a file that cannot be read is."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as why:
        faults.append(f"{path}: cannot be read ({why}); mend it or move it away")
        return {}
    plain = {key: str(value) for key, value in table.items() if type(value) in (str, int, float)}
    faults += [f"{key} in {path.name}: must be one text or number" for key in sorted(table.keys() - plain.keys())]
    return plain


def _workspace_use(read: _Reader) -> WorkspaceUse:
    raw = read.raw("workspace_use") or WorkspaceUse.alone
    if raw in set(WorkspaceUse):
        return WorkspaceUse(raw)
    read.fault("workspace_use", repr(raw), f"must be {', '.join(WorkspaceUse)}; leave it out for alone")
    return WorkspaceUse.alone


def _roots(read: _Reader) -> tuple[Path, ...]:
    roots = [Path(one) for one in filter(None, (read.raw("workspace_roots") or "").split(":"))]
    if any(not root.is_absolute() or "\0" in str(root) for root in roots):
        shown = repr(read.raw("workspace_roots"))
        read.fault("workspace_roots", shown, "must be absolute paths with : between; leave it out for everywhere")
        return ()
    return tuple(roots)


def _busy_input(read: _Reader) -> Busy:
    raw = read.raw("feishu_busy_input")
    if raw and raw != Busy.interrupt:
        remedy = "must be interrupt; leave it out, and follow-ups are steered or queued"
        read.fault("feishu_busy_input", repr(raw), remedy)
    return Busy.interrupt if raw else Busy.steer


def _feishu(read: _Reader) -> FeishuSettings | None:
    app_id, secret = read.raw("feishu_app_id"), read.raw("feishu_app_secret")
    domain = (read.raw("feishu_domain") or FEISHU).rstrip("/")
    owner = read.raw("feishu_owner")
    if not re.fullmatch(r"https?://[^/?#@\s]+", domain):
        read.fault("feishu_domain", repr(domain), f"must be http(s)://host[:port] alone; leave it out for {FEISHU}")
    if owner and not owner.startswith("ou_"):
        read.fault("feishu_owner", repr(owner), "must be the open_id of a person, ou_...; leave it out for nobody")
    drivers = _people(read, "feishu_drivers")
    calls = read.whole("feishu_calls_per_minute", 1_000, 20, 1_000_000)
    if bool(app_id) != bool(secret):
        given, missing = ("app_id", "APP_SECRET") if app_id else ("app_secret", "APP_ID")
        read.fault(f"feishu_{given}", "(set)", f"set AMUX_FEISHU_{missing} too; both stand in the app's credentials")
    return FeishuSettings(app_id, secret, domain, owner, drivers, calls) if app_id and secret else None


def _people(read: _Reader, key: str) -> frozenset[str] | None:
    raw = read.raw(key)
    people = frozenset(filter(None, re.split(r"[,\s]+", raw or "")))
    if strangers := sorted(p for p in people if not p.startswith("ou_")):
        read.fault(key, repr(strangers[0]), "must be open_ids, ou_..., with commas between; leave it out for everybody")
    return people if raw else None


def _is_url(raw: str, schemes: tuple[str, ...]) -> bool:
    """Whether every client here would read this URL alike."""
    try:
        url = urlsplit(raw)
        port = url.port
    except ValueError:
        return False
    query = {name for name, _ in parse_qsl(url.query, keep_blank_values=True)}
    if url.scheme not in schemes or url.fragment or port == 0 or re.search(r"\s", raw):
        return False
    if url.scheme == "unix":
        return not url.hostname and url.path.startswith("/") and query <= {"db"}
    if url.scheme == "postgresql":
        return len(url.path) > 1 and bool(url.hostname or "host" in query)
    plain = all(name.startswith("ssl_") for name in query)
    return bool(url.hostname) and plain and bool(re.fullmatch(r"(/[0-9]*)?", url.path))


def _default_home(env: Mapping[str, str]) -> Path:
    return Path("/var/lib/amux") if os.geteuid() == 0 else _person(env) / ".local/share/amux"


def _person(env: Mapping[str, str]) -> Path:
    """The person's own folder, where `~` points."""
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a bare uid, as containers have it
        return Path("/")


def _slots_by_memory() -> int:
    """As many agents as fit into memory, 4 to 64; a container's own limit counts."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (bound := limit.read_text(encoding="ascii").strip()).isdecimal():
        memory = min(memory, int(bound))
    return max(4, min(64, memory // AGENT_BYTES))
