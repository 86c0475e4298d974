"""Sleep, resume, restart and archive: whether each may be done now, and what it comes to (S10, A4, A5, A8)."""

from typing import assert_never

from amux.core import events as e
from amux.core import moves, steering, wishes
from amux.core.events import Refusal
from amux.core.inputs import Action, Manage
from amux.core.session import State
from amux.core.step import Draft, Phase, Scratch


def refusal(action: Action, state: State, scratch: Scratch) -> Refusal | None:
    """Why it cannot be done; None when it can."""
    if state.archiving:
        return Refusal.already_so if action is Action.archive else Refusal.archived
    waits = state.turn or state.queue or scratch.held or scratch.burst
    match action:
        case Action.sleep if waits or scratch.phase in (Phase.opening, Phase.context):
            return Refusal.busy
        case Action.sleep if scratch.phase is Phase.closed:
            return Refusal.already_so
        case Action.resume if scratch.phase is not Phase.closed:
            return Refusal.already_so
        case _:
            return None


def manage(draft: Draft, said: Manage) -> None:
    """At once. A running Turn is interrupted first and ends by its own TurnFinished (A5, A8)."""
    if why := refusal(said.action, draft.state, draft.scratch):
        draft.accept(said.id, e.ControlRefused(said.id, said.by, why))
        return
    draft.accept(said.id, e.ActionRequested(said.action, said.by, said.name))
    match said.action:
        case Action.sleep:
            moves.close(draft, e.Label.sleeping)
        case Action.resume:
            pass  # it is wanted open now, and opened as soon as nothing runs
        case Action.restart:
            _interrupt_for(draft, said)
        case Action.archive:
            _cancel_waiting(draft)
            _interrupt_for(draft, said)
        case _:
            assert_never(said.action)


def _interrupt_for(draft: Draft, said: Manage) -> None:
    if draft.state.compacting:
        wishes.end(draft, "The agent was stopped meanwhile.")
        wishes.close(draft)
    turn = draft.state.turn
    if turn and draft.scratch.phase is Phase.turn:
        draft.write(e.InterruptRequested(turn.id, said.by, said.name))
        moves.stop(draft, turn.id)


def _cancel_waiting(draft: Draft) -> None:
    """All that has no Turn, by name (A8)."""
    heard = [*steering.bursts(draft.scratch.held), *([draft.scratch.burst.inputs] if draft.scratch.burst else [])]
    draft.set(held=(), burst=None)
    wishes.cancel(draft)
    for submission in draft.state.queue:
        draft.write(e.InputCancelled(moves.ids(submission.inputs), e.CancelReason.archived))
    for burst in heard:
        moves.accept(draft, burst)
        draft.write(e.InputCancelled(moves.ids(burst), e.CancelReason.archived))
