"""Session rows: found by what people type, listed, and named for the sweep. It never writes one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import msgspec

from amux.core.errors import Refused
from amux.core.events import Label
from amux.core.ids import SessionId, SessionKey, SessionRef
from amux.core.launch import Record, Saved
from amux.ports import Session
from amux.stores.postgres import Postgres

COLUMNS = "s.key, s.target, s.id, s.profile, s.engine, s.snapshot, s.label, s.head_seq, s.open_turn, s.owner, s.title"
SHOWN = 8  # Sessions named in one refusal
LAST = "\x7f"  # behind every letter of an id

FIND = f"""
select {COLUMNS} from sessions s
where s.id ~>=~ %(id)s and s.id ~<~ %(end)s and starts_with(s.id, %(id)s)
  and (%(target)s::text is null or s.target = %(target)s)
order by s.target, s.id limit {SHOWN + 1}"""

LIST = f"""
select {COLUMNS} from sessions s
where (%(label)s::text is null or s.label = %(label)s) and (%(target)s::text is null or s.target = %(target)s)
order by s.key desc limit %(limit)s::bigint"""

NAMED = """
select s.key, s.target from sessions s
where s.owner is not null and (s.held_until is null or s.held_until < now())"""


class PostgresSessions:
    """Session rows, for people and for the sweep."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def find(self, prefix: str) -> Session:
        target, slash, id_ = prefix.rpartition("/")
        where = {"id": id_, "end": id_ + LAST, "target": target if slash else None}
        rows = await self._postgres.ask(FIND, where) if id_ and "\0" not in prefix else []
        found = [session_of(row) for row in rows]
        if not found:
            raise Refused(
                f"no such Session: {prefix}. `amux ls` shows what there is.", key="no_such_session", prefix=prefix
            )
        if len(found) > 1:
            names = ", ".join(str(session.ref) for session in found[:SHOWN])
            more = " and more" if len(found) > SHOWN else ""
            raise Refused(
                f"{prefix} is the beginning of several Sessions: {names}{more}. Type one more letter.",
                key="ambiguous_session",
                prefix=prefix,
            )
        return found[0]

    async def list(self, *, label: Label | None, target: str | None, limit: int) -> Sequence[Session]:
        rows = await self._postgres.ask(LIST, {"label": label, "target": target, "limit": limit})
        return [session_of(row) for row in rows]

    async def named(self) -> Sequence[tuple[SessionKey, str]]:
        return [(SessionKey(key), target) for key, target in await self._postgres.ask(NAMED)]


def session_of(row: Sequence[Any]) -> Session:
    """A row of COLUMNS."""
    key, target, id_, profile, engine, snapshot, label, head, open_turn, owner, title = row
    ref, record = SessionRef(target, SessionId(id_)), Record(profile, engine)
    return Session(key, ref, record, saved_of(snapshot), Label(label), head, open_turn, owner, title)


def saved_of(snapshot: str) -> Saved:
    """What can be read of a launch snapshot; the rest is lost, and only its own Session has to do with that (S6, H5)."""
    try:
        return msgspec.json.decode(snapshot, type=Saved)
    except msgspec.DecodeError:
        pass
    saved = Saved()
    with suppress(msgspec.DecodeError):
        row = msgspec.json.decode(snapshot, type=dict[str, Any])
        for name in {f.name for f in fields(Saved)} & row.keys():
            with suppress(msgspec.ValidationError):
                one = msgspec.convert({name: row[name]}, Saved)
                saved = replace(saved, **{name: getattr(one, name)})
    return saved
