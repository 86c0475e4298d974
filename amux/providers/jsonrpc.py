"""JSON-RPC over an agent's lines, as app servers speak it: no version field, requests both ways, notices in between.

Every request has a deadline, and every way in which it can come out is one of three: answered, certainly not taken, or
unknown. It knows nothing of what is said, repeats nothing, and logs nothing."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count

from amux.core.errors import Uncertain
from amux.providers.pipes import Line
from amux.providers.process import Process

CallId = int | str  # the other side's number for a request of its own: another space than ours
Params = Mapping[str, object]


class Rejected(Exception):
    """The other side answered with an error, so it did not do what was asked."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message, self.code = message, code


class Peer:
    """One connection. `run` reads until the agent's output ends; the rest may be called while it runs."""

    def __init__(
        self, process: Process, *, notice: Callable[[str, Line], None], asked: Callable[[CallId, str, Line], None]
    ) -> None:
        self._process, self._notice, self._asked = process, notice, asked
        self._numbers = count(1)
        self._waiting: dict[CallId, asyncio.Future[Line]] = {}

    async def run(self) -> None:
        """Hand on what comes, in its order. When it returns, no request is open any more."""
        try:
            async for line in self._process.lines():
                self._take(line)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Uncertain(f"{self._process.name} ended before it answered."))

    def _take(self, line: Line) -> None:
        method, params = line.get("method"), line.get("params")
        match line:
            case {"method": str(method), "id": int() | str() as number}:
                self._asked(number, method, params if isinstance(params, dict) else {})
            case {"method": str(method)}:
                self._notice(method, params if isinstance(params, dict) else {})
            case {"id": int() | str() as number} if (answer := self._waiting.get(number)) and not answer.done():
                _settle(answer, line)
            case _:  # neither asked for nor known
                return

    async def ask(self, method: str, params: Params, *, seconds: float) -> Line:
        """The result of a request. Calls are sent in the order in which they are made.

        Raises Rejected when the answer is an error, Unavailable when nothing was sent, Uncertain when no answer came in
        time, or ever."""
        number = next(self._numbers)
        answer: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._process.send({"id": number, "method": method, "params": params})
                return await answer
        except TimeoutError:
            raise Uncertain(f"{self._process.name} did not answer {method} within {seconds:g} s.") from None
        finally:
            del self._waiting[number]

    async def tell(self, method: str) -> None:
        """A notice without parameters. Raises as `Process.send` does."""
        await self._process.send({"method": method})

    async def reply(self, number: CallId, result: Params) -> None:
        """Answer a request of the other side. Raises as `Process.send` does."""
        await self._process.send({"id": number, "result": result})

    async def refuse(self, number: CallId, method: str) -> None:
        """Answer a request that nobody here knows, so that the other side does not wait for ever."""
        await self._process.send({"id": number, "error": {"code": -32601, "message": f"{method} is not supported"}})


def _settle(answer: asyncio.Future[Line], line: Line) -> None:
    match line:
        case {"error": dict(error)}:
            answer.set_exception(Rejected(str(error.get("message", "no reason given")), int(error.get("code") or 0)))
        case {"result": dict(result)}:
            answer.set_result(result)
        case _:
            answer.set_result({})
