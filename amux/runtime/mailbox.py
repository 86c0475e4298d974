"""Where an owner's signals come together: from the bell, the provider, its own acts and the clock. Never blocks a sender."""

import asyncio

from amux.core.signals import Signal


class Mailbox:
    """Signals in their order, and whether the bell rang meanwhile. One reader."""

    def __init__(self) -> None:
        self._signals: list[Signal] = []
        self._rang = False
        self._failure: BaseException | None = None
        self._something = asyncio.Event()

    def put(self, signal: Signal) -> None:
        """Something happened."""
        self._signals.append(signal)
        self._something.set()

    def ring(self) -> None:
        """Something was posted, or it is time to look."""
        self._rang = True
        self._something.set()

    def fail(self, failure: BaseException) -> None:
        """The reader is to stop with this."""
        self._failure = self._failure or failure
        self._something.set()

    def waiting(self) -> bool:
        """Whether something is there to be taken."""
        return self._something.is_set()

    async def take(self, seconds: float) -> tuple[list[Signal], bool]:
        """All that is there, and whether the bell rang; after so many seconds, nothing. Raises what `fail` was given."""
        if not self._something.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._something.wait()
            except TimeoutError:
                return [], False
        self._something.clear()
        if self._failure:
            raise self._failure
        signals, self._signals = self._signals, []
        rang, self._rang = self._rang, False
        return signals, rang
