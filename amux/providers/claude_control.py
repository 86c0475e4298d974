"""Claude Code's control protocol over its lines: messages one way, requests both ways, everything else handed on.

It knows nothing of what is said, repeats nothing, and logs nothing. How requests of ours come out: `unanswered`."""

from collections.abc import Callable, Mapping
from itertools import count

from amux.providers.pipes import Line
from amux.providers.process import Process
from amux.providers.unanswered import Rejected, Unanswered


class Control:
    """One connection. `run` reads until the agent's output ends; the rest may be called while it runs."""

    def __init__(
        self,
        process: Process,
        *,
        frame: Callable[[Line], None],
        asked: Callable[[str, Line], None],
        withdrawn: Callable[[str], None],
    ) -> None:
        self._process, self._frame, self._asked, self._withdrawn = process, frame, asked, withdrawn
        self._numbers = count(1)
        self._unanswered = Unanswered(process)

    async def run(self) -> None:
        """Hand on what comes, in its order. When it returns, no request is open any more."""
        await self._unanswered.read(self._take)

    def _take(self, line: Line) -> None:
        match line:
            case {"type": "control_response", "response": {"request_id": str(number)} as response}:
                self._unanswered.settle(number, _outcome(response))
            case {"type": "control_request", "request_id": str(number), "request": dict(request)}:
                self._asked(number, request)
            case {"type": "control_cancel_request", "request_id": str(number)}:
                self._withdrawn(number)
            case _:
                self._frame(line)

    async def ask(self, subtype: str, *, seconds: float, **fields: object) -> Line:
        """The answer to a request. Calls are sent in the order in which they are made.

        Raises Rejected when the answer is an error, Unavailable when nothing was sent, Uncertain when no answer came in
        time, or ever."""
        number = f"amux-{next(self._numbers)}"
        request = {"type": "control_request", "request_id": number, "request": {"subtype": subtype, **fields}}
        return await self._unanswered.ask(number, request, what=subtype, seconds=seconds)

    async def say(self, message: Mapping[str, object]) -> None:
        """A message of people's. Raises as `Process.send` does."""
        await self._process.send(message)

    async def reply(self, number: str, result: Mapping[str, object]) -> None:
        """Answer a request of the other side. Raises as `Process.send` does."""
        await self._respond({"subtype": "success", "request_id": number, "response": result})

    async def refuse(self, number: str, subtype: str) -> None:
        """Answer a request that nobody here knows, so that the other side does not wait for ever."""
        await self._respond({"subtype": "error", "request_id": number, "error": f"{subtype} is not supported"})

    async def _respond(self, response: Mapping[str, object]) -> None:
        await self._process.send({"type": "control_response", "response": response})


def _outcome(response: Line) -> Line | Rejected:
    match response:
        case {"subtype": "error"}:
            return Rejected(str(response.get("error") or "no reason given"))
        case {"response": dict(result)}:
            return result
        case _:
            return {}
