"""Celery's worker and its beat as programs, started by their own classes.

Celery's command line stays out of it: that loads every command there is, Flower's web server and a shell's line editor
among them. It is 1.3 s of CPU at each start of each service, for which a person waits, and a recovery too."""

import socket
from collections.abc import Sequence

from celery.apps.worker import Worker

from workers.app import app


def worker(name: str, queues: Sequence[str], threads: int) -> int:
    """Take tasks from `queues` until TERM; the code to exit with."""
    made = made_worker(name, queues, threads)
    made.start()
    return int(made.exitcode or 0)


def made_worker(name: str, queues: Sequence[str], threads: int) -> Worker:
    """The worker, not started."""
    return app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool="threads",
        concurrency=threads,
        queues=list(queues),
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )


def beat() -> None:
    """Send what is due by the schedule, until TERM. It keeps no file: what was due while it was away is due again soon."""
    app.Beat(scheduler="celery.beat:Scheduler", loglevel="WARNING").run()
