"""`queue`: what waits in a Session, and what one does about it: cancel it, or let it go first (I4, H43)."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer

from amux.cli.common import client_settings, exits, hears, me, my_name, new_id, say_json
from amux.cli.screen import plain
from amux.core import events as e
from amux.core.errors import Refused
from amux.core.inputs import Prefer, Withdraw
from amux.core.session import Submission
from amux.ports import Session
from amux.runtime.audit import Audit
from amux.settings import Settings

SHOWN = 70  # characters of a message in the list


class Do(StrEnum):
    """What may be done with one that waits."""

    cancel = "cancel"
    first = "first"


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("queue", epilog="Example: amux queue 7k3 cancel 2")(queue)


def queue(
    session: str,
    do: Annotated[Do | None, typer.Argument(help="cancel it, or let it go first; the list without it.")] = None,
    number: Annotated[int | None, typer.Argument(help="Which one, by its number in the list.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """What waits in a Session, the next one first."""
    with exits():
        settings = client_settings()
        if do is None:
            _list(asyncio.run(_waiting(settings, session))[1], as_json=json)
        elif number is None:
            raise Refused(f"Say which one, by its number in the list: amux queue {session} {do} 2")
        else:
            asyncio.run(_do(settings, session, do, number))


async def _waiting(settings: Settings, name: str) -> tuple[Session, Sequence[Submission]]:
    from amux.wiring import stores

    async with stores(settings) as parts:
        session = await parts.sessions.find(name)
        return session, (await Audit(parts.sessions, parts.timeline).state(session)).queue


def _list(waiting: Sequence[Submission], *, as_json: bool) -> None:
    if not waiting and not as_json:
        print("Nothing waits.")
    for number, submission in enumerate(waiting, 1):
        if wish := submission.wish:
            facts = {"number": number, "wish": wish.what, "by": wish.name}
            say_json(facts) if as_json else print(f"{number:>3}  {plain(wish.name) or 'somebody'}: [{wish.what}]")
            continue
        names = ", ".join(dict.fromkeys(i.name or "nobody" for i in submission.inputs))
        text = " / ".join(i.text for i in submission.inputs)
        if as_json:
            say_json({"number": number, "inputs": [i.id for i in submission.inputs], "by": names, "text": text})
        else:
            print(f"{number:>3}  {plain(names)}: {plain(' '.join(text.split()))[:SHOWN]}")


async def _do(settings: Settings, name: str, do: Do, number: int) -> None:
    from amux.wiring import stores

    session, waiting = await _waiting(settings, name)
    if not 0 < number <= len(waiting):
        raise Refused(f"{len(waiting)} wait, so there is no number {number}. `amux queue {name}` lists them.")
    if wish := waiting[number - 1].wish:
        raise Refused(f"Number {number} is a {wish.what}: it keeps its place and cannot be taken back.")
    control = _control(do, waiting[number - 1])
    async with stores(settings) as parts:
        await hears(parts)
        await parts.submit.to(session.key, control)
        async with aclosing(parts.attach.follow(session.key, session.head)) as grown:
            async for batch in grown:
                for recorded in batch:
                    if told := _told(control, recorded.event):
                        print(told)
                        return


def _control(do: Do, submission: Submission) -> Withdraw | Prefer:
    """By the messages and not by the number, which may mean another one by now."""
    inputs = tuple(i.id for i in submission.inputs)
    if do is Do.cancel:
        return Withdraw(new_id(), me(), inputs, my_name())
    return Prefer(new_id(), me(), inputs[0], my_name())


def _told(control: Withdraw | Prefer, event: e.Event) -> str | None:
    match event:
        case e.ControlRefused(id_, _, e.Refusal.already_so) if id_ == control.id:
            raise Refused("It is the next one already.")
        case e.ControlRefused(id_) if id_ == control.id:
            raise Refused("Too late: it does not wait any more. Nothing was changed.")
        case e.InputCancelled(ids, _, by) if isinstance(control, Withdraw) and by and set(ids) & set(control.inputs):
            return "Cancelled. It will not run."
        case e.InputPreferred(ids) if isinstance(control, Prefer) and control.input in ids:
            return "It is the next one now."
        case _:
            return None
