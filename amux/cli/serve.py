"""`amux serve NAME`: one service of the Procfile, in the foreground."""

import asyncio
import os
import sys
from pathlib import Path

import typer

from amux import logs
from amux.cli.common import exits
from amux.local.house import SERVICES
from amux.settings import Settings, load

DELIVERERS = 512  # threads; a deliverer waits nearly all the time


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve", hidden=True)(serve)


def serve(name: str) -> None:
    """Run one service in the foreground: worker, deliver, ingress, web, beat or flower. Example: amux serve worker"""
    with exits():
        settings = load(os.environ)
        unique = os.environ.setdefault("AMUX_SERVICE", name)
        logs.configure(unique, secrets=settings.secrets())
        match name:
            case "worker":
                _work(unique, [f"target.{settings.target}", "sweep"], settings.slots)
            case "deliver":
                _work(unique, ["deliver", "sweep"], DELIVERERS)
            case "beat":
                from workers import program

                program.beat()
            case "flower":
                _flower(settings)
            case "ingress":
                from amux import wiring

                asyncio.run(wiring.ingress(settings, _ready))
            case "web":
                from amux import wiring

                asyncio.run(wiring.web(settings))
            case _:
                raise typer.BadParameter(f"there are {', '.join(SERVICES)}")


def _work(unique: str, queues: list[str], threads: int) -> None:
    from workers import program

    raise typer.Exit(program.worker(unique, queues, threads))


def _flower(settings: Settings) -> None:
    """Flower is a command of Celery's and nothing else, so we become that."""
    import ops.flower

    port = f"--port={settings.web_port + 1}"
    words = (
        "-m",
        "celery",
        "-A",
        "workers.app",
        "flower",
        "--address=127.0.0.1",
        port,
        f"--conf={ops.flower.__file__}",
    )
    os.execv(sys.executable, (sys.executable, *words))


def _ready() -> None:
    """Tell whoever supervises us."""
    if path := os.environ.get("AMUX_READY_FILE"):
        Path(path).write_text(str(os.getpid()), encoding="ascii")
