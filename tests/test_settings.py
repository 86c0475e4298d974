"""Settings: what stands in the environment and in amux.toml, and what every fault says."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from amux.core.launch import WorkspaceUse
from amux.core.steering import Busy
from amux.settings import BadSettings, FeishuSettings, Settings, kombu_url, load, sqlalchemy_url

NOWHERE = Path("/nonexistent/amux.toml")
PLAIN = Settings(
    home=Path("/home/user_a/.local/share/amux"),
    postgres_url=None,
    redis_url=None,
    pg_bin=None,
    redis_bin=None,
    target="local",
    slots=7,
    lease=15,
    linger=30,
    burst_window=2,
    busy_input=Busy.steer,
    silence_limit=900,
    turn_limit=86_400,
    answer_limit=43_200,
    workspace=None,
    workspace_use=WorkspaceUse.alone,
    workspace_roots=(),
    engine="scripted",
    web_host="127.0.0.1",
    web_port=8420,
    feishu=None,
)
PERSON = {"HOME": "/home/user_a", "AMUX_SLOTS": "7"}
BOT = {"AMUX_FEISHU_APP_ID": "cli_a", "AMUX_FEISHU_APP_SECRET": "hush"}


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A person who is not root, and who has set nothing but the slots."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return dict(PERSON)


def faults(env: dict[str, str], toml: Path = NOWHERE) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load(env, toml)
    return str(caught.value).splitlines()


def test_nothing_set_is_a_whole_answer(person: dict[str, str]) -> None:
    assert load(person, NOWHERE) == PLAIN


def test_root_lives_where_a_database_can_be_reached() -> None:
    if os.geteuid() == 0:
        assert load({"HOME": "/root"}, NOWHERE).home == Path("/var/lib/amux")
    else:
        assert load({"HOME": "/home/user_a"}, NOWHERE).home == Path("/home/user_a/.local/share/amux")


def test_everything_set(person: dict[str, str]) -> None:
    env = person | {
        "AMUX_HOME": "~/my amux",
        "AMUX_POSTGRES_URL": "postgresql:///amux?host=/run/postgresql",
        "AMUX_REDIS_URL": "unix:///run/redis.sock?db=3",
        "AMUX_PG_BIN": "/usr/lib/postgresql/15/bin",
        "AMUX_REDIS_BIN": "/usr/bin/redis-server",
        "AMUX_TARGET": "gpu-1",
        "AMUX_LEASE": "2.5",
        "AMUX_LINGER": "0",
        "AMUX_BURST_WINDOW": "0",
        "AMUX_WORKSPACE": "/srv/work",
        "AMUX_ENGINE": "codex",
        "AMUX_FEISHU_BUSY_INPUT": "interrupt",
        "AMUX_SILENCE_LIMIT": "60",
        "AMUX_TURN_LIMIT": "3600",
        "AMUX_ANSWER_LIMIT": "300",
        "AMUX_WEB_HOST": "::1",
        "AMUX_WEB_PORT": "0",
        "AMUX_FEISHU_DOMAIN": "http://127.0.0.1:9000/",
        "AMUX_FEISHU_OWNER": "ou_1",
        "AMUX_FEISHU_DRIVERS": "ou_1, ou_2",
        "AMUX_FEISHU_CALLS_PER_MINUTE": "600",
        **BOT,
    }
    assert load(env, NOWHERE) == replace(
        PLAIN,
        home=Path("/home/user_a/my amux"),
        postgres_url="postgresql:///amux?host=/run/postgresql",
        redis_url="unix:///run/redis.sock?db=3",
        pg_bin=Path("/usr/lib/postgresql/15/bin"),
        redis_bin=Path("/usr/bin/redis-server"),
        target="gpu-1",
        lease=2.5,
        linger=0,
        burst_window=0,
        busy_input=Busy.interrupt,
        silence_limit=60,
        turn_limit=3_600,
        answer_limit=300,
        workspace=Path("/srv/work"),
        engine="codex",
        web_host="::1",
        web_port=0,
        feishu=FeishuSettings("cli_a", "hush", "http://127.0.0.1:9000", "ou_1", frozenset({"ou_1", "ou_2"}), 600),
    )


def test_the_environment_wins_over_the_file(tmp_path: Path, person: dict[str, str]) -> None:
    toml = tmp_path / "amux.toml"
    toml.write_text('lease = 3\nlinger = 4.5\ntarget = "desk"\n')
    assert load(person | {"AMUX_LEASE": "9"}, toml) == replace(PLAIN, lease=9, linger=4.5, target="desk")


def test_an_empty_value_is_unset(person: dict[str, str]) -> None:
    assert load(person | {"AMUX_LEASE": "", "AMUX_FEISHU_BUSY_INPUT": "", "AMUX_REDIS_URL": ""}, NOWHERE) == PLAIN


def test_a_list_of_nobody_is_nobody_and_not_everybody(person: dict[str, str]) -> None:
    settings = load(person | BOT | {"AMUX_FEISHU_DRIVERS": ","}, NOWHERE)
    assert settings.feishu == FeishuSettings("cli_a", "hush", "https://open.feishu.cn", None, frozenset())


def test_all_faults_are_told_together() -> None:
    told = faults({"AMUX_LEASE": "soon", "AMUX_SLOTS": "0", "AMUX_HOME": "here", "AMUX_TARGET": "Two Words"})
    assert told == [
        "AMUX_HOME='here': must be an absolute path; write it from / or ~/ on",
        "AMUX_TARGET='Two Words': must be one word of a-z, 0-9, dot, dash; leave it out for local",
        told[2],  # the default of slots depends on this machine's memory
        "AMUX_LEASE='soon': must be seconds from 2 to 120; leave it out for 15",
    ]
    assert told[2].startswith("AMUX_SLOTS='0': must be a whole number from 1 to 1024; leave it out for ")


@pytest.mark.parametrize("raw", ["1.9", "121", "-3", "1e1", "nan", "٣", "3s", " 3"])
def test_seconds_are_plain_numbers_in_range(raw: str) -> None:
    assert faults({"AMUX_LEASE": raw}) == [f"AMUX_LEASE={raw!r}: must be seconds from 2 to 120; leave it out for 15"]


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("leese = 3", "leese in amux.toml: there is no such setting; write lease"),
        ("lease = true", "lease in amux.toml: must be one text or number"),
        ("[lease]\nmax = 3", "lease in amux.toml: must be one text or number"),
        ("lease = 1", "lease = '1' in amux.toml: must be seconds from 2 to 120; leave it out for 15"),
    ],
)
def test_faults_in_the_file_name_it(tmp_path: Path, toml: str, told: str) -> None:
    (tmp_path / "amux.toml").write_text(toml)
    assert faults({}, tmp_path / "amux.toml") == [told]


@pytest.mark.parametrize("content", [b"lease = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "amux.toml").write_bytes(content)
    (told,) = faults({}, tmp_path / "amux.toml")
    assert told.startswith(f"{tmp_path}/amux.toml: cannot be read (")
    assert told.endswith("; mend it or move it away")


@pytest.mark.rule("I7")
@pytest.mark.parametrize("raw", ["steer", "Interrupt!", "yes"])
def test_busy_input_takes_one_value(raw: str) -> None:
    """I7.d."""
    remedy = "must be interrupt; leave it out, and follow-ups are steered or queued"
    assert faults({"AMUX_FEISHU_BUSY_INPUT": raw}) == [f"AMUX_FEISHU_BUSY_INPUT={raw!r}: {remedy}"]


@pytest.mark.rule("S1")
def test_workspaces_are_used_in_three_ways_below_roots_that_are_whole_paths() -> None:
    env = {"AMUX_WORKSPACE_USE": "worktree", "AMUX_WORKSPACE_ROOTS": "/srv/work:/data:"}
    settings = load({**PERSON, **env}, NOWHERE)
    assert (settings.workspace_use, settings.workspace_roots) == (
        WorkspaceUse.worktree,
        (Path("/srv/work"), Path("/data")),
    )
    assert faults({"AMUX_WORKSPACE_USE": "together"}) == [
        "AMUX_WORKSPACE_USE='together': must be alone, shared, worktree; leave it out for alone"
    ]
    assert faults({"AMUX_WORKSPACE_ROOTS": "/srv:work"}) == [
        "AMUX_WORKSPACE_ROOTS='/srv:work': must be absolute paths with : between; leave it out for everywhere"
    ]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            {"AMUX_FEISHU_APP_ID": "cli_a"},
            "AMUX_FEISHU_APP_ID=(set): set AMUX_FEISHU_APP_SECRET too; both stand in the app's credentials",
        ),
        (
            {"AMUX_FEISHU_APP_SECRET": "hush"},
            "AMUX_FEISHU_APP_SECRET=(set): set AMUX_FEISHU_APP_ID too; both stand in the app's credentials",
        ),
        (
            BOT | {"AMUX_FEISHU_DOMAIN": "no/x"},
            "AMUX_FEISHU_DOMAIN='no/x': must be http(s)://host[:port] alone; leave it out for https://open.feishu.cn",
        ),
        (
            BOT | {"AMUX_FEISHU_OWNER": "User A"},
            "AMUX_FEISHU_OWNER='User A': must be the open_id of a person, ou_...; leave it out for nobody",
        ),
        (
            BOT | {"AMUX_FEISHU_DRIVERS": "ou_1,on_2"},
            "AMUX_FEISHU_DRIVERS='on_2': must be open_ids, ou_..., with commas between; leave it out for everybody",
        ),
    ],
)
def test_a_bot_is_set_up_whole_or_not_at_all(env: dict[str, str], told: str) -> None:
    assert faults(env) == [told]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("AMUX_POSTGRES_URL", "postgresql+psycopg://amux:hush@db/amux"),
        ("AMUX_POSTGRES_URL", "mysql://amux:hush@db/amux"),
        ("AMUX_POSTGRES_URL", "postgresql://amux:hush@db"),
        ("AMUX_POSTGRES_URL", "postgresql:///amux"),
        ("AMUX_REDIS_URL", "redis+socket:///run/hush.sock"),
        ("AMUX_REDIS_URL", "redis://:hush@cache:port/0"),
        ("AMUX_REDIS_URL", "redis://:hush@cache/zero"),
        ("AMUX_REDIS_URL", "redis://:hush@cache?db=1"),
        ("AMUX_REDIS_URL", "unix://run/hush.sock"),
    ],
)
def test_a_url_that_clients_would_read_differently_is_refused_unshown(name: str, raw: str) -> None:
    (told,) = faults({name: raw})
    assert told.startswith(f"{name}=(not shown, it may hold a password): must be ")
    assert "hush" not in told


def test_secrets_are_known_and_never_shown() -> None:
    settings = load(BOT | {"AMUX_REDIS_URL": "redis://:p%40ss@cache/0", "AMUX_POSTGRES_URL": "postgresql://a:pw@db/a"})
    assert settings.secrets() == {"hush", "p%40ss", "p@ss", "pw"}
    assert not [secret for secret in ("hush", "p%40ss", "p@ss", ":pw@") if secret in repr(settings)]


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:p%40ss@cache:6379/3", "redis://:p%40ss@cache:6379/3"),
        ("unix:///run/amux/redis.sock", "redis+socket:///run/amux/redis.sock"),
        ("unix:///run/amux/redis.sock?db=3", "redis+socket:///run/amux/redis.sock?virtual_host=3"),
        ("unix://user:p%40ss@/run/r.sock", "redis+socket://user:p%40ss@/run/r.sock"),
    ],
)
def test_one_redis_url_serves_both_clients(url: str, broker: str) -> None:
    assert kombu_url(url) == broker
    assert load({"AMUX_REDIS_URL": url}, NOWHERE).redis_url == url


def test_one_postgres_url_serves_both_clients() -> None:
    assert sqlalchemy_url("postgresql:///a?host=/run") == "postgresql+psycopg:///a?host=/run"
