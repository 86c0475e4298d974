"""The other side as it runs best: plain Celery tasks behind a Redis lock that write a Turn's rows in one statement.

Early acknowledgement, a pool of threads, a connection a thread, no events, no results. It journals no input, keeps no
order and fences nothing. As a program (`-A ops.bench.other`) it is that worker."""

import os
import threading
from pathlib import Path

import psycopg
import redis
from celery import Celery, signals

from amux.settings import kombu_url

THREADS = 16
ROWS = 23  # of a Turn of 20 events: what amux writes for it, from InputAccepted to TurnFinished
TEXT = "x" * 90  # of one event
PAYLOAD = '{"turn":100,"item":"100.10","type":"message","status":"completed","title":"","text":"' + TEXT + '"}'
DATABASE = 1  # of the Redis that both sides use
DONE = "done"  # the channel; all databases share their channels, so theirs has a prefix

TABLE = """
create table other_turns (session bigint, seq bigint, turn bigint, kind text not null, v smallint not null,
  payload text not null, at timestamptz not null, primary key (session, seq))"""
WRITE = """
insert into other_turns select %s, %s + n, %s, 'item', 1, payload, now()
from unnest(string_to_array(%s, E'\\x1e')) with ordinality e(payload, n)"""
BATCH = "\x1e".join([PAYLOAD] * ROWS)

_redis_url, _postgres_url = os.environ.get("BENCH_REDIS_URL", ""), os.environ.get("BENCH_POSTGRES_URL", "")
app = Celery("other", broker=kombu_url(_redis_url or "redis://127.0.0.1:6379/1"))
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
_own = threading.local()
_shared: list[redis.Redis] = []


@app.task(name="turn")
def turn(session: int, number: int) -> None:
    """One Turn of one Session, alone on it."""
    client = _shared[0]
    with client.lock(f"lock:{session}", timeout=30, sleep=0.01):
        _connection().execute(WRITE, (session, number * ROWS, number, BATCH), prepare=True)
    client.publish(f"{DATABASE}:{DONE}", f"{session} {number}")


def _connection() -> psycopg.Connection[tuple[object, ...]]:
    if not hasattr(_own, "connection"):
        _own.connection = psycopg.connect(_postgres_url, autocommit=True)
    found: psycopg.Connection[tuple[object, ...]] = _own.connection
    return found


@signals.worker_init.connect
def _start(**_: object) -> None:
    _shared.append(redis.Redis.from_url(_redis_url))


@signals.worker_ready.connect
def _ready(**_: object) -> None:
    if path := os.environ.get("BENCH_READY_FILE"):
        Path(path).write_text(str(os.getpid()))
