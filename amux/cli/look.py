"""`ls`, `show`, `audit`: what there is, and whether the record keeps its rules. Reads only."""

import asyncio
from typing import Annotated

import typer

from amux.cli.common import FAILED, client_settings, exits, say_json
from amux.cli.extras import extras
from amux.cli.screen import plain
from amux.core.audit import NUMBERS, Count
from amux.core.events import Label
from amux.ports import Session
from amux.runtime.audit import Audit
from amux.runtime.rows import row
from amux.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("ls", epilog="Example: amux ls --state running")(ls)
    app.command("show", epilog="Example: amux show 7k3")(show)
    app.command("audit", epilog="Example: amux audit --json")(audit)


def ls(
    state: Annotated[Label | None, typer.Option(help="Only those in this state.")] = None,
    target: Annotated[str | None, typer.Option(help="Only those of this target.")] = None,
    json: Json = False,
) -> None:
    """What Sessions there are, the newest first."""
    with exits():
        found = asyncio.run(_list(client_settings(), state, target))
        if json:
            for session in found:
                say_json(row(session))
        elif not found:
            print('No Sessions yet. Start one: amux run "..."')
        else:
            _table(found)


async def _list(settings: Settings, state: Label | None, target: str | None) -> list[Session]:
    from amux.wiring import stores

    async with stores(settings) as parts:
        return list(await parts.sessions.list(label=state, target=target, limit=200))


def _table(found: list[Session]) -> None:
    rows = [("SESSION", "STATE", "TURN", "ENGINE", "OWNER", "TITLE")]
    for s in found:
        turn = str(s.open_turn or "")
        rows.append((s.ref.id[:8], s.label, turn, s.identity.engine or "", s.owner or "", plain(s.title)[:60]))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for one in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip())


def show(session: str, json: Json = False) -> None:
    """One Session: its state, running Turn, queue, owner, engine and workspace."""
    with exits():
        found, state = asyncio.run(_show(client_settings(), session))
        facts = {
            **row(found),
            "profile": found.identity.profile,
            "model": found.saved.model,
            "effort": found.saved.effort,
            "permission": found.saved.permission,
            "use": found.saved.use,
            **extras(found.saved),
            **state,
        }
        if json:
            say_json(facts)
            return
        for name, value in facts.items():
            for one in value if isinstance(value, list) else [value]:
                if one not in (None, ""):
                    print(f"{name:<12} {plain(str(one))}")


async def _show(settings: Settings, name: str) -> tuple[Session, dict[str, object]]:
    from amux.wiring import stores

    async with stores(settings) as parts:
        session = await parts.sessions.find(name)
        count = await Audit(parts.sessions, parts.timeline).one(session)
        return session, {"waiting": count.waiting, "turns": count.turns, "lost_turns": count.lost_turns}


def audit(
    session: Annotated[str | None, typer.Argument(help="Only this Session.")] = None,
    json: Json = False,
) -> None:
    """Read Postgres and check every rule of the record. Exits 0 only when all holds."""
    with exits():
        count = asyncio.run(_audit(client_settings(), session))
        numbers = {name: getattr(count, name) for name in NUMBERS}
        if json:
            say_json({**numbers, "broken": count.broken})
        else:
            print(
                f"{count.accepted} accepted = {count.dispatched} started + {count.steered} joined + {count.waiting} "
                f"waiting + {count.failed} failed + {count.cancelled} cancelled"
            )
            print(
                f"{count.sessions} Sessions, {count.turns} Turns, {count.lost_turns} cut off and told; doubled "
                f"{count.doubled}, ended twice {count.double_finish}, gaps {count.gaps}, drifted {count.drifted}"
            )
            for note in count.notes:
                print(f"  {note}")
        if count.broken:
            raise typer.Exit(FAILED)


async def _audit(settings: Settings, name: str | None) -> Count:
    from amux.wiring import stores

    async with stores(settings) as parts:
        audits = Audit(parts.sessions, parts.timeline)
        return await audits.one(await parts.sessions.find(name)) if name else await audits.all()
