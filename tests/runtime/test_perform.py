"""An owner's hands: each act comes back as one answer that the machine knows, whatever the provider raises."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from amux.core import events as e
from amux.core import signals as s
from amux.core import step as m
from amux.core.errors import Refused, Stale, Unavailable, Uncertain
from amux.core.events import Event, FailReason, Outcome
from amux.core.ids import InputId, RequestId, SessionId, SessionKey, SessionRef, TurnId
from amux.core.inputs import Verdict
from amux.core.launch import LaunchSnapshot, Unlaunchable
from amux.core.signals import SteerAnswer
from amux.extensions import Emit, Opening
from amux.runtime import perform
from amux.runtime.keeper import Tenure
from amux.runtime.perform import Agent, Performer
from tests.build import said
from tests.fakes import FakeCompaction, FakeConversation, FakeProvider, FakeSteering, FakeWorkspaces
from tests.runtime.house import until

T1 = TurnId(1)
ONE = said("user_a", id="om_1")
START = m.StartTurn(T1, (ONE,), "a note")
STEER = m.SteerTurn(T1, (ONE,))


@dataclass
class Hands:
    """A performer over a fake provider, and what it told."""

    provider: FakeProvider = field(default_factory=FakeProvider)
    unfit: Unlaunchable | None = None
    history: list[Event] = field(default_factory=list)
    told: list[s.Signal] = field(default_factory=list)
    tenure: Tenure = field(default_factory=lambda: Tenure(SessionKey(1), "w1|t", 12.0, 12.0))
    performer: Performer = field(init=False)

    def __post_init__(self) -> None:
        ref, launch = SessionRef("local", SessionId("7k3m")), LaunchSnapshot("fake", "/work")
        self.performer = Performer(
            session=ref,
            agent=self.unfit or Agent(self.provider, launch),
            home="/home",
            workspaces=FakeWorkspaces(),
            tenure=self.tenure,
            opening=asyncio.Semaphore(1),
            tell=self.told.append,
            history=self._history,
            wanted=lambda: None,
        )

    async def _history(self) -> list[Event]:
        return self.history

    async def do(self, effect: m.Effect) -> s.Signal:
        """Perform it; its one answer."""
        before = len(self.told)
        with capture_logs():
            self.performer.perform(effect)
            await until(lambda: len(self.told) > before)
        (answer,) = self.told[before:]
        return answer

    @property
    def agent(self) -> FakeConversation:
        return self.provider.opened[-1]


@pytest.fixture
async def hands() -> AsyncIterator[Hands]:
    """Its conversation is open."""
    hands = Hands()
    await hands.do(m.OpenConversation(None))
    yield hands
    await hands.performer.close()


FAULTS: dict[str, tuple[Exception, FailReason, str]] = {
    "not here": (Unavailable("Install it."), FailReason.engine_unavailable, "Install it."),
    "will not": (Refused("No such model."), FailReason.open_failed, "No such model."),
    "a fault": (KeyError("x"), FailReason.open_failed, "fake failed to start; see the worker's log."),
}


@pytest.mark.rule("S7")
@pytest.mark.parametrize(("fault", "reason", "detail"), FAULTS.values(), ids=FAULTS)
async def test_a_conversation_that_does_not_open_says_why(fault: Exception, reason: FailReason, detail: str) -> None:
    hands = Hands(FakeProvider(fault=lambda: fault))
    assert await hands.do(m.OpenConversation(None)) == s.OpenFailed(reason, detail)


@pytest.mark.rule("S7")
async def test_what_cannot_run_opens_nothing() -> None:
    hands = Hands(unfit=Unlaunchable("codex", FailReason.engine_unavailable, "codex is not here"))
    failed = s.OpenFailed(FailReason.engine_unavailable, "codex is not here")
    assert await hands.do(m.OpenConversation("n-7")) == failed
    assert hands.provider.opened == []


@pytest.mark.rule("A5", "S8")
@pytest.mark.parametrize(
    ("native_id", "told"),
    [("n-7", s.HistoryGone()), (None, s.OpenFailed(FailReason.open_failed, "It is gone."))],
)
async def test_a_history_that_is_gone_is_told_apart(native_id: str | None, told: s.Signal) -> None:
    hands = Hands(FakeProvider(fault=lambda: Refused("It is gone.", key="no_history")))
    assert await hands.do(m.OpenConversation(native_id)) == told


class Silent(FakeProvider):
    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def test_an_agent_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "OPEN_LIMIT", 0.01)
    hands = Hands(Silent())
    hands.performer.perform(m.OpenConversation(None))
    async with asyncio.timeout(5):
        while not hands.told:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert hands.told == [s.OpenFailed(FailReason.open_failed, "fake did not start in 0.01 s.")]


async def test_a_silent_agent_does_not_stand_in_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """H67: few open at once, and one that never answers keeps the others out for a moment only."""
    monkeypatch.setattr(perform, "DOOR_SECONDS", 0.01)
    silent, next_ = Hands(Silent()), Hands()
    door = next_.performer.opening = silent.performer.opening
    silent.performer.perform(m.OpenConversation(None))
    await asyncio.sleep(0)
    assert door.locked()
    next_.performer.perform(m.OpenConversation(None))
    async with asyncio.timeout(5):
        while not next_.told:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    await silent.performer.close()
    async with asyncio.timeout(5):
        await door.acquire()
    assert door.locked()  # each left once


class Slow(FakeProvider):
    """Greets when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        conversation = await super().open(opening, emit)
        await self.let.wait()
        return conversation


async def test_an_agent_that_opens_for_longer_than_a_lease_is_kept_alive() -> None:
    """H3: renewals reach its Guard before it has greeted."""
    provider = Slow()
    hands = Hands(provider)
    hands.performer.perform(m.OpenConversation(None))
    await until(lambda: provider.opened)
    hands.tenure.extend(27.0)
    provider.let.set()
    await until(lambda: hands.told)
    assert hands.agent.deadlines == [12.0, 27.0]


class Leaves(FakeProvider):
    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        await super().open(opening, emit)
        raise Unavailable("it did not greet")


async def test_what_a_provider_leaves_running_is_not_kept_alive() -> None:
    """H3: a plug-in that fails to open, and to kill, has a process that nobody can stop: it dies with the deadline."""
    hands = Hands(Leaves())
    assert isinstance(await hands.do(m.OpenConversation(None)), s.OpenFailed)
    await until(lambda: not hands.performer._tasks)
    hands.tenure.extend(27.0)
    assert hands.agent.deadlines == [12.0]


class Late(FakeProvider):
    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        raise Stale("the deadline has passed")


async def test_an_agent_that_may_not_start_any_more_fails_nothing() -> None:
    """H3: its owner stops, and what waits is the next one's."""
    hands, lost = Hands(Late()), asyncio.Event()
    hands.tenure.lost = lost.set
    hands.performer.perform(m.OpenConversation(None))
    await until(lost.is_set)
    assert hands.told == []


@pytest.mark.rule("G3", "S3")
@pytest.mark.parametrize(("steers", "can"), [(True, ("steering",)), (False, ())])
async def test_what_it_can_is_found_on_the_live_provider(steers: bool, can: tuple[str, ...]) -> None:
    hands = Hands(FakeProvider(steers=steers))
    assert await hands.do(m.OpenConversation("n-7")) == s.ConversationReady("n-7", can)
    assert hands.agent.deadlines == [12.0]  # its Guard has the Lease's deadline from the first
    hands.tenure.extend(15.0)
    assert hands.agent.deadlines == [12.0, 15.0]


async def test_a_turn_is_handed_out_with_its_note(hands: Hands) -> None:
    hands.performer.perform(START)
    await until(lambda: hands.agent.prompts)
    ((turn, prompt),) = hands.agent.prompts
    assert (turn, prompt.inputs, prompt.note) == (T1, (ONE,), "a note")


CERTAIN: dict[str, tuple[Exception, str]] = {
    "refused": (Refused("Over the limit.", key="usage_limit"), "usage_limit"),
    "unavailable": (Unavailable("Over the limit."), "unavailable"),
}


@pytest.mark.rule("T3")
@pytest.mark.parametrize(("fault", "reason"), CERTAIN.values(), ids=CERTAIN)
async def test_a_turn_that_certainly_did_not_start_failed(hands: Hands, fault: Exception, reason: str) -> None:
    hands.agent.start_fault = lambda: fault
    hands.performer.perform(START)
    ended = s.TurnEnded(T1, Outcome.failed, reason, "Over the limit.")
    dead = isinstance(fault, Unavailable)  # it takes nothing any more, so the next Turn opens another one
    await until(lambda: hands.told[1:] == [s.Died("Over the limit.", ended) if dead else ended])
    assert hands.agent.closed is dead


@pytest.mark.rule("I5", "T3")
@pytest.mark.parametrize("fault", [Uncertain("no answer"), ValueError("no answer")], ids=["uncertain", "a fault"])
async def test_a_turn_that_may_have_started_ends_with_its_agent(hands: Hands, fault: Exception) -> None:
    """It may be running, so its process must end before anything else starts."""
    hands.agent.start_fault = lambda: fault
    assert await hands.do(START) == s.Died("no answer")
    assert hands.agent.closed


STEERS: dict[str, tuple[Callable[[], Exception] | None, SteerAnswer]] = {
    "held": (None, SteerAnswer.committed),
    "refused": (lambda: Refused("no such turn"), SteerAnswer.refused),
    "uncertain": (lambda: Uncertain("no answer"), SteerAnswer.unknown),
    "unavailable": (lambda: Unavailable("broken pipe"), SteerAnswer.unknown),
    "a fault": (lambda: IndexError("x"), SteerAnswer.unknown),
}


@pytest.mark.rule("I3", "I5")
@pytest.mark.parametrize(("fault", "answer"), STEERS.values(), ids=STEERS)
async def test_a_steer_is_certain_or_told(
    hands: Hands, fault: Callable[[], Exception] | None, answer: SteerAnswer
) -> None:
    steering = hands.agent.steering
    assert isinstance(steering, FakeSteering)
    steering.fault = fault
    steering.answered.set()
    assert await hands.do(STEER) == s.Steered(T1, (ONE.id,), answer)


@pytest.mark.rule("I3", "I4")
async def test_nobody_to_steer_is_a_certain_no() -> None:
    assert await Hands().do(STEER) == s.Steered(T1, (ONE.id,), SteerAnswer.refused)


async def test_nobody_to_start_is_told_too() -> None:
    assert await Hands().do(START) == s.Died("The agent was gone before the Turn began.")


@pytest.mark.rule("A3")
async def test_a_stop_that_fails_ends_the_agent(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A3.c."""

    async def stuck(turn: TurnId) -> None:
        raise Uncertain("it does not stop")

    await start(hands)
    monkeypatch.setattr(hands.agent, "interrupt", stuck)
    with capture_logs():
        hands.performer.perform(m.InterruptTurn(T1))
        await until(lambda: len(hands.told) == 3)
    assert hands.told[1:] == [s.Died("it does not stop"), s.Stopped(T1)]
    assert hands.agent.closed


@pytest.mark.rule("A3")
async def test_a_stop_is_told_when_it_is_quiet(hands: Hands) -> None:
    await start(hands)
    hands.performer.perform(m.InterruptTurn(T1))
    await until(lambda: len(hands.told) == 3)
    assert hands.told[1:] == [s.TurnEnded(T1, Outcome.interrupted), s.Stopped(T1)]


async def test_an_agent_that_cannot_hear_an_answer_is_ended(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = asyncio.Event()

    async def broken(request: RequestId, verdict: Verdict) -> None:
        answered.set()
        raise ValueError("broken pipe")

    monkeypatch.setattr(hands.agent, "answer", broken)
    with capture_logs() as logged:
        hands.performer.perform(m.AnswerRequest(RequestId("1-1"), Verdict.allow))
        await until(lambda: answered.is_set() and len(hands.told) == 2)
    assert (hands.told[1:], hands.agent.closed) == ([s.Died("broken pipe")], True)
    assert logged


@pytest.mark.rule("T3")
async def test_what_a_hung_up_agent_still_says_is_nobodys(hands: Hands) -> None:
    agent = hands.agent
    await hands.performer.hang_up()
    agent.die()
    assert len(hands.told) == 1
    await hands.do(m.OpenConversation("native-1"))
    agent.die("the old one, late")
    assert len(hands.told) == 2
    hands.tenure.extend(20.0)
    assert agent.deadlines == [12.0]


async def test_closing_ends_every_act_and_the_agent(hands: Hands) -> None:
    hands.performer.perform(STEER)  # which waits for its answer
    await until(lambda: isinstance(hands.agent.steering, FakeSteering) and hands.agent.steering.steers)
    await hands.performer.close()
    assert (len(hands.told), hands.agent.closed) == (1, True)


SILENT = s.TurnEnded(T1, Outcome.failed, "watchdog")


@pytest.mark.rule("T8")
async def test_an_agent_whose_time_is_over_is_ended_and_its_turn_told_with_its_death(hands: Hands) -> None:
    await start(hands)
    assert await hands.do(m.KillAgent(SILENT)) == s.Died("watchdog", SILENT)
    assert hands.agent.closed


@pytest.mark.rule("T8")
async def test_one_that_is_gone_already_only_tells_the_end(hands: Hands) -> None:
    await hands.performer.hang_up()
    assert await hands.do(m.KillAgent(SILENT)) == SILENT


@pytest.mark.rule("T3", "A3")
async def test_a_stop_is_quiet_only_after_the_death_that_somebody_else_brings(hands: Hands) -> None:
    """H71: or the next Turn would start on nothing."""
    await start(hands)
    leaves = asyncio.Event()
    hands.agent.leaving = leaves
    before = len(hands.told)
    with capture_logs():
        hands.performer.perform(m.KillAgent(SILENT))
        await until(lambda: hands.agent.closed)
        hands.performer.perform(m.InterruptTurn(T1))
        leaves.set()
        await until(lambda: len(hands.told) == before + 2)
    assert hands.told[before:] == [s.Died("watchdog", SILENT), s.Stopped(T1)]


COMPACT = m.CompactContext(InputId("compact_1"))


@pytest.mark.rule("A6")
@pytest.mark.parametrize(
    ("fault", "failed"),
    [(None, None), (Refused("Too short."), "Too short."), (Unavailable("Not now."), "Not now.")],
)
async def test_a_compaction_tells_what_came_of_it(hands: Hands, fault: Exception | None, failed: str | None) -> None:
    hands.agent.compaction = FakeCompaction(fault=(lambda: fault) if fault else None)
    assert await hands.do(COMPACT) == s.Compacted(COMPACT.control, failed)
    assert not hands.agent.closed


@pytest.mark.rule("A6")
async def test_an_agent_of_which_nobody_knows_whether_it_compacted_is_ended(hands: Hands) -> None:
    hands.agent.compaction = FakeCompaction(fault=lambda: Uncertain("It fell silent."))
    before = len(hands.told)
    with capture_logs():
        hands.performer.perform(COMPACT)
        await until(lambda: len(hands.told) == before + 2)
    assert hands.told[before:] == [
        s.Died("Nobody knows whether it was done: It fell silent."),
        s.Compacted(COMPACT.control, "Nobody knows whether it was done: It fell silent."),
    ]


async def test_one_that_cannot_compact_says_so(hands: Hands) -> None:
    assert await hands.do(COMPACT) == s.Compacted(COMPACT.control, "The agent was gone before it began.")


async def start(hands: Hands) -> None:
    """Turn 1 runs."""
    hands.performer.perform(START)
    await until(lambda: bool(hands.agent.prompts))


@pytest.mark.rule("A3", "T3", "S8")
async def test_a_turn_that_is_stopped_while_its_handoff_is_read_never_begins(hands: Hands) -> None:
    asked, read = asyncio.Event(), asyncio.Event()

    async def slow() -> list[e.Event]:
        asked.set()
        await read.wait()
        return []

    hands.performer.history = slow
    before = len(hands.told)
    hands.performer.perform(replace(START, handoff=e.Fresh.history_gone))
    await asked.wait()
    hands.performer.perform(m.InterruptTurn(T1))
    await anyio.wait_all_tasks_blocked()
    read.set()
    await until(lambda: len(hands.told) > before)
    assert hands.told[before:] == [s.Stopped(T1)]
    assert (hands.agent.prompts, hands.agent.interrupts) == ([], [])


async def test_an_agent_that_does_not_close_is_not_waited_for(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "STOP_LIMIT", 0.01)
    hands.agent.leaving = asyncio.Event()
    assert await later(hands, m.KillAgent(SILENT)) == s.Died("watchdog", SILENT)


@pytest.mark.rule("I5")
async def test_a_steer_that_is_never_answered_is_uncertain(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "STEER_LIMIT", 0.01)
    assert await later(hands, STEER) == s.Steered(T1, (ONE.id,), SteerAnswer.unknown)


async def later(hands: Hands, effect: m.Effect) -> s.Signal:
    """Its one answer, for which real time has to pass."""
    before = len(hands.told)
    with capture_logs():
        hands.performer.perform(effect)
        async with asyncio.timeout(5):
            while len(hands.told) == before:
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    return hands.told[before]


async def test_a_workspace_that_is_never_ready_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "PLACE_LIMIT", 0.01)
    hands = Hands()

    async def never(session: SessionRef, launch: LaunchSnapshot) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(hands.performer.workspaces, "ready", never)
    hands.performer.perform(m.OpenConversation(None))
    async with asyncio.timeout(5):
        while not hands.told:
            await anyio.lowlevel.checkpoint()
    told = "/work was not ready within 0.01 s: is its disk there?"
    assert hands.told == [s.OpenFailed(FailReason.open_failed, told)]
    assert hands.provider.opened == []
