"""Topic Bindings: found by any key that names their topic, ended ones too, since a message is routed by what stood when it
was sent (H38). They are made with their Session, by the journal."""

from collections.abc import Sequence
from typing import Any

from amux.core.ids import BindingId
from amux.core.inputs import Place
from amux.ports import Binding
from amux.stores.postgres import Postgres, texts

PATIENCE = 1.0  # seconds; ingress asks before it acknowledges (H37)

FIND = """
select b.id, b.app, b.chat, b.topic, b.thread, b.session, b.since, b.until from bindings b
where b.app = %(app)s and b.chat = %(chat)s and (b.topic = any(%(topics)s::text[]) or b.id in (
  select a.binding from binding_aliases a
  where a.app = %(app)s and a.chat = %(chat)s and a.topic = any(%(topics)s::text[])))
order by b.since desc, b.id desc"""

ALIAS = """
insert into binding_aliases (app, chat, topic, binding)
select b.app, b.chat, %(topic)s, b.id from bindings b where b.id = %(id)s::bigint
on conflict do nothing"""


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
