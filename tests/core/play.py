"""One Session's owner, played signal by signal, with the clock in the test's hand."""

from dataclasses import dataclass, field

from amux.core import events as e
from amux.core import machine, step
from amux.core import signals as s
from amux.core.ids import Epoch, InputId, Principal, RequestId, TurnId
from amux.core.inputs import Answer, Input, Interrupt, Said, Verdict
from amux.core.session import State, fold
from tests.build import said

WINDOW = 2.0
T1, T2, T3 = TurnId(1), TurnId(2), TurnId(3)
A, B = Principal("user_a"), Principal("user_b")
FIRST = said("user_a", "first", id="om_1", at=1)
ONE, TWO, THREE = (said("user_a", f"text {n}", id=f"om_a{n}", at=n * 100) for n in (1, 2, 3))
BY_B, BY_B2 = (said("user_b", "of another", id=f"om_b{n}", at=n * 100) for n in (1, 2))
IMAGE = said("user_a", "look", id="om_i", at=150, material=["a.png"])


@dataclass
class Play:
    """Holds what the owner holds. `log` is the Timeline, `journal` what was said and is not accepted."""

    now: float = 100.0
    epoch: int = 0
    log: list[e.Event] = field(default_factory=list)
    journal: dict[InputId, Said] = field(default_factory=dict)
    state: State = field(default_factory=State)
    scratch: step.Scratch = field(default_factory=lambda: step.Scratch("codex", WINDOW))
    effects: list[step.Effect] = field(default_factory=list)  # of the last step

    def tell(self, *signals: s.Signal, after: float = 0.0) -> list[e.Event]:
        """What these signals write, so many seconds later. They are one batch."""
        self.now += after
        out = machine.run(self.state, self.scratch, signals, now=self.now)
        for id, _ in out.accepts:
            del self.journal[id]
        self.log += out.events
        self.state, self.scratch, self.effects = out.state, out.scratch, list(out.effects)
        assert fold(self.log) == self.state
        return list(out.events)

    def hear(self, *all_said: Said, after: float = 0.0) -> list[e.Event]:
        """Journaled, then heard together."""
        self.journal |= {one.id: one for one in all_said}
        return self.tell(*map(s.Heard, all_said), after=after)

    def tick(self, after: float) -> list[e.Event]:
        return self.tell(s.Tick(), after=after)

    def crash(self) -> list[e.Event]:
        """The owner dies with all it could forget; the next one folds, and hears what nobody accepted."""
        self.epoch += 1
        self.scratch, self.state = step.Scratch("codex", WINDOW), fold(self.log)
        return self.tell(s.Opened(Epoch(self.epoch), f"w{self.epoch}", tuple(self.journal.values())))

    def ready(self, *, can: tuple[str, ...] = ("steering",)) -> list[e.Event]:
        return self.tell(s.ConversationReady("native", can))

    def end(self, turn: TurnId, outcome: e.Outcome = e.Outcome.completed, *unhandled: Input) -> list[e.Event]:
        return self.tell(s.TurnEnded(turn, outcome, unhandled=ids(*unhandled)))

    def answer_steer(self, answer: s.SteerAnswer, *inputs: Input, turn: TurnId = T1) -> list[e.Event]:
        return self.tell(s.Steered(turn, ids(*inputs), answer))

    def steered(self, *inputs: Input) -> None:
        """These texts, as one burst, are in the running Turn."""
        self.hear(*inputs)
        self.tick(WINDOW)
        self.answer_steer(s.SteerAnswer.committed, *inputs)


def running(first: Input) -> Play:
    """Turn 1 runs from that input."""
    play = Play(journal={first.id: first})
    play.crash()
    play.ready()
    return play


def idle() -> Play:
    """Turn 1 is over; the conversation is open."""
    play = running(said("user_z"))
    play.end(T1)
    return play


def ids(*inputs: Input) -> tuple[InputId, ...]:
    return tuple(i.id for i in inputs)


def accepted(*inputs: Input) -> list[e.Event]:
    return [e.InputAccepted(one) for one in inputs]


def started(turn: TurnId, *inputs: Input) -> e.TurnStarted:
    senders = tuple(dict.fromkeys(one.sender for one in inputs))
    return e.TurnStarted(turn, ids(*inputs), e.Cause.input, inputs[0].authorization, senders, "codex")


def finished(turn: TurnId, outcome: e.Outcome = e.Outcome.completed, reason: str = "", detail: str = "") -> e.Event:
    return e.TurnFinished(turn, outcome, reason, detail)


def queued(reason: e.QueueReason, *inputs: Input) -> e.Event:
    return e.InputQueued(ids(*inputs), reason)


def stop(turn: TurnId | None, *, id: str = "stop_1") -> Interrupt:
    return Interrupt(InputId(id), B, turn, "User B")


def answer(request: str, verdict: Verdict = Verdict.allow, *, id: str = "answer_1", by: Principal = A) -> Answer:
    return Answer(InputId(id), by, RequestId(request), verdict, "User A")
