"""What would become of a message if it were said now: start a Turn, join one, or wait. Asked of the real decisions, and
only a forecast: what happens is decided when it arrives."""

from dataclasses import dataclass

from amux.core import steering
from amux.core.events import InputAccepted, InputQueued, QueueReason
from amux.core.ids import BindingId, Principal, Seq, SessionKey, TurnId
from amux.core.inputs import Authorization, Input, Place
from amux.core.routing import Bound, Launch, Message, ToSession, route
from amux.core.session import State, apply, fold
from amux.core.steering import Busy
from amux.ports import Bindings, Timeline

PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Starts:
    """It starts that Turn at once."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class Joins:
    """It joins that Turn."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class Waits:
    """It waits for a next Turn, so many being ahead of it."""

    reason: QueueReason
    ahead: int
    turn: TurnId | None
    owner: Principal | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """It is not meant for the bot, or its topic has ended, or its Session is archived."""


Forecast = Starts | Joins | Waits | Nothing


@dataclass(frozen=True, slots=True)
class Forecaster:
    """Answers from Postgres alone."""

    bindings: Bindings
    timeline: Timeline
    busy: Busy

    async def of(self, said: Message) -> Forecast:
        """The fate of that message, by the state as it stands."""
        found = await self.bindings.find(said.app, said.chat, said.topics)
        match route(said, [Bound(b.id, b.session, b.since, b.until) for b in found]):
            case Launch():
                return Starts(TurnId(1))
            case ToSession(bound):
                return _judged(said, bound.id, await self._state(bound.session), self.busy)
            case _:
                return Nothing()

    async def _state(self, session: SessionKey) -> State:
        state, seq = State(), Seq(0)
        while page := await self.timeline.read(session, seq, limit=PAGE):
            for recorded in page:
                state = apply(state, recorded.event)
            seq = page[-1].seq
        return state


def _judged(said: Message, binding: BindingId, state: State, busy: Busy) -> Forecast:
    if state.archiving:
        return Nothing()
    if state.turn is None and not state.queue and state.compacting is None:
        return Starts(TurnId(state.last_turn + 1))
    rights = Authorization(said.sender or Principal(""), Place(binding, said.app, said.chat))
    one = Input(said.id, said.text, said.sender, rights, said.sent_at, said.name, said.origin, said.material)
    match steering.decide((one,), state, busy):
        case steering.Steer(turn):
            return Joins(turn)
        case steering.Preempt():
            return _waits(QueueReason.preempts, one, state)
        case steering.Queue(reason):
            return _waits(reason, one, state)


def _waits(reason: QueueReason, one: Input, state: State) -> Waits:
    queue = fold([InputAccepted(one), InputQueued((one.id,), reason)], state).queue
    ahead = next(at for at, submission in enumerate(queue) if one in submission.inputs)
    running = state.turn
    owner = running.senders[0] if running and running.senders else None
    return Waits(reason, ahead, running.id if running else None, owner)
