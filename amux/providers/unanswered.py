"""The requests that an agent has not answered yet, by the numbers they were sent under.

Every request has a deadline, and every way in which it can come out is one of three: answered, certainly not taken, or
unknown. It knows no protocol, repeats nothing, and logs nothing."""

import asyncio
from collections.abc import Callable, Mapping

from amux.core.errors import Uncertain
from amux.providers.pipes import Line
from amux.providers.process import Process


class Rejected(Exception):
    """The other side answered with an error, so it did not do what was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unanswered:
    """Those of one connection. `read` runs until the agent's output ends; the rest may be called while it does."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: dict[int | str, asyncio.Future[Line]] = {}

    async def read(self, take: Callable[[Line], None]) -> None:
        """Hand on each line, in their order. When it returns, no request is open any more."""
        try:
            async for line in self._process.lines():
                take(line)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Uncertain(f"{self._process.name} ended before it answered."))

    async def ask(self, number: int | str, request: Mapping[str, object], *, what: str, seconds: float) -> Line:
        """Send a request, under a number that no other has, and answer its result. `what` it asks is for people.

        Raises Rejected when the answer is an error, Unavailable when nothing was sent, Uncertain when no answer came in
        time, or ever."""
        answer: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._process.send(request)
                return await answer
        except TimeoutError:
            raise Uncertain(f"{self._process.name} did not answer {what} within {seconds:g} s.") from None
        finally:
            del self._waiting[number]

    def settle(self, number: int | str, outcome: Line | Rejected) -> None:
        """That one is answered. A number that is not, or no more, waited for is nobody's."""
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if isinstance(outcome, Rejected):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)
