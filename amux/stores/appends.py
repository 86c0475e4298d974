"""The append: one statement behind the Fence for all Sessions of the process that have something to write.

Fence, acceptance by count, events and projections stand or fall together for each Session (H1, H2, H4), and no Session
of a statement can make another fail (H5, H18). It never decides what to write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import LiteralString, Protocol

import structlog

from amux.core import codec
from amux.core.errors import Broken, Stale, Unavailable
from amux.core.events import Event, TurnStarted
from amux.core.ids import Seq, SessionKey, TurnId
from amux.ports import Append, Fence
from amux.stores.batch import Batch
from amux.stores.postgres import SEPARATOR, Backoff, Failure, Postgres, judge, named, numbers, texts

log = structlog.stdlib.get_logger()
LANES = 2  # statements under way at once; a Session keeps to its own lane
CHECKPOINT_EVERY = 1_000  # events

# `coalesce` keeps the planner from reading the whole backlog by the index of unaccepted inputs.
_UNTIL_IDENTITY: LiteralString = """
with r as (select * from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::int[], %s::int[], %s::text[],
                                %s::bigint[], %s::bigint[], %s::text[], %s::bool[], string_to_array(%s, E'\\x1e', ''))
           r(sid, epoch, token, head, n, k, label, open_turn, open_seq, native_id, shown, checkpoint)),
 u as (select * from unnest(%s::bigint[], %s::text[], %s::bigint[]) u(sid, id, seq)),
 c as (select u.sid, count(distinct i.input_id) k from u
       join inputs i on i.input_id = u.id and i.session = u.sid and coalesce(i.accepted_seq, 0) = 0 group by u.sid),
 ok as (select r.* from r left join c on c.sid = r.sid where r.k = coalesce(c.k, 0) order by r.sid),
 f as (update sessions s set head_seq = s.head_seq + ok.n, label = ok.label, native_id = ok.native_id,
         open_turn = ok.open_turn,"""
_FROM_IDENTITY: LiteralString = """
         open_seq = case when ok.open_turn is null then null else coalesce(ok.open_seq, s.open_seq) end
       from ok where s.key = ok.sid and s.epoch = ok.epoch and s.token = ok.token and s.head_seq = ok.head
       returning s.key, s.head_seq, ok.checkpoint, ok.shown),
 a as (update inputs i set accepted_seq = u.seq, payload = null from u join f on f.key = u.sid where i.input_id = u.id),
 p as (insert into checkpoints select key, head_seq, %s::smallint, checkpoint from f where checkpoint is not null
       on conflict (session) do update set seq = excluded.seq, version = excluded.version, state = excluded.state),
 d as (insert into deliveries (session, open, shown) select key, true, head_seq from f where shown
       on conflict (session) do update set open = true, shown = excluded.shown,
         since = case when deliveries.open then deliveries.since else now() end),
 x as (insert into timeline select f.key, e.seq, e.turn, e.kind, e.v, e.payload, now() from f
       join unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::smallint[], string_to_array(%s, E'\\x1e'))
         e(sid, seq, turn, kind, v, payload) on e.sid = f.key)
select key, date_part('epoch', now()) from f"""
APPEND: LiteralString = _UNTIL_IDENTITY + _FROM_IDENTITY
# Once in a Session's life at most, so it has a statement of its own and the hot one stays as it is.
APPEND_IDENTITY: LiteralString = (
    _UNTIL_IDENTITY + " profile = coalesce(s.profile, %s), engine = coalesce(s.engine, %s)," + _FROM_IDENTITY
)
BEFORE_IDENTITY = 15  # parameters

WRITTEN = """
select t.kind, t.payload, date_part('epoch', t.at) from sessions s join timeline t on t.session = s.key
where s.key = %s and s.epoch = %s and s.token = %s and s.head_seq = %s and t.seq > %s order by t.seq"""


class Publish(Protocol):
    """Tells readers what grew: Session, first seq, time, and the events as `encode` made them. Never waits."""

    def __call__(self, session: SessionKey, first: int, at: float, events: "Encoded") -> None: ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """Events column by column, encoded once for the append and for the nudge."""

    kinds: Sequence[str]
    versions: Sequence[int]
    payloads: Sequence[str]
    turns: Sequence[TurnId | None]


@dataclass(frozen=True, slots=True)
class Write:
    """One Session's step as parameters."""

    session: SessionKey
    fence: Fence
    step: Append
    events: Encoded
    checkpoint: str
    open_seq: int | None

    @property
    def head(self) -> Seq:
        """Where the Timeline stands afterwards."""
        return Seq(self.fence.head + len(self.step.events))


class Snag(Enum):
    """Why a Write is to be tried again."""

    later = "later"  # perhaps it was done
    alone = "alone"  # one of the group spoils it, for as long as it may be


Outcome = float | Snag | None  # when it was written, by Postgres' clock; None: the Fence or the count did not fit


class Appender:
    """The appends of all Sessions of this process."""

    def __init__(self, postgres: Postgres, publish: Publish, *, patience: float) -> None:
        self._postgres, self._publish, self._patience = postgres, publish, patience
        self._lanes = [Batch(self._together) for _ in range(LANES)]
        self._alone = asyncio.Semaphore(2)  # locked rows may not hold every connection

    async def append(self, session: SessionKey, fence: Fence, step: Append) -> Fence:
        """Write it, or find that it was written when its answer was lost.

        Raises Stale, Broken, or Unavailable when Postgres stays away for `patience` seconds; asked again with the same
        Fence and step it is still written once."""
        try:
            write = _prepared(session, fence, step)
        except (TypeError, ValueError, KeyError) as fault:
            raise Broken(f"session {session} cannot write: {named(fault)}") from None
        attempt: Callable[[Write], Awaitable[Outcome]] = self._lanes[session % LANES].ask
        if step.record:
            attempt = self._by_itself
        backoff: Backoff | None = None
        while isinstance(outcome := await attempt(write), Snag):
            backoff = backoff or Backoff(self._patience)
            if outcome is Snag.alone:
                attempt = self._by_itself
            elif not await backoff.wait():
                raise Unavailable("Postgres does not take the Timeline; see `amux doctor`.")
        at = outcome if outcome is not None else await self._was_written(write)
        self._publish(session, fence.head + 1, at, write.events)
        return Fence(fence.epoch, fence.token, write.head)

    async def _together(self, writes: list[Write]) -> Sequence[Outcome]:
        try:
            rows = await self._postgres.run(APPEND, _parameters(writes))
        except Exception as fault:  # noqa: BLE001 - judged, and told to each
            failure = judge(fault)
            log.warning("append_failed", sessions=len(writes), failure=failure, why=named(fault))
            return [Snag.later if failure in (Failure.away, Failure.full) else Snag.alone] * len(writes)
        written: dict[int, float] = dict(rows)
        return [written.get(write.session) for write in writes]

    async def _by_itself(self, write: Write) -> Outcome:
        try:
            async with self._alone:
                rows = await self._postgres.run(*_alone(write))
        except Exception as fault:  # noqa: BLE001 - judged, and told
            if judge(fault) is Failure.fault:
                log.error("append_broken", session=write.session, why=named(fault), kinds=list(write.events.kinds))
                raise Broken(f"session {write.session} cannot write: {named(fault)}") from None
            return Snag.later
        return rows[0][1] if rows else None

    async def _was_written(self, write: Write) -> float:
        """When these very events were written: by an attempt whose answer was lost (H1). Raises Stale when not."""
        fence = write.fence
        parameters = (write.session, fence.epoch, fence.token, write.head, fence.head)
        rows = await self._postgres.ask(WRITTEN, parameters, patience=self._patience)
        if [row[:2] for row in rows] != list(zip(write.events.kinds, write.events.payloads, strict=True)):
            raise Stale(f"session {write.session} is not at epoch {fence.epoch}, seq {fence.head} any more")
        return float(rows[-1][2])


def encode(events: Sequence[Event]) -> Encoded:
    """Events as their rows will be."""
    return Encoded(*codec.encode_run(events), [getattr(event, "turn", None) for event in events])


def _prepared(session: SessionKey, fence: Fence, step: Append) -> Write:
    events, head = encode(step.events), fence.head
    due = "turn_finished" in events.kinds or (head + len(step.events)) // CHECKPOINT_EVERY > head // CHECKPOINT_EVERY
    checkpoint = codec.encode_state(step.state) if due else ""
    running = step.state.turn
    open_seq = None
    if running and "turn_started" in events.kinds:
        starts = (seq for seq, event in enumerate(step.events, head + 1) if isinstance(event, TurnStarted))
        open_seq = max(starts)  # the running Turn is the one that started last
    return Write(session, fence, step, events, checkpoint, open_seq)


def _alone(write: Write) -> tuple[LiteralString, tuple[object, ...]]:
    """The statement for one Session, with its parameters."""
    parameters, record = _parameters([write]), write.step.record
    if record is None:
        return APPEND, parameters
    identity = (record.profile, record.engine)
    return APPEND_IDENTITY, (*parameters[:BEFORE_IDENTITY], *identity, *parameters[BEFORE_IDENTITY:])


def _parameters(writes: list[Write]) -> tuple[object, ...]:
    """In the order of the statement's marks; rows in the order of their keys, so that two workers lock alike."""
    writes = sorted(writes, key=lambda write: write.session)
    states = [write.step.state for write in writes]
    accepts = [(w.session, id_, w.fence.head + offset) for w in writes for id_, offset in w.step.accepts]
    return (
        numbers([w.session for w in writes]),
        numbers([w.fence.epoch for w in writes]),
        texts([w.fence.token for w in writes]),
        numbers([w.fence.head for w in writes]),
        numbers([len(w.step.events) for w in writes]),
        numbers([len(w.step.accepts) for w in writes]),
        texts([state.label for state in states]),
        numbers([state.turn.id if state.turn else None for state in states]),
        numbers([w.open_seq for w in writes]),
        texts([state.native_id for state in states]),
        texts(["t" if w.step.shown else "f" for w in writes]),
        SEPARATOR.join([w.checkpoint for w in writes]),
        numbers([session for session, _, _ in accepts]),
        texts([id_ for _, id_, _ in accepts]),
        numbers([seq for _, _, seq in accepts]),
        codec.CHECKPOINT,
        "{" + ",".join([",".join([str(w.session)] * len(w.step.events)) for w in writes]) + "}",
        "{" + ",".join([",".join(map(str, range(w.fence.head + 1, w.head + 1))) for w in writes]) + "}",
        numbers(chain.from_iterable([w.events.turns for w in writes])),
        "{" + ",".join([",".join(w.events.kinds) for w in writes]) + "}",  # plain words
        "{" + ",".join([",".join(map(str, w.events.versions)) for w in writes]) + "}",
        SEPARATOR.join([SEPARATOR.join(w.events.payloads) for w in writes]),
    )
