"""Workers that start at once: a process that has imported everything, and forks a real worker whenever it is asked.

As a program (`python -m tests.crash.nursery`) it reads one line of JSON a child, {"do", "env", ...}, answers its pid, and
tells in a further line how each child ended. All children end with it."""

import asyncio
import base64
import ctypes
import json
import os
import selectors
import signal
import sys
from pathlib import Path
from typing import Any

import celery.apps.worker
import celery.concurrency.thread
import kombu.transport.redis

import workers.schedule
from amux import wiring
from amux.core.ids import SessionRef
from amux.feishu.ingress import Ingress, access
from amux.feishu.openapi import OpenApi, http_client
from amux.runtime import failpoints
from amux.runtime.receive import Receive
from amux.settings import load

IMPORTED = (celery.apps.worker, celery.concurrency.thread, kombu.transport.redis, workers.schedule)
PR_SET_PDEATHSIG = 1


def work(name: str, queues: str) -> None:
    """A worker of the product, as `amux serve` starts it."""
    from workers import program  # noqa: PLC0415 - it reads the settings of this child

    program.worker(name, queues.split(","), 4)


def hear(raw: bytes) -> None:
    """One push of Feishu, handled up to its acknowledgement by a process that may die before it sends that."""
    failpoints.arm_from(os.environ.get("AMUX_FAILPOINTS", ""))
    settings = load(os.environ, Path("/nonexistent/amux.toml"))
    bot = settings.feishu
    assert bot

    async def handle() -> None:
        async with wiring.stores(settings) as parts, http_client() as http:
            api = OpenApi(http, domain=bot.domain, app=bot.app_id, secret=bot.app_secret)
            allowed = access(bot.app_id, bot.owner, bot.drivers)

            def launch(ref: SessionRef) -> Any:
                return wiring.launch_settings(settings, ref)

            receive = Receive(parts.submit, parts.bindings, allowed, settings.target, launch)
            await Ingress(api, await api.bot_open_id(), receive, parts.cards, allowed).handle(raw)

    asyncio.run(handle())


def child(order: dict[str, Any]) -> None:
    """What a fork does, and never returns from."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    code = 1
    try:
        os.environ.update(order["env"])
        out = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if order["do"] == "work":
            work(order["name"], order["queues"])
        else:
            hear(base64.b64decode(order["raw"]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tell(**line: int) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Fork as asked, until the end of the input."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked = selectors.DefaultSelector()
    asked.register(0, selectors.EVENT_READ)
    asked.register(woken, selectors.EVENT_READ)
    rest = b""
    tell(ready=os.getpid())
    while True:
        for key, _ in asked.select():
            data = os.read(key.fd, 1 << 20)
            if key.fd == woken:
                reap()
            elif not data:
                return
            else:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    born(json.loads(line))


def born(order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child(order)
    tell(born=pid)


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        tell(died=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
