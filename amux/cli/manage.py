"""`sleep`, `resume`, `restart`, `archive`: what one does to a whole Session, and what came of it (A4, A5, A8).

Ctrl-C detaches; what was asked for goes on."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated

import typer

from amux.cli.common import client_settings, exits, hears, me, my_name, new_id
from amux.cli.screen import Screen
from amux.core import events as e
from amux.core.errors import Refused, Unavailable
from amux.core.inputs import Action, Manage
from amux.ports import Recorded, Session
from amux.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
HELP = {
    Action.sleep: "End the agent's process; the next message takes its conversation up again.",
    Action.resume: "Start the agent again, with the conversation that it had.",
    Action.restart: "Start the agent anew, with the recorded settings. A running Turn is interrupted first.",
    Action.archive: "End the agent, cancel what waits, take nothing more. The history stays.",
}
DONE = {
    Action.sleep: "{} sleeps. The next message wakes it.",
    Action.resume: "{} is awake.",
    Action.restart: "{} was started anew. What its tools had done stays done.",
    Action.archive: "{} is archived. Its history stays: amux attach {}",
}
ALREADY = {Action.sleep: "sleeps", Action.resume: "is awake", Action.archive: "is archived"}


def add(app: typer.Typer) -> None:
    """Add the commands."""
    for action in Action:
        app.command(action.value, help=HELP[action], epilog=f"Example: amux {action} 7k3")(_command(action))


def _command(action: Action) -> Callable[..., None]:
    def command(session: str, json: Json = False) -> None:
        with exits():
            asyncio.run(_manage(client_settings(), session, action, as_json=json))

    return command


async def _manage(settings: Settings, name: str, action: Action, *, as_json: bool) -> None:
    from amux.wiring import stores

    async with stores(settings) as parts:
        await hears(parts)
        session = await parts.sessions.find(name)
        control = Manage(new_id(), me(), action, my_name())
        await parts.submit.to(session.key, control)
        heard = False
        async with aclosing(parts.attach.follow(session.key, session.head)) as grown:
            async for batch in grown:
                for recorded in batch:
                    heard = heard or _is_ours(recorded.event, control)
                    if heard and _settles(session, action, recorded.event):
                        _tell(session, action, recorded, as_json=as_json)
                        return


def _is_ours(event: e.Event, control: Manage) -> bool:
    match event:
        case e.ControlRefused(id_):
            return id_ == control.id
        case e.ActionRequested(action, by):
            return (action, by) == (control.action, control.by)
        case _:
            return False


def _settles(session: Session, action: Action, event: e.Event) -> bool:
    """Whether that is what was asked for. Raises Refused or Unavailable where it cannot be had."""
    match event:
        case e.ControlRefused(_, _, why):
            raise Refused(_refused(session.ref.id[:6], action, why))
        case e.ConversationFailed(_, detail) if action in (Action.resume, Action.restart):
            raise Unavailable(f"The agent did not start: {detail}")
        case e.ConversationOpened():
            return action in (Action.resume, Action.restart)
        case e.SessionState(label):
            return (action, label) in ((Action.sleep, e.Label.sleeping), (Action.archive, e.Label.archived))
        case _:
            return False


def _refused(short: str, action: Action, why: e.Refusal) -> str:
    match why:
        case e.Refusal.busy:
            return f"A Turn runs or input waits in {short}: wait for its end, or `amux interrupt {short}` first."
        case e.Refusal.archived:
            return f'{short} is archived and takes nothing any more. Start a new one: amux run "..."'
        case _:
            return f"{short} {ALREADY.get(action, 'is so')} already."


def _tell(session: Session, action: Action, recorded: Recorded, *, as_json: bool) -> None:
    if as_json:
        Screen(session, as_json=True).show(recorded)
    else:
        short = session.ref.id[:6]
        print(DONE[action].format(short, short))
