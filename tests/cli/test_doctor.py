"""`amux doctor`: one line a finding, exit 1 only when something is broken, and a remedy for all that is."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from amux.cli import agents
from amux.cli.findings import Finding, Mark, line
from amux.cli.reach import _redis, _server
from amux.cli.reach import feishu as _feishu
from amux.core.errors import Unavailable
from amux.feishu.codes import GRANT
from amux.feishu.openapi import AUTH_PATH
from amux.local.binaries import find_binaries
from amux.sandbox import feishu
from amux.sandbox.env import sandbox_env
from amux.settings import FeishuSettings
from amux.stores.redis import Redis
from tests.whole import Said, cli, program, until

pytestmark = pytest.mark.real


def found(said: Said) -> dict[str, tuple[str, str, str]]:
    """Mark, state and remedy of each thing."""
    rows = [json.loads(row) for row in said.lines]
    return {row["what"]: (row["mark"], row["state"], row["remedy"]) for row in rows}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents' programs take a second each to tell their version; one test asks them."""
    monkeypatch.setattr(agents, "AGENTS", ())


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


@pytest.mark.usefixtures("quick")
async def test_a_fresh_installation_is_fine_and_stays_untouched(empty_home: dict[str, str]) -> None:
    said = await cli({**empty_home, "AMUX_WEB_PORT": "0"}, "doctor", "--json")
    seen = found(said)
    assert said.code == 0, said.out
    assert list(seen) == ["python", "settings", "home", "ports", "postgres", "redis", "packs", "scripted", "feishu"]
    assert {what for what, (mark, _, _) in seen.items() if mark != "fine"} == {"feishu"}
    assert seen["python"][1].endswith(f"at {sys.executable}")
    assert "`amux up` starts it" in seen["postgres"][1]
    assert not Path(empty_home["AMUX_HOME"]).exists()


async def test_every_fault_of_the_settings_is_told(empty_home: dict[str, str]) -> None:
    said = await cli({**empty_home, "AMUX_LEASE": "0", "AMUX_SLOTS": "many"}, "doctor")
    assert said.code == 1
    assert said.err == ""
    assert said.lines[1:] == [
        "✗ settings   AMUX_SLOTS='many': must be a whole number from 1 to 1024; "
        + said.lines[1].partition("1024; ")[2],
        "✗ settings   AMUX_LEASE='0': must be seconds from 2 to 120; leave it out for 15",
    ]


@pytest.mark.usefixtures("quick")
async def test_all_that_is_broken_has_a_remedy(tmp_path: Path, taken: int) -> None:
    (tmp_path / "file").write_text("no folder")
    env = {
        "AMUX_HOME": str(tmp_path / "file" / "home"),
        "AMUX_POSTGRES_URL": "postgresql://amux:hush@127.0.0.1:1/amux",
        "AMUX_REDIS_URL": "redis://127.0.0.1:1/0",
        "AMUX_WEB_PORT": str(taken),
        "AMUX_ENGINE": "clippy",
        "AMUX_FEISHU_APP_ID": "cli_a",
        "AMUX_FEISHU_APP_SECRET": "hush",
        "AMUX_FEISHU_DOMAIN": "http://127.0.0.1:1",
    }
    said = await cli(env, "doctor", "--json")
    broken = {what: (state, remedy) for what, (mark, state, remedy) in found(said).items() if mark == "broken"}
    assert said.code == 1
    assert list(broken) == ["home", "ports", "postgres", "redis", "engine", "feishu"]
    assert broken["home"] == (f"{tmp_path}/file is no folder", "set AMUX_HOME to a folder with room that is yours")
    assert broken["ports"] == (f"port {taken} on 127.0.0.1 is in use", "set AMUX_WEB_PORT to another")
    assert broken["postgres"][1] == "start it, or correct AMUX_POSTGRES_URL"
    assert broken["redis"] == ("does not answer", "start it, or correct AMUX_REDIS_URL")
    assert broken["feishu"][1] == "check the network, a proxy, and AMUX_FEISHU_DOMAIN"
    assert "hush" not in said.out


@pytest.mark.usefixtures("quick")
async def test_a_pack_with_a_mistake_is_warned_of(empty_home: dict[str, str]) -> None:
    file = Path(empty_home["AMUX_HOME"], "packs", "team", "a.toml")
    file.parent.mkdir(parents=True)
    file.write_text('modle = "m"\n')
    said = await cli(empty_home, "doctor", "--json")
    found = [row for row in map(json.loads, said.lines) if row["what"] in ("pack", "packs")]
    assert [(row["mark"], row["state"]) for row in found] == [
        ("warning", f"{file}:1: there is no key modle; write model; the Pack team is left out"),
        ("fine", "1 read, with 1 experts"),
    ]


async def test_one_server_set_alone(empty_home: dict[str, str]) -> None:
    said = await cli({**empty_home, "AMUX_REDIS_URL": "redis://127.0.0.1:1/0"}, "doctor", "--json")
    assert found(said)["settings"] == (
        "broken",
        "AMUX_REDIS_URL is set alone",
        "set AMUX_POSTGRES_URL too, or neither and have both brought along",
    )


@pytest.mark.usefixtures("quick")
async def test_servers_that_answer(empty_home: dict[str, str], postgres_url: str, redis_url: str) -> None:
    said = await cli({**empty_home, "AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": redis_url}, "doctor", "--json")
    seen = found(said)
    assert seen["postgres"][0] == seen["redis"][0] == "fine"
    assert seen["schema"] == ("fine", "version 1", "")
    assert seen["workers"] == ("warning", "none answers, so nothing is worked on", "run `amux up`")


@pytest.mark.usefixtures("quick")
async def test_a_standby_that_is_not_synchronous_is_warned_of(
    empty_home: dict[str, str], postgres_url: str, redis_url: str, tmp_path: Path
) -> None:
    receiver = find_binaries(None, None).postgres.path.with_name("pg_receivewal")
    words = [str(receiver), "-D", str(tmp_path), "-d", postgres_url, "--no-loop"]
    env = {**empty_home, "AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": redis_url}
    async with await anyio.open_process(words, env={"PGAPPNAME": "second"}) as standby:

        async def seen() -> tuple[str, str, str] | None:
            return found(await cli(env, "doctor", "--json")).get("standby")

        told = await until(seen)
        standby.terminate()
    assert told == (
        "warning",
        "second is async: a failover to it may lose the last commits, and their acts happen again",
        "name it in synchronous_standby_names of the primary",
    )


@pytest.mark.parametrize(
    ("version", "fsync", "standby", "mark"),
    [
        ("18.6", True, False, Mark.fine),
        ("14.9", True, False, Mark.broken),
        ("18.6", False, False, Mark.broken),
        ("18.6", True, True, Mark.broken),
    ],
)
def test_a_postgres_is_judged(version: str, fsync: bool, standby: bool, mark: Mark) -> None:
    assert _server(version, fsync=fsync, standby=standby).mark is mark


async def test_a_redis_that_drops_keys_is_warned_of(redis_url: str) -> None:
    redis = Redis(redis_url)
    try:
        await redis.command("CONFIG", "SET", "maxmemory", "100mb")
        await redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        finding = await _redis(redis, "")
    finally:
        await redis.command("CONFIG", "SET", "maxmemory", "0")
        await redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await redis.close()
    assert (finding.mark, finding.remedy) == (Mark.warning, "set maxmemory-policy noeviction")


@pytest.mark.usefixtures("quick")
async def test_a_wrong_app_secret_is_named(empty_home: dict[str, str]) -> None:
    async with feishu.serving(feishu.platform(feishu.small_world())) as address:
        env = {**empty_home, **sandbox_env("scripted", address, 1.0)}
        right = found(await cli(env, "doctor", "--json"))["feishu"]
        wrong = found(await cli({**env, "AMUX_FEISHU_APP_SECRET": "wrong"}, "doctor", "--json"))["feishu"]
    assert right == ("fine", f"{address} knows the bot {feishu.CODER}", "")
    assert wrong[:2] == ("broken", f"{feishu.CODER}: Feishu does not accept the app's credentials")
    assert "into AMUX_FEISHU_APP_ID and AMUX_FEISHU_APP_SECRET" in wrong[2]


async def test_a_missing_scope_is_named_with_its_remedy() -> None:
    async def answer(request: Request) -> JSONResponse:
        if request.url.path == AUTH_PATH:
            return JSONResponse({"code": 0, "tenant_access_token": "t-1", "expire": 7200})
        said = "Access denied. One of the following scopes is required: [application:bot.info:readonly]."
        return JSONResponse({"code": 99991672, "msg": said}, status_code=400)

    everything = Route("/{path:path}", answer, methods=["GET", "POST"])
    async with feishu.serving(Starlette(routes=[everything])) as address:
        finding = await _feishu(FeishuSettings(feishu.CODER, "s", address, None))
    lacks = "The app lacks permission application:bot.info:readonly (GET /open-apis/bot/v3/info: code 99991672)"
    assert finding == Finding(Mark.broken, "feishu", f"{feishu.CODER}: {lacks}", GRANT)


async def test_a_wrong_app_secret_ends_the_ingress_in_one_line(
    empty_home: dict[str, str], postgres_url: str, redis_url: str
) -> None:
    async with feishu.serving(feishu.platform(feishu.small_world())) as address:
        urls = {"AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": redis_url}
        env = {**os.environ, **empty_home, **sandbox_env("scripted", address, 1.0), **urls}
        said = await program({**env, "AMUX_FEISHU_APP_SECRET": "wrong"}, "serve", "ingress")
    assert (said.code, said.out) == (1, "")
    last = said.err.splitlines()[-1]
    assert last.startswith(
        "Feishu does not accept the app's credentials. Copy App ID and App Secret from the developer"
    )
    assert "AMUX_FEISHU_APP_SECRET" in last
    assert "wrong" not in said.err


@pytest.mark.agent
async def test_agents_are_asked_for_their_version() -> None:
    seen = {f.what: f async for f in agents.engines("codex", {"OPENAI_API_KEY": "k"})}
    assert {what: finding.mark for what, finding in seen.items()} == {
        "scripted": Mark.fine,
        "codex": Mark.fine,
        "claude": Mark.absent,  # no key
    }


async def test_an_agent_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise Unavailable("The Codex program is not installed. Install it.")

    monkeypatch.setattr(agents, "AGENTS", (agents.Agent("codex", nowhere, ("K",)),))
    chosen = [f async for f in agents.engines("codex", {})][-1]
    other = [f async for f in agents.engines("scripted", {})][-1]
    remedy = 'pip install "amux[agents]"'
    assert chosen == Finding(Mark.broken, "codex", "The Codex program is not installed", remedy)
    assert other.mark is Mark.absent


async def test_an_agent_that_is_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "codex"
    broken.write_text("#!/bin/sh\necho no version here\n")
    broken.chmod(0o755)
    monkeypatch.setattr(agents, "AGENTS", (agents.Agent("codex", lambda: broken, ("K",)),))
    finding = [f async for f in agents.engines("codex", {"K": "k"})][-1]
    assert (finding.mark, finding.state) == (Mark.broken, f"{broken} does not tell its version")


@pytest.mark.agent
async def test_the_matrix_asks_the_live_agents() -> None:
    seen = {finding.what: finding.state async for finding in agents.matrix({})}
    every = "steering: yes, compaction: yes, environment: yes, mcp: yes"
    assert seen == {"claude": every, "codex": every, "scripted": every.replace("mcp: yes", "mcp: no")}


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert line(Finding(Mark.broken, "redis", "two\nlines", "mend it")).endswith("redis      two lines: mend it")
