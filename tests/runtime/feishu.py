"""Feishu's outgoing side as deliver meets it: entities with sequences, uuids that are known for an hour, a chat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from amux.ports import CardRow
from tests.fake_world import Door

UUID_KNOWN = 3_600.0  # seconds
Card = Mapping[str, object]


@dataclass
class Shown:
    """One message that people see. `revisions` are what it showed, the newest last."""

    id: str
    uuid: str
    at: float
    reply_to: str
    card_id: str | None
    revisions: list[Card] = field(default_factory=list)


@dataclass
class FakeFeishu:
    """What outlives every deliverer. `now` is Feishu's clock, in seconds since 1970."""

    now: Callable[[], float]
    entities: dict[str, list[tuple[int, Card]]] = field(default_factory=dict)
    messages: list[Shown] = field(default_factory=list)

    def of(self, reply_to: str) -> list[Shown]:
        """Our messages that answer that one."""
        return [m for m in self.messages if m.reply_to == reply_to]

    def text(self, shown: Shown) -> object:
        """What it shows now."""
        return self.entities[shown.card_id][-1][1]["text"] if shown.card_id else shown.revisions[-1]["text"]


@dataclass
class FakeMessenger:
    """The port, for one process. `faults` answer the next calls of that name."""

    feishu: FakeFeishu
    door: Door
    entities: bool = True  # whether the app may make them
    thread: str | None = "omt_opened"
    faults: dict[str, list[Exception]] = field(default_factory=dict)
    calls: list[tuple[str, str, int]] = field(default_factory=list)

    async def make_card(self, row: CardRow, card: Card) -> CardRow:
        async with self.door:
            self._call("make", row, 0)
            if not self.entities:
                return row
            card_id = f"card_{len(self.feishu.entities) + 1}"
            self.feishu.entities[card_id] = [(0, card)]
            return replace(row, card_id=card_id)

    async def send_card(self, row: CardRow, card: Card) -> CardRow:
        async with self.door:
            self._call("send", row, 0)
            now = self.feishu.now()
            known = (m for m in self.feishu.messages if m.uuid == row.uuid and now - m.at < UUID_KNOWN)
            shown = next(known, None)
            if shown is None:
                shown = Shown(f"om_sent_{len(self.feishu.messages) + 1}", row.uuid, now, row.reply_to, row.card_id)
                shown.revisions.append(card)
                self.feishu.messages.append(shown)
            place = replace(row.place, thread=row.place.thread or self.thread)
            return replace(row, message_id=shown.id, place=place)

    async def update_card(self, row: CardRow, card: Card, *, sequence: int) -> None:
        async with self.door:
            self._call("update", row, sequence)
            if row.card_id is None:
                next(m for m in self.feishu.messages if m.id == row.message_id).revisions.append(card)
            elif self.feishu.entities[row.card_id][-1][0] < sequence:
                self.feishu.entities[row.card_id].append((sequence, card))

    async def find_sent(self, row: CardRow, *, claimed: Sequence[str]) -> CardRow | None:
        async with self.door:
            self._call("find", row, 0)
            ours = (m for m in self.feishu.messages if m.reply_to == row.reply_to and m.at >= row.made_at)
            found = next((m for m in ours if m.id not in claimed), None)
            return replace(row, message_id=found.id, card_id=found.card_id) if found else None

    def _call(self, name: str, row: CardRow, sequence: int) -> None:
        self.calls.append((name, row.slot, sequence))
        if waiting := self.faults.get(name):
            raise waiting.pop(0)


@dataclass
class Fuse(Door):
    """A door whose process is killed at its n-th step, before or behind some call."""

    steps: int = 1_000_000

    async def _pass(self) -> None:
        self.steps -= 1
        self.crashed = self.crashed or self.steps < 0
        await super()._pass()
