"""`amux serve NAME`: one service of the Procfile, in the foreground. Celery's become Celery itself."""

import asyncio
import os
import sys
from pathlib import Path

import typer

from amux.cli.common import exits
from amux.settings import Settings, load

CELERY = (sys.executable, "-m", "celery", "-A", "workers.app")
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
DELIVERERS = 512  # threads; a deliverer waits nearly all the time


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve", hidden=True)(serve)


def serve(name: str) -> None:
    """Run one service in the foreground: worker, deliver, ingress, web, beat or flower. Example: amux serve worker"""
    with exits():
        settings = load(os.environ)
        if command := _celery(name, settings):
            os.environ.setdefault("AMUX_SERVICE", name)
            os.execv(command[0], command)
        from amux import logs

        logs.configure(os.environ.get("AMUX_SERVICE", name), secrets=settings.secrets())
        match name:
            case "ingress":
                from amux.wiring import ingress

                asyncio.run(ingress(settings, _ready))
            case "web":
                from amux.wiring import web

                asyncio.run(web(settings))
            case _:
                raise typer.BadParameter("there are worker, deliver, ingress, web, beat and flower")


def _celery(name: str, settings: Settings) -> list[str] | None:
    unique = os.environ.get("AMUX_SERVICE", name)
    match name:
        case "worker":
            queue, threads = f"target.{settings.target},sweep", str(settings.slots)
        case "deliver":
            queue, threads = "deliver,sweep", str(DELIVERERS)
        case "beat":
            return [*CELERY, "beat", "--scheduler", "celery.beat:Scheduler", "--pidfile", ""]
        case "flower":
            port = f"--port={settings.web_port + 1}"
            return [*CELERY, "flower", "--address=127.0.0.1", port, f"--conf={_flower_conf()}"]
        case _:
            return None
    return [*CELERY, "worker", "-P", "threads", "-c", threads, "-Q", queue, "-n", f"{unique}@%h", *QUIET]


def _flower_conf() -> str:
    import ops.flower

    return str(ops.flower.__file__)


def _ready() -> None:
    """Tell whoever supervises us."""
    if path := os.environ.get("AMUX_READY_FILE"):
        Path(path).write_text(str(os.getpid()), encoding="ascii")
