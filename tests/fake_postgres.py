"""The ports that Postgres serves, over `World`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from amux.core import codec
from amux.core.again import FATES, Fate
from amux.core.errors import Broken, Refused, Stale, Unavailable
from amux.core.events import Event, Label, TurnFinished, TurnStarted
from amux.core.ids import BindingId, Epoch, InputId, Seq, SessionKey, TurnId
from amux.core.inputs import Input, Interrupt, Said
from amux.core.launch import Record, saved
from amux.core.session import fold
from amux.ports import (
    Append,
    Binding,
    CardRow,
    Delivery,
    Draft,
    Fence,
    Head,
    Journaled,
    Known,
    NewBinding,
    OpenedTimeline,
    Recorded,
    Session,
)
from amux.stores.inputs import recalled
from tests.fake_world import BIRTH, Door, Due, Entry, Row, World


@dataclass
class FakeInputs:
    """The journal."""

    world: World
    door: Door

    async def journal(self, session: SessionKey, said: Said) -> Journaled:
        async with self.door:
            return self._journal(session, said)

    def _journal(self, session: SessionKey, said: Said) -> Journaled:
        if session not in self.world.rows:
            raise Refused(f"no such Session: number {session}")
        if said.id in self.world.recalled:
            raise recalled()
        if isinstance(said, Interrupt) and said.turn is None:
            said = replace(said, turn=self.world.rows[session].session.open_turn)
        fresh = said.id not in self.world.journal
        entry = self.world.journal.setdefault(said.id, Entry(_written(said), session, self.world.clock.now))
        where = self.world.rows[entry.session].session
        return Journaled(said, where.key, where.ref.target, fresh)

    async def launch(self, draft: Draft, said: Said, binding: NewBinding | None) -> Journaled:
        async with self.door:
            if said.id in self.world.recalled:
                raise recalled()
            if said.id in self.world.journal:
                return self._journal(self.world.journal[said.id].session, said)
            winner = _active(self.world, binding) if binding else None
            if winner:
                return self._journal(winner.session, _placed(said, winner.id))
            key = self.world.session(draft.ref.id, target=draft.ref.target)
            row = self.world.rows[key]
            row.session = replace(
                row.session,
                record=Record(draft.launch.profile, draft.launch.engine),
                saved=saved(draft.launch),
                title=draft.title,
            )
            if binding:
                number = BindingId(len(self.world.bindings) + 1)
                place = replace(binding.place, binding=number)
                self.world.bindings[number] = Binding(number, place, binding.topic, key, binding.since, None)
                said = _placed(said, number)
            return self._journal(key, said)

    async def recall(self, said: InputId) -> SessionKey | None:
        async with self.door:
            if said in self.world.journal:
                return self.world.journal[said].session
            self.world.recalled.add(said)
            return None

    async def unaccepted(self, session: SessionKey) -> Sequence[Said]:
        async with self.door:
            return _unaccepted(self.world, session)

    async def known(self, inputs: Sequence[InputId]) -> Sequence[Known]:
        async with self.door:
            entries = [self.world.journal[id_] for id_ in inputs if id_ in self.world.journal]
            return [Known(e.said, e.session, e.accepted) for e in entries if isinstance(e.said, Input)]

    async def fates(self, session: SessionKey, after: Seq) -> Sequence[Fate]:
        async with self.door:
            return [r.event for r in self.world.timeline[session][after:] if isinstance(r.event, FATES)]

    async def lying(self, *, older_than: float) -> Sequence[tuple[SessionKey, str]]:
        async with self.door:
            before = self.world.clock.now - older_than
            old = {e.session for e in self.world.journal.values() if e.accepted is None and e.at < before}
            return [(key, self.world.rows[key].session.ref.target) for key in sorted(old)]


@dataclass
class FakeTimeline:
    """The append-only record, fenced."""

    world: World
    door: Door

    async def open(self, session: SessionKey, token: str, *, worker: str, young: bool) -> OpenedTimeline | None:
        async with self.door:
            if session not in self.world.rows:
                raise Refused(f"no such Session: number {session}")
            row = self.world.rows[session]
            if (row.session.owner and young) or row.held_until > self.world.clock.now:
                return None
            row.epoch, row.token, row.held_until = Epoch(row.epoch + 1), token, -1.0
            row.session = replace(row.session, owner=worker)
            state = fold(recorded.event for recorded in self.world.timeline[session])
            fence = Fence(row.epoch, token, row.session.head)
            return OpenedTimeline(fence, state, row.session, _unaccepted(self.world, session))

    async def append(self, session: SessionKey, fence: Fence, step: Append) -> Fence:
        async with self.door:
            row, log = self.world.rows[session], self.world.timeline[session]
            after = Fence(fence.epoch, fence.token, Seq(fence.head + len(step.events)))
            now = Fence(row.epoch, row.token, row.session.head)
            if now != after or [_written_event(e) for e in step.events] != [r.event for r in log[fence.head :]]:
                self._write(session, row, fence if now == fence else None, step)
            if self.world.lost_answers:
                self.world.lost_answers -= 1
                raise Unavailable("the answer was lost")
            return after

    def _write(self, session: SessionKey, row: Row, fence: Fence | None, step: Append) -> None:
        entries = [self.world.journal.get(id_) for id_, _ in step.accepts]
        if fence is None or any(e is None or e.session != session or e.accepted is not None for e in entries):
            raise Stale(f"session {session} has another owner, or this was accepted before")
        log, base = self.world.timeline[session], fence.head
        _refuse_second_finish(log, step)
        at = BIRTH + self.world.clock.now
        new = [Recorded(Seq(base + n), at, _written_event(event)) for n, event in enumerate(step.events, 1)]
        for (_, offset), entry in zip(step.accepts, entries, strict=True):
            assert entry is not None
            entry.accepted = Seq(base + offset)
        log += new
        turn = step.state.turn.id if step.state.turn else None
        row.session = replace(row.session, head=new[-1].seq, label=step.state.label, open_turn=turn)
        if step.record:
            had = row.session.record
            record = Record(had.profile or step.record.profile, had.engine or step.record.engine)
            row.session = replace(row.session, record=record)
        if step.shown:
            due = self.world.dues.setdefault(session, Due(since=self.world.clock.now))
            due.since = due.since if due.open else self.world.clock.now
            due.open, due.shown = True, new[-1].seq
        for queue in self.world.followers.get(session, ()):
            if not self.world.redis_away:
                queue.put_nowait(new)

    async def hold(self, held: Sequence[tuple[SessionKey, str]], *, seconds: float) -> Sequence[bool]:
        async with self.door:
            rows = self.world.rows
            answers = [rows[key].token == token and rows[key].session.owner is not None for key, token in held]
            for (key, _), still in zip(held, answers, strict=True):
                if still:
                    self.world.rows[key].held_until = self.world.clock.now + seconds
            return answers

    async def sign_off(self, session: SessionKey, fence: Fence) -> None:
        async with self.door:
            row = self.world.rows[session]
            if (row.epoch, row.token) == (fence.epoch, fence.token):
                row.session, row.held_until = replace(row.session, owner=None), -1.0

    async def read(self, session: SessionKey, after: Seq, *, limit: int) -> Sequence[Recorded]:
        async with self.door:
            return self.world.timeline[session][after : after + limit]

    async def head(self, session: SessionKey) -> Head:
        async with self.door:
            row = self.world.rows[session].session
            starts = (r for r in self.world.timeline[session] if isinstance(r.event, TurnStarted))
            started = next((r for r in starts if _turn(r) == row.open_turn), None)
            return Head(row.head, row.label, started)


@dataclass
class FakeSessions:
    """Session rows."""

    world: World
    door: Door

    async def find(self, prefix: str) -> Session:
        async with self.door:
            rows = [row.session for row in self.world.rows.values()]
            target, _, id_ = prefix.rpartition("/")
            found = [s for s in rows if id_ and s.ref.id.startswith(id_) and target in ("", s.ref.target)]
            match found:
                case []:
                    raise Refused(f"no such Session: {prefix}", key="no_such_session", prefix=prefix)
                case [one]:
                    return one
                case _:
                    names = ", ".join(sorted(str(s.ref) for s in found))
                    raise Refused(f"{prefix} is the beginning of several Sessions: {names}", key="ambiguous_session")

    async def list(self, *, label: Label | None, target: str | None, limit: int) -> Sequence[Session]:
        async with self.door:
            newest = [row.session for row in reversed(self.world.rows.values())]
            return [s for s in newest if label in (None, s.label) and target in (None, s.ref.target)][:limit]

    async def named(self) -> Sequence[tuple[SessionKey, str]]:
        async with self.door:
            rows = [r for r in self.world.rows.values() if r.session.owner and r.held_until <= self.world.clock.now]
            return [(r.session.key, r.session.ref.target) for r in rows]


@dataclass
class FakeBindings:
    """Topic Bindings."""

    world: World
    door: Door

    async def find(self, app: str, chat: str, topics: Sequence[str]) -> Sequence[Binding]:
        async with self.door:
            named = {id_ for id_, topic in self.world.aliases if topic in topics}
            here = [b for b in self.world.bindings.values() if (b.place.app, b.place.chat) == (app, chat)]
            found = [b for b in here if b.topic in topics or b.id in named]
            return sorted(found, key=lambda b: b.since, reverse=True)

    async def alias(self, binding: BindingId, topic: str) -> None:
        async with self.door:
            if (binding, topic) not in self.world.aliases:
                self.world.aliases.append((binding, topic))


@dataclass
class FakeCards:
    """What was shown where."""

    world: World
    door: Door

    async def take(self, session: SessionKey) -> Delivery:
        async with self.door:
            due = self.world.dues.setdefault(session, Due())
            due.fence, due.since = due.fence + 1, self.world.clock.now
            return Delivery(session, due.fence, due.position)

    async def rows(self, session: SessionKey) -> Sequence[CardRow]:
        async with self.door:
            return [row for (key, _), row in self.world.cards.items() if key == session]

    async def make(self, delivery: Delivery, row: CardRow) -> CardRow:
        async with self.door:
            self._fenced(delivery)
            return self.world.cards.setdefault((row.session, row.slot), row)

    async def sent(self, delivery: Delivery, row: CardRow) -> None:
        async with self.door:
            self._fenced(delivery)
            self.world.cards[row.session, row.slot] = row

    async def advance(self, delivery: Delivery, position: Seq, *, done: bool) -> None:
        async with self.door:
            due = self._fenced(delivery)
            due.position, due.since = position, self.world.clock.now
            due.open = due.open and not (done and due.shown <= position)

    async def owing(self, *, older_than: float) -> Sequence[SessionKey]:
        async with self.door:
            before = self.world.clock.now - older_than
            return [key for key, due in sorted(self.world.dues.items()) if due.open and due.since < before]

    def _fenced(self, delivery: Delivery) -> Due:
        due = self.world.dues[delivery.session]
        if due.fence != delivery.fence:
            raise Stale(f"another deliverer shows session {delivery.session}")
        return due


def _written_event(event: Event) -> Event:
    """The event as the store gives it back."""
    return codec.decode(*codec.encode(event))


def _written(said: Said) -> Said:
    return codec.decode_said(*codec.encode_said(said))


def _placed(said: Said, binding: BindingId) -> Said:
    if not isinstance(said, Input) or said.authorization.place is None:
        return said
    place = replace(said.authorization.place, binding=binding)
    return replace(said, authorization=replace(said.authorization, place=place))


def _active(world: World, new: NewBinding) -> Binding | None:
    wanted = (new.place.app, new.place.chat, new.topic)
    living = (b for b in world.bindings.values() if b.until is None)
    return next((b for b in living if (b.place.app, b.place.chat, b.topic) == wanted), None)


def _unaccepted(world: World, session: SessionKey) -> Sequence[Said]:
    return tuple(e.said for e in world.journal.values() if e.session == session and e.accepted is None)


def _refuse_second_finish(log: Iterable[Recorded], step: Append) -> None:
    """The partial unique index (T3)."""
    events = [*(recorded.event for recorded in log), *step.events]
    finished = [event.turn for event in events if isinstance(event, TurnFinished)]
    if len(set(finished)) != len(finished):
        raise Broken(f"turn {finished[-1]} would end twice")


def _turn(recorded: Recorded) -> TurnId | None:
    return recorded.event.turn if isinstance(recorded.event, TurnStarted) else None
