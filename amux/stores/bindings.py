"""Topic Bindings: found by any key that names their topic, ended ones too, since a message is routed by what stood when it
was sent (H38). They are made with their Session, by the journal."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from amux.core.ids import BindingId
from amux.core.inputs import Place
from amux.ports import Binding
from amux.stores.postgres import Postgres, texts
from amux.stores.tables import binding_aliases, bindings, compiled

PATIENCE = 1.0  # seconds; ingress asks before it acknowledges (H37)
_b, _a = bindings.c, binding_aliases.c
_app, _chat = sa.bindparam("app", type_=sa.Text), sa.bindparam("chat", type_=sa.Text)
_topics = sa.cast(sa.bindparam("topics", type_=sa.Text), ARRAY(sa.Text))
_id, _topic = sa.bindparam("id", type_=sa.BigInteger), sa.bindparam("topic", type_=sa.Text)

_aliased = sa.select(_a.binding).where(_a.app == _app, _a.chat == _chat, _a.topic == sa.any_(_topics))
FIND = compiled(
    sa.select(_b.id, _b.app, _b.chat, _b.topic, _b.thread, _b.session, _b.since, _b.until)
    .where(_b.app == _app, _b.chat == _chat, sa.or_(_b.topic == sa.any_(_topics), _b.id.in_(_aliased)))
    .order_by(_b.since.desc(), _b.id.desc())
)
ALIAS = compiled(
    insert(binding_aliases)
    .from_select(["app", "chat", "topic", "binding"], sa.select(_b.app, _b.chat, _topic, _b.id).where(_b.id == _id))
    .on_conflict_do_nothing()
)


class PostgresBindings:
    """Reads Bindings and learns other names of their topics."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def find(self, app: str, chat: str, topics: Sequence[str]) -> Sequence[Binding]:
        rows = await self._postgres.ask(FIND, {"app": app, "chat": chat, "topics": texts(topics)}, patience=PATIENCE)
        return [_binding(*row) for row in rows]

    async def alias(self, binding: BindingId, topic: str) -> None:
        await self._postgres.ask(ALIAS, {"id": binding, "topic": topic})


def _binding(
    id_: Any, app: str, chat: str, topic: str, thread: str | None, session: Any, since: int, until: Any
) -> Binding:
    return Binding(id_, Place(id_, app, chat, thread), topic, session, since, until)
