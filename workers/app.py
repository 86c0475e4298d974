"""The Celery app: JSON only, nothing fetched ahead (H8), one queue per target, names that read well in Flower."""

import os

from celery import Celery

from amux.settings import kombu_url, load
from workers.schedule import beat

settings = load(os.environ)
app = Celery("amux", broker=kombu_url(settings.redis_url or "redis://127.0.0.1:6379/0"))
app.conf.update(
    include=["workers.tasks", "workers.hooks"],
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_default_queue=f"target.{settings.target}",
    task_routes={"deliver": {"queue": "deliver"}, "sweep": {"queue": "sweep"}},
    worker_disable_prefetch=True,
    worker_prefetch_multiplier=1,
    worker_concurrency=settings.slots,
    worker_hijack_root_logger=False,
    worker_send_task_events=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_keepalive": True},
    beat_schedule=beat(settings.lease),
    beat_max_loop_interval=1,
)
