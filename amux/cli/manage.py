"""`sleep`, `resume`, `restart`, `archive`, `compact`, `clear`: what one does to a whole Session, and what came of it (A4 to A8).

Ctrl-C detaches; what was asked for goes on."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated

import typer

from amux.cli.common import client_settings, exits, hears, me, my_name, new_id
from amux.cli.screen import ANEW, Screen
from amux.core import events as e
from amux.core.errors import Refused, Unavailable
from amux.core.inputs import Action, ContextAction, ContextWish, Manage
from amux.ports import Recorded, Session
from amux.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Wish = Action | ContextAction
Control = Manage | ContextWish
HELP: dict[Wish, str] = {
    Action.sleep: "End the agent's process; the next message takes its conversation up again.",
    Action.resume: "Start the agent again, with the conversation that it had.",
    Action.restart: "Start the agent anew, with the recorded settings. A running Turn is interrupted first.",
    Action.archive: "End the agent, cancel what waits, take nothing more. The history stays.",
    ContextAction.compact: "Let the agent summarise its context, after what waits already. Finished effects of tools stay.",
    ContextAction.clear: "Begin with an empty context, after what waits already. Finished effects of tools stay.",
}
DONE: dict[Wish, str] = {
    Action.sleep: "{} sleeps. The next message wakes it.",
    Action.resume: "{} is awake.",
    Action.restart: "{} was started anew. What its tools had done stays done.",
    Action.archive: "{} is archived. Its history stays: amux attach {}",
    ContextAction.compact: "The agent of {} has summarised its context. What its tools had done stays done.",
    ContextAction.clear: "The next Turn of {} begins with an empty context. What its tools had done stays done.",
}
ALREADY: dict[Wish, str] = {Action.sleep: "sleeps", Action.resume: "is awake", Action.archive: "is archived"}


def add(app: typer.Typer) -> None:
    """Add the commands."""
    for action in (*Action, *ContextAction):
        app.command(action.value, help=HELP[action], epilog=f"Example: amux {action} 7k3")(_command(action))


def _command(action: Wish) -> Callable[..., None]:
    def command(session: str, json: Json = False) -> None:
        with exits():
            asyncio.run(_manage(client_settings(), session, action, as_json=json))

    return command


async def _manage(settings: Settings, name: str, action: Wish, *, as_json: bool) -> None:
    from amux.wiring import stores

    async with stores(settings) as parts:
        await hears(parts)
        session = await parts.sessions.find(name)
        control = _control(action)
        await parts.submit.to(session.key, control)
        heard, fresh = False, None
        async with aclosing(parts.attach.follow(session.key, session.head)) as grown:
            async for batch in grown:
                for recorded in batch:
                    heard = heard or _is_ours(recorded.event, control)
                    if heard and isinstance(recorded.event, e.ConversationOpening):
                        fresh = recorded.event.fresh
                    if heard and _settles(session, control, recorded.event):
                        _tell(session, action, recorded, fresh, as_json=as_json)
                        return


def _control(action: Wish) -> Control:
    if isinstance(action, Action):
        return Manage(new_id(), me(), action, my_name())
    return ContextWish(new_id(), me(), action, my_name())


def _action(control: Control) -> Wish:
    return control.action if isinstance(control, Manage) else control.what


def _is_ours(event: e.Event, control: Control) -> bool:
    match event:
        case e.ControlRefused(id_):
            return id_ == control.id
        case e.ActionRequested(action, by):
            return isinstance(control, Manage) and (action, by) == (control.action, control.by)
        case e.ContextQueued(wish):
            return wish.id == control.id
        case _:
            return False


def _settles(session: Session, control: Control, event: e.Event) -> bool:
    """Whether that is what was asked for. Raises Refused or Unavailable where it cannot be had."""
    action = _action(control)
    match event:
        case e.ControlRefused(id_, _, why) if id_ == control.id:
            raise Refused(_refused(session.ref.id[:6], action, why))
        case e.ConversationFailed(_, detail) if action in (Action.resume, Action.restart):
            raise Unavailable(f"The agent did not start: {detail}")
        case e.ContextFailed(id_, detail) if id_ == control.id:
            raise Unavailable(f"It was not compacted: {detail}")
        case e.ConversationOpened():
            return action in (Action.resume, Action.restart)
        case e.ContextCompacted(id_) | e.ContextCleared(id_):
            return id_ == control.id
        case e.SessionState(e.Label.archived) if action is not Action.archive:
            raise Refused(_refused(session.ref.id[:6], action, e.Refusal.archived))
        case e.SessionState(label):
            return (action, label) in ((Action.sleep, e.Label.sleeping), (Action.archive, e.Label.archived))
        case _:
            return False


def _refused(short: str, action: Wish, why: e.Refusal) -> str:
    match why:
        case e.Refusal.busy:
            return f"A Turn runs or input waits in {short}: wait for its end, or `amux interrupt {short}` first."
        case e.Refusal.archived:
            return f'{short} is archived and takes nothing any more. Start a new one: amux run "..."'
        case e.Refusal.queue_full:
            return f"Too much waits in {short} already. `amux queue {short}` lists it."
        case e.Refusal.unavailable:
            return f"The agent of {short} cannot {action} its context. `amux clear {short}` begins with an empty one."
        case _:
            return f"{short} {ALREADY.get(action, 'is so')} already."


def _tell(session: Session, action: Wish, recorded: Recorded, fresh: e.Fresh | None, *, as_json: bool) -> None:
    if as_json:
        Screen(session, as_json=True).show(recorded)
    else:
        short = session.ref.id[:6]
        print(DONE[action].format(short, short))
        if fresh:
            print(f"It begins anew: {ANEW[fresh]}. With its next Turn it is told what amux has.")
