"""What we send to Feishu: a Turn's card made, shown as a reply, changed in order, and found again after a crash.

uuid, nonce and sequence come from the card row, never from here, so each call may be repeated; nothing here decides
when, what or in which order. A card that became an entity is only ever changed as an entity: mixing ways loses states.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog

from amux.core.errors import Refused
from amux.feishu import codes
from amux.feishu.degrade import without_markup
from amux.feishu.openapi import Answer, OpenApi
from amux.ports import CardRow

log = structlog.get_logger()

MESSAGES = "/open-apis/im/v1/messages"
CARDS = "/open-apis/cardkit/v1/cards"
SKEW = 60.0  # seconds that Feishu's clock and Postgres' may differ; more only adds candidates that a row has claimed
PAGES = 20  # of 50 messages each; what lies further back is not looked for


class FeishuMessenger:
    """The port `Messenger`, for all bots of this installation."""

    def __init__(self, bots: Mapping[str, OpenApi]) -> None:
        self._bots = bots

    async def make_card(self, row: CardRow, card: Mapping[str, object]) -> CardRow:
        """Make the card entity, which nobody sees yet, and answer the row with its id, to be saved before it is sent.

        Without the permission for entities the row comes back as it was; it is then sent and changed as a message."""
        answer = await _drawn(partial(self._make, row), card)
        if answer.code:
            log.warning("feishu_no_entities", app=row.place.app, code=answer.code)
            return row
        return replace(row, card_id=answer.made("card_id"))

    async def send_card(self, row: CardRow, card: Mapping[str, object]) -> CardRow:
        """Show it as a reply in its place; answer the row with its message id, and with the topic that Feishu opened.

        Within an hour a second send is none: Feishu answers with the first message (H12). After it an entity that was
        sent already cannot be sent again, so that a new one is made: two answers are better than none (H13)."""
        if row.card_id:
            answer = await self._send(row, card, codes.CONTENT | codes.NO_ENTITY)
            if answer.code:
                log.warning("feishu_sent_anew", app=row.place.app, session=row.session, slot=row.slot)
                row = await self.make_card(replace(row, card_id=None), card)
                answer = await _drawn(partial(self._send, row), card)
        else:
            answer = await _drawn(partial(self._send, row), card)
        thread = row.place.thread or answer.data.get("thread_id") or None
        return replace(row, message_id=answer.made("message_id"), place=replace(row.place, thread=thread))

    async def update_card(self, row: CardRow, card: Mapping[str, object], *, sequence: int) -> None:
        """Replace the whole card. An entity's older state is refused by Feishu, and that counts as done (H12).

        A card without an entity has no order: who owns it patches its end once more after a lease."""
        await _drawn(partial(self._put, row, sequence) if row.card_id else partial(self._patch, row), card)

    async def find_sent(self, row: CardRow, *, claimed: Sequence[str]) -> CardRow | None:
        """Our own card in that place, made after the row and claimed by no row: the oldest one (H13).

        None when there is none, or when the bot may not list that place: then it is sent anew."""
        api, since = self._bot(row), (row.made_at - SKEW) * 1000
        try:
            thread = row.place.thread or await self._thread_of(row)
            found = [m async for m in _listed(api, row, thread, since) if _is_ours(m, api.app, claimed)]
        except Refused as why:
            log.warning("feishu_cannot_list", app=api.app, session=row.session, why=str(why))
            return None
        if not found:
            return None
        first = min(found, key=lambda m: int(m["create_time"]))
        place = replace(row.place, thread=row.place.thread or first.get("thread_id") or None)
        return replace(row, message_id=str(first["message_id"]), place=place)

    def _bot(self, row: CardRow) -> OpenApi:
        if api := self._bots.get(row.place.app):
            return api
        raise Refused(f"The bot {row.place.app} is not set up here: name it in AMUX_FEISHU_APP_ID, with its secret.")

    async def _make(self, row: CardRow, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        body = {"type": "card_json", "data": _text(card)}
        return await self._bot(row).repeat("POST", CARDS, body=body, expects=codes.SCOPE.union(expects))

    async def _put(self, row: CardRow, sequence: int, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        body = {"card": {"type": "card_json", "data": _text(card)}, "sequence": sequence}
        path = f"{CARDS}/{row.card_id}"
        return await self._bot(row).repeat("PUT", path, body=body, expects=codes.OUTRUN.union(expects))

    async def _patch(self, row: CardRow, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        body = {"content": _text(card)}
        return await self._bot(row).repeat("PATCH", f"{MESSAGES}/{row.message_id}", body=body, expects=expects)

    async def _send(self, row: CardRow, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        """Reply in a topic, which a reply in an ordinary chat opens: one topic, one Session (B1)."""
        if not row.reply_to:
            return await self._create(row, card, expects)
        several = {*expects, *codes.GONE, *codes.NO_THREADS}
        answer = await self._reply(row, card, row.reply_to, several)
        if answer.code in codes.NO_THREADS:
            answer = await self._reply(row, card, row.reply_to, several, in_thread={})
        return await self._elsewhere(row, card, expects) if answer.code in codes.GONE else answer

    async def _elsewhere(self, row: CardRow, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        """What it answers was recalled: answer another message of the topic, as a new message would open another one."""
        if not row.place.thread:
            return await self._create(row, card, expects)
        async for message in _listed(self._bot(row), row, row.place.thread, 0):
            if message["message_id"] != row.reply_to and not message.get("deleted"):
                answer = await self._reply(row, card, str(message["message_id"]), {*expects, *codes.GONE})
                if answer.code not in codes.GONE:
                    return answer
        raise Refused("Nothing is left of that topic in Feishu: all its messages were recalled.")

    async def _reply(
        self,
        row: CardRow,
        card: Mapping[str, object],
        to: str,
        expects: Collection[int],
        *,
        in_thread: Mapping[str, bool] = MappingProxyType({"reply_in_thread": True}),
    ) -> Answer:
        body = {**_shown(row, card), **in_thread}
        return await self._bot(row).repeat("POST", f"{MESSAGES}/{to}/reply", body=body, expects=expects)

    async def _create(self, row: CardRow, card: Mapping[str, object], expects: Collection[int]) -> Answer:
        body, query = {"receive_id": row.place.chat, **_shown(row, card)}, {"receive_id_type": "chat_id"}
        return await self._bot(row).repeat("POST", MESSAGES, body=body, query=query, expects=expects)

    async def _thread_of(self, row: CardRow) -> str | None:
        """The topic that the message we answer stands in by now: our own lost reply may have opened it."""
        if not row.reply_to:
            return None
        answer = await self._bot(row).repeat("GET", f"{MESSAGES}/{row.reply_to}", expects=codes.GONE)
        items = answer.data.get("items") or [{}]
        return items[0].get("thread_id") or None


Draw = Callable[[Mapping[str, object], Collection[int]], Awaitable[Answer]]


async def _drawn(draw: Draw, card: Mapping[str, object]) -> Answer:
    """Draw the card; where Feishu cannot (too many tables, an odd mark), draw its plain words: a Turn's end is shown."""
    answer = await draw(card, codes.CONTENT)
    if answer.code not in codes.CONTENT:
        return answer
    log.warning("feishu_drawn_plain", code=answer.code)
    return await draw(without_markup(card), ())


async def _listed(api: OpenApi, row: CardRow, thread: str | None, since_ms: float) -> AsyncIterator[Mapping[str, Any]]:
    """The messages of a topic or chat, newest first, down to `since_ms`. Feishu filters no topic by time, so we do."""
    query = {"container_id_type": "chat", "container_id": row.place.chat, "only_thread_root_messages": "false"}
    if thread:
        query = {"container_id_type": "thread", "container_id": thread}
    elif since_ms:
        query["start_time"] = str(int(since_ms // 1000))
    query |= {"sort_type": "ByCreateTimeDesc", "page_size": "50"}
    for _ in range(PAGES):
        page = (await api.repeat("GET", MESSAGES, query=query)).data
        for message in page.get("items") or ():
            if int(message.get("create_time") or 0) < since_ms:
                return
            yield message
        if not page.get("has_more"):
            return
        query["page_token"] = page["page_token"]


def _is_ours(message: Mapping[str, Any], app: str, claimed: Sequence[str]) -> bool:
    sender = message.get("sender") or {}
    ours = sender.get("id") == app and message.get("msg_type") == "interactive" and not message.get("deleted")
    return ours and message["message_id"] not in claimed


def _shown(row: CardRow, card: Mapping[str, object]) -> dict[str, Any]:
    """A send's body: the entity where there is one, else the card itself."""
    content = {"type": "card", "data": {"card_id": row.card_id}} if row.card_id else card
    return {"msg_type": "interactive", "content": _text(content), "uuid": row.uuid}


def _text(card: Mapping[str, object]) -> str:
    return json.dumps(card, ensure_ascii=False, separators=(",", ":"))
