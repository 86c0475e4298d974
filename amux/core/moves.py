"""The machine's small moves, each one fact or one fact and its act. They judge nothing; the machine says when."""

from msgspec.structs import replace

from amux.core import events as e
from amux.core.ids import InputId, RequestId, TurnId
from amux.core.inputs import Input, Verdict
from amux.core.step import AnswerRequest, CloseConversation, Draft, InterruptTurn, OpenConversation, Phase


def ids(inputs: tuple[Input, ...]) -> tuple[InputId, ...]:
    """Their ids, in order."""
    return tuple(i.id for i in inputs)


def accept(draft: Draft, burst: tuple[Input, ...]) -> None:
    """They are in the Timeline; their order is final."""
    for said in burst:
        draft.accept(said.id, e.InputAccepted(said))


def flush(draft: Draft) -> None:
    """Write the text that is being joined."""
    if open_ := draft.scratch.streaming:
        draft.set(streaming=None)
        draft.write(e.Delta(open_.turn, open_.item, open_.offset, open_.text))


def open_(draft: Draft, fresh: e.Fresh | None) -> None:
    """Resume what there is, or begin anew for that reason: once, since what has begun is what is resumed later (S8)."""
    native_id = None if fresh else draft.state.native_id
    draft.set(phase=Phase.opening, fresh=None)
    draft.write(e.ConversationOpening(draft.scratch.engine, native_id, fresh))
    draft.effects.append(OpenConversation(native_id))


def close(draft: Draft, label: e.Label) -> None:
    """End the agent, and say what the Session is then."""
    draft.write(e.SessionState(label))
    if draft.scratch.phase is not Phase.closed:
        draft.effects.append(CloseConversation())
    draft.set(phase=Phase.closed, foreign=None)


def stop(draft: Draft, turn: TurnId) -> None:
    """Begin the stop procedure: nothing that it asked may be answered any more (A3)."""
    close_requests(draft, e.Resolution.interrupted)
    draft.set(phase=Phase.stopping, watch=None)
    draft.effects.append(InterruptTurn(turn))


def close_requests(draft: Draft, how: e.Resolution) -> None:
    """None of them is ever answered by this (H40)."""
    if turn := draft.state.turn:
        for request in draft.state.requests:
            draft.write(e.PermissionResolved(turn.id, request, how))


def fail_steers(draft: Draft) -> None:
    """Their agent may hold what was on its way (I5)."""
    for steer in draft.state.steering:
        draft.write(e.SubmissionFailed(ids(steer.inputs), e.FailReason.uncertain))


def tell_answer(draft: Draft, request: RequestId, verdict: Verdict) -> None:
    """The agent may be silent for its usual while from now on."""
    draft.effects.append(AnswerRequest(request, verdict))
    if watch := draft.scratch.watch:
        draft.set(watch=replace(watch, heard=draft.now))
