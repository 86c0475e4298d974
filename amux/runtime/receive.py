"""What becomes of a Feishu message: routed, admitted, journaled. All that ingress does before it acknowledges.

It decides from Postgres alone and asks Feishu nothing; and whatever Postgres does, it ends inside the three seconds for
which Feishu waits (H37)."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from amux.core.admission import Access, may_drive
from amux.core.errors import Uncertain
from amux.core.ids import BindingId, Principal, SessionId, SessionRef
from amux.core.inputs import Authorization, Input, Origin, Place
from amux.core.launch import LaunchSnapshot
from amux.core.routing import Bound, Ended, Launch, Message, ToSession, Unmeant, route
from amux.ports import Bindings, Draft, Journaled, NewBinding
from amux.runtime.submit import Submit

log = structlog.stdlib.get_logger()

DEADLINE = 2.0  # seconds; a name is looked up before, and the acknowledgement must go out within 2.5
UNBOUND = BindingId(0)  # of a place whose Binding is made with it
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32: nothing to misread
TITLE = 80  # characters of a Session's title


class Refusal(StrEnum):
    """Why a message was not taken. Its sender is told; nothing changed."""

    not_driver = "not_driver"
    topic_ended = "topic_ended"


Received = Journaled | Refusal | None


@dataclass(frozen=True, slots=True)
class Receive:
    """The Bridge's way in. `settings_of` answers the launch settings of a new Session by its id."""

    submit: Submit
    bindings: Bindings
    access: Access
    target: str
    settings_of: Callable[[SessionRef], LaunchSnapshot]
    deadline: float = DEADLINE
    _late: set[asyncio.Task[Received]] = field(default_factory=set)

    async def message(self, said: Message) -> Received:
        """Journal it where it belongs; a refusal to be told; None when it is not for the bot.

        Raises Unavailable or Uncertain when it was not, or may not have been, journaled: it must not be acknowledged,
        and Feishu sends it again. So it ends when the deadline is over (H37); what is late then goes on, since a
        statement cannot be called back from a server that stands still, and the same message is journaled once.
        Raises Refused for a message over the limit."""
        work = asyncio.get_running_loop().create_task(self._message(said))
        self._late.add(work)
        work.add_done_callback(self._ended)
        await asyncio.wait([work], timeout=self.deadline)
        if work.done():
            return work.result()
        raise Uncertain(f"Not journaled within {self.deadline:g} s; Feishu sends it again.")

    def _ended(self, work: asyncio.Task[Received]) -> None:
        self._late.discard(work)
        if not work.cancelled() and (why := work.exception()):  # asked for, or asyncio would print it when it was late
            log.info("not_received", why=type(why).__name__)

    async def _message(self, said: Message) -> Received:
        found = await self.bindings.find(said.app, said.chat, said.topics)
        where = route(said, [Bound(b.id, b.session, b.since, b.until) for b in found])
        if isinstance(where, Unmeant):
            return None
        if not self._admitted(said):
            return Refusal.not_driver if said.origin is Origin.person else None  # bots are not argued with
        match where:
            case Ended():
                return Refusal.topic_ended
            case ToSession(bound):
                if said.thread:
                    await self.bindings.alias(bound.id, said.thread)
                return await self.submit.to(bound.session, _input(said, bound.id))
            case Launch(topic):
                return await self._launch(said, topic)

    def _admitted(self, said: Message) -> bool:
        """Where every member of a chat may drive, its bots may too; where some are named, these alone (B7)."""
        open_to_bots = said.origin is not Origin.person and self.access.drivers is None
        return open_to_bots or may_drive(said.sender, self.access)

    async def _launch(self, said: Message, topic: str) -> Journaled:
        ref = SessionRef(self.target, new_session_id())
        draft = Draft(ref, self.settings_of(ref), title_of(said.text))
        binding = NewBinding(Place(UNBOUND, said.app, said.chat, said.thread), topic, said.sent_at)
        return await self.submit.launch(draft, _input(said, UNBOUND), binding)


def _input(said: Message, binding: BindingId) -> Input:
    """The Place is named by its Binding alone, so that a topic's messages agree whether or not they name its thread."""
    principal = said.sender or Principal(f"feishu:{said.app}:nobody")
    rights = Authorization(principal, Place(binding, said.app, said.chat))
    return Input(said.id, said.text, said.sender, rights, said.sent_at, said.name, said.origin, said.material)


def new_session_id() -> SessionId:
    """Sixteen random characters, so that three or four of them name a Session."""
    return SessionId("".join(secrets.choice(ALPHABET) for _ in range(16)))


def title_of(prompt: str) -> str:
    """A Session's title: the first line of its first prompt."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"
