"""What was shown where: card rows written before they are sent, and each Session's position, behind a fence (H11, H12).

A position moves with its deliverer only; `open` is set by the append that gives it work and cleared when all is shown."""

from collections.abc import Sequence
from typing import Any, LiteralString

import msgspec

from amux.core.errors import Stale
from amux.core.ids import Seq, SessionKey
from amux.core.inputs import Place
from amux.ports import CardRow, Delivery
from amux.stores.postgres import Postgres

PATIENCE_OF_A_CLICK = 1.0  # seconds; whoever pressed waits for the answer

TAKE = """
insert into deliveries (session, fence) values (%s, 1)
on conflict (session) do update set fence = deliveries.fence + 1, since = now() returning fence, position"""

_COLUMNS = "slot, turn, place, reply_to, uuid, nonce, made_at, card_id, message_id, sequence, state"

ROWS = f"select {_COLUMNS} from cards where session = %s order by made_at, slot"

# The fence's row is locked, so that a deliverer that takes over waits for this write or is seen by it.
_FENCED = "f as (select session from deliveries where session = %(session)s and fence = %(fence)s for update)"

MAKE = f"""
with {_FENCED},
 made as (insert into cards (session, {_COLUMNS})
          select session, %(slot)s, %(turn)s::bigint, %(place)s, %(reply_to)s, %(uuid)s, %(nonce)s, %(made_at)s::float8,
                 %(card_id)s, %(message_id)s, %(sequence)s::bigint, %(state)s from f
          on conflict (session, slot) do nothing)
select 1 from f"""

BY_NONCE = f"select session, {_COLUMNS} from cards where nonce = %s"

ONE = f"select {_COLUMNS} from cards where session = %s and slot = %s"

SENT = f"""
with {_FENCED}
update cards c set card_id = %(card_id)s, message_id = %(message_id)s, sequence = %(sequence)s, state = %(state)s
from f where c.session = f.session and c.slot = %(slot)s returning 1"""

ADVANCE = """
update deliveries set position = greatest(position, %(position)s::bigint), since = now(),
  open = open and not (%(done)s::bool and shown <= %(position)s::bigint)
where session = %(session)s and fence = %(fence)s returning 1"""

OWING = "select session from deliveries where open and since < now() - %s * interval '1 second' order by session"


class PostgresCards:
    """Card rows and positions."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def take(self, session: SessionKey) -> Delivery:
        fence, position = (await self._postgres.ask(TAKE, (session,)))[0]
        return Delivery(session, fence, Seq(position))

    async def rows(self, session: SessionKey) -> Sequence[CardRow]:
        return [_row(session, *row) for row in await self._postgres.ask(ROWS, (session,))]

    async def by_nonce(self, nonce: str) -> CardRow | None:
        """The card whose buttons carry it (H24)."""
        rows = await self._postgres.ask(BY_NONCE, (nonce,), patience=PATIENCE_OF_A_CLICK)
        return _row(*rows[0]) if rows else None

    async def make(self, delivery: Delivery, row: CardRow) -> CardRow:
        await self._fenced(MAKE, delivery, _parameters(row))
        return _row(row.session, *(await self._postgres.ask(ONE, (row.session, row.slot)))[0])

    async def sent(self, delivery: Delivery, row: CardRow) -> None:
        await self._fenced(SENT, delivery, _parameters(row))

    async def advance(self, delivery: Delivery, position: Seq, *, done: bool) -> None:
        await self._fenced(ADVANCE, delivery, {"position": position, "done": done})

    async def owing(self, *, older_than: float) -> Sequence[SessionKey]:
        return [SessionKey(key) for (key,) in await self._postgres.ask(OWING, (older_than,))]

    async def _fenced(self, statement: LiteralString, delivery: Delivery, parameters: dict[str, object]) -> None:
        if not await self._postgres.ask(
            statement, {**parameters, "session": delivery.session, "fence": delivery.fence}
        ):
            raise Stale(f"another deliverer shows session {delivery.session}")


def _parameters(row: CardRow) -> dict[str, object]:
    return {
        "slot": row.slot,
        "turn": row.turn,
        "place": msgspec.json.encode(row.place).decode(),
        "reply_to": row.reply_to,
        "uuid": row.uuid,
        "nonce": row.nonce,
        "made_at": row.made_at,
        "card_id": row.card_id,
        "message_id": row.message_id,
        "sequence": row.sequence,
        "state": row.state,
    }


def _row(session: SessionKey, slot: str, turn: Any, place: str, *rest: Any) -> CardRow:
    return CardRow(session, slot, turn, msgspec.json.decode(place, type=Place), *rest)
