"""One Turn on Codex, as far as it is known: its native turn, what it was told and shows to hold, what is open, its cost.

Kept by `codex_thread`, which talks; here nothing is sent and nothing waits. `Patience` says how long that one does."""

import asyncio
from dataclasses import dataclass, field

from msgspec.structs import replace

from amux.extensions import DeltaSeen, InputId, ItemId, ItemSeen, ItemStatus, ItemType, Outcome, TurnId
from amux.providers.codex_items import Totals


@dataclass(frozen=True, slots=True)
class Patience:
    """How long Codex may take, in seconds: to open, to answer, to show that it holds an input, and to be quiet after an
    interrupt; and how long it may be silent over a summary, of which it shows nothing until it is done."""

    opening: float = 60.0
    answer: float = 30.0
    commit: float = 120.0
    stop: float = 5.0
    summary: float = 300.0


PATIENCE = Patience()


@dataclass(slots=True, eq=False)
class Turn:
    """`native` is known once Codex has acknowledged the start, and stays None for good when it did not take it."""

    id: TurnId
    native: asyncio.Future[str | None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    before: Totals | None = None
    spent: Totals | None = None
    _open: dict[ItemId, ItemSeen] = field(default_factory=dict)
    _told: dict[InputId, asyncio.Future[bool]] = field(default_factory=dict)

    def tell(self, said: InputId) -> asyncio.Future[bool]:
        """Register what is about to be sent. It comes out True when the thread holds it, False when the Turn ended
        without it, which proves that it never arrived (H49)."""
        held: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._told[said] = held
        return held

    def holds(self, said: str) -> None:
        """The thread shows what was sent: the point from which it survives a crash."""
        _settle(self._told.get(InputId(said)), held=True)

    def open(self, item: ItemSeen | None) -> ItemSeen | None:
        """Remember an item that starts, if it is shown; answers it."""
        if item:
            self._open[item.item] = item
        return item

    def opened(self, item: ItemId) -> ItemSeen | None:
        return self._open.get(item)

    def stream(self, item: ItemId, text: str) -> DeltaSeen:
        """More of a message's text, with its place in it."""
        before = self._open.get(item) or ItemSeen(self.id, item, ItemType.message, ItemStatus.started)
        self._open[item] = replace(before, text=before.text + text)
        return DeltaSeen(self.id, item, len(before.text), text)

    def close(self, item: ItemId) -> None:
        self._open.pop(item, None)

    def count(self, total: Totals, last: Totals) -> None:
        """The thread's tokens so far; without a count from before this Turn, its first response began it."""
        if self.before is None:
            self.before = total - last
        self.spent = total - self.before

    def end(self, outcome: Outcome) -> list[ItemSeen]:
        """It is over, and what was told and is not held never will be. Answers how the items that are still open end:
        cut text is no part of the answer (H16), and only after a good end may a tool go on in the background."""
        self.over.set()
        for held in self._told.values():
            _settle(held, held=False)
        ended = []
        for item in list(self._open.values()):
            if item.type is ItemType.message:
                ended.append(replace(item, status=ItemStatus.superseded))
            elif outcome is not Outcome.completed:
                ended.append(replace(item, status=ItemStatus.failed))
        return ended

    def lose(self, why: Exception) -> None:
        """The process is gone, and with it the answer to what was told and not yet shown."""
        self.over.set()
        for held in self._told.values():
            if not held.done():
                held.set_exception(why)
                held.exception()  # whoever waits is told; nobody has to
        if not self.native.done():
            self.native.set_result(None)


def _settle(future: asyncio.Future[bool] | None, *, held: bool) -> None:
    if future and not future.done():
        future.set_result(held)
