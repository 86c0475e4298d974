"""`resend`: say once more what did not run. A new submission of whoever sends it; the old one stays as it is (I5)."""

import asyncio
from typing import Annotated

import typer

from amux.cli.common import client_settings, exits, finish, hears, me, my_name, now
from amux.cli.outcome import told
from amux.cli.screen import Screen
from amux.core.again import named
from amux.core.ids import Seq
from amux.settings import Settings


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
            (known,) = await parts.inputs.known((sent.said.id,))
            after = Seq(known.seq - 1) if known.seq else after
        return await told(parts, session, after, sent.said.id, Screen(session, as_json), wait=wait, first=first)
