"""A compaction under way: whether it has begun, what was said of it, how it came out.

No Turn runs meanwhile and nothing of it is shown, so all that is waited for is its end, as long as there are signs of life.
It knows no protocol and sends nothing: a conversation says here what its agent tells."""

import asyncio

from amux.core.errors import Refused, Uncertain
from amux.providers.life import within


class Compacting:
    """One, from before it is asked for. `native` is the agent's name for it; `done` is set once the summary stands, `why` is
    what was said when it does not."""

    def __init__(self, agent: str, native: str = "") -> None:
        self.native = native
        self.done = False
        self.why = ""
        self._agent = agent
        self._begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._over: asyncio.Future[None] = self._loop.create_future()

    def begin(self, native: str) -> None:
        """The agent is at it, under that name."""
        self.native = native
        self._begun.set()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def stir(self) -> None:
        """The agent said something, whatever it was."""
        self._heard = self._loop.time()

    def end(self) -> None:
        """It is over, and stands or not by what was said of it."""
        if self.done:
            self._settle(None)
        else:
            self._settle(Refused(f"{self._agent} did not summarise its context: {self.why or 'it gave no reason.'}"))

    def lose(self, how: str) -> None:
        """The agent is gone, and with it the answer."""
        self._settle(Uncertain(f"{self._agent} {how} before it had summarised its context."))

    async def outcome(self, *, begin: float, silence: float) -> None:
        """Return when it is done. `begin` is how long the agent may take to be at it, and `silence` how long it may then say
        nothing, in seconds. Raises Refused when it certainly was not done, Uncertain when it may have been."""
        if not await within(self._begun, begin):
            raise Uncertain(f"{self._agent} did not begin to summarise its context within {begin:g} s.")
        while not self._over.done():
            left = self._heard + silence - self._loop.time()
            if left <= 0:
                raise Uncertain(f"{self._agent} was silent for {silence:g} s while it summarised its context.")
            await asyncio.wait((self._over,), timeout=left)
        self._over.result()

    def _settle(self, why: Exception | None) -> None:
        if self._over.done():
            return
        self._begun.set()  # whatever becomes of it is known
        if why is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(why)
            self._over.exception()  # whoever waits is told; nobody has to
