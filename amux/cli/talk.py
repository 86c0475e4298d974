"""`run`, `send`, `attach`, `interrupt`, `answer`: what one says to a Session, and what comes back.

Ctrl-C detaches: it closes this viewer, and the work goes on (A2)."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from amux.cli.common import client_settings, exits, finish, hears, me, my_name, new_id, now
from amux.cli.outcome import follow, told
from amux.cli.screen import Screen
from amux.core import events as e
from amux.core.errors import Refused
from amux.core.ids import RequestId, Seq, SessionRef
from amux.core.inputs import Answer, Authorization, Input, Interrupt, Permission, Verdict
from amux.core.launch import Asked, WorkspaceUse
from amux.ports import Draft, Recorded, Session
from amux.runtime.receive import new_session_id, title_of
from amux.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", epilog='Example: amux run "Summarise the changelog" --engine codex')(run)
    app.command("send", epilog='Example: amux send 7k3 "also in Chinese"')(send)
    app.command("attach", epilog="Example: amux attach 7k3 --tail")(attach)
    app.command("interrupt", epilog="Example: amux interrupt 7k3")(interrupt)
    app.command("answer", epilog="Example: amux answer 7k3 ask-1 allow")(answer)


def run(  # noqa: PLR0913, PLR0917 - the signature is the interface
    prompt: str,
    engine: Annotated[str | None, typer.Option(help="Which agent: scripted, codex, claude.")] = None,
    expert: Annotated[str | None, typer.Option(help="As which expert; `amux expert ls` shows them.")] = None,
    shortcut: Annotated[str | None, typer.Option(help="With the settings of that shortcut.")] = None,
    workspace: Annotated[Path | None, typer.Option(help="The folder it works in; a new one without it.")] = None,
    worktree: Annotated[bool, typer.Option("--worktree", help="In a git worktree of that folder, its own.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="Beside others that may work there too.")] = False,
    target: Annotated[str | None, typer.Option(help="Which target runs it.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, if not the agent's own choice.")] = None,
    effort: Annotated[str | None, typer.Option(help="The reasoning effort.")] = None,
    permission: Annotated[Permission | None, typer.Option(help="bypass, or ask before tools.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow it.")] = False,
    json: Json = False,
) -> None:
    """Start a Session with its first Turn and follow that to its end. Ctrl-C detaches; the work goes on."""
    with exits():
        from amux.wiring import launch_settings

        settings = client_settings()
        ref = SessionRef(target or settings.target, new_session_id())
        chosen = _placed(settings, workspace, here=ref.target == settings.target, worktree=worktree, shared=shared)
        asked = Asked(engine, model, effort, permission)
        launch = launch_settings(chosen, ref, asked, expert=expert, shortcut=shortcut)
        finish(asyncio.run(_run(settings, Draft(ref, launch, title_of(prompt)), prompt, detach=detach, as_json=json)))


async def _run(settings: Settings, draft: Draft, prompt: str, *, detach: bool, as_json: bool) -> int:
    from amux.wiring import stores

    async with stores(settings) as parts:
        said = _input(prompt)
        await hears(parts)
        await parts.submit.launch(draft, said)
        session = await parts.sessions.find(str(draft.ref))
        if detach:
            print(draft.ref.id)
            return 0
        return await follow(parts, session, Seq(0), said.id, Screen(session, as_json))


def send(
    session: str,
    text: str,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    json: Json = False,
) -> None:
    """Say something to a Session: it joins the running Turn or waits for the next, and you are told which."""
    with exits():
        finish(asyncio.run(_send(client_settings(), session, text, wait=wait, as_json=json)))


async def _send(settings: Settings, name: str, text: str, *, wait: bool, as_json: bool) -> int:
    from amux.wiring import stores

    async with stores(settings) as parts:
        said = _input(text)
        await hears(parts)
        session = await parts.sessions.find(name)
        await parts.submit.to(session.key, said)
        return await told(parts, session, session.head, said.id, Screen(session, as_json), wait=wait)


def attach(
    session: str,
    from_: Annotated[int | None, typer.Option("--from", help="Catch up from behind this seq; 0 is the start.")] = None,
    tail: Annotated[bool, typer.Option("--tail", help="From the head, with the running Turn's start.")] = False,
    json: Json = False,
) -> None:
    """Catch up, then follow, without gap or repeat. Ctrl-C detaches."""
    with exits():
        asyncio.run(_attach(client_settings(), session, from_, tail=tail, as_json=json))


async def _attach(settings: Settings, name: str, after: int | None, *, tail: bool, as_json: bool) -> None:
    from amux.wiring import stores

    async with stores(settings) as parts:
        session = await parts.sessions.find(name)
        screen, position = Screen(session, as_json), Seq(after or 0)
        if tail:
            head = await parts.attach.head(session.key)
            position = head.seq
            if head.started:
                screen.show(head.started)
        async with aclosing(parts.attach.follow(session.key, position)) as grown:
            async for batch in grown:
                for recorded in batch:
                    screen.show(recorded)


def interrupt(session: str, json: Json = False) -> None:
    """Ask the running Turn to stop. What its tools have done stays done."""
    with exits():
        asyncio.run(_control(client_settings(), session, Interrupt(new_id(), me(), None, my_name()), as_json=json))


def answer(session: str, request: str, verdict: Annotated[Verdict, typer.Argument()], json: Json = False) -> None:
    """Answer a permission request. The first answer counts."""
    with exits():
        control = Answer(new_id(), me(), RequestId(request), verdict, my_name())
        asyncio.run(_control(client_settings(), session, control, as_json=json))


async def _control(settings: Settings, name: str, control: Interrupt | Answer, *, as_json: bool) -> None:
    from amux.wiring import stores

    async with stores(settings) as parts:
        await hears(parts)
        session = await parts.sessions.find(name)
        if session.owner is None:
            raise Refused(f"Nothing runs in {session.ref.id[:6]}, so there is nothing to do.")
        await parts.submit.to(session.key, control)
        async with aclosing(parts.attach.follow(session.key, session.head)) as grown:
            async for batch in grown:
                for recorded in batch:
                    if _settles(control, recorded.event):
                        _told(session, recorded, as_json=as_json)
                        return


def _settles(control: Interrupt | Answer, event: e.Event) -> bool:
    match event:
        case e.ControlRefused(id):
            return id == control.id
        case e.InterruptRequested():
            return isinstance(control, Interrupt)
        case e.ContextFailed(_, _, by):
            return isinstance(control, Interrupt) and by == control.by
        case e.PermissionResolved(_, request):
            return isinstance(control, Answer) and request == control.request
        case _:
            return False


def _told(session: Session, recorded: Recorded, *, as_json: bool) -> None:
    match recorded.event:
        case e.ControlRefused(_, _, e.Refusal.nothing_runs):
            raise Refused(f"Nothing runs in {session.ref.id[:6]}; nothing was changed.")
        case e.ControlRefused(_, _, e.Refusal.already_interrupting):
            raise Refused("It is being interrupted already.")
        case e.ControlRefused():
            raise Refused("That is over: the Turn or the request is gone. Nothing was changed.")
    if as_json:
        Screen(session, as_json=True).show(recorded)
    elif isinstance(recorded.event, e.InterruptRequested):
        print(f"Interrupting Turn {recorded.event.turn} of {session.ref.id[:6]}. Finished steps stay.")
    elif isinstance(recorded.event, e.ContextFailed):
        print(f"Stopped what summarised the context of {session.ref.id[:6]}.")
    else:
        print("Answered.")


def _input(text: str) -> Input:
    if not text.strip():
        raise Refused("There is nothing to say: give a text.")
    return Input(new_id(), text, me(), Authorization(me()), now(), my_name())


def _placed(settings: Settings, workspace: Path | None, *, here: bool, worktree: bool, shared: bool) -> Settings:
    """With what was said about the folder in place of what is set."""
    if worktree and shared:
        raise Refused("--worktree gives it a folder of its own, --shared one with others: give one of them.")
    chosen = replace(settings, workspace=_folder(workspace, here=here)) if workspace else settings
    if worktree and chosen.workspace is None:
        raise Refused("A worktree of what? Name the repository with --workspace.")
    use = WorkspaceUse.worktree if worktree else WorkspaceUse.shared if shared else chosen.workspace_use
    return replace(chosen, workspace_use=use)


def _folder(path: Path, *, here: bool) -> Path:
    """What another target has is looked at there."""
    if not here:
        if path.is_absolute():
            return path
        raise Refused(f"{path} is a folder of another target: write it from / on.")
    if not path.is_dir():
        raise Refused(f"{path} is no folder: give an existing one to work in.")
    return path.resolve()
