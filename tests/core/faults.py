"""Faults that break one promise each. The Heart must find every one of them: it has been seen to fail."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from amux.core import events as e
from amux.core import lifecycle, machine, moves, session, steering, waiting, watchdog, wishes
from amux.core import signals as s
from amux.core.ids import InputId, TurnId
from amux.core.inputs import Action, ContextAction, ContextWish, Input, Interrupt, Manage, Said
from amux.core.session import State
from amux.core.step import Draft, Phase, StartTurn

Fault = AbstractContextManager[object]


def instead(name: str, new: Callable[..., Any]) -> Fault:
    """The machine with one of its parts replaced."""
    return patch.object(machine, name, new)


def _queue_what_is_unknown(draft: Draft, ids: tuple[InputId, ...], answer: s.SteerAnswer) -> None:
    refused = s.SteerAnswer.refused if answer is s.SteerAnswer.unknown else answer
    _steer_came_out(draft, ids, refused)


def _steer_anyone(burst: tuple[Input, ...], state: State, busy: steering.Busy) -> steering.Decision:
    decision = _decide(burst, state, busy)
    other = steering.Queue(e.QueueReason.other_sender)
    return steering.Steer(state.turn.id) if decision == other and state.turn else decision


def _steer_past_the_queue(burst: tuple[Input, ...], state: State, busy: steering.Busy) -> steering.Decision:
    decision = _decide(burst, state, busy)
    waits = steering.Queue(e.QueueReason.earlier_input_waiting)
    return steering.Steer(state.turn.id) if decision == waits and state.turn else decision


def _steer_material(burst: tuple[Input, ...], state: State, busy: steering.Busy) -> steering.Decision:
    decision = _decide(burst, state, busy)
    held = steering.Queue(e.QueueReason.has_material)
    return steering.Steer(state.turn.id) if decision == held and state.turn else decision


def _forget_the_old_turn(draft: Draft, opened: s.Opened) -> None:
    draft.set(herald=e.OwnerOpened(opened.epoch, opened.worker))
    for said in opened.journal:
        machine._hear(draft, said)


def _forget_the_journal(draft: Draft, opened: s.Opened) -> None:
    _recover(draft, s.Opened(opened.epoch, opened.worker))


def _end_whatever_runs(draft: Draft, ended: s.TurnEnded) -> None:
    if draft.state.turn:
        machine._finish(draft, ended)


def _end_before_the_steers(draft: Draft, ended: s.TurnEnded) -> None:
    if draft.state.turn and draft.state.turn.id == ended.turn:
        machine._finish(draft, ended)


def _stop_whatever_runs(draft: Draft, said: Interrupt) -> None:
    turn = draft.state.turn
    _interrupt(draft, Interrupt(said.id, said.by, turn.id if turn else None))


def _free_while_stopping(draft: Draft) -> bool:
    return draft.scratch.phase in (Phase.idle, Phase.stopping) and not (draft.state.turn or draft.scratch.foreign)


def _free_beside_a_foreign_turn(draft: Draft) -> bool:
    return draft.scratch.phase is Phase.idle and draft.state.turn is None


def _drop_the_burst(draft: Draft) -> None:
    draft.set(burst=None)


def _newest_first(draft: Draft) -> None:
    if machine._free(draft) and draft.state.queue:
        machine._start(draft, draft.state.queue[-1].inputs)
    else:
        _dispatch(draft)


def _drop_what_was_held(draft: Draft, reason: e.FailReason, detail: str) -> None:
    draft.set(held=())
    _fail_waiting(draft, reason, detail)


def _answer_what_is_gone(draft: Draft, said: Any) -> None:
    if draft.state.turn:
        resolved = e.PermissionResolved(draft.state.turn.id, said.request, e.Resolution.answered, said.verdict)
        draft.accept(said.id, resolved)
    else:
        _answer(draft, said)


def _hear_twice(draft: Draft, said: Said) -> None:
    _hear(draft, said)
    _hear(draft, said)


def _run_again_when_it_dies(draft: Draft, died: s.Died) -> None:
    turn = draft.state.turn
    again = tuple(turn.steered) if turn else ()
    _died(draft, died)
    if again:
        machine._settle(draft, again)


def _leave_the_steers(draft: Draft) -> None:
    return None


def _impatient(self: watchdog.Watch, limits: watchdog.Limits, _: object) -> float:
    return self.heard + limits.silence


def _leave_what_waits(draft: Draft) -> None:
    draft.set(held=(), burst=None)


def _let_it_run(draft: Draft, said: Manage) -> None:
    if draft.state.turn and said.action is Action.restart:
        moves.open_(draft, None)


def _never_refuse(*_: object) -> None:
    return None


def _resume_anyway(draft: Draft, _: e.Fresh | None) -> None:
    _open(draft, None)


def _never_heard(state: State, turn: TurnId) -> State:
    return replace(_noted(state, turn), handoff=state.handoff)


def _without_handoff(turn: TurnId, inputs: tuple[Input, ...], note: str, _: e.Fresh | None) -> StartTurn:
    return StartTurn(turn, inputs, note)


def _whatever_is_wanted(draft: Draft, wanted: tuple[InputId, ...]) -> list[tuple[InputId, ...]]:
    on_the_way = tuple(i.id for s in draft.state.steering for i in s.inputs if i.id in wanted)
    return [*_queued(draft, wanted), *([on_the_way] if on_the_way else [])]


def _overtake(draft: Draft, wish: ContextWish) -> None:
    _hear_wish(draft, wish)
    if wish.what is ContextAction.clear and not draft.state.turn and not draft.state.archiving:
        draft.write(e.ContextCleared(wish.id, wish.by))


def _no_note(_: tuple[Input, ...]) -> str:
    return ""


_decide, _steer_came_out, _recover = steering.decide, machine._steer_came_out, machine._recover
_interrupt, _dispatch, _fail_waiting = machine._interrupt, machine._dispatch, machine._fail_waiting
_queued, _hear_wish = waiting._queued, wishes.hear
_answer, _hear, _died = machine._answer, machine._hear, machine._died
_open, _noted = moves.open_, session._noted

FAULTS: dict[str, Callable[[], Fault]] = {
    "queues what may have been taken (I5)": lambda: instead("_steer_came_out", _queue_what_is_unknown),
    "steers for anyone (I3)": lambda: patch.object(steering, "decide", _steer_anyone),
    "steers past the queue (I4)": lambda: patch.object(steering, "decide", _steer_past_the_queue),
    "steers material (I8)": lambda: patch.object(steering, "decide", _steer_material),
    "forgets the dead owner's Turn (T3)": lambda: instead("_recover", _forget_the_old_turn),
    "forgets the journal (D2)": lambda: instead("_recover", _forget_the_journal),
    "ends whatever runs (T3)": lambda: instead("_ended", _end_whatever_runs),
    "ends before its steers are answered (I3)": lambda: instead("_ended", _end_before_the_steers),
    "a late stop stops the next Turn (H39)": lambda: instead("_interrupt", _stop_whatever_runs),
    "dispatches while stopping (H45)": lambda: instead("_free", _free_while_stopping),
    "dispatches beside a foreign turn (H55)": lambda: instead("_free", _free_beside_a_foreign_turn),
    "drops the open burst (H41)": lambda: instead("_close_burst", _drop_the_burst),
    "newest first (T4)": lambda: instead("_dispatch", _newest_first),
    "drops what was held (S7)": lambda: instead("_fail_waiting", _drop_what_was_held),
    "answers what is gone (H40)": lambda: instead("_answer", _answer_what_is_gone),
    "hears twice (H4)": lambda: instead("_hear", _hear_twice),
    "runs again when the agent dies (I5)": lambda: instead("_died", _run_again_when_it_dies),
    "leaves steers open (I5)": lambda: patch.object(moves, "fail_steers", _leave_the_steers),
    "takes a question for silence (T8)": lambda: patch.object(watchdog.Watch, "_silent_at", _impatient),
    "archives and forgets what waits (A8)": lambda: patch.object(lifecycle, "_cancel_waiting", _leave_what_waits),
    "restarts beside the running Turn (A5)": lambda: patch.object(lifecycle, "_interrupt_for", _let_it_run),
    "sleeps over whatever runs (A4)": lambda: patch.object(lifecycle, "refusal", _never_refuse),
    "resumes what it must not (S8)": lambda: patch.object(moves, "open_", _resume_anyway),
    "hands over again and again (S8)": lambda: patch.object(session, "_noted", _never_heard),
    "hands nothing over (S8)": lambda: instead("StartTurn", _without_handoff),
    "withdraws what may be held (H43)": lambda: patch.object(waiting, "_queued", _whatever_is_wanted),
    "a clear overtakes what waits (I9)": lambda: patch.object(wishes, "hear", _overtake),
    "forgets the note (I6)": lambda: instead("cancellation_note", _no_note),
}
