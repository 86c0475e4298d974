"""One Session's Timeline to its cards, each where its Turn belongs (B11). Alone on its Session by a fence of its own.

A card's row is written before the card is sent, with a uuid that never changes, and its sequence comes from the
Timeline's position: so a crash between send and save makes no second card, and an older state never lands last."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Protocol

import structlog

from amux.core.errors import Broken, Refused, Stale, Unavailable, Uncertain
from amux.core.ids import InputId, RequestId, Seq, SessionKey, TurnId
from amux.core.inputs import Place
from amux.core.view import AskView, Board, Fate, ReceiptView, TurnView
from amux.ports import Bindings, CardRow, Cards, Delivery, Messenger, Waker
from amux.runtime import failpoints
from amux.runtime.attach import Attach

log = structlog.stdlib.get_logger()

STEPS = 64  # sequences of one event, so that a state may be sent again without a new event
ONCE = 1  # the step of a state that is sent for the first time
INTERVAL = 1.0  # seconds between two updates of one card while nothing but its progress changed
UUID_HOUR = 3_000.0  # seconds for which Feishu surely knows a uuid again
MOST_FAILED = 3  # cards in one round
FINAL = "final"
MENDABLE = frozenset({"bad_credentials", "missing_scope"})  # by a person: the card waits for it
DEAD = "dead"  # Feishu will never take it; said once in the log


View = TurnView | ReceiptView | AskView


class Render(Protocol):
    """The cards of one view under that nonce: pure; the first stands for it, the others carry what is too long for it.

    `shown`: of how many people may have seen an older state; those that nothing is left for say so."""

    def __call__(self, view: View, nonce: str, *, shown: int) -> Sequence[Mapping[str, object]]: ...


@dataclass(frozen=True, slots=True)
class Deliver:
    """What every deliverer of this process shares. `lease`: seconds after its last sign of life in which a deliverer is
    missed; while it works it gives three of them in that time, whatever it waits for."""

    attach: Attach
    cards: Cards
    bindings: Bindings
    waker: Waker
    messenger: Messenger
    render: Render
    lease: float

    async def deliver(self, session: SessionKey) -> None:
        """Show this Session until everything is shown. Another that took over ends it quietly."""
        try:
            async with self._at_work(session):
                delivery = await self.cards.take(session)
                rows = {row.slot: row for row in await self.cards.rows(session)}
                await Deliverer(self, delivery, rows).run()
        except Stale:
            log.info("deliverer_stale", session=session)
        except (Unavailable, Uncertain) as why:  # the sweep asks again
            log.warning("not_delivered", session=session, why=str(why))

    @contextlib.asynccontextmanager
    async def _at_work(self, session: SessionKey) -> AsyncIterator[None]:
        """Signs of life beside the work, which may wait long: for Feishu's limits, or for news."""
        await self._sign(session, seconds=self.lease)
        beating, ours = asyncio.get_running_loop().create_task(self._beat(session)), True
        try:
            yield
        except Stale:  # the sign that stands is the other's
            ours = False
            raise
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            if ours:
                await self._sign(session, seconds=0)

    async def _beat(self, session: SessionKey) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            await self._sign(session, seconds=self.lease)

    async def _sign(self, session: SessionKey, *, seconds: float) -> None:
        """A sign of life, or of its end. Only a hint: without Redis the work goes on."""
        with contextlib.suppress(Unavailable):
            await self.waker.delivering(session, seconds=seconds)


@dataclass(slots=True)
class Deliverer:
    """One tenure."""

    house: Deliver
    delivery: Delivery
    rows: dict[str, CardRow]
    board: Board = field(default_factory=Board)
    position: Seq = field(init=False)
    _shown: dict[str, tuple[str, float]] = field(default_factory=dict)  # slot: its grade, and when it was sent
    _again: dict[str, float] = field(default_factory=dict)  # slot: when its end is shown once more

    def __post_init__(self) -> None:
        self.position = self.delivery.position

    async def run(self) -> None:
        """Follow the Timeline from where everything was shown, until everything is shown again."""
        async with contextlib.aclosing(self.house.attach.follow(self.delivery.session, self.position)) as grown:
            async for recorded in grown:
                for one in recorded:
                    self.board.apply(one.seq, one.at, one.event)
                    self.position = one.seq
                await self._show()
                await self._show_again()
                if self.board.settled() and not self.board.changed and not self._again:
                    await self.house.cards.advance(self.delivery, self.position, done=True)
                    return

    async def _show(self) -> None:
        """All that is due, the oldest first. One that Feishu does not take now keeps no other waiting; where it takes
        several not, it is away, and to ask for each would only cost time."""
        failed: list[Unavailable | Uncertain] = []
        for slot in sorted(self.board.changed, key=self._since):
            try:
                await self._show_changed(slot)
            except (Unavailable, Uncertain) as why:
                failed.append(why)
                if len(failed) == MOST_FAILED:
                    break
        if failed:
            raise failed[0]

    async def _show_changed(self, slot: str) -> None:
        view, grade, final = self._view(slot)
        if view is None or view.place is None:
            self.board.changed.discard(slot)
        elif self._due(slot, grade):
            await self._show_view(slot, view, view.place, FINAL if final else "shown")
            self.board.changed.discard(slot)
            self._shown[slot] = grade, time.monotonic()
            if any(map(_overtakable, self._rows_of(slot))):
                self._again[slot] = time.monotonic() + self.house.lease

    async def _show_again(self) -> None:
        """An end that stands where nothing is ordered: a deliverer that was replaced may have patched it over, with what
        it was about to send, for as long as a lease (H12)."""
        for slot in [slot for slot, due in self._again.items() if time.monotonic() >= due]:
            view, rows = self._view(slot)[0], self._rows_of(slot)
            cards = self.house.render(view, rows[0].nonce, shown=len(rows)) if view else ()
            for row, card in zip(rows, cards, strict=False):
                if _overtakable(row):
                    await self._show_card(row, card, replace(row, sequence=row.sequence + 1))
            del self._again[slot]

    def _view(self, slot: str) -> tuple[View | None, str, bool]:
        """What that slot shows, its grade (people must see a new one at once), and whether it will not change again."""
        kind, _, name = slot.partition(":")
        if kind == "turn":
            turn = self.board.turns[TurnId(int(name))]
            return turn, f"{turn.finished and turn.finished.outcome}{turn.stopping}{turn.asking}", bool(turn.finished)
        if kind == "ask":
            ask = self.board.asks[RequestId(name)]
            return ask, f"{ask.how}", ask.how is not None
        receipt = self.board.receipts[InputId(name)]
        if receipt.fate is Fate.started and slot not in self.rows:
            return None, "", True  # it never had to wait in anybody's sight
        return receipt, f"{receipt.fate}{receipt.ahead}", receipt.fate is not Fate.waiting

    def _since(self, slot: str) -> int:
        """The place in the Timeline of what that slot shows."""
        view, _, _ = self._view(slot)
        return view.first if view else 0

    def _due(self, slot: str, grade: str) -> bool:
        """At once when its state changed, else at most once an interval."""
        shown, at = self._shown.get(slot, ("", 0.0))
        return grade != shown or time.monotonic() - at >= INTERVAL

    # -- one view's messages ------------------------------------------------------------------------------------------

    async def _show_view(self, slot: str, view: View, place: Place, state: str) -> None:
        """Its card; and, when it is too long for one, further ones that carry the rest."""
        sequence = STEPS * (view.seq - view.first) + ONCE
        first = await self._row(slot, view, place)
        cards = self.house.render(view, first.nonce, shown=len(self._rows_of(slot)))
        for name, card in zip(_slots(slot), cards, strict=False):
            row = await self._row(name, view, place)
            unsent = row.message_id is None  # its entity may be saved already, with this very state
            if row.state != DEAD and (unsent or row.sequence < sequence):
                await self._show_card(row, card, replace(row, sequence=sequence, state=state))

    def _rows_of(self, slot: str) -> list[CardRow]:
        """Those of that view, in order."""
        return [self.rows[name] for name in takewhile(self.rows.__contains__, _slots(slot))]

    async def _row(self, slot: str, view: View, place: Place) -> CardRow:
        """The row comes first: what is sent without one could be sent twice."""
        if known := self.rows.get(slot):
            return known
        row = CardRow(
            session=self.delivery.session,
            slot=slot,
            turn=view.turn,
            place=place,
            reply_to=view.reply_to.rpartition(":")[2],
            uuid=secrets.token_hex(16),
            nonce=secrets.token_hex(8),
            made_at=time.time(),
        )
        self.rows[slot] = await self.house.cards.make(self.delivery, row)
        failpoints.hit("after_card_row")
        return self.rows[slot]

    async def _show_card(self, row: CardRow, card: Mapping[str, object], after: CardRow) -> None:
        try:
            if row.message_id is None:
                row = await self._send(row, card, after.sequence)
            if row.sequence < after.sequence:
                if row.card_id is None:
                    await self._save(row)  # a patch has no order, so the fence is asked before it
                await self.house.messenger.update_card(row, card, sequence=after.sequence)
            row = replace(row, sequence=after.sequence, state=after.state)
        except (Refused, Broken) as why:
            if isinstance(why, Refused) and why.key in MENDABLE:
                raise Unavailable(str(why)) from why
            log.warning("card_refused", session=row.session, slot=row.slot, why=str(why))
            row = replace(row, state=DEAD)
        await self._save(row)

    async def _send(self, row: CardRow, card: Mapping[str, object], sequence: int) -> CardRow:
        """The first send; after a crash the same send again, or, when its uuid is too old, a look for it (H13).

        What was made before a crash shows an older state: its sequence stays, so that the update follows."""
        messenger = self.house.messenger
        if time.time() - row.made_at > UUID_HOUR:
            claimed = [r.message_id for r in self.rows.values() if r.message_id]
            if found := await messenger.find_sent(row, claimed=claimed):
                return await self._save(replace(found, place=row.place))
        if row.card_id is None:
            made = await messenger.make_card(row, card)
            row = await self._save(replace(made, sequence=sequence) if made.card_id else made)
        sent = await messenger.send_card(row, card)
        failpoints.hit("after_send")
        if sent.place.thread:
            await self.house.bindings.alias(sent.place.binding, sent.place.thread)
        return await self._save(replace(sent, place=row.place))

    async def _save(self, row: CardRow) -> CardRow:
        await self.house.cards.sent(self.delivery, row)
        self.rows[row.slot] = row
        return row


def _slots(slot: str) -> Iterator[str]:
    """The names of a view's rows, for ever: its own, and those of its further parts."""
    yield slot
    yield from (f"{slot}:{number}" for number in count(2))


def _overtakable(row: CardRow) -> bool:
    """Whether an older state could still land on this end: it is no entity, and was shown only once."""
    return row.state == FINAL and row.card_id is None and row.sequence % STEPS == ONCE
