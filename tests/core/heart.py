"""Any order of people, provider, time and crashes against the machine; asserts only what a person could notice.

`Heart` is the world around one Session: its journal, its provider and the clock. `FAULTS` in faults.py must all be
found by it; a state machine test counts only when it has been seen to fail."""

import contextlib
from collections import Counter
from contextlib import AbstractContextManager
from itertools import count
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amux.core import events as e
from amux.core import machine, step, watchdog
from amux.core import signals as s
from amux.core.ids import Epoch, InputId, ItemId, Principal, RequestId, TurnId
from amux.core.inputs import (
    Action,
    Answer,
    ContextAction,
    ContextWish,
    Interrupt,
    Manage,
    Prefer,
    Said,
    Verdict,
    Withdraw,
)
from amux.core.session import State, fold
from amux.core.steering import Busy
from amux.core.watchdog import Limits
from tests.build import said
from tests.core.story import check_fates, check_handoffs, check_notes, check_story, check_wishes

WINDOW = 2.0
LIMITS = Limits(silence=60, turn=200, answer=90)
OTHERS = (Action.sleep, Action.resume, Action.restart)
PEOPLE = ["user_a", "user_a", "user_a", "user_b", None]


class Heart(RuleBasedStateMachine):
    """The world around one Session."""

    busy: ClassVar[Busy] = Busy.steer
    fault: ClassVar[AbstractContextManager[object]] = contextlib.nullcontext()

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        self.now, self.epoch = 100.0, 0
        self.log: list[e.Event] = []
        self.journal: dict[InputId, Said] = {}
        self.accepted: set[InputId] = set()
        self.state, self.scratch = State(), step.Scratch("scripted", WINDOW, LIMITS, self.busy)
        self.opening = self.open = self.foreign = False
        self.running: TurnId | None = None  # what the provider works on
        self.stopping: TurnId | None = None
        self.asked: list[step.SteerTurn] = []  # steers that the provider has not answered
        self.taken: Counter[InputId] = Counter()  # what the provider holds for good
        self.last_end: s.TurnEnded | None = None
        self.notes: dict[TurnId, str] = {}
        self.handoffs: dict[TurnId, e.Fresh | None] = {}
        self.resuming: str | None = None  # the handle that the provider is to resume
        self.given_up: set[str | None] = set()  # handles that nobody may resume any more
        self.lost: e.Fresh | None = None  # its engine is, until one is recorded with an opening
        self.compacting: InputId | None = None
        self.asks: tuple[RequestId, ...] = ()  # the questions that waited before the last signal
        self.killed: s.TurnEnded | None = None  # its death is not told yet
        self.an_owner_opens()

    # -- the owner's part ---------------------------------------------------------------------------------------------

    def signal(self, *signals: s.Signal) -> None:
        """Do what the owner does, and believe the provider's side of it."""
        self.asks = self.state.requests
        with self.fault:
            out = machine.run(self.state, self.scratch, signals, now=self.now)
        for id, place in out.accepts:
            assert id not in self.accepted, "an input is accepted once"
            assert 0 < place <= len(out.events)
            self.accepted.add(id)
        self.log += out.events
        self.state, self.scratch = out.state, out.scratch
        for effect in out.effects:
            self.perform(effect)

    def perform(self, effect: step.Effect) -> None:
        match effect:
            case step.OpenConversation(native_id):
                assert not self.opening
                assert native_id is None or native_id not in self.given_up, "it begins anew (S8)"
                self.resuming, self.lost = native_id, None
                assert self.running is None, "a Turn ends before its agent is closed (A5)"
                self.opening, self.open, self.foreign = True, False, False
            case step.StartTurn(turn, inputs, note, due):
                assert self.open, "nothing starts on a closed provider"
                assert self.running is None, "one Turn at a time (T4)"
                assert self.stopping is None, "nothing starts before the stop is quiet (H45)"
                assert not self.foreign, "nothing starts beside a foreign turn (H55)"
                self.running, self.notes[turn], self.handoffs[turn] = turn, note, due
                self.taken.update(i.id for i in inputs)
            case step.SteerTurn(_, inputs):
                self.asked.append(effect)
                self.taken.update(i.id for i in inputs)
            case step.InterruptTurn(turn):
                self.stopping = turn
            case step.CompactContext(control):
                assert self.open, "only an open agent compacts"
                assert self.running is None, "never across a running Turn (I9)"
                assert self.compacting is None
                self.compacting = control
            case step.CloseConversation():
                assert self.compacting is None
                assert self.running is None, "a Turn ends before its agent is closed (A4, A8)"
                self.open = self.opening = self.foreign = False
                self.stopping = None
            case step.KillAgent(ended):
                assert self.running == ended.turn, "no other Turn is ended (T8)"
                assert ended.reason != watchdog.SILENT or not self.asks, "a question that waits is no silence (T8)"
                self.running, self.open, self.killed = None, False, ended
            case step.AnswerRequest():
                pass

    def an_owner_opens(self) -> None:
        self.epoch += 1
        self.scratch = step.Scratch("scripted", WINDOW, LIMITS, self.busy, self.lost)
        left = tuple(said for id, said in self.journal.items() if id not in self.accepted)
        self.signal(s.Opened(Epoch(self.epoch), f"w{self.epoch}", left))

    # -- people -------------------------------------------------------------------------------------------------------

    def hear(self, one: Said) -> None:
        self.journal[one.id] = one
        self.signal(s.Heard(one))

    @rule(who=st.sampled_from(PEOPLE), material=st.sampled_from([(), (), (), ("img",)]))
    def somebody_speaks(self, who: str | None, material: tuple[str, ...]) -> None:
        number = next(self.numbers)
        self.hear(said(who, f"text {number}.", id=f"om_{number}", at=number, material=material))

    @rule()
    def one_adds_to_their_own(self) -> None:  # guides the search
        self.somebody_speaks("user_a", ())
        self.somebody_speaks("user_a", ())

    @precondition(lambda self: self.running and self.state.turn and not self.stopping)
    @rule(answer=st.sampled_from(s.SteerAnswer))
    def the_sender_adds(self, answer: s.SteerAnswer) -> None:  # guides the search
        assert self.state.turn
        self.somebody_speaks_and_waits(self.state.turn.senders[0])
        while self.asked:
            self.the_provider_answers_a_steer(answer)

    @precondition(lambda self: self.running and self.state.turn and not self.stopping)
    @rule()
    def the_sender_adds_and_it_is_stopped(self) -> None:  # guides the search
        self.the_sender_adds(s.SteerAnswer.committed)
        self.somebody_interrupts(0)
        if self.stopping:
            self.the_provider_stops(True)

    @precondition(lambda self: self.running and self.state.turn and not self.stopping)
    @rule()
    def nobody_knows_what_became_of_what_the_sender_adds(self) -> None:  # guides the search
        self.the_sender_adds(s.SteerAnswer.unknown)
        if self.running:
            self.the_turn_ends(e.Outcome.completed)

    @precondition(lambda self: self.running and self.state.turn and not self.stopping)
    @rule()
    def the_turn_ends_while_an_answer_is_out(self) -> None:  # guides the search
        assert self.state.turn
        self.somebody_speaks_and_waits(self.state.turn.senders[0])
        if self.running:
            self.the_turn_ends(e.Outcome.completed)

    @precondition(lambda self: self.running and not self.stopping)
    @rule()
    def a_question_waits_for_long(self) -> None:  # guides the search
        self.the_provider_asks()
        self.time_passes(70.0)

    @rule(who=st.sampled_from(PEOPLE))
    def somebody_speaks_and_waits(self, who: str | None) -> None:  # guides the search
        self.somebody_speaks(who, ())
        self.time_passes(WINDOW)

    @rule(seconds=st.sampled_from([0.3, 1.0, WINDOW]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.signal(s.Tick())

    @precondition(lambda self: self.running)
    @rule(seconds=st.sampled_from([40.0, 70.0]))
    def nothing_is_heard_for_long(self, seconds: float) -> None:
        self.time_passes(seconds)

    @rule(back=st.sampled_from([0, 0, 1]))
    def somebody_interrupts(self, back: int) -> None:
        self.interrupt(back)

    @precondition(lambda self: self.running and self.state.last_turn > 1)
    @rule()
    def somebody_interrupts_too_late(self) -> None:
        """Which is rare by itself, and so a fault of it is found late."""
        self.interrupt(1)

    def interrupt(self, back: int) -> None:
        turn = TurnId(self.state.last_turn - back)
        self.hear(Interrupt(InputId(f"stop_{next(self.numbers)}"), Principal("user_b"), turn if turn > 0 else None))

    @rule(action=st.sampled_from([*Action, *OTHERS, *OTHERS]))  # nothing comes after an archive
    def somebody_manages(self, action: Action) -> None:
        self.hear(Manage(InputId(f"act_{next(self.numbers)}"), Principal("user_b"), action))

    @rule(what=st.sampled_from(ContextAction))
    def somebody_wishes(self, what: ContextAction) -> None:
        self.hear(ContextWish(InputId(f"wish_{next(self.numbers)}"), Principal("user_b"), what))

    @precondition(lambda self: self.compacting)
    @rule(failed=st.sampled_from([None, "no luck"]))
    def the_compaction_ends(self, failed: str | None) -> None:
        assert self.compacting
        told, self.compacting = s.Compacted(self.compacting, failed), None
        self.signal(told)

    @precondition(lambda self: self.journal)
    @rule(back=st.integers(1, 4), many=st.booleans())
    def somebody_withdraws(self, back: int, many: bool) -> None:
        said = tuple(self.journal)[-back:]
        ids = said if many else said[:1]
        self.hear(Withdraw(InputId(f"withdraw_{next(self.numbers)}"), Principal("user_b"), ids))

    @precondition(lambda self: len(self.state.queue) > 1)
    @rule(back=st.integers(1, 3))
    def somebody_prefers(self, back: int) -> None:
        submission = self.state.queue[-min(back, len(self.state.queue))]
        wanted = submission.inputs[-1].id if submission.inputs else InputId("a wish is none")
        self.hear(Prefer(InputId(f"prefer_{next(self.numbers)}"), Principal("user_b"), wanted))

    @precondition(lambda self: self.state.last_turn)
    @rule(verdict=st.sampled_from(Verdict))
    def somebody_answers(self, verdict: Verdict) -> None:
        request = RequestId(f"ask_{self.state.last_turn}")
        self.hear(Answer(InputId(f"answer_{next(self.numbers)}"), Principal("user_a"), request, verdict))

    # -- the provider -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.opening)
    @rule(works=st.sampled_from([True, True, True, False]))
    def the_provider_opens(self, works: bool) -> None:
        self.opening, self.open = False, works
        if works:
            native_id = self.resuming or f"native_{next(self.numbers)}"
            self.signal(s.ConversationReady(native_id, ("steering",)))
        else:
            self.signal(s.OpenFailed(e.FailReason.engine_unavailable, "not here"))

    @precondition(lambda self: self.opening and self.resuming)
    @rule()
    def the_provider_has_no_such_history(self) -> None:
        self.opening = False
        self.given_up.add(self.resuming)
        self.signal(s.HistoryGone())

    @precondition(lambda self: self.asked)
    @rule(answer=st.sampled_from(s.SteerAnswer))
    def the_provider_answers_a_steer(self, answer: s.SteerAnswer) -> None:
        asked = self.asked.pop(0)
        ids = tuple(i.id for i in asked.inputs)
        if answer is s.SteerAnswer.refused:
            self.taken.subtract(ids)
        self.signal(s.Steered(asked.turn, ids, answer))

    @precondition(lambda self: self.running)
    @rule(outcome=st.sampled_from([e.Outcome.completed, e.Outcome.completed, e.Outcome.failed]))
    def the_turn_ends(self, outcome: e.Outcome) -> None:
        assert self.running
        self.last_end, self.running = s.TurnEnded(self.running, outcome), None
        self.signal(self.last_end)

    @precondition(lambda self: self.stopping)
    @rule(told=st.booleans())
    def the_provider_stops(self, told: bool) -> None:
        assert self.stopping
        turn = self.stopping
        if self.running == turn:
            self.running = None
            if told:
                held = tuple(i.id for i in self.state.turn.steered) if self.state.turn else ()
                self.last_end = s.TurnEnded(turn, e.Outcome.interrupted, unhandled=held[-1:])
                self.signal(self.last_end)
        self.stopping = None
        self.signal(s.Stopped(turn))

    @precondition(lambda self: self.last_end)
    @rule()
    def the_provider_repeats_its_last_end(self) -> None:
        assert self.last_end
        self.signal(self.last_end)

    @precondition(lambda self: self.running)
    @rule(delta=st.booleans())
    def the_provider_says_something(self, delta: bool) -> None:
        assert self.running
        if delta:
            self.signal(s.DeltaSeen(self.running, ItemId("m"), 0, "w"))
        else:
            self.signal(s.ItemSeen(self.running, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed))

    @precondition(lambda self: self.running)
    @rule()
    def the_provider_asks(self) -> None:
        assert self.running
        self.signal(s.PermissionAsked(self.running, RequestId(f"ask_{self.running}"), "touch x"))

    @precondition(lambda self: self.open and self.running is None and not self.foreign)
    @rule()
    def the_provider_begins_by_itself(self) -> None:
        self.foreign = True
        self.signal(s.ForeignTurnBegan("n1", "goal"))

    @precondition(lambda self: self.open and self.running is None and not self.foreign)
    @rule()
    def somebody_speaks_when_the_provider_has_begun_by_itself(self) -> None:
        self.the_provider_begins_by_itself()
        self.somebody_speaks("user_a", ())

    @precondition(lambda self: self.foreign)
    @rule()
    def it_ends_that(self) -> None:
        self.foreign = False
        self.signal(s.ForeignTurnEnded("n1"))

    @precondition(lambda self: self.killed)
    @rule()
    def the_killed_agent_is_gone(self) -> None:
        self.foreign = False
        self.stopping, killed, self.killed = None, self.killed, None
        self.signal(s.Died("watchdog", killed))
        while self.asked:  # their calls fail, late
            self.the_provider_answers_a_steer(s.SteerAnswer.unknown)

    @precondition(lambda self: self.open)
    @rule()
    def the_provider_dies(self) -> None:
        self.open = self.foreign = False
        self.running = self.stopping = self.compacting = None
        self.signal(s.Died("exit 9"))
        while self.asked:  # their calls fail, late
            self.the_provider_answers_a_steer(s.SteerAnswer.unknown)

    # -- owners -------------------------------------------------------------------------------------------------------

    @rule()
    def the_owner_dies_and_another_opens(self) -> None:
        self.asked, self.running, self.stopping, self.killed = [], None, None, None
        self.opening = self.open = self.foreign = False
        self.compacting = None
        self.an_owner_opens()

    @precondition(lambda self: self.state.native_id)
    @rule()
    def the_owner_dies_and_the_engine_is_lost(self) -> None:
        self.given_up.add(self.state.native_id)
        self.lost = e.Fresh.engine_lost
        self.the_owner_dies_and_another_opens()

    @rule()
    def the_worker_drains(self) -> None:
        self.signal(s.Leaving())

    @precondition(lambda self: self.open and self.scratch.at_rest(self.state) and not self.foreign)
    @rule()
    def the_owner_rests(self) -> None:
        self.open = False
        self.signal(s.Rested())

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def state_is_the_fold(self) -> None:
        assert fold(self.log) == self.state

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert max(self.taken.values(), default=0) <= 1

    @invariant()
    def nothing_stays_open_that_nobody_works_on(self) -> None:
        turn = self.state.turn.id if self.state.turn else None
        if turn and turn != self.running:
            assert self.asked or self.stopping == turn or self.killed
        assert {i.id for x in self.state.steering for i in x.inputs} == {i.id for x in self.asked for i in x.inputs}
        assert not self.state.requests or self.state.turn
        assert self.state.compacting == self.compacting
        assert not self.state.arriving

    def teardown(self) -> None:
        """Let everything come to its end; then every input has one fate, and the record tells a clean story."""
        for _ in range(200):
            if not self._settle_something():
                break
        check_story(self.log)
        meant = {x.turn for x in self.journal.values() if isinstance(x, Interrupt)}
        managed = {x.action for x in self.journal.values() if isinstance(x, Manage)}
        stopped = {x.turn for x in self.log if isinstance(x, e.InterruptRequested)}
        if not managed & {Action.restart, Action.archive} and self.busy is Busy.steer:
            assert stopped <= meant, "a late stop touches no later Turn (H39)"
        check_fates(self.log, self.journal, self.taken)
        check_wishes(self.log, self.journal)
        check_notes(self.log, self.notes)
        check_handoffs(self.log, self.handoffs)

    def _settle_something(self) -> bool:
        if self.opening:
            self.the_provider_opens(True)
        elif self.asked:
            self.the_provider_answers_a_steer(s.SteerAnswer.committed)
        elif self.killed:
            self.the_killed_agent_is_gone()
        elif self.compacting:
            self.the_compaction_ends(None)
        elif self.stopping:
            self.the_provider_stops(True)
        elif self.running:
            self.the_turn_ends(e.Outcome.completed)
        elif self.foreign:
            self.it_ends_that()
        elif self.scratch.due(self.state) is not None:
            self.time_passes(WINDOW)
        elif self.scratch.leaving and self.scratch.waits(self.state):
            self.the_owner_dies_and_another_opens()  # the sweep knocks for what waits
        else:
            assert self.scratch.at_rest(self.state), "something waits and nobody works on it"
            return False
        return True
