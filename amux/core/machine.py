"""Signals in; the events to write and the effects to perform out. Composes the decisions; decides nothing itself.

Pure: time is passed in. `run` folds step after step, so that many signals cost one append. Recovery is the ordinary
step of `Opened`. What `Scratch` holds may be forgotten at any instant: unaccepted input is still in the journal."""

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from amux.core import events as e
from amux.core import lifecycle, moves, steering, waiting, wishes
from amux.core import signals as s
from amux.core.context import cancellation_note
from amux.core.ids import InputId, TurnId
from amux.core.inputs import Answer, ContextWish, Input, Interrupt, Manage, Prefer, Said, Verdict, Withdraw
from amux.core.session import State, Turn
from amux.core.step import (
    AnswerRequest,
    Burst,
    Draft,
    KillAgent,
    Phase,
    Scratch,
    StartTurn,
    SteerTurn,
    Step,
    Streaming,
)
from amux.core.watchdog import Watch

JOIN_DELTAS = 0.2  # seconds for which streamed text is joined into one event


def run(state: State, scratch: Scratch, signals: Sequence[s.Signal], *, now: float) -> Step:
    """All that these signals come to, in their order. `now` is monotonic seconds. Raises nothing."""
    draft = Draft(state, scratch, now)
    _on_time(draft)  # a window that is over takes in nothing more, however late we look
    for signal in signals:
        _on(draft, signal)
    _heed(draft, signals)
    _on_time(draft)
    _dispatch(draft)
    return Step(draft.state, draft.scratch, tuple(draft.events), tuple(draft.accepts), tuple(draft.effects))


def _on(draft: Draft, signal: s.Signal) -> None:  # noqa: C901, PLR0912 - one line a kind of signal
    match signal:
        case s.ItemSeen() | s.DeltaSeen():
            _seen(draft, signal)
        case s.Heard(said):
            _hear(draft, said)
        case s.Opened():
            _recover(draft, signal)
        case s.ConversationReady(native_id, can):
            _ready(draft, native_id, can)
        case s.OpenFailed(reason, detail):
            _fail_waiting(draft, reason, detail)
        case s.HistoryGone():
            _history_gone(draft)
        case s.Steered(_, ids, answer):
            _steer_came_out(draft, ids, answer)
        case s.TurnEnded():
            _ended(draft, signal)
        case s.Compacted():
            wishes.compacted(draft, signal)
        case s.Stopped(turn):
            _stopped(draft, turn)
        case s.PermissionAsked():
            _asked(draft, signal)
        case s.PermissionWithdrawn(turn, request):
            if request in draft.state.requests:
                draft.write(e.PermissionResolved(turn, request, e.Resolution.withdrawn))
        case s.ForeignTurnBegan(native_turn, reason):
            _foreign_began(draft, native_turn, reason)
        case s.ForeignTurnEnded():
            draft.set(foreign=None)
        case s.Died():
            _died(draft, signal)
        case s.Rested():
            _rest(draft)
        case s.Leaving():
            draft.set(leaving=True)
        case s.Tick() | s.Stirred():
            pass
        case _:
            assert_never(signal)


# -- opening, recovery, rest ------------------------------------------------------------------------------------------


def _recover(draft: Draft, opened: s.Opened) -> None:
    """What a dead owner left open is ended; then what was said and not accepted is heard, in its order."""
    draft.set(herald=e.OwnerOpened(opened.epoch, opened.worker))
    if turn := draft.state.turn:
        moves.close_requests(draft, e.Resolution.died)
        moves.fail_steers(draft)
        draft.write(e.TurnFinished(turn.id, e.Outcome.lost, "owner_died"))
    wishes.end(draft, "The worker died meanwhile.")
    for said in opened.journal:
        _hear(draft, said)


def _ready(draft: Draft, native_id: str, can: tuple[str, ...]) -> None:
    if draft.scratch.phase is not Phase.opening:  # nobody waits for it any more
        return
    draft.write(e.ConversationOpened(native_id, can))
    held = draft.scratch.held
    draft.set(phase=Phase.idle, held=(), foreign=None)
    bursts = steering.bursts(held)
    first = [b for b in bursts if steering.preempts(b[0], draft.scratch.busy)]
    for burst in first:
        _settle(draft, burst)
    _dispatch(draft)  # what waited before goes first
    for burst in bursts:
        if burst not in first:
            _settle(draft, burst)


def _history_gone(draft: Draft) -> None:
    """What was to be resumed is not there: the conversation begins anew, and the agent is told what amux has (A5)."""
    if draft.scratch.phase is Phase.opening:
        moves.open_(draft, e.Fresh.history_gone)


def _fail_waiting(draft: Draft, reason: e.FailReason, detail: str) -> None:
    """No conversation, so nothing that waits can run: each is told, and the next input tries anew (S7)."""
    if draft.scratch.phase is not Phase.opening:
        return
    draft.write(e.ConversationFailed(reason, detail))
    for burst in steering.bursts(draft.scratch.held):
        moves.accept(draft, burst)
        draft.write(e.SubmissionFailed(moves.ids(burst), reason, detail))
    for submission in draft.state.queue:
        if submission.inputs:
            draft.write(e.SubmissionFailed(moves.ids(submission.inputs), reason, detail))
    wishes.give_up(draft, detail)
    draft.set(phase=Phase.closed, held=())


def _rest(draft: Draft) -> None:
    draft.set(phase=Phase.closed, foreign=None)
    if draft.state.label not in (e.Label.sleeping, e.Label.archived) and not draft.scratch.waits(draft.state):
        draft.write(e.SessionState(e.Label.sleeping))


# -- what is said -----------------------------------------------------------------------------------------------------


def _hear(draft: Draft, said: Said) -> None:
    match said:
        case Input():
            _hear_input(draft, said)
        case Interrupt():
            _interrupt(draft, said)
        case Answer():
            _answer(draft, said)
        case Manage():
            lifecycle.manage(draft, said)
        case ContextWish():
            _queue_all(draft)
            wishes.hear(draft, said)
        case Withdraw():
            waiting.withdraw(draft, said)
        case Prefer():
            waiting.prefer(draft, said)
        case _:
            assert_never(said)


def _hear_input(draft: Draft, said: Input) -> None:
    if draft.state.archiving:
        moves.accept(draft, (said,))
        draft.write(e.SubmissionFailed((said.id,), e.FailReason.archived, "This Session is archived."))
    elif len(draft.scratch.held) >= waiting.MOST:
        moves.accept(draft, (said,))
        waiting.refuse(draft, (said,))
    elif draft.scratch.phase in (Phase.closed, Phase.opening):
        draft.set(held=(*draft.scratch.held, said))
    elif steering.joinable(said) and (draft.state.turn or _gathers(draft)):
        _join(draft, said)
    else:
        runs = draft.state.turn
        _close_burst(draft)
        _ask_to_stop(draft, said, runs)
        _settle(draft, (said,))


def _join(draft: Draft, said: Input) -> None:
    """Text in mid-Turn waits for its burst's window; another's text closes the open burst first (I2)."""
    burst, runs = draft.scratch.burst, draft.state.turn
    if burst and not steering.same_burst(burst.inputs[0], said):
        _close_burst(draft)
        burst = None
    if burst:
        draft.set(burst=replace(burst, inputs=tuple(sorted((*burst.inputs, said), key=steering.sent))))
    else:
        draft.set(burst=Burst((said,), draft.now + draft.scratch.window))
        _ask_to_stop(draft, said, runs)


def _ask_to_stop(draft: Draft, said: Input, runs: Turn | None) -> None:
    """At once, and never a Turn that began by what this input closed (I7)."""
    turn = draft.state.turn
    if runs is None or turn is None or turn.id != runs.id or draft.scratch.phase is not Phase.turn:
        return
    if waiting.is_full(draft.state):  # it will be refused, and nothing may be stopped for it
        return
    if said.sender and steering.preempts(said, draft.scratch.busy):
        draft.write(e.InterruptRequested(turn.id, said.sender, said.name))
        moves.stop(draft, turn.id)


def _gathers(draft: Draft) -> bool:
    """Whether a burst is open that goes before what waits, so that nothing starts until it is whole (I7)."""
    burst = draft.scratch.burst
    return burst is not None and steering.preempts(burst.inputs[0], draft.scratch.busy)


def _queue_all(draft: Draft) -> None:
    """What was said before goes before (I9)."""
    _close_burst(draft)
    held = draft.scratch.held
    draft.set(held=())
    for burst in steering.bursts(held):
        moves.accept(draft, burst)
        if waiting.is_full(draft.state):
            waiting.refuse(draft, burst)
        else:
            draft.write(e.InputQueued(moves.ids(burst), e.QueueReason.no_running_turn))


def _close_burst(draft: Draft) -> None:
    if burst := draft.scratch.burst:
        draft.set(burst=None)
        _settle(draft, burst.inputs)


def _settle(draft: Draft, burst: tuple[Input, ...]) -> None:
    """Accept one burst and give it its fate."""
    decision = steering.decide(burst, draft.state, draft.scratch.busy)
    if isinstance(decision, steering.Steer) and draft.scratch.phase is Phase.stopping:  # by the watchdog
        decision = steering.Queue(e.QueueReason.interrupting)
    moves.accept(draft, burst)
    match decision:
        case steering.Steer(turn):
            draft.write(e.SteerRequested(turn, moves.ids(burst)))
            draft.effects.append(SteerTurn(turn, burst))
        case steering.Queue() | steering.Preempt() if _free(draft) and not draft.state.queue:
            _start(draft, burst)
        case steering.Queue() | steering.Preempt() if waiting.is_full(draft.state):
            waiting.refuse(draft, burst)
        case steering.Preempt():
            draft.write(e.InputQueued(moves.ids(burst), e.QueueReason.preempts))
        case steering.Queue(reason):
            draft.write(e.InputQueued(moves.ids(burst), reason))
        case _:
            assert_never(decision)


def _interrupt(draft: Draft, said: Interrupt) -> None:
    """A request (A3): the Turn ends by its own TurnFinished. It names its Turn and touches no other (H39)."""
    turn, compacting = draft.state.turn, draft.state.compacting
    if compacting and said.turn is None:
        wishes.stop(draft, compacting, said)
    elif turn is None or said.turn is None:
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.nothing_runs))
    elif said.turn != turn.id:
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.stale))
    elif turn.interrupting or draft.scratch.phase is Phase.stopping:  # by a person, or by the watchdog
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.already_interrupting))
    else:
        draft.accept(said.id, e.InterruptRequested(turn.id, said.by, said.name))
        moves.stop(draft, turn.id)


def _answer(draft: Draft, said: Answer) -> None:
    """The first accepted answer counts; a later one, or one to a request that is gone, changes nothing (H40)."""
    turn = draft.state.turn
    if turn is None or said.request not in draft.state.requests:
        draft.accept(said.id, e.ControlRefused(said.id, said.by, e.Refusal.stale))
        return
    how = e.Resolution.answered
    resolved = e.PermissionResolved(turn.id, said.request, how, said.verdict, said.by, said.name)
    draft.accept(said.id, resolved)
    moves.tell_answer(draft, said.request, said.verdict)


# -- what the provider does -------------------------------------------------------------------------------------------


def _seen(draft: Draft, seen: s.ItemSeen | s.DeltaSeen) -> None:
    """Items of the running Turn; a late one of an ended Turn is kept too, and reopens nothing (H55)."""
    if not 0 < seen.turn <= draft.state.last_turn:
        return
    if isinstance(seen, s.DeltaSeen):
        _stream(draft, seen)
        return
    moves.flush(draft)
    draft.write(seen)


def _stream(draft: Draft, delta: s.DeltaSeen) -> None:
    """Joined for a moment, so that a word is not a commit."""
    open_ = draft.scratch.streaming
    follows = open_ and (open_.turn, open_.item, open_.offset + len(open_.text)) == (
        delta.turn,
        delta.item,
        delta.offset,
    )
    if open_ and follows:
        draft.set(streaming=replace(open_, text=open_.text + delta.text))
        return
    moves.flush(draft)
    due = draft.now + JOIN_DELTAS
    draft.set(streaming=Streaming(delta.turn, delta.item, delta.offset, delta.text, due))


def _steer_came_out(draft: Draft, ids: tuple[InputId, ...], answer: s.SteerAnswer) -> None:
    steer = next((x for x in draft.state.steering if moves.ids(x.inputs) == ids), None)
    if steer is None:  # settled already: its Turn died, or an earlier owner's
        return
    match answer:
        case s.SteerAnswer.committed:
            draft.write(e.InputSteered(steer.turn, ids))
        case s.SteerAnswer.unknown:
            draft.write(e.SubmissionFailed(ids, e.FailReason.uncertain))
        case s.SteerAnswer.refused if draft.state.turn and draft.state.turn.interrupting:
            draft.write(e.InputCancelled(ids, e.CancelReason.interrupted))  # it was steered, so it goes too (I6)
        case s.SteerAnswer.refused:
            draft.write(e.InputQueued(ids, e.QueueReason.refused))
        case _:
            assert_never(answer)
    if draft.scratch.ended and not draft.state.steering:
        _finish(draft, draft.scratch.ended)


def _ended(draft: Draft, ended: s.TurnEnded) -> None:
    """The end waits for the answers to steers that are still out: each input has one fate, told before the end."""
    if draft.state.turn is None or draft.state.turn.id != ended.turn or draft.scratch.ended:
        return
    if draft.state.steering:
        draft.set(ended=ended)
    else:
        _finish(draft, ended)


def _finish(draft: Draft, ended: s.TurnEnded) -> None:
    """The one TurnFinished (T3). The open burst goes to the queue behind it."""
    turn = draft.state.turn
    if turn is None:
        return
    moves.flush(draft)
    if turn.interrupting and ended.unhandled:
        draft.write(e.InputCancelled(ended.unhandled, e.CancelReason.interrupted))
    moves.close_requests(draft, e.Resolution.ended)
    outcome = ended.outcome
    if turn.interrupting and outcome is e.Outcome.lost:
        outcome = e.Outcome.interrupted  # it did not obey and was killed: that is what was asked for
    draft.write(e.TurnFinished(turn.id, outcome, ended.reason, ended.detail, ended.usage))
    phase = Phase.idle if draft.scratch.phase is Phase.turn else draft.scratch.phase
    draft.set(ended=None, phase=phase, watch=None)
    if not _gathers(draft):
        _close_burst(draft)


def _stopped(draft: Draft, turn: TurnId) -> None:
    """Quiet: the next Turn may start. A provider that is quiet and told no end has ended (A3)."""
    running = draft.state.turn
    if draft.scratch.phase is not Phase.stopping or (running and running.id != turn):
        return
    draft.set(phase=Phase.idle)
    _ended(draft, s.TurnEnded(turn, e.Outcome.interrupted))


def _died(draft: Draft, died: s.Died) -> None:
    """Its Turn ends lost, what was on its way is uncertain (I5), and nothing is run again."""
    moves.flush(draft)
    turn, ended = draft.state.turn, draft.scratch.ended or died.ended
    if draft.scratch.phase is not Phase.opening:  # an opening that dies answers for itself
        draft.set(phase=Phase.closed, foreign=None)
    wishes.end(draft, died.reason)
    if turn is None:
        return
    moves.close_requests(draft, e.Resolution.died)
    moves.fail_steers(draft)
    lost = s.TurnEnded(turn.id, e.Outcome.lost, "agent_died", died.reason)
    _finish(draft, ended if ended and ended.turn == turn.id else lost)


def _asked(draft: Draft, asked: s.PermissionAsked) -> None:
    turn = draft.state.turn
    if turn is None or turn.id != asked.turn or draft.scratch.phase is Phase.stopping:
        draft.effects.append(AnswerRequest(asked.request, Verdict.deny))
    elif asked.request not in draft.state.requests:
        draft.write(e.PermissionRequested(asked.turn, asked.request, asked.title, asked.detail))


def _foreign_began(draft: Draft, native_turn: str, reason: str) -> None:
    draft.write(e.NativeTurnQuarantined(native_turn, reason))
    draft.set(foreign=native_turn)


# -- time and dispatch ------------------------------------------------------------------------------------------------


def _on_time(draft: Draft) -> None:
    if draft.scratch.burst and draft.scratch.burst.closes <= draft.now:
        _close_burst(draft)
    if draft.scratch.streaming and draft.scratch.streaming.due <= draft.now:
        moves.flush(draft)
    watch = draft.scratch.watch
    if watch and draft.now >= watch.due(draft.scratch.limits, draft.state.requests):
        _watch(draft, watch)


def _heed(draft: Draft, signals: Sequence[s.Signal]) -> None:
    """Whatever the agent is seen to do is a sign that it lives."""
    watch = draft.scratch.watch
    if watch and (heard := watch.hear(signals, draft.now)) is not watch:
        draft.set(watch=heard)


def _watch(draft: Draft, watch: Watch) -> None:
    """A question that nobody answered is denied; an agent that is silent, or goes on for ever, is ended (T8, H40)."""
    limits = draft.scratch.limits
    for request in watch.unanswered(limits, draft.state.requests, draft.now):
        draft.write(e.PermissionResolved(watch.turn, request, e.Resolution.expired))
        moves.tell_answer(draft, request, Verdict.deny)
        watch = draft.scratch.watch or watch
    if reason := watch.overdue(limits, draft.state.requests, draft.now):
        moves.close_requests(draft, e.Resolution.ended)
        draft.set(phase=Phase.stopping, watch=None)
        draft.effects.append(KillAgent(s.TurnEnded(watch.turn, e.Outcome.failed, reason)))


def _free(draft: Draft) -> bool:
    scratch = draft.scratch
    idle = scratch.phase is Phase.idle and not (scratch.foreign or scratch.leaving)
    taken = draft.state.turn or draft.state.wanted or draft.state.archiving or _gathers(draft)
    return idle and not taken


def _dispatch(draft: Draft) -> None:
    """The first that waits becomes the next Turn; a closed provider is opened for it. Not by an owner that leaves."""
    if draft.state.turn is None and draft.scratch.phase in (Phase.idle, Phase.closed):
        if draft.state.archiving and draft.state.label is not e.Label.archived:
            moves.close(draft, e.Label.archived)
        elif draft.state.wanted:
            moves.open_(draft, draft.scratch.fresh)
    if draft.scratch.leaving:
        return
    while wishes.fulfil(draft):
        pass
    if _free(draft) and draft.state.queue:
        _start(draft, draft.state.queue[0].inputs)
    elif draft.scratch.phase is Phase.closed and (draft.scratch.held or draft.state.queue):
        moves.open_(draft, draft.scratch.fresh)


def _start(draft: Draft, inputs: tuple[Input, ...]) -> None:
    turn = TurnId(draft.state.last_turn + 1)
    senders = tuple(dict.fromkeys(i.sender for i in inputs))
    note, due = cancellation_note(draft.state.cancelled), draft.state.handoff
    rights, engine = inputs[0].authorization, draft.scratch.engine
    draft.write(e.TurnStarted(turn, moves.ids(inputs), e.Cause.input, rights, senders, engine))
    draft.set(phase=Phase.turn, watch=Watch(turn, draft.now, draft.now))
    draft.effects.append(StartTurn(turn, inputs, note, due))
