"""JSON-RPC over an agent's lines, as app servers speak it: no version field, requests both ways, notices in between.

It knows nothing of what is said, repeats nothing, and logs nothing. How requests of ours come out: `unanswered`."""

from collections.abc import Callable, Mapping
from itertools import count

from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.unanswered import Rejected, Unanswered

CallId = int | str  # the other side's number for a request of its own: another space than ours
Params = Mapping[str, object]


class Peer:
    """One connection. `run` reads until the agent's output ends; the rest may be called while it runs."""

    def __init__(
        self, process: Process, *, notice: Callable[[str, Line], None], asked: Callable[[CallId, str, Line], None]
    ) -> None:
        self._process, self._notice, self._asked = process, notice, asked
        self._numbers = count(1)
        self._unanswered = Unanswered(process)

    async def run(self) -> None:
        """Hand on what comes, in its order. When it returns, no request is open any more."""
        await self._unanswered.read(self._take)

    def _take(self, line: Line) -> None:
        method, params = line.get("method"), line.get("params")
        match line:
            case {"method": str(method), "id": int() | str() as number}:
                self._asked(number, method, params if isinstance(params, dict) else {})
            case {"method": str(method)}:
                self._notice(method, params if isinstance(params, dict) else {})
            case {"id": int() | str() as number}:
                self._unanswered.settle(number, _outcome(line))

    async def ask(self, method: str, params: Params, *, seconds: float) -> Line:
        """The result of a request. Calls are sent in the order in which they are made.

        Raises Rejected when the answer is an error, Unavailable when nothing was sent, Uncertain when no answer came in
        time, or ever."""
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": params}
        return await self._unanswered.ask(number, request, what=method, seconds=seconds)

    async def tell(self, method: str) -> None:
        """A notice without parameters. Raises as `Process.send` does."""
        await self._process.send({"method": method})

    async def reply(self, number: CallId, result: Params) -> None:
        """Answer a request of the other side. Raises as `Process.send` does."""
        await self._process.send({"id": number, "result": result})

    async def refuse(self, number: CallId, method: str) -> None:
        """Answer a request that nobody here knows, so that the other side does not wait for ever."""
        await self._process.send({"id": number, "error": {"code": -32601, "message": f"{method} is not supported"}})


def _outcome(line: Line) -> Line | Rejected:
    match line:
        case {"error": dict(error)}:
            return Rejected(str(error.get("message", "no reason given")))
        case {"result": dict(result)}:
            return result
        case _:
            return {}
