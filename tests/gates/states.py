"""docs/states.md: the states of a Session, an input, a Turn and an agent, drawn by trying out the machine.

Beginning with a new Session, whatever `possible` lists is tried in every situation that comes of it, and what changes is an
arrow: so the pictures cannot differ from the code. Run from the root as `python -m tests.gates.states`; it fails when the
file is not up to date, and `--write` writes it."""

import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from amux.core import codec, machine
from amux.core import events as e
from amux.core import signals as s
from amux.core.ids import Epoch, InputId, Principal, RequestId, TurnId
from amux.core.inputs import (
    Action,
    Answer,
    ContextAction,
    ContextWish,
    Control,
    Input,
    Interrupt,
    Manage,
    Origin,
    Prefer,
    Verdict,
    Withdraw,
)
from amux.core.session import NEW, State, apply
from amux.core.steering import STEERING, Busy
from amux.core.step import KillAgent, Scratch, Step
from amux.core.watchdog import Limits
from tests.build import ELSEWHERE, rights, said
from tests.gates.kept import keep

DOCUMENT = Path("docs/states.md")
HEAD = """# States

Drawn by `make states-write`, which begins with a new Session and tries what can be said, what an agent can do, crashes and
time in every situation that comes of it in `amux/core/machine.py`; a gate keeps it true. Left out are a full queue, which
refuses by name, what an agent says, and an owner that leaves. Words are those of the [glossary](glossary.md). `crash` is a
new owner after the last one died there.
"""
WINDOW, LIMITS = 2.0, Limits(silence=60, turn=200, answer=90)
LATER = (70.0, 100.0, 1_000.0)  # seconds: silence, a question, a Turn
BY = Principal("user_a")
MOST_INPUTS = 2  # that wait or are under way at once: more bring no new arrow
FRESH = {busy: Scratch("scripted", WINDOW, LIMITS, busy) for busy in Busy}
Arrows = defaultdict[tuple[str, str], set[str]]


@dataclass(frozen=True, slots=True)
class World:
    """One situation: what the owner knows, and how far each input has come."""

    state: State = NEW
    scratch: Scratch = FRESH[Busy.steer]
    stages: Mapping[InputId, str] = field(default_factory=dict)
    killed: s.TurnEnded | None = None  # its death is not told yet
    now: float = 0.0
    inputs: int = 0  # that were ever said

    @property
    def key(self) -> object:
        """The same for situations between which the machine makes no difference but of names and counts."""
        state, scratch = self.state, self.scratch
        return (
            (
                state.label,
                state.compacting is None,
                state.wanted,
                state.archiving,
                _of_turn(state),
                state.can(STEERING),
            ),
            (bool(state.steering), bool(state.queue), state.queue and state.queue[0].wish and state.queue[0].wish.what),
            (scratch.phase, bool(scratch.held), _whose(scratch), scratch.ended is None, scratch.busy),
            (self.killed and self.killed.reason, *sorted(self.stages.values())),
        )


def _whose(scratch: Scratch) -> object:
    first = scratch.burst.inputs[0] if scratch.burst else None
    return first and (first.sender, first.authorization.place)


@dataclass(slots=True)
class Atlas:
    """Arrows between states, by what they carry."""

    session: Arrows = field(default_factory=lambda: defaultdict(set))
    input: Arrows = field(default_factory=lambda: defaultdict(set))
    turn: Arrows = field(default_factory=lambda: defaultdict(set))
    agent: Arrows = field(default_factory=lambda: defaultdict(set))


def explore() -> Atlas:
    """Try all there is to try, breadth first."""
    atlas, seen = Atlas(), set[object]()
    ahead = deque(_births(atlas))
    while ahead:
        world = ahead.popleft()
        if world.key in seen:
            continue
        seen.add(world.key)
        for name, signal in possible(world):
            ahead.append(after(atlas, world, name, signal))
        ahead.extend(after(atlas, world, "time passes", s.Tick(), seconds) for seconds in LATER)
    return atlas


def _births(atlas: Atlas) -> Iterator[World]:
    """Begun by a message, and by a word that is none."""
    first = said("user_a", id="om_first")
    for busy in Busy:
        for journal in ((first,), ()):
            stages = {one.id: "journaled" for one in journal}
            opened = s.Opened(Epoch(1), "worker", journal)
            yield after(atlas, World(scratch=FRESH[busy], stages=stages), "first owner", opened)


def after(atlas: Atlas, world: World, name: str, signal: s.Signal, seconds: float = 0.0) -> World:
    """The situation after one signal, with its arrows drawn."""
    scratch = FRESH[world.scratch.busy] if isinstance(signal, s.Opened) else world.scratch
    now = world.now + seconds
    step = machine.run(world.state, scratch, [signal], now=now)
    if world.scratch.phase is not step.scratch.phase:
        atlas.agent[world.scratch.phase, step.scratch.phase].add(name)
    stages, state, inputs = dict(world.stages), world.state, world.inputs
    if isinstance(signal, s.Heard) and isinstance(signal.said, Input):
        stages[signal.said.id] = "journaled"
        inputs += 1
    for event in step.events:
        state = _fold(atlas, name, state, event)
        _follow(atlas, stages, event)
    over = ("cancelled", "failed") if step.state.turn else ENDS
    left = {id: stage for id, stage in stages.items() if stage not in over}
    return World(step.state, step.scratch, left, _killed(world, step, signal), now, inputs)


def possible(world: World) -> Iterator[tuple[str, s.Signal]]:
    """All that can reach the owner here, by name; time passes besides."""
    journal = (*world.scratch.held, *(world.scratch.burst.inputs if world.scratch.burst else ()))
    yield "crash", s.Opened(Epoch(world.state.epoch + 1), "worker", journal)
    if world.scratch.at_rest(world.state):
        yield "rest", s.Rested()
    yield from _said(world)
    yield from _provider(world)


def _said(world: World) -> Iterator[tuple[str, s.Signal]]:
    state, id = world.state, f"om_{world.inputs:03}"
    if len(world.stages) < MOST_INPUTS:
        yield from (("input", s.Heard(one)) for one in _inputs(id))
    controls: list[Control] = [Manage(InputId("m"), BY, action) for action in Action]
    if not any(waits.wish for waits in state.queue):
        controls += [ContextWish(InputId("w"), BY, what) for what in ContextAction]
    if state.turn:
        controls.append(Interrupt(InputId("stop"), BY, state.turn.id))
    controls += [Answer(InputId("a"), BY, request, Verdict.allow) for request in state.requests]
    if world.stages:
        one = next(iter(world.stages))
        controls += [Withdraw(InputId("wd"), BY, (one,)), Prefer(InputId("p"), BY, one)]
    yield from ((_named(control), s.Heard(control)) for control in controls)


def _inputs(id: str) -> Iterator[Input]:
    """One of each kind between which `steering` makes a difference."""
    yield said("user_a", id=id)
    yield said("user_b", id=id)
    yield said(None, id=id)
    yield said("user_a", id=id, material=["image"])
    yield said("user_a", id=id, origin=Origin.group_watch)
    yield from (said("user_a", id=id, authorization=rights("user_a", place=place)) for place in (ELSEWHERE, None))


def _provider(world: World) -> Iterator[tuple[str, s.Signal]]:
    state, turn = world.state, world.state.turn
    yield "agent opened", s.ConversationReady("native", ("steering", "compaction"))
    yield "agent opened", s.ConversationReady("native")
    for reason in (e.FailReason.open_failed, e.FailReason.engine_unavailable):
        yield "no agent opened", s.OpenFailed(reason, "no")
    yield "history gone", s.HistoryGone()
    yield "agent died", s.Died("gone", world.killed)
    if turn:
        yield "agent died", s.Died("gone", s.TurnEnded(turn.id, e.Outcome.failed, "unavailable"))
    yield "foreign turn", s.ForeignTurnBegan("native", "woken")
    yield "foreign turn ended", s.ForeignTurnEnded("native")
    if state.compacting:
        yield "agent compacted", s.Compacted(state.compacting)
        yield "agent compacted", s.Compacted(state.compacting, "no luck")
    for steer in state.steering:
        for answer in s.SteerAnswer:
            yield f"steer {answer}", s.Steered(steer.turn, tuple(i.id for i in steer.inputs), answer)
    for request in state.requests:
        yield "agent asks no more", s.PermissionWithdrawn(turn.id if turn else TurnId(0), request)
    if turn:
        yield "agent asks", s.PermissionAsked(turn.id, RequestId("r"), "may I?")
        for outcome in (e.Outcome.completed, e.Outcome.failed, e.Outcome.interrupted):
            yield "agent ended it", s.TurnEnded(turn.id, outcome)
        unhandled = tuple(id for id, stage in world.stages.items() if stage == "steered")
        yield "agent ended it", s.TurnEnded(turn.id, e.Outcome.interrupted, unhandled=unhandled)
    if state.last_turn:
        yield "agent is quiet", s.Stopped(state.last_turn)


def _named(control: Control) -> str:
    match control:
        case Manage():
            return control.action.value
        case ContextWish():
            return control.what.value
        case _:
            return type(control).__name__.lower()


def _fold(atlas: Atlas, name: str, state: State, event: e.Event) -> State:
    """The state after one event, with the arrows of Session and Turn."""
    new, word = apply(state, event), codec.KIND_OF[type(event)][0]
    if new.label is not state.label:
        atlas.session[state.label, new.label].add(word)
    before = _of_turn(state)
    match event:
        case e.TurnStarted():
            atlas.turn["[*]", "running"].add(word)
        case e.TurnFinished():
            atlas.turn[before, event.outcome].add(f"{name} ({event.reason})" if event.reason else name)
        case _ if _of_turn(new) != before:
            atlas.turn[before, _of_turn(new)].add(word)
    return new


def _of_turn(state: State) -> str:
    if state.turn is None:
        return "none"
    if state.turn.interrupting:
        return "interrupting"
    return "asking" if state.requests else "running"


STAGES: Mapping[type[e.Event], str] = {
    e.InputQueued: "queued",
    e.SteerRequested: "steering",
    e.InputSteered: "steered",
    e.InputCancelled: "cancelled",
    e.SubmissionFailed: "failed",
    e.TurnStarted: "dispatched",
}
ENDS = ("steered", "cancelled", "failed", "dispatched")


def _follow(atlas: Atlas, stages: dict[InputId, str], event: e.Event) -> None:
    """How far the inputs come that this event names."""
    if isinstance(event, e.InputAccepted):
        _go(atlas, stages, event.input.id, "accepted", "input_accepted")
    elif stage := STAGES.get(type(event)):
        word, reason = codec.KIND_OF[type(event)][0], getattr(event, "reason", None)
        for id in event.inputs:  # type: ignore[union-attr]
            _go(atlas, stages, id, stage, str(reason or word))


def _go(atlas: Atlas, stages: dict[InputId, str], id: InputId, stage: str, why: str) -> None:
    atlas.input[stages[id], stage].add(why)
    stages[id] = stage


def _killed(world: World, step: Step, signal: s.Signal) -> s.TurnEnded | None:
    if isinstance(signal, s.Opened | s.Died):
        return None
    ended = [effect.ended for effect in step.effects if isinstance(effect, KillAgent)]
    return ended[0] if ended else world.killed


INPUT = """It ends as one of four; one that was steered into a Turn that is interrupted before the agent came to it is
cancelled after all. With the event, or the reason in it."""
AGENT = """The owner's Phase, before and after one step, with what reached the owner. Only `idle` dispatches: a step may pass it."""


def draw(title: str, about: str, arrows: Arrows) -> str:
    """One section with its picture. What nothing leads to is a beginning, what leads nowhere an end."""
    sources, targets = {source for source, _ in arrows}, {target for _, target in arrows}
    lines = [f"  [*] --> {first}" for first in sorted(sources - targets - {"[*]"})]
    lines += [f"  {source} --> {target}: {', '.join(sorted(why))}" for (source, target), why in sorted(arrows.items())]
    lines += [f"  {last} --> [*]" for last in sorted(targets - sources)]
    return "\n".join([f"## {title}", about, "", "```mermaid", "stateDiagram-v2", *lines, "```", ""])


@cache
def render() -> str:
    """The document."""
    atlas = explore()
    return "\n".join(
        [
            HEAD,
            draw("A Session (S10)", "Its label, a fold of the Timeline; with the event.", atlas.session),
            draw("An input (I3, I4, I5, I6)", INPUT, atlas.input),
            draw("A Turn (T1, T3)", "It ends exactly once; with what reached the owner, and the reason.", atlas.turn),
            draw("An agent", AGENT, atlas.agent),
        ]
    )


def main(words: list[str]) -> int:
    wanted = render()
    shows = f"shows the {wanted.count('-->')} arrows of the machine"
    return keep(DOCUMENT, wanted, words, otherwise="is not what the machine does: make states-write", shows=shows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
