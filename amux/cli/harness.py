"""`amux drill` and `amux bench`: the fault harness and the benchmarks, one JSON line each."""

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from amux.cli.common import FAILED, exits, say_json

Json = Annotated[bool, typer.Option("--json", help="Only the JSON line; it is printed either way.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("drill", epilog="Example: amux drill kill-worker --rounds 50 --json")(run_drill)
    app.command("bench", epilog="Example: amux bench turns --json")(run_bench)


def run_drill(
    name: str,
    rounds: Annotated[int, typer.Option(help="How often harm is done.")] = 3,
    seed: Annotated[int, typer.Option(help="Of all dice: the crowd's and the harm's.")] = 1,
    engine: Annotated[str, typer.Option(help="Which agent works.")] = "scripted",
    sessions: Annotated[int, typer.Option(help="How many Sessions at once.")] = 50,
    json: Json = False,
) -> None:
    """Break something under load, then count what became of every message. Exits 0 only when all that is due is 0."""
    with exits():
        from ops.drills.drill import drill, say, verdict

        tell = (lambda _: None) if json else say
        report = asyncio.run(drill(name, rounds=rounds, seed=seed, engine=engine, sessions=sessions, tell=tell))
        say_json(asdict(report))
        if not verdict(report):
            raise typer.Exit(FAILED)


def run_bench(
    name: str,
    peers: Annotated[
        bool, typer.Option("--peers", help="`turns` against other engines too, installed for it.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the product beside its limit, in turn, in one run. Exits 1 when the run's own check found a fault."""
    with exits():
        from ops.bench.bench import bench, drawing

        report = asyncio.run(bench(name, ("peers",) if peers else ()))
        if not json:
            print(drawing(report), file=sys.stderr)
        say_json(report.row())
        if report.faults:
            raise typer.Exit(FAILED)
