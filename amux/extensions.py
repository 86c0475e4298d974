"""What a provider implements, and all that a plug-in may import.

A Provider opens Conversations; a Conversation is one live native conversation behind its Guard. What it tells by
itself it tells by `emit`, in order, from the event loop; what it is asked it answers by returning or raising.
Optional parts are attributes that are None when the live provider has none: no code asks for an agent's name (G3)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from amux.core.errors import Refused, Unavailable, Uncertain
from amux.core.events import FailReason, ItemStatus, ItemType, Outcome, Usage
from amux.core.ids import InputId, ItemId, RequestId, SessionRef, TurnId
from amux.core.inputs import Input, Permission, Verdict
from amux.core.launch import Extra, LaunchSnapshot, McpServer
from amux.core.signals import (
    DeltaSeen,
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    ItemSeen,
    PermissionAsked,
    PermissionWithdrawn,
    ProviderEvent,
    Stirred,
    TurnEnded,
)

Emit = Callable[[ProviderEvent], None]
Extend = Callable[[float], None]
"""Moves a Guard's deadline on, in seconds of CLOCK_BOOTTIME. Never waits, never raises."""


@dataclass(frozen=True, slots=True)
class Opening:
    """All that a provider needs to open one conversation.

    `home` is the Session's own folder (the agent's HOME, temp and state live below it). `native_id` is the handle to
    resume, None for a new conversation. `deadline` is when the Guard kills unless it is moved on, in seconds of
    CLOCK_BOOTTIME. `guarded` is told how to move it on as soon as there is a Guard, before the agent is greeted: an
    agent may need longer to open than a Lease lasts. `wanted` is called when another Session waits for the workspace."""

    session: SessionRef
    launch: LaunchSnapshot
    home: str
    deadline: float
    native_id: str | None = None
    guarded: Callable[[Extend], None] = lambda _extend: None
    wanted: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What opens a Turn. `note` is amux's own word to the agent and goes before the people's text (I6)."""

    inputs: tuple[Input, ...]
    note: str = ""


class Steering(Protocol):
    """Putting input into a running Turn."""

    async def steer(self, turn: TurnId, inputs: tuple[Input, ...]) -> None:
        """Return when the provider has shown that it holds them in that Turn, which may take a whole tool call.

        Raises Refused when it certainly does not hold them and will not (the Turn is over, is not that one, takes
        nothing), Uncertain when it may: no acknowledgement in time, a broken transport (I5). Calls keep their order."""


class Compaction(Protocol):
    """Summarising the context, to make room in it."""

    async def compact(self) -> None:
        """Return when it is done; no Turn runs meanwhile (A6).

        Raises Refused or Unavailable when it certainly was not, Uncertain when it may have been."""


class Conversation(Protocol):
    """One live native conversation."""

    @property
    def native_id(self) -> str:
        """Its resume handle (S3)."""

    @property
    def steering(self) -> Steering | None:
        """None when it takes nothing while it works."""

    @property
    def compaction(self) -> Compaction | None:
        """None when it cannot be asked for that."""

    async def start_turn(self, turn: TurnId, prompt: Prompt) -> None:
        """Return when the provider has shown that it holds the prompt; the Turn's end is emitted as TurnEnded, once.

        Raises Refused or Unavailable when it certainly did not start, Uncertain when it may have."""

    async def interrupt(self, turn: TurnId) -> None:
        """Stop that Turn with all its tools and return when nothing of it can act any more.

        TurnEnded is emitted before, once. A provider that does not obey in time is killed: then Died is emitted."""

    async def answer(self, request: RequestId, verdict: Verdict) -> None:
        """Answer a permission request; a request that is gone is ignored."""

    async def close(self) -> None:
        """End the process tree so that the conversation can be resumed. Emits nothing more; may be called twice."""


class Provider(Protocol):
    """One kind of agent, by the engine name that launch settings record.

    `extras` is what of a launch it can give its agents beyond the rest. A launch that names more is not opened (A10)."""

    engine: str
    extras: frozenset[Extra]

    async def open(self, opening: Opening, emit: Emit) -> Conversation:
        """Start or resume. Raises Unavailable when the agent is not here or does not start, Refused when it will not
        open this one; both say what to do. A native conversation that is gone raises Refused with key `no_history`."""


__all__ = [
    "Compaction",
    "Conversation",
    "DeltaSeen",
    "Died",
    "Emit",
    "Extend",
    "Extra",
    "FailReason",
    "ForeignTurnBegan",
    "ForeignTurnEnded",
    "Input",
    "InputId",
    "ItemId",
    "ItemSeen",
    "ItemStatus",
    "ItemType",
    "LaunchSnapshot",
    "McpServer",
    "Opening",
    "Outcome",
    "Permission",
    "PermissionAsked",
    "PermissionWithdrawn",
    "Prompt",
    "Provider",
    "ProviderEvent",
    "Refused",
    "RequestId",
    "SessionRef",
    "Steering",
    "Stirred",
    "TurnEnded",
    "TurnId",
    "Unavailable",
    "Uncertain",
    "Usage",
    "Verdict",
]
