"""The journal in Postgres: once per InputId over all Sessions and for good (H35), grouped over all who submit at once.

Its commit is the promise to the sender. An accepted row keeps its id and loses its text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import LiteralString

import msgspec
import psycopg
import structlog
from psycopg.rows import TupleRow

from amux.core import codec
from amux.core.again import FATES, Fate
from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.core.events import InputAccepted
from amux.core.ids import BindingId, InputId, Seq, SessionKey, TurnId
from amux.core.inputs import Input, Interrupt, Said
from amux.ports import Draft, Journaled, Known, NewBinding
from amux.stores.batch import Batch
from amux.stores.postgres import (
    SEPARATOR,
    Backoff,
    Failure,
    NotConnected,
    Params,
    Postgres,
    judge,
    named,
    numbers,
    texts,
)

log = structlog.stdlib.get_logger()
FATE_KINDS = [codec.KIND_OF[fate][0] for fate in FATES]

JOURNAL = """
with u as (select * from unnest(%s::text[], %s::bigint[], %s::text[], string_to_array(%s, E'\\x1e'), %s::bigint[])
           with ordinality u(id, sid, kind, payload, turn, n)),
 x as (insert into inputs (input_id, session, kind, payload, turn)
       select u.id, s.key, u.kind, u.payload, case when u.kind = 'interrupt' then coalesce(u.turn, s.open_turn) end
       from u join sessions s on s.key = u.sid order by u.n on conflict do nothing returning input_id, session, turn)
select x.input_id, x.session, s.target, x.turn from x join sessions s on s.key = x.session"""

TWINS = """
select i.input_id, i.session, s.target, s.id from inputs i left join sessions s on s.key = i.session
where i.input_id = any(%s::text[])"""

RECALL = """
insert into inputs (input_id, kind, accepted_seq) values (%s, 'recalled', 0) on conflict do nothing returning 1"""

LAUNCH = """
with s as (insert into sessions (target, id, profile, engine, snapshot, title)
           values (%(target)s, %(id)s, %(profile)s, %(engine)s, %(snapshot)s, %(title)s) returning key),
 b as (insert into bindings (id, app, chat, topic, thread, session, since)
       select %(binding)s::bigint, %(app)s, %(chat)s, %(topic)s, %(thread)s, s.key, %(since)s::bigint from s
       where %(binding)s::bigint is not null)
insert into inputs (input_id, session, kind, payload) select %(input)s, s.key, %(kind)s, %(payload)s from s
returning session"""

NEXT_BINDING = "select nextval(pg_get_serial_sequence('bindings', 'id'))"

ACTIVE = "select id, session from bindings where app = %s and chat = %s and topic = %s and until is null"

UNACCEPTED = """
select i.session, i.kind, i.payload, i.turn from unnest(%s::bigint[]) k(sid)
join inputs i on i.session = k.sid and i.accepted_seq is null order by i.session, i.pos"""

KNOWN = """
select i.input_id, i.session, i.accepted_seq, coalesce(i.payload, t.payload), t.v from inputs i
left join timeline t on t.session = i.session and t.seq = i.accepted_seq
where i.input_id = any(%s::text[]) and i.kind = 'input'"""

FATED = "select kind, v, payload from timeline where session = %s and seq > %s and kind = any(%s::text[]) order by seq"

LYING = """
select distinct i.session, s.target from inputs i join sessions s on s.key = i.session
where i.accepted_seq is null and i.journaled_at < now() - %s * interval '1 second'"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the journal to be written."""

    session: SessionKey
    said: Said
    kind: str
    payload: str


class PostgresInputs:
    """The journal. `patience`: seconds for which an answer is waited for; who submits waits too, so it is short."""

    def __init__(self, postgres: Postgres, *, patience: float = 2.0) -> None:
        self._postgres, self._patience = postgres, patience
        self._lines = Batch(self._write)

    async def journal(self, session: SessionKey, said: Said) -> Journaled:
        return await self._lines.ask(Line(session, said, *codec.encode_said(said)))

    async def launch(self, draft: Draft, said: Said, binding: NewBinding | None) -> Journaled:
        number = (await self._postgres.ask(NEXT_BINDING, patience=self._patience))[0][0] if binding else None
        placed = _placed(said, number) if number else said
        row = _launch_row(draft, placed, binding, number)
        try:
            key = (await self._written(LAUNCH, row))[0][0]
        except psycopg.errors.UniqueViolation as lost:
            if (twin := await self._twin(draft, placed)) is not None:
                return twin
            return await self._lost(draft, said, binding, lost.diag.constraint_name)
        return Journaled(placed, key, draft.ref.target, fresh=True)

    async def recall(self, said: InputId) -> SessionKey | None:
        if await self._written(RECALL, (said,)):
            return None
        rows = await self._postgres.ask(TWINS, (texts([said]),), patience=self._patience)
        return SessionKey(rows[0][1]) if rows and rows[0][1] is not None else None

    async def unaccepted(self, session: SessionKey) -> Sequence[Said]:
        return [said_of(*said) for _, *said in await self._postgres.ask(UNACCEPTED, (numbers([session]),))]

    async def known(self, inputs: Sequence[InputId]) -> Sequence[Known]:
        rows = await self._postgres.ask(KNOWN, (texts(list(inputs)),), patience=self._patience)
        found = {row[0]: _known(*row[1:]) for row in rows}
        return [found[id_] for id_ in inputs if id_ in found]

    async def fates(self, session: SessionKey, after: Seq) -> Sequence[Fate]:
        rows = await self._postgres.ask(FATED, (session, after, texts(FATE_KINDS)), patience=self._patience)
        events = (codec.decode(*row) for row in rows)
        return [event for event in events if isinstance(event, FATES)]

    async def lying(self, *, older_than: float) -> Sequence[tuple[SessionKey, str]]:
        return [(SessionKey(key), target) for key, target in await self._postgres.ask(LYING, (older_than,))]

    async def _write(self, lines: list[Line]) -> Sequence[Journaled | Exception]:
        try:
            rows = await self._written(JOURNAL, _columns(lines))
        except Broken as fault:
            if len(lines) == 1:
                return [fault]
            return [answer for line in lines for answer in await self._write([line])]  # one is bad: the others are not
        fresh = {input_id: (key, target, turn) for input_id, key, target, turn in rows}
        answers = [_fresh(line, fresh.pop(line.said.id, None)) for line in lines]
        try:
            twins = await self._twins([line.said for line, answer in zip(lines, answers, strict=True) if not answer])
        except Unavailable as why:  # the fresh ones are written; the others may be, by an attempt whose answer was lost
            doubt = Uncertain(f"It may have been taken; the same id may be sent again. {why}")
            return [answer or doubt for answer in answers]
        return [
            answer or twins.get(line.said.id) or Refused(f"no such Session: number {line.session}")
            for line, answer in zip(lines, answers, strict=True)
        ]

    async def _twins(self, said: list[Said]) -> dict[InputId, Journaled | Exception]:
        if not said:
            return {}
        rows = await self._postgres.ask(TWINS, (texts([one.id for one in said]),), patience=self._patience)
        found = {input_id: (key, target) for input_id, key, target, _ in rows}
        return {one.id: _twin_of(one, *found[one.id]) for one in said if one.id in found}

    async def _written(self, statement: LiteralString, params: Params) -> list[TupleRow]:
        """Its rows, for a statement that may be repeated. Raises UniqueViolation as it comes, Broken when it will never
        do, Unavailable when it certainly was not done, Uncertain when it may have been."""
        backoff, sent = Backoff(self._patience), False
        while True:
            try:
                return await self._postgres.run(statement, params)
            except psycopg.errors.UniqueViolation:
                raise
            except Exception as fault:
                failure = judge(fault)
                log.warning("journal_failed", failure=failure, why=named(fault))
                if failure is Failure.fault:
                    raise Broken(f"the journal cannot hold this: {named(fault)}") from None
                sent = sent or (failure is Failure.away and not isinstance(fault, NotConnected))
                if failure is Failure.full or not await backoff.wait():
                    raise _untaken(failure, sent) from fault

    async def _twin(self, draft: Draft, placed: Said) -> Journaled | None:
        """What became of this input, if the journal has it. In a Session of that very name it is ours: written by an
        attempt whose answer was lost."""
        for _, key, target, id_ in await self._postgres.ask(TWINS, (texts([placed.id]),), patience=self._patience):
            ours = (target, id_) == (draft.ref.target, draft.ref.id)
            if key is None:
                raise recalled()
            return Journaled(placed, SessionKey(key), target, fresh=ours)
        return None

    async def _lost(self, draft: Draft, said: Said, binding: NewBinding | None, constraint: str | None) -> Journaled:
        """Somebody has this topic: its Session hears it (H36)."""
        if binding is None or constraint != "bindings_active":
            raise Broken(f"a Session could not be made: {constraint}")
        topic = (binding.place.app, binding.place.chat, binding.topic)
        for number, key in await self._postgres.ask(ACTIVE, topic, patience=self._patience):
            return await self.journal(SessionKey(key), _placed(said, BindingId(number)))
        return await self.launch(draft, said, binding)  # the winner's Binding has ended meanwhile


def said_of(kind: str, payload: str, turn: TurnId | None) -> Said:
    """What a journal's row says; an Interrupt's Turn stands in its column."""
    said = codec.decode_said(kind, payload)
    return replace(said, turn=turn) if isinstance(said, Interrupt) else said


def _known(session: int, seq: int | None, payload: str, version: int | None) -> Known:
    """From its own row, or from the Timeline, whose `version` it is, once it is there."""
    if version is None:
        said = codec.decode_said("input", payload)
    else:
        accepted = codec.decode("input_accepted", version, payload)
        assert isinstance(accepted, InputAccepted)
        said = accepted.input
    assert isinstance(said, Input)
    return Known(said, SessionKey(session), None if seq is None else Seq(seq))


def _columns(lines: list[Line]) -> tuple[str, ...]:
    turns = [line.said.turn if isinstance(line.said, Interrupt) else None for line in lines]
    return (
        texts([line.said.id for line in lines]),
        numbers([line.session for line in lines]),
        texts([line.kind for line in lines]),
        SEPARATOR.join([line.payload for line in lines]),
        numbers(turns),
    )


def _fresh(line: Line, row: tuple[int, str, int | None] | None) -> Journaled | None:
    if row is None:
        return None
    key, target, turn = row
    said = line.said
    if isinstance(said, Interrupt) and turn is not None:
        said = replace(said, turn=TurnId(turn))
    return Journaled(said, SessionKey(key), target, fresh=True)


def _twin_of(said: Said, key: int | None, target: str) -> Journaled | Exception:
    return recalled() if key is None else Journaled(said, SessionKey(key), target, fresh=False)


def recalled() -> Refused:
    """Its sender took it back before it came."""
    return Refused("This message was recalled by its sender: nothing of it runs.", key="recalled")


def _untaken(failure: Failure, sent: bool) -> Exception:  # noqa: FBT001 - both are facts of one failure
    if sent:
        return Uncertain("The message may have been stored, the answer was lost; sending it again is safe.")
    if failure is Failure.full:
        return Unavailable("The database is full or has no connection left: nothing was taken. See `amux doctor`.")
    return Unavailable("The database does not answer: nothing was taken. See `amux doctor`.")


def _placed(said: Said, binding: BindingId) -> Said:
    """The same with its place's Binding filled in."""
    if not isinstance(said, Input) or said.authorization.place is None:
        return said
    place = replace(said.authorization.place, binding=binding)
    return replace(said, authorization=replace(said.authorization, place=place))


def _launch_row(draft: Draft, said: Said, binding: NewBinding | None, number: int | None) -> dict[str, object]:
    kind, payload = codec.encode_said(said)
    place = binding.place if binding else None
    return {
        "target": draft.ref.target,
        "id": draft.ref.id,
        "profile": draft.launch.profile,
        "engine": draft.launch.engine,
        "snapshot": msgspec.json.encode(draft.launch).decode(),
        "title": codec.clean(draft.title),
        "binding": number,
        "app": place.app if place else None,
        "chat": place.chat if place else None,
        "topic": binding.topic if binding else None,
        "thread": place.thread if place else None,
        "since": binding.since if binding else None,
        "input": said.id,
        "kind": kind,
        "payload": payload,
    }
