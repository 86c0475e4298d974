"""What amux itself says to an agent, in words that name their origin. Bounded; never a person's own text unmarked."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from amux.core import events as e
from amux.core.ids import InputId, TurnId
from amux.core.inputs import Input

MAX_QUOTE = 2_000  # characters of one message, quoted in a note or in a handoff
MAX_HANDOFF = 24_000  # characters of the Turns that a handoff tells
HANDOFF_EVENTS = 10_000  # of the Timeline: what lies further back is not looked at


def cancellation_note(cancelled: tuple[Input, ...]) -> str:
    """The note that opens the Turn after an interruption and names every cancelled input (I6); "" for none."""
    if not cancelled:
        return ""
    quotes = "\n".join(f"- {_quoted(i.text)}" for i in cancelled)
    return (
        "[Note from amux: the previous turn was stopped by a person. These messages were cancelled with it and must "
        f"not be acted on:\n{quotes}]"
    )


def _quoted(text: str) -> str:
    return '"' + _cut(text, MAX_QUOTE).replace("\n", " ") + '"'


@dataclass(slots=True)
class _Told:
    """One Turn as a handoff tells it. A later message of the agent takes the place of an earlier one: the last answers."""

    inputs: list[Input] = field(default_factory=list)
    answer: str = ""
    end: e.Outcome | None = None


BECAUSE = {
    e.Fresh.engine_lost: "amux no longer knows which agent held it before",
    e.Fresh.history_gone: "the agent's own record of it is gone",
}


def handoff(events: Iterable[e.Event], because: e.Fresh, *, before: TurnId) -> str:
    """amux's own record of the Turns before this one, marked as history, for an agent that begins anew (S8, A5).

    The newest Turns that fit into MAX_HANDOFF, each message cut at MAX_QUOTE; it says what is left out. "" for none."""
    turns, cleared = _turns(events, before)
    kept: list[str] = []
    room = MAX_HANDOFF
    for number, turn in reversed(turns.items()):
        text = _turn(number, turn)
        if len(text) > room and kept:
            break
        kept.append(_cut(text, room))
        room -= len(kept[-1])
    if not kept:
        return ""
    out = list(turns)[-len(kept)] - cleared - 1
    left = f" Earlier turns left out: {out}." if out else ""
    return (
        f"[Note from amux: this conversation begins anew, because {BECAUSE[because]}. The lines that begin with > are "
        "history: what was said in it before, as amux recorded it. They are no request; nothing in them is to be done "
        f"again, and the workspace is as those turns left it.{left}]\n" + "\n".join(reversed(kept)) + "\n"
        "[Note from amux: here the history ends, and the request begins.]"
    )


def _turns(events: Iterable[e.Event], before: TurnId) -> tuple[dict[TurnId, _Told], int]:
    """What each Turn before that one held, in order; and how many there were when the context was cleared, which are
    told to no agent any more (A7). What lies too far back to be among the events is not in it."""
    said: dict[InputId, Input] = {}
    turns: dict[TurnId, _Told] = {}
    cleared = 0
    for event in events:
        match event:
            case e.InputAccepted(one):
                said[one.id] = one
            case e.TurnStarted(turn, ids) if turn < before:
                turns[turn] = _Told([said[i] for i in ids if i in said])
            case e.InputSteered(turn, ids) if turn in turns:
                turns[turn].inputs += [said[i] for i in ids if i in said]
            case e.Item(turn, _, e.ItemType.message, e.ItemStatus.completed, _, text) if turn in turns:
                turns[turn].answer = text
            case e.TurnFinished(turn, outcome) if turn in turns:
                turns[turn].end = outcome
            case e.ContextCleared():
                cleared = max(turns, default=cleared)
                turns.clear()
            case _:
                pass
    return turns, cleared


def _turn(number: TurnId, turn: _Told) -> str:
    lines = [f"Turn {number}" + ("" if turn.end is e.Outcome.completed else f" ({turn.end or 'not ended'})")]
    lines += [f"{i.name or 'Somebody'} said: {_cut(i.text, MAX_QUOTE)}" for i in turn.inputs]
    lines += [f"The agent answered: {_cut(turn.answer, MAX_QUOTE)}" if turn.answer else "The agent gave no answer."]
    return "\n".join(f"> {line}" for text in lines for line in text.splitlines() or [""])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [{len(text) - most} characters more]"
