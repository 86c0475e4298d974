"""Session rows: found by what people type, listed, and named for the sweep. It never writes one."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from amux.core.errors import Refused
from amux.core.events import Label
from amux.core.ids import SessionId, SessionKey, SessionRef
from amux.core.launch import LaunchSnapshot
from amux.ports import Session
from amux.stores.postgres import Postgres
from amux.stores.tables import compiled, sessions

COLUMNS = "s.key, s.target, s.id, s.snapshot, s.label, s.head_seq, s.open_turn, s.owner, s.title"
SHOWN = 8  # Sessions named in one refusal
LAST = "\x7f"  # behind every letter of an id

_s = sessions.c
_all = sa.select(_s.key, _s.target, _s.id, _s.snapshot, _s.label, _s.head_seq, _s.open_turn, _s.owner, _s.title)
_end = sa.bindparam("end", type_=sa.Text)
_id, _target = sa.bindparam("id", type_=sa.Text), sa.bindparam("target", type_=sa.Text)

FIND = compiled(
    _all.where(
        _s.id.op("~>=~")(_id),
        _s.id.op("~<~")(_end),
        sa.func.starts_with(_s.id, _id),
        sa.or_(_target.is_(None), _s.target == _target),
    )
    .order_by(_s.target, _s.id)
    .limit(sa.literal_column(str(SHOWN + 1), sa.Integer))
)
LIST = compiled(
    _all.where(
        sa.or_(sa.bindparam("label", type_=sa.Text).is_(None), _s.label == sa.bindparam("label", type_=sa.Text)),
        sa.or_(_target.is_(None), _s.target == _target),
    )
    .order_by(_s.key.desc())
    .limit(sa.bindparam("limit", type_=sa.BigInteger))
)
NAMED = compiled(
    sa.select(_s.key, _s.target).where(
        _s.owner.is_not(None), sa.or_(_s.held_until.is_(None), _s.held_until < sa.func.now())
    )
)


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
    key, target, id_, snapshot, label, head, open_turn, owner, title = row
    launch = msgspec.json.decode(snapshot, type=LaunchSnapshot)
    return Session(key, SessionRef(target, SessionId(id_)), launch, Label(label), head, open_turn, owner, title)
