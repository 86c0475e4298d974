"""Where an owner's signals come together: from the bell, the provider, its own acts and the clock. Never blocks a sender."""

from amux.core.signals import Signal
from amux.runtime.pause import Pause


class Mailbox:
    """Signals in their order, and whether the bell rang meanwhile. One reader."""

    def __init__(self) -> None:
        self._signals: list[Signal] = []
        self._rang = False
        self._failure: BaseException | None = None
        self._something = False
        self._pause = Pause()

    def put(self, signal: Signal) -> None:
        """Something happened."""
        self._signals.append(signal)
        self._tell()

    def ring(self) -> None:
        """Something was posted, or it is time to look."""
        self._rang = True
        self._tell()

    def fail(self, failure: BaseException) -> None:
        """The reader is to stop with this."""
        self._failure = self._failure or failure
        self._tell()

    def waiting(self) -> bool:
        """Whether something is there to be taken."""
        return self._something

    async def take(self, seconds: float) -> tuple[list[Signal], bool]:
        """All that is there, and whether the bell rang; after so many seconds, nothing. Raises what `fail` was given."""
        if not self._something:
            await self._pause.take(seconds)
        if not self._something:
            return [], False
        self._something = False
        if self._failure:
            raise self._failure
        signals, self._signals = self._signals, []
        rang, self._rang = self._rang, False
        return signals, rang

    def _tell(self) -> None:
        if not self._something:  # the reader is told once, however much comes before it looks
            self._something = True
            self._pause.end()
