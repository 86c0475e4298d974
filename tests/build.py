"""Values with sensible defaults, so that a test names only what it is about."""

from collections.abc import Sequence
from itertools import count

from amux.core.ids import BindingId, InputId, Principal, TurnId
from amux.core.inputs import Authorization, Input, Material, Origin, Permission, Place
from amux.core.session import Conversation, State, Submission, Turn

_numbers = count(1)
TOPIC = Place(BindingId(1), "cli_bot", "oc_group", "omt_topic")
ELSEWHERE = Place(BindingId(2), "cli_bot", "oc_group", "omt_other")


def rights(
    who: str | None, *, place: Place | None = TOPIC, permission: Permission = Permission.bypass
) -> Authorization:
    """What this person's input runs under."""
    return Authorization(Principal(who or "nobody"), place, permission)


def said(
    who: str | None,
    text: str = "text",
    *,
    id: str | None = None,
    at: int = 0,
    origin: Origin = Origin.person,
    material: Sequence[str] = (),
    authorization: Authorization | None = None,
) -> Input:
    """One message of that sender."""
    return Input(
        id=InputId(id or f"om_{next(_numbers)}"),
        text=text,
        sender=Principal(who) if who else None,
        authorization=authorization or rights(who),
        sent_at=at,
        name=who or "",
        origin=origin,
        material=tuple(Material("file", name, name) for name in material),
    )


def running(
    *who: str,
    queue: Sequence[Input] = (),
    steering: Sequence[Input] = (),
    interrupting: bool = False,
    can_steer: bool = True,
    authorization: Authorization | None = None,
) -> State:
    """A Session whose Turn 7 runs, opened by these people."""
    turn = TurnId(7)
    return State(
        turn=Turn(turn, tuple(map(Principal, who)), authorization or rights(who[0] if who else None), interrupting),
        last_turn=turn,
        queue=tuple(Submission((i,)) for i in queue),
        steering=tuple(Submission((i,), turn) for i in steering),
        conversation=Conversation("native", ("steering",) if can_steer else ()),
    )
