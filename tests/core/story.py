"""What a whole Timeline must tell, whoever lived it: one clean story, and one fate for everything that was said.

`Heart` asks these at the end of each history, with what its provider was seen to be given."""

from collections import Counter

from amux.core import events as e
from amux.core.ids import InputId, Principal, TurnId
from amux.core.inputs import (
    ContextWish,
    Input,
    Said,
)


def check_story(log: list[e.Event]) -> None:
    """One Turn at a time, numbered without holes, each with one end, and nothing of it after its end."""
    turn, last, interrupted, asked = None, 0, set[int](), set[str]()
    archived = False
    for event in log:
        match event:
            case e.TurnStarted(number):
                assert turn is None, "one at a time (T4)"
                assert number == last + 1
                turn = last = number
            case e.TurnFinished(number):
                assert turn == number, "one end each (T3)"
                assert not asked, "requests are closed before the end"
                turn = None
            case e.SteerRequested(number) | e.InputSteered(number):
                assert turn == number, "a steer joins its Turn or none (I3)"
            case e.InterruptRequested(number):
                assert turn == number
                assert number not in interrupted
                interrupted.add(number)
            case e.PermissionRequested(number, request):
                assert turn == number
                asked.add(request)
            case e.SessionState(e.Label.sleeping | e.Label.archived as label):
                assert turn is None, "it sleeps only at rest (A4)"
                archived = archived or label is e.Label.archived
                assert not (archived and label is e.Label.sleeping)
            case e.ConversationOpening():
                assert not archived, "nothing wakes it any more (A8)"
            case e.PermissionResolved(number, request):
                assert turn == number
                assert request in asked, "answered once, while it is open (H40)"
                asked.remove(request)
            case _:
                pass


def check_fates(  # noqa: C901 - one line a kind of fate
    log: list[e.Event], journal: dict[InputId, Said], taken: Counter[InputId]
) -> None:
    """Exactly one fate each; order kept per sender; a Turn is one sender's; what failed or was cancelled never ran."""
    inputs = {i.id: i for i in journal.values() if isinstance(i, Input)}
    accepted = [x.input.id for x in log if isinstance(x, e.InputAccepted)]
    assert sorted(accepted) == sorted(inputs), "each was accepted, once: nothing is lost"
    fates: dict[InputId, list[str]] = {i: [] for i in inputs}
    started: list[InputId] = []
    senders: dict[TurnId, set[Principal | None]] = {}
    waited: set[InputId] = set()
    preferred: set[Principal | None] = set()
    for event in log:
        match event:
            case e.TurnStarted(turn, ids):
                senders[turn] = {inputs[i].sender for i in ids}
                assert len(senders[turn]) == 1
                started += ids
                for i in ids:
                    fates[i].append("started")
            case e.SteerRequested(turn, ids):
                assert {inputs[i].sender for i in ids} == senders[turn] != {None}
                assert not any(inputs[i].material for i in ids)
                assert not waited - set(started), "earlier input goes first (I4)"
            case e.InputQueued(ids):
                waited |= set(ids)
            case e.InputSteered(_, ids):
                for i in ids:
                    fates[i].append("steered")
            case e.SubmissionFailed(ids):
                waited -= set(ids)
                for i in ids:
                    fates[i].append("failed")
            case e.InputCancelled(ids, e.CancelReason.interrupted):
                for i in ids:
                    fates[i] = ["cancelled"]
            case e.InputCancelled(ids):
                waited -= set(ids)
                for i in ids:
                    assert not taken[i], "only what no provider may hold is withdrawn (H43)"
                    fates[i].append("cancelled")
            case e.InputPreferred(ids):
                preferred |= {inputs[i].sender for i in ids}
            case _:
                pass
    assert {i: f for i, f in fates.items() if len(f) != 1} == {}
    for i, (fate,) in fates.items():
        assert taken[i] <= (0 if fate == "cancelled" and i not in taken else 1)
    for who in {i.sender for i in inputs.values()} - preferred:
        of_one = [i for i in started if inputs[i].sender == who]
        assert of_one == sorted(of_one, key=accepted.index), "order is kept per sender"


def check_wishes(log: list[e.Event], journal: dict[InputId, Said]) -> None:
    """Each has one outcome; it comes after what waited before it, and before what was accepted after it (I9)."""
    outcomes = Counter[InputId]()
    accepted: dict[InputId, int] = {}  # where in the log
    waiting: set[InputId] = set()  # inputs
    before: dict[InputId, set[InputId]] = {}  # what waited when that wish was heard; wishes that wait themselves
    for at, event in enumerate(log):
        match event:
            case e.InputAccepted(said):
                accepted[said.id] = at
            case e.InputQueued(ids):
                waiting |= set(ids)
            case e.ContextQueued(wish):
                accepted[wish.id], before[wish.id] = at, set(waiting)
            case e.CompactRequested(control) | e.ContextCleared(control):
                assert not before.pop(control) & waiting, "a wish waits for what was said before it"
                outcomes[control] += isinstance(event, e.ContextCleared)
            case e.ContextCompacted(control) | e.ContextFailed(control) | e.ControlRefused(control):
                before.pop(control, None)
                outcomes[control] += 1
            case e.TurnStarted(_, ids):
                overtaken = [w for w in before if accepted[w] < min(accepted[i] for i in ids)]
                assert not overtaken, "nothing overtakes a wish"
                waiting -= set(ids)
            case e.SubmissionFailed(ids) | e.InputCancelled(ids) | e.SteerRequested(_, ids):
                waiting -= set(ids)
            case _:
                pass
    wishes = {x.id for x in journal.values() if isinstance(x, ContextWish)}
    assert {w: outcomes[w] for w in wishes if outcomes[w] != 1} == {}


def check_notes(log: list[e.Event], notes: dict[TurnId, str]) -> None:
    """What an interruption cancelled is named to the agent by the next Turn, until one is known to hold it (I6)."""
    texts = {x.input.id: x.input.text for x in log if isinstance(x, e.InputAccepted)}
    due: list[str] = []
    named: list[str] = []  # in the running Turn's note
    running = TurnId(0)
    for event in log:
        match event:
            case e.InputCancelled(ids, e.CancelReason.interrupted):
                due += [texts[i] for i in ids]
            case e.ContextCleared():
                due, named = [], []
            case e.TurnStarted(running):
                assert {text for text in texts.values() if f'"{text}"' in notes[running]} == set(due)
                assert bool(due) == bool(notes[running]), "told once"
                named = list(due)
            case e.Item(turn) | e.Delta(turn) | e.TurnFinished(turn, e.Outcome.completed) if turn == running:
                due, named = due[len(named) :], []
            case e.TurnFinished():
                running, named = TurnId(0), []
            case _:
                pass


def check_handoffs(log: list[e.Event], handoffs: dict[TurnId, e.Fresh | None]) -> None:
    """Who begins anew is told so by each Turn, until one is known to hold it, and never again (S8)."""
    due: e.Fresh | None = None
    running = TurnId(0)
    for event in log:
        match event:
            case e.ConversationOpening(_, native_id, fresh) if fresh:
                assert native_id is None
                due = fresh
            case e.ContextCleared():
                due = None
            case e.TurnStarted(running):
                assert handoffs[running] == due
            case e.Item(turn) | e.Delta(turn) | e.TurnFinished(turn, e.Outcome.completed) if turn == running:
                due = None
            case e.TurnFinished():
                running = TurnId(0)
            case _:
                pass
