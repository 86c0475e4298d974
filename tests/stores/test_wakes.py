"""A wake is a message that Celery runs."""

import asyncio
import json
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from amux.core.ids import SessionKey
from amux.settings import kombu_url
from amux.stores.hints import DELIVER_QUEUE, celery_message, drive_queue
from tests.conformance.sides import DEADLINE, Side

pytestmark = pytest.mark.real


async def test_celery_runs_what_we_wrote(side: Side, redis_url: str) -> None:
    app = Celery("test", broker=kombu_url(redis_url), set_as_current=False)
    app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
    loop, ran = asyncio.get_running_loop(), asyncio.Queue[tuple[str, int]]()
    for name in ("drive", "deliver"):

        def run(session: int, name: str = name) -> None:
            loop.call_soon_threadsafe(ran.put_nowait, (name, session))

        app.task(name=name, ignore_result=True)(run)
    await side.a.waker.drive(SessionKey(7), "local")
    await side.a.waker.deliver(SessionKey(8))
    queues = [drive_queue("local"), DELIVER_QUEUE]
    worker = start_worker(app, pool="solo", perform_ping_check=False, queues=queues, shutdown_timeout=20)
    await asyncio.to_thread(worker.__enter__)
    try:
        async with asyncio.timeout(DEADLINE):
            assert {await ran.get(), await ran.get()} == {("drive", 7), ("deliver", 8)}
    finally:
        await asyncio.to_thread(worker.__exit__, None, None, None)


async def test_our_message_has_the_form_of_celerys_own(redis_url: str, side: Side) -> None:
    app = Celery("test", broker=kombu_url(redis_url), set_as_current=False)
    await asyncio.to_thread(app.send_task, "drive", (7,), queue="theirs", expires=60, ignore_result=True)
    (theirs,) = await side.a.redis.command("LRANGE", "theirs", 0, -1)  # type: ignore[attr-defined]
    app.close()
    assert _form(json.loads(celery_message("drive", SessionKey(7), "theirs"))) == _form(json.loads(theirs))


def _form(message: dict[str, Any]) -> dict[str, Any]:
    """Without what is drawn anew for each message, and without what only a result would need."""
    headers = {k: v for k, v in message["headers"].items() if k not in ("id", "root_id", "expires", "origin")}
    own = ("correlation_id", "delivery_tag", "reply_to", "expiration")
    properties = {k: v for k, v in message["properties"].items() if k not in own}
    return {**message, "headers": headers, "properties": properties}


async def test_a_wake_that_a_dead_worker_took_is_sent_again(side: Side) -> None:
    waker, key = side.a.waker, SessionKey(7)
    await waker.drive(key, "local")
    await side.a.redis.command("DEL", drive_queue("local"))  # type: ignore[attr-defined]  # taken, and its worker died (H32)
    await waker.drive(key, "local", again=True)
    assert await waker.waiting("local") == 1


async def test_a_deliverer_at_work_is_not_asked_for(side: Side) -> None:
    waker, key = side.a.waker, SessionKey(8)
    redis = side.a.redis  # type: ignore[attr-defined]

    async def waiting() -> int:
        return int(await redis.command("LLEN", DELIVER_QUEUE))

    await waker.deliver(key)
    await waker.deliver(key)
    await waker.deliver(key, again=True)  # it is in the queue still
    assert await waiting() == 1
    await redis.command("DEL", DELIVER_QUEUE)  # taken, and lost
    await waker.deliver(key)
    assert await waiting() == 0
    await waker.deliver(key, again=True)
    assert await waiting() == 1
    await waker.delivering(key, seconds=60)
    await waker.deliver(key)
    await waker.deliver(key, again=True)
    assert await waiting() == 1
    await waker.delivering(key, seconds=0)
    await waker.deliver(key)
    assert await waiting() == 2
