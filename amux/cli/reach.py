"""What answers to `amux doctor` over the network: Postgres, Redis, the workers, Feishu. Each is asked once, briefly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from amux.cli.findings import Finding, Mark
from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.feishu.openapi import OpenApi, http_client
from amux.settings import FeishuSettings, Settings, kombu_url
from amux.stores.postgres import Postgres
from amux.stores.redis import Redis
from amux.stores.timeline import CODE

PATIENCE = 1.0  # seconds for a server that does not answer at once
FEISHU_SECONDS = 10.0
OLDEST_POSTGRES, OLDEST_REDIS = 15, (6, 2)

SERVER = "select current_setting('server_version'), current_setting('fsync'), pg_is_in_recovery()"
STANDBYS = (
    "select coalesce(nullif(application_name, ''), host(client_addr), 'unnamed'), sync_state from pg_stat_replication"
)
SCHEMA = "select version, oldest_code from schema where to_regclass('schema') is not null"
OWNED = "select count(*) from sessions where owner is not null"


async def servers(settings: Settings, *, at_home: bool) -> AsyncIterator[Finding]:
    """Postgres with its schema, Redis, and the workers behind it. `at_home`: amux runs in this home."""
    assert settings.postgres_url
    assert settings.redis_url
    postgres, redis = Postgres(settings.postgres_url, size=1), Redis(settings.redis_url)
    where = f"see the logs in {settings.home / 'logs'}, or stop amux and start it again" if at_home else ""
    try:
        async for finding in _postgres(postgres, where, settings.secrets()):
            yield finding
        found = await _redis(redis, where)
        yield found
        if found.mark is not Mark.broken:
            yield await _workers(postgres, settings.redis_url, at_home=at_home)
    finally:
        await redis.close()
        await postgres.close()


async def _postgres(postgres: Postgres, where: str, secrets: frozenset[str]) -> AsyncIterator[Finding]:
    try:
        ((version, fsync, standby),) = await postgres.ask(SERVER, patience=PATIENCE)
        standbys = await postgres.ask(STANDBYS, patience=PATIENCE)
    except (Unavailable, Broken) as why:
        remedy = where or "start it, or correct AMUX_POSTGRES_URL"
        yield Finding(Mark.broken, "postgres", f"does not answer ({_cause(why, secrets)})", remedy)
        return
    yield _server(str(version), fsync=fsync == "on", standby=bool(standby))
    for name, sync in standbys:
        if sync not in ("sync", "quorum"):
            state = f"{name} is {sync}: a failover to it may lose the last commits, and their acts happen again"
            yield Finding(Mark.warning, "standby", state, "name it in synchronous_standby_names of the primary")
        else:
            yield Finding(Mark.fine, "standby", f"{name} is synchronous")
    yield await _schema(postgres)


def _server(version: str, *, fsync: bool, standby: bool) -> Finding:
    if int(version.split(".", maxsplit=1)[0]) < OLDEST_POSTGRES:
        return Finding(Mark.broken, "postgres", version, f"amux needs PostgreSQL {OLDEST_POSTGRES} or later")
    if standby:
        return Finding(Mark.broken, "postgres", f"{version}, a standby that only reads", "give the URL of the primary")
    if not fsync:
        return Finding(Mark.broken, "postgres", f"{version} with fsync off: a crash loses messages", "set fsync = on")
    return Finding(Mark.fine, "postgres", f"{version} answers")


async def _schema(postgres: Postgres) -> Finding:
    try:
        ((version, oldest),) = await postgres.ask(SCHEMA, patience=PATIENCE)
    except (Unavailable, Broken, ValueError):
        return Finding(Mark.broken, "schema", "there is none in this database", "run `amux up`, which makes it")
    if _numbers(oldest) > _numbers(CODE):
        return Finding(Mark.broken, "schema", f"{version} is for amux {oldest} or later", "install that amux")
    return Finding(Mark.fine, "schema", f"version {version}")


async def _redis(redis: Redis, where: str) -> Finding:
    try:
        info = _info(await redis.command("INFO"))
    except (Unavailable, Broken):
        return Finding(Mark.broken, "redis", "does not answer", where or "start it, or correct AMUX_REDIS_URL")
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "0")
    if _numbers(info.get("redis_version", "0")) < OLDEST_REDIS:
        return Finding(Mark.broken, "redis", f"{name} {version}", "amux needs Redis 6.2 or later")
    if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy") != "noeviction":
        state = f"{name} {version} drops keys when it is full ({info.get('maxmemory_policy')})"
        return Finding(Mark.warning, "redis", state, "set maxmemory-policy noeviction")
    kept = await _kept(redis, info)
    return Finding(Mark.fine, "redis", f"{name} {version} answers{'' if kept else ', keeps nothing over a restart'}")


async def _kept(redis: Redis, info: dict[str, str]) -> bool:
    """Whether it writes anything down. Nothing of amux rests on it: without, a restart costs a second sweep."""
    if info.get("aof_enabled") == "1":
        return True
    try:
        answer = await redis.command("CONFIG", "GET", "save")
    except (Unavailable, Broken):  # not ours to ask
        return True
    return bool(answer[1]) if isinstance(answer, list) and len(answer) == 2 else True


async def _workers(postgres: Postgres, redis_url: str, *, at_home: bool) -> Finding:
    """Who answers Celery's ping, and how many Sessions have an owner."""
    names = await asyncio.to_thread(_ping, redis_url)
    try:
        owned = (await postgres.ask(OWNED, patience=PATIENCE))[0][0]
    except (Unavailable, Broken):
        owned = 0
    if not any(name.startswith("worker") for name in names):
        mark = Mark.broken if at_home else Mark.warning
        return Finding(mark, "workers", "none answers, so nothing is worked on", "run `amux up`")
    return Finding(Mark.fine, "workers", f"{', '.join(names)} answer, {owned} Sessions owned")


def _ping(redis_url: str) -> list[str]:
    from celery import Celery

    app = Celery("amux-doctor", broker=kombu_url(redis_url), set_as_current=False)
    try:
        answers: list[dict[str, Any]] = app.control.ping(timeout=PATIENCE)
    finally:
        app.close()
    return sorted(name for answer in answers for name in answer)


async def feishu(bot: FeishuSettings | None) -> Finding:
    """Whether Feishu takes the bot's credentials and knows it."""
    if bot is None:
        return Finding(Mark.absent, "feishu", "no bot; for one, set AMUX_FEISHU_APP_ID and AMUX_FEISHU_APP_SECRET")
    try:
        async with asyncio.timeout(FEISHU_SECONDS), http_client() as http:
            await OpenApi(http, domain=bot.domain, app=bot.app_id, secret=bot.app_secret).bot_open_id()
    except Refused as why:
        state, _, remedy = str(why).partition(". ")
        return Finding(Mark.broken, "feishu", f"{bot.app_id}: {state}", remedy)
    except (Unavailable, Uncertain, Broken, TimeoutError):
        remedy = "check the network, a proxy, and AMUX_FEISHU_DOMAIN"
        return Finding(Mark.broken, "feishu", f"{bot.domain} does not answer as Feishu does", remedy)
    return Finding(Mark.fine, "feishu", f"{bot.domain} knows the bot {bot.app_id}")


def _info(text: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _cause(why: BaseException, secrets: frozenset[str]) -> str:
    """What the driver said, in one line and without a password."""
    said = "no reason given"
    cause = why.__cause__
    while cause is not None:
        if isinstance(cause, psycopg.Error | OSError) and str(cause):
            said = " ".join(str(cause).split())
        cause = cause.__cause__
    for secret in secrets:
        said = said.replace(secret, "***")
    return said[:300]
