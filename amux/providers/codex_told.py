"""What Codex tells, understood: notices and requests become the Turn's record and provider events.

A notice may overtake the acknowledgement of the start that it belongs to; until that has come out it is kept. A native
turn that nobody asked for is foreign: it is named, none of its items is shown, and its questions are declined. Nothing
here is sent: what has to be done about it is asked of `Hands`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from amux.extensions import (
    Died,
    ForeignTurnBegan,
    ForeignTurnEnded,
    ItemId,
    Outcome,
    PermissionAsked,
    PermissionWithdrawn,
    ProviderEvent,
    RequestId,
    TurnEnded,
    Uncertain,
)
from amux.providers import codex_items
from amux.providers.audience import Audience
from amux.providers.codex_turn import Turn
from amux.providers.compacting import Compacting
from amux.providers.jsonrpc import CallId
from amux.providers.pipes import Line

log = structlog.get_logger()
OUTCOMES = {"completed": Outcome.completed, "interrupted": Outcome.interrupted}
PERMISSIONS = ("item/commandExecution/requestApproval", "item/fileChange/requestApproval")
ELICITATION = "mcpServer/elicitation/request"  # a permission too, when Codex itself asks so for a server's tool
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class Question:
    """A permission request by Codex's own number; one about an MCP server's tool wants an answer of another form."""

    number: CallId
    of_server: bool = False


class Hands(Protocol):
    """What has to be done about something that was told. None of them waits."""

    def reject(self, native: str) -> None:
        """End this native turn; nobody asked for it."""

    def rest(self) -> None:
        """Pause the thread's goal; nobody granted it."""

    def decline(self, question: Question) -> None:
        """Answer no to a permission request."""

    def refuse(self, number: CallId, method: str) -> None:
        """Answer a request that nobody here knows."""


class Told:
    """One thread's story, by its `native_id`; `turn` is the one that runs or is being started, `compacting` the summary
    that was asked for."""

    def __init__(self, hands: Hands, audience: Audience) -> None:
        self.native_id = ""
        self.turn: Turn | None = None
        self.compacting: Compacting | None = None
        self.foreign: dict[str, asyncio.Event] = {}  # set when it is over
        self.total: codex_items.Totals | None = None
        self._hands = hands
        self._tell, self._stir = audience.tell, audience.stir
        self._turns: dict[str, Turn] = {}
        self._early: list[Callable[[], None]] = []
        self._requests: dict[RequestId, Question] = {}

    def take(self, request: RequestId) -> Question | None:
        """An open question, which is open no more."""
        return self._requests.pop(request, None)

    def begin(self, turn: Turn) -> None:
        """That one is about to be started."""
        self.turn = turn

    def acknowledge(self, turn: Turn, native: str | None) -> None:
        """Its start came out: what was told meanwhile has its Turn now, or never will have one."""
        if native is None:
            turn.over.set()
            self.turn = None
        else:
            self._turns[native] = turn
        if not turn.native.done():
            turn.native.set_result(native)
        early, self._early = self._early, []
        for told in early:
            told()

    def died(self, said: str) -> None:
        """Its process is gone: what was not shown is unknown, and nothing more comes."""
        if self.turn:
            self.turn.lose(Uncertain(f"Codex {said} before it showed that it holds this."))
        if self.compacting:
            self.compacting.lose(said)
        for over in self.foreign.values():
            over.set()
        self._tell(Died(f"Codex {said}."))

    def noticed(self, method: str, params: Line) -> None:
        """One notice. What cannot be read is passed over, and logged by name."""
        if params.get("threadId", self.native_id) != self.native_id:
            return
        if self.turn:
            self._stir(self.turn.id)
        if self.compacting:
            self.compacting.stir()
        try:
            self._understand(method, params)
        except UNREADABLE as error:
            log.warning("codex_unreadable", method=method, error=type(error).__name__)

    def _understand(self, method: str, params: Line) -> None:
        native = str(params.get("turnId") or (params.get("turn") or {}).get("id") or "")
        if self._too_early(native):
            self._early.append(partial(self.noticed, method, params))
            return
        match method:
            case "thread/tokenUsage/updated":
                self._count(native, params["tokenUsage"])
            case "thread/goal/updated" if params["goal"].get("status") == "active":
                self._hands.rest()  # nobody here granted it (H52)
            case "serverRequest/resolved":
                self._withdrawn(params["requestId"])
            case _ if native in self._turns:
                self._follow(self._turns[native], method, params)
            case _ if self.compacting and self.compacting.begun and native == self.compacting.native:
                if method == "turn/completed":  # nothing else of it is shown
                    self._summarised(self.compacting, params["turn"])
            case "turn/started" if self.compacting and not self.compacting.begun and native not in self.foreign:
                self.compacting.begin(native)  # its start is acknowledged without an id
            case "turn/completed" if native in self.foreign:
                self.foreign.pop(native).set()
                self._tell(ForeignTurnEnded(native))
            case "turn/started" if native not in self.foreign:
                self.foreign[native] = asyncio.Event()
                self._tell(ForeignTurnBegan(native, "unasked"))
                self._hands.reject(native)

    def _too_early(self, native: str) -> bool:
        known = not native or native in self._turns or native in self.foreign
        return not known and self.turn is not None and not self.turn.native.done()

    def _follow(self, turn: Turn, method: str, params: Line) -> None:
        match method:
            case "turn/completed" if not turn.over.is_set():
                self._end(turn, params["turn"])
            case "item/completed" if params["item"].get("type") == "userMessage":
                turn.holds(str(params["item"].get("clientId")))
            case "item/started":
                self._show(turn.open(codex_items.begun(turn.id, params["item"])))
            case "item/completed":
                turn.close(ItemId(str(params["item"]["id"])))
                self._show(codex_items.done(turn.id, params["item"]))
            case "item/agentMessage/delta":
                self._tell(turn.stream(ItemId(str(params["itemId"])), str(params["delta"])))
            case "error" if params.get("willRetry"):
                self._tell(codex_items.retried(turn.id, params["error"]))

    def _summarised(self, compacting: Compacting, native: Line) -> None:
        outcome = OUTCOMES.get(native.get("status", ""), Outcome.failed)
        compacting.done = outcome is Outcome.completed
        stopped = "it was interrupted." if outcome is Outcome.interrupted else ""
        compacting.why = codex_items.failure(native.get("error"))[1] or stopped
        compacting.end()

    def _withdrawn(self, number: CallId) -> None:
        for request in [request for request, asked in self._requests.items() if asked.number == number]:
            del self._requests[request]
            if self.turn:
                self._tell(PermissionWithdrawn(self.turn.id, request))

    def _end(self, turn: Turn, native: Line) -> None:
        outcome = OUTCOMES.get(native.get("status", ""), Outcome.failed)
        reason, detail = codex_items.failure(native.get("error"))
        for item in turn.end(outcome):
            self._tell(item)
        self.turn = None
        usage = turn.spent.usage() if turn.spent else None
        self._tell(TurnEnded(turn.id, outcome, reason, detail, usage))

    def _count(self, native: str, counted: Line) -> None:
        """Totals of the thread, told again at a resume under an old turn's id: never a sum of what is told."""
        total = codex_items.totals(counted["total"])
        if turn := self._turns.get(native):
            turn.count(total, codex_items.totals(counted["last"]))
        elif self.turn and self.turn.spent is None:
            self.turn.before = total
        self.total = total

    def _show(self, event: ProviderEvent | None) -> None:
        if event:
            self._tell(event)

    def asked(self, number: CallId, method: str, params: Line) -> None:
        """One request of Codex's. It waits for ever, so each is answered: by a person, or at once."""
        native = str(params.get("turnId") or "")
        turn = self._turns.get(native)
        question = Question(number, of_server=_of_server(method, params))
        if method not in PERMISSIONS and not question.of_server:
            self._hands.refuse(number, method)
        elif self._too_early(native):
            self._early.append(partial(self.asked, number, method, params))
        elif turn is None or turn is not self.turn:
            self._hands.decline(question)
        else:
            request = RequestId(f"{turn.id}-{number}")  # Codex counts from 0 in each process, and a Turn has one
            self._requests[request] = question
            title, detail = codex_items.question(params, turn.opened(ItemId(str(params.get("itemId")))))
            self._tell(PermissionAsked(turn.id, request, title, detail))


def _of_server(method: str, params: Line) -> bool:
    """Whether that is Codex's question before a tool of an MCP server. A server's own question to people is none."""
    about = params.get("_meta")
    return method == ELICITATION and isinstance(about, dict) and about.get("codex_approval_kind") == "mcp_tool_call"
