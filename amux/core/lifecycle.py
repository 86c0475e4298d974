"""Sleep, resume, restart and archive: whether each may be done now, and why not (S10, A4, A5, A8). Decides; acts nowhere."""

from amux.core.events import Refusal
from amux.core.inputs import Action
from amux.core.session import State
from amux.core.step import Phase, Scratch


def refusal(action: Action, state: State, scratch: Scratch) -> Refusal | None:
    """Why it cannot be done; None when it can."""
    if state.archiving:
        return Refusal.already_so if action is Action.archive else Refusal.archived
    match action:
        case Action.sleep if state.turn or state.queue or scratch.held or scratch.burst:
            return Refusal.busy
        case Action.sleep if scratch.phase is Phase.closed:
            return Refusal.already_so
        case Action.resume if scratch.phase is not Phase.closed:
            return Refusal.already_so
        case _:
            return None
