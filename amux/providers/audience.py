"""Who is told what an agent does: nobody while its conversation opens, then its owner, and nobody once it is closed.

What is told before somebody listens is kept for them, in its order (G7)."""

import asyncio

from amux.extensions import Emit, ProviderEvent, Stirred, TurnId

PULSE_SECONDS = 1.0  # between two signs of life that show nothing


class Audience:
    """That of one conversation."""

    def __init__(self) -> None:
        self._kept: list[ProviderEvent] = []
        self._emit: Emit = self._kept.append
        self._stirred = 0.0  # in the event loop's time

    def tell(self, event: ProviderEvent) -> None:
        """To whoever listens now, or will."""
        self._emit(event)

    def stir(self, turn: TurnId) -> None:
        """Something came, whatever it was (T8)."""
        now = asyncio.get_running_loop().time()
        if now >= self._stirred + PULSE_SECONDS:
            self._stirred = now
            self.tell(Stirred(turn))

    def hand_over(self, emit: Emit) -> None:
        """From now on to this listener, and what came meanwhile first."""
        kept, self._emit, self._kept = self._kept, emit, []
        for event in kept:
            emit(event)

    def leave(self) -> None:
        """Nobody listens any more."""
        self.hand_over(_nobody)


def _nobody(_: ProviderEvent) -> None:
    """Hears what comes after the end."""
