"""Sending again what did not run: what may be, and what is said then. It is a new submission of whoever sends it; the old
one stays as it is, and nothing is sent again by itself (I5). Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from amux.core import events as e
from amux.core.errors import Refused
from amux.core.ids import InputId, Principal
from amux.core.inputs import Input, Origin

AGAIN = "again:"  # what the new id begins with; it ends as the old one does, so that answers stand at the same message
Fate = e.InputQueued | e.SteerRequested | e.InputSteered | e.TurnStarted | e.SubmissionFailed | e.InputCancelled
FATES: tuple[type[Fate], ...] = Fate.__args__
Unrun = e.SubmissionFailed | e.InputCancelled


def offered(reason: object) -> bool:
    """Whether people are offered it: not where nothing is taken any more, nor what somebody took back."""
    return reason not in (e.FailReason.archived, e.CancelReason.archived, e.CancelReason.withdrawn)


def unrun(said: InputId, fates: Iterable[Fate]) -> tuple[InputId, ...]:
    """The inputs of its submission, which did not run. Raises Refused when it did, or still may."""
    last = None
    for fate in fates:
        if said in fate.inputs:
            last = fate
    match last:
        case e.SubmissionFailed(ids) | e.InputCancelled(ids):
            return ids
        case e.TurnStarted(turn) | e.InputSteered(turn) | e.SteerRequested(turn):
            why = f"It went to the agent with Turn {turn}: nothing was sent. Write it anew if you mean it once more."
            raise Refused(why, key="again_ran", turn=str(turn))
        case e.InputQueued() | None:
            raise Refused("It waits and will run by itself: nothing was sent.", key="again_waits")


def again(inputs: Sequence[Input], by: Principal, name: str, sent_at: int) -> Input:
    """The same text, material and place as one message, with the sender and the rights of whoever sends it again. Its id
    follows from the old one: pressed twice, it is one."""
    last = inputs[-1]
    return replace(
        last,
        id=InputId(AGAIN + last.id),
        text="\n\n".join(said.text for said in inputs),
        sender=by,
        authorization=replace(last.authorization, principal=by),
        sent_at=sent_at,
        name=name,
        origin=Origin.person,
        material=tuple(material for said in inputs for material in said.material),
    )


def named(prefix: str, fates: Iterable[Fate]) -> InputId:
    """The failed one that a person means: the newest, or the one whose id begins so, with or without what stands before its
    last colon. What no failed one answers to is taken for a whole id. Raises Refused for several, or where none failed."""
    failed = [fate for fate in fates if isinstance(fate, Unrun)]
    if not prefix:
        newest = next((fate for fate in reversed(failed) if offered(fate.reason)), None)
        if newest is None:
            raise Refused(
                "Nothing failed here that could be sent again. What waits runs by itself: `amux queue` lists it."
            )
        return newest.inputs[-1]
    found = [fate.inputs[-1] for fate in failed if any(_begins(id_, prefix) for id_ in fate.inputs)]
    several = sorted({_tail(id_) for id_ in found})
    if len(several) > 1:
        raise Refused(f"{prefix} is the beginning of several that failed: {', '.join(several)}. Write one of them.")
    return found[-1] if found else InputId(prefix)


def _begins(id_: InputId, prefix: str) -> bool:
    return id_.startswith(prefix) or _tail(id_).startswith(prefix)


def _tail(id_: InputId) -> str:
    """What a message and all that is sent again of it have in common."""
    return id_.rpartition(":")[2]
