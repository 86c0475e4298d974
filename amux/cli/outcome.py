"""What became of an input, for `run`, `send` and `resend`: told in a line, or drawn to its end."""

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

from amux.cli.common import FAILED, UNCERTAIN
from amux.cli.screen import CANCELLED, REASONS, Screen, plain
from amux.core import events as e
from amux.core.again import Unrun, offered
from amux.core.ids import InputId, Seq, TurnId
from amux.ports import Session

if TYPE_CHECKING:  # a wired house takes a second to import, and help must not wait for it
    from amux.wiring import Stores


async def told(
    parts: "Stores", session: Session, after: Seq, said: InputId, screen: Screen, *, wait: bool, first: str = ""
) -> int:
    """Say what became of it, behind the words of `first`, or draw it to its end; the code to end with."""
    if wait:
        return await follow(parts, session, after, said, screen)
    async with aclosing(parts.attach.follow(session.key, after)) as grown:
        async for batch in grown:
            for recorded in batch:
                if (fate := _fate(session, said, recorded.event)) is not None:
                    code, line = fate
                    screen.show(recorded) if screen.as_json else print(first + line)
                    if isinstance(recorded.event, Unrun):
                        _hint(session, said, recorded.event.reason, as_json=screen.as_json)
                    return code
    return FAILED


async def follow(parts: "Stores", session: Session, after: Seq, said: InputId, screen: Screen) -> int:
    """Draw until the Turn that took our input has ended, and answer how."""
    mine: TurnId | None = None
    async with aclosing(parts.attach.follow(session.key, after)) as grown:
        async for batch in grown:
            for recorded in batch:
                screen.show(recorded)
                match recorded.event:
                    case e.TurnStarted(turn, ids) | e.InputSteered(turn, ids) if said in ids:
                        mine = turn
                    case e.SubmissionFailed(ids, reason) | e.InputCancelled(ids, reason) if said in ids:
                        _hint(session, said, reason, as_json=screen.as_json)
                        return UNCERTAIN if reason is e.FailReason.uncertain else FAILED
                    case e.TurnFinished(turn, outcome) if turn == mine:
                        if not screen.as_json:
                            print(f'  amux send {session.ref.id[:6]} "..."   goes on with it', file=sys.stderr)
                        return 0 if outcome is e.Outcome.completed else FAILED
    return FAILED


def _fate(session: Session, said: InputId, event: e.Event) -> tuple[int, str] | None:
    """What became of it: the code to end with, and a sentence."""
    short = session.ref.id[:6]
    match event:
        case e.InputSteered(turn, ids) if said in ids:
            return 0, f"steered into turn {turn} of {short}"
        case e.TurnStarted(turn, ids) if said in ids:
            return 0, f"started turn {turn} of {short}"
        case e.InputQueued(ids, reason) if said in ids:
            return 0, f"queued in {short}: {REASONS[reason]}"
        case e.SubmissionFailed(ids, e.FailReason.uncertain) if said in ids:
            return UNCERTAIN, "may not have arrived; not sent again"
        case e.SubmissionFailed(ids, _, detail) if said in ids:
            return FAILED, f"not run: {plain(detail)}"
        case e.InputCancelled(ids, reason) if said in ids:
            return FAILED, f"not run: {CANCELLED[reason]}"
        case _:
            return None


def _hint(session: Session, said: InputId, reason: e.FailReason | e.CancelReason, *, as_json: bool) -> None:
    """How it is sent again, by one command that names it (I5)."""
    if offered(reason) and not as_json:
        print(f"  amux resend {session.ref.id[:6]} {said}   sends it again", file=sys.stderr)
