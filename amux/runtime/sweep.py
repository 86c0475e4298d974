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
        """Knock where nobody is at home, and where somebody does not hear what was said; answers how often.

        Raises Unavailable when a store is away."""
        lying, named = dict(await self.inputs.lying(older_than=PATIENCE)), dict(await self.sessions.named())
        open_ = named | lying
        keys: list[SessionKey] = list(open_)
        held = await self.leases.held(keys)
        knocks = [key for key, owner in zip(keys, held, strict=True) if key in lying or not owner]
        for key in knocks:
            await self.waker.drive(key, open_[key], again=True)
        owing = await self.cards.owing(older_than=PATIENCE)
        for key in owing:
            await self.waker.deliver(key, again=True)
        return len(knocks) + len(owing)
