"""Compact and clear: in the queue like input, in their order, and never across a running Turn (I9, A6, A7, A10).

A clear gives the conversation up: the next Turn opens a new one. So it asks nothing of the agent and cannot half happen."""

from amux.core import events as e
from amux.core import signals, waiting
from amux.core.ids import InputId
from amux.core.inputs import ContextAction, ContextWish, Interrupt
from amux.core.step import CloseConversation, CompactContext, Draft, Phase

COMPACTION = "compaction"  # the optional part of a conversation


def hear(draft: Draft, wish: ContextWish) -> None:
    """It takes its place behind all that was said before."""
    if draft.state.archiving:
        draft.accept(wish.id, e.ControlRefused(wish.id, wish.by, e.Refusal.archived))
    elif waiting.is_full(draft.state):
        draft.accept(wish.id, e.ControlRefused(wish.id, wish.by, e.Refusal.queue_full))
    else:
        draft.accept(wish.id, e.ContextQueued(wish))


def fulfil(draft: Draft) -> bool:
    """Do what stands at the head of the queue, if it is a wish and can be done now; whether something was done."""
    wish = draft.state.queue[0].wish if draft.state.queue else None
    if wish is None or draft.state.turn or draft.scratch.foreign:
        return False
    phase = draft.scratch.phase
    if wish.what is ContextAction.clear and phase in (Phase.idle, Phase.closed):
        _clear(draft, wish)
    elif wish.what is ContextAction.compact and phase is Phase.idle:
        _compact(draft, wish)
    else:
        return False
    return True


def compacted(draft: Draft, told: signals.Compacted) -> None:
    """One that was given up already has its outcome."""
    if draft.state.compacting == told.control:
        end(draft, told.failed)
        draft.set(phase=Phase.idle)


def stop(draft: Draft, compacting: InputId, by: Interrupt) -> None:
    """That compaction, which is under way, is given up with its agent, which is taken up again as it was before (A3)."""
    detail = f"{by.name} stopped it." if by.name else "It was stopped."
    draft.accept(by.id, e.ContextFailed(compacting, detail, by.by, by.name))
    close(draft)


def close(draft: Draft) -> None:
    """End the agent; the next Turn opens it again."""
    draft.effects.append(CloseConversation())
    draft.set(phase=Phase.closed)


def end(draft: Draft, failed: str | None) -> None:
    """The one outcome of the compaction under way, if there is one."""
    control = draft.state.compacting
    if control:
        draft.write(e.ContextCompacted(control) if failed is None else e.ContextFailed(control, failed))


def _clear(draft: Draft, wish: ContextWish) -> None:
    draft.write(e.ContextCleared(wish.id, wish.by, wish.name))
    if draft.scratch.phase is Phase.idle:
        draft.effects.append(CloseConversation())
    draft.set(phase=Phase.closed, fresh=None)


def _compact(draft: Draft, wish: ContextWish) -> None:
    if draft.state.can(COMPACTION):
        draft.write(e.CompactRequested(wish.id, wish.by, wish.name))
        draft.set(phase=Phase.context)
        draft.effects.append(CompactContext(wish.id))
    else:
        draft.write(e.ControlRefused(wish.id, wish.by, e.Refusal.unavailable))


def give_up(draft: Draft, detail: str) -> None:
    """No agent opens, so none compacts; a clear needs none and goes on."""
    for wish in [s.wish for s in draft.state.queue if s.wish and s.wish.what is ContextAction.compact]:
        draft.write(e.ContextFailed(wish.id, detail))


def cancel(draft: Draft) -> None:
    """The Session is archived (A8)."""
    for wish in [s.wish for s in draft.state.queue if s.wish]:
        draft.write(e.ControlRefused(wish.id, wish.by, e.Refusal.archived))
