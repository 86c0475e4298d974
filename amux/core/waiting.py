"""What waits in the queue: how much may, and what people do about it. It never touches what a provider may hold."""

from amux.core import events as e
from amux.core import moves
from amux.core.ids import InputId
from amux.core.inputs import Input, Prefer, Withdraw
from amux.core.session import State, first_place
from amux.core.step import Draft

MOST = 100  # submissions that wait in one Session
QUOTED = 60  # characters of a refused message


def is_full(state: State) -> bool:
    """Whether one more submission is refused."""
    return len(state.queue) >= MOST


def refuse(draft: Draft, burst: tuple[Input, ...]) -> None:
    """By name, so that its sender can send it again later; nothing of it runs."""
    text = " ".join(burst[0].text.split())
    quoted = text if len(text) <= QUOTED else f"{text[:QUOTED]}…"
    detail = f"{MOST} messages wait already, so this one was not queued: {quoted}"
    draft.write(e.SubmissionFailed(moves.ids(burst), e.FailReason.queue_full, detail))


def withdraw(draft: Draft, said: Withdraw) -> None:
    """What waits is cancelled, what a provider may hold is not: too late (H43)."""
    gone = [*_unaccepted(draft, said.inputs), *_queued(draft, said.inputs)]
    if not gone:
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.not_waiting))
        return
    first, *more = (e.InputCancelled(ids, e.CancelReason.withdrawn, said.by, said.name) for ids in gone)
    draft.accept(said.id, first)
    draft.write(*more)


def prefer(draft: Draft, said: Prefer) -> None:
    """It goes before what waits besides, and never before what runs, nor before a wish for the context (I9)."""
    at, submission = next(
        ((at, s) for at, s in enumerate(draft.state.queue) if said.input in moves.ids(s.inputs)), (-1, None)
    )
    if submission is None:
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.not_waiting))
    elif at == first_place(draft.state.queue, at):
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.already_so))
    else:
        draft.accept(said.id, e.InputPreferred(moves.ids(submission.inputs), said.by, said.name))


def _unaccepted(draft: Draft, wanted: tuple[InputId, ...]) -> list[tuple[InputId, ...]]:
    """Takes them out of what is held and out of the open burst, and accepts them."""
    held, burst = draft.scratch.held, draft.scratch.burst
    gone = tuple(i for i in (*held, *(burst.inputs if burst else ())) if i.id in wanted)
    if not gone:
        return []
    draft.set(held=tuple(i for i in held if i not in gone), burst=burst and burst.without(gone))
    moves.accept(draft, gone)
    return [moves.ids(gone)]


def _queued(draft: Draft, wanted: tuple[InputId, ...]) -> list[tuple[InputId, ...]]:
    found = (tuple(i for i in moves.ids(s.inputs) if i in wanted) for s in draft.state.queue)
    return [ids for ids in found if ids]
