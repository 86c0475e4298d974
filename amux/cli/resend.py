"""`resend`: say once more what did not run. A new submission of whoever sends it; the old one stays as it is (I5)."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from amux.cli.common import client_settings, exits, finish, hears, me, my_name, now
from amux.cli.outcome import told
from amux.cli.screen import Screen
from amux.core.again import FATES, named
from amux.core.ids import InputId, Seq
from amux.ports import Session
from amux.settings import Settings

if TYPE_CHECKING:  # a wired house takes a second to import, and help must not wait for it
    from amux.wiring import Stores

FAR = 10_000  # events in which the newest fate of what was sent again is looked for


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resend", epilog="Example: amux resend 7k3")(resend)


def resend(
    session: str,
    message: Annotated[
        str, typer.Argument(help="Which one, by the beginning of its id; without it the newest that failed.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Send again what failed or was cancelled, as a message of yours. Asked for twice, it is sent once."""
    with exits():
        finish(asyncio.run(_resend(client_settings(), session, message, wait=wait, as_json=json)))


async def _resend(settings: Settings, name: str, message: str, *, wait: bool, as_json: bool) -> int:
    from amux.wiring import stores

    async with stores(settings) as parts:
        await hears(parts)
        session = await parts.sessions.find(name)
        original = named(message, await parts.inputs.fates(session.key, Seq(0)))
        sent = await parts.submit.again(session.key, original, by=me(), name=my_name(), sent_at=now())
        after, first = session.head, ""
        if not sent.fresh:  # what became of it may be told long before
            first = "sent again before: "
            after = await _before_its_last_fate(parts, session, sent.said.id) or after
        return await told(parts, session, after, sent.said.id, Screen(session, as_json), wait=wait, first=first)


async def _before_its_last_fate(parts: "Stores", session: Session, said: InputId) -> Seq | None:
    """The position from which its newest fate is read; None while it has none."""
    (known,) = await parts.inputs.known((said,))
    since = await parts.timeline.read(session.key, Seq(known.seq - 1), limit=FAR) if known.seq else ()
    fates = [r.seq for r in since if isinstance(r.event, FATES) and said in r.event.inputs]
    return Seq(fates[-1] - 1) if fates else None
