"""Card entities: sent once, changed under strictly increasing sequences, streaming while it lasts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from amux.sandbox.feishu import CODER, OPS, small_world
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import AppId, CardId, Via
from tests.sandbox.bot import Answer, Bot, bot_of
from tests.sandbox.conftest import Cloud, cloud_of
from tests.sandbox.test_cards import button, card, markdown

STREAMING = {"update_multi": True, "streaming_mode": True}
START = card(markdown("...", element_id="out"), button("stop"), config=STREAMING)


@dataclass
class Kit:
    """One card entity and the calls on it."""

    bot: Bot
    id: str

    async def content(self, text: str, sequence: int, element: str = "out", **more: object) -> int:
        path = f"/cardkit/v1/cards/{self.id}/elements/{element}/content"
        return await self._code("PUT", path, {"content": text, "sequence": sequence, **more})

    async def settings(self, sequence: int, **config: object) -> int:
        body = {"settings": json.dumps({"config": config}), "sequence": sequence}
        return await self._code("PATCH", f"/cardkit/v1/cards/{self.id}/settings", body)

    async def update(self, whole: dict[str, Any], sequence: int) -> int:
        body = {"card": {"type": "card_json", "data": json.dumps(whole)}, "sequence": sequence}
        return await self._code("PUT", f"/cardkit/v1/cards/{self.id}", body)

    async def batch(self, sequence: int, *actions: object) -> int:
        body = {"actions": json.dumps(actions), "sequence": sequence}
        return await self._code("POST", f"/cardkit/v1/cards/{self.id}/batch_update", body)

    async def send(self, **more: object) -> Answer:
        content = json.dumps({"type": "card", "data": {"card_id": self.id}})
        return await self.bot.send(OPS, {"msg_type": "interactive", "content": content}, **more)

    def shown(self) -> list[tuple[Via, int | None, str]]:
        """Every content of its message: by which call, under which sequence, and its first text."""
        (sent,) = Ledger(self.bot.world).sent(CODER)
        cards = [(r.via, r.sequence, json.loads(r.content)) for r in sent.revisions]
        return [(via, sequence, c["body"]["elements"][0]["content"]) for via, sequence, c in cards]

    async def _code(self, method: str, path: str, body: object) -> int:
        code: int = (await self.bot.raw(method, path, body)).json()["code"]
        return code


async def make(bot: Bot, whole: dict[str, Any]) -> Answer:
    return await bot.post("/cardkit/v1/cards", {"type": "card_json", "data": json.dumps(whole)})


@pytest.fixture
async def kit(cloud: Cloud) -> Kit:
    bot = await bot_of(cloud)
    return Kit(bot, (await make(bot, START))["data"]["card_id"])


async def test_a_card_is_sent_once_and_shows_each_change(kit: Kit) -> None:
    sent = await kit.send(uuid="c1")
    assert (await kit.send(uuid="c1"))["data"] == sent["data"]
    refused = await kit.send(uuid="c2")
    assert (refused["code"], "ErrCode: 11310; ErrMsg: cardid is invalid" in refused["msg"]) == (230099, True)
    assert await kit.content("Hello", 64) == 0
    assert await kit.settings(65, streaming_mode=False) == 0
    assert await kit.update(card(markdown("Done")), 128) == 0
    assert kit.shown() == [
        (Via.sent, None, "..."),
        (Via.entity_content, 64, "Hello"),
        (Via.entity_settings, 65, "Hello"),
        (Via.entity_updated, 128, "Done"),
    ]


async def test_an_older_sequence_never_lands_on_a_newer_state(kit: Kit) -> None:
    await kit.send()
    assert await kit.content("new", 10) == 0
    assert await kit.content("old", 9) == 300317
    assert await kit.content("same", 10) == 300317
    assert await kit.update(card(markdown("old")), 3) == 300317
    assert await kit.settings(10, streaming_mode=False) == 300317
    assert await kit.batch(10) == 300317
    assert [text for _, _, text in kit.shown()] == ["...", "new"]


async def test_of_a_race_only_rising_sequences_are_taken(kit: Kit) -> None:
    await kit.send()
    codes = await asyncio.gather(*(kit.content(str(n), n) for n in range(1, 30)))
    taken = [sequence for _, sequence, _ in kit.shown() if sequence is not None]
    assert taken == sorted(taken)
    assert [n for n, code in enumerate(codes, 1) if code == 0] == taken
    assert set(codes) <= {0, 300317}


async def test_a_refused_change_uses_up_no_sequence(kit: Kit) -> None:
    assert await kit.update(card({"tag": "note"}), 5) == 200861
    assert await kit.content("x", 5, element="nowhere") == 300313
    assert await kit.content("x", 5, element="stop") == 300310
    assert await kit.content("x" * 30_000, 5) == 0
    assert await kit.content("x" * 31_000, 6) == 200860
    assert await kit.content("", 6) == 99992402
    assert await kit.content("y", 6, uuid="k1") == 0
    assert await kit.content("y", 7, uuid="k1") == 200770
    assert await kit.content("z", 0) == 99992402


async def test_streaming_ends_by_itself_after_ten_minutes(kit: Kit) -> None:
    kit.bot.world.clock.advance(seconds=590)
    assert await kit.settings(1, streaming_mode=True) == 0
    kit.bot.world.clock.advance(seconds=590)
    assert await kit.content("still", 2) == 0
    kit.bot.world.clock.advance(seconds=20)
    assert await kit.content("late", 3) == 200850
    assert await kit.settings(3, streaming_mode=True) == 0
    assert await kit.content("again", 4) == 0
    assert await kit.settings(5, streaming_mode=False) == 0
    assert await kit.content("closed", 6) == 300309


async def test_another_config_does_not_prolong_streaming(kit: Kit) -> None:
    kit.bot.world.clock.advance(seconds=590)
    assert await kit.settings(1, summary={"content": "Running"}) == 0
    kit.bot.world.clock.advance(seconds=20)
    assert await kit.content("late", 2) == 200850


async def test_a_batch_is_carried_out_whole_or_not_at_all(kit: Kit) -> None:
    await kit.send()
    partial = {
        "action": "partial_update_element",
        "params": {"element_id": "out", "partial_element": {"content": "one"}},
    }
    missing = {"action": "delete_elements", "params": {"element_ids": ["nowhere"]}}
    assert await kit.batch(1, partial, missing) == 300313
    assert kit.bot.world.entities[CardId(kit.id)].card == START
    more = {
        "action": "add_elements",
        "params": {"type": "insert_after", "target_element_id": "out", "elements": [markdown("two", element_id="two")]},
    }
    first = {
        "action": "add_elements",
        "params": {"type": "insert_before", "target_element_id": "out", "elements": [markdown("zero")]},
    }
    last = {"action": "add_elements", "params": {"type": "append", "elements": [markdown("end")]}}
    gone = {"action": "delete_elements", "params": {"element_ids": ["stop"]}}
    other = {"action": "update_element", "params": {"element_id": "two", "element": markdown("2", element_id="two")}}
    off = {"action": "partial_update_setting", "params": {"settings": {"config": {"streaming_mode": False}}}}
    assert await kit.batch(1, partial, more, first, last, gone, other, off) == 0
    entity = kit.bot.world.entities[CardId(kit.id)]
    assert [e["content"] for e in entity.card["body"]["elements"]] == ["zero", "one", "2", "end"]
    assert (entity.streaming_since_ms, entity.sequence) == (None, 1)
    assert await kit.batch(2, {"action": "shout"}) == 99992402


@pytest.mark.parametrize(
    ("whole", "code"),
    [
        ({"config": {}, "elements": []}, 300303),
        (card(config={"update_multi": False}), 300302),
        (card(button("a"), button("a")), 300301),
        (card(*[{"tag": "hr"}] * 201), 300305),
        (card(markdown("x" * 31_000)), 200860),
    ],
)
async def test_a_bad_card_makes_no_entity(kit: Kit, whole: dict[str, Any], code: int) -> None:
    assert (await make(kit.bot, whole))["code"] == code


async def test_whose_card_it_is_and_for_how_long(kit: Kit) -> None:
    nobody = Kit(kit.bot, "7000")
    assert await nobody.content("x", 1) == 200740
    world = kit.bot.world
    entity = world.entities[CardId(kit.id)]
    world.entities[CardId("7001")] = type(entity)(CardId("7001"), AppId("cli_other"), entity.card, entity.created_ms)
    assert await Kit(kit.bot, "7001").content("x", 1) == 300311
    world.clock.advance(seconds=15 * 24 * 3600)
    await kit.bot.renew()
    assert await kit.content("x", 1) == 200750


async def test_a_patch_of_its_message_replaces_the_entity(kit: Kit) -> None:
    sent = (await kit.send())["data"]["message_id"]
    await kit.bot.patch_message(sent, json.dumps(card(markdown("patched"))))
    assert await kit.content("streamed", 1) == 300309
    assert [text for _, _, text in kit.shown()] == ["...", "patched"]


@pytest.fixture
async def limited() -> AsyncIterator[Kit]:
    async with cloud_of(small_world()) as cloud:
        bot = await bot_of(cloud)
        quiet = (await make(bot, card(markdown("...", element_id="out"))))["data"]["card_id"]
        yield Kit(bot, quiet)


async def test_an_entity_takes_ten_calls_a_second(limited: Kit) -> None:
    codes = [await limited.update(card(markdown(str(n))), n) for n in range(1, 12)]
    assert codes == [0] * 10 + [99991400]
