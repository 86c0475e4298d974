"""Knocks where something was left lying: input nobody accepted, an owner that died, output not shown.

A knock means one thing: look in the journal. Nothing is ever posted or done here, so it may run anywhere, any time,
twice at once."""

from dataclasses import dataclass

from amux.core.ids import SessionKey
from amux.ports import Cards, Inputs, Leases, Sessions, Waker

PATIENCE = 1.0  # seconds for which fresh input is left to its own wake


@dataclass(frozen=True, slots=True)
class Sweep:
    """One round over what Postgres says is open."""

    inputs: Inputs
    sessions: Sessions
    cards: Cards
    leases: Leases
    waker: Waker

    async def round(self) -> int:
        """Knock where nobody is at home; answers how often. Raises Unavailable when a store is away."""
        open_ = dict(await self.inputs.lying(older_than=PATIENCE)) | dict(await self.sessions.named())
        keys: list[SessionKey] = list(open_)
        held = await self.leases.held(keys)
        abandoned = [key for key, owner in zip(keys, held, strict=True) if not owner]
        for key in abandoned:
            await self.waker.drive(key, open_[key], again=True)
        owing = await self.cards.owing(older_than=PATIENCE)
        for key in owing:
            await self.waker.deliver(key, again=True)
        return len(abandoned) + len(owing)
