"""Names of things: a distinct type for each, so that none can pass for another."""

from dataclasses import dataclass
from typing import NewType

InputId = NewType("InputId", str)  # source and the source's own id: `feishu:{app}:{message}`, `cli:{principal}:{key}`
SessionKey = NewType("SessionKey", int)  # the row's number; people never see it
SessionId = NewType("SessionId", str)  # what people type, by any unambiguous prefix
TurnId = NewType("TurnId", int)  # a Turn's number within its Session, from 1
ItemId = NewType("ItemId", str)  # the provider's id of one thing it said or did, unique within its Turn
RequestId = NewType("RequestId", str)  # one permission request of a provider
Principal = NewType("Principal", str)  # from whom a request's rights derive: `feishu:{app}:{open_id}`, `cli:{user}`
BindingId = NewType("BindingId", int)
Epoch = NewType("Epoch", int)  # counts the owners of a Session
Seq = NewType("Seq", int)  # an event's place in its Session's Timeline, from 1 and without holes


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A Session's address (S1): its target, and its id there."""

    target: str
    id: SessionId

    def __str__(self) -> str:
        return f"{self.target}/{self.id}"
