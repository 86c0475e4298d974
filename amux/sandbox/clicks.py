"""A button pressed: the callback sent, its answer awaited and shown. A click is pushed once and never again; what went
wrong comes back as the code that Feishu shows to the person."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amux.sandbox import cards, events
from amux.sandbox.cards import BadCard
from amux.sandbox.changes import ChangeKind
from amux.sandbox.push import Outcome
from amux.sandbox.records import Json, Message, MessageId, PersonId, Via, WorldError, dumps

if TYPE_CHECKING:
    from amux.sandbox.world import World

NOT_CONFIGURED, NO_ANSWER, NOT_200, WRONG_FORMAT, BAD_CARD, OLD_CARD = 200340, 200341, 200671, 200672, 200673, 200830
NO_DATA = 108002
TOASTS = ("info", "success", "warning", "error")


@dataclass(frozen=True, slots=True)
class ClickAnswer:
    """What the person saw: `code` 0, maybe a toast, maybe a new card in the place of the old; or the code of a failed
    click."""

    code: int = 0
    toast: Json | None = None
    card: Json | None = None


async def click(
    world: World, person: PersonId, message_id: MessageId, *, element: str | None, value: object
) -> ClickAnswer:
    """See `World.click`."""
    message = world.message(message_id)
    if person not in world.chats[message.chat].members or message.recalled_ms is not None:
        raise WorldError(f"{person} does not see the message {message_id}")
    if message.app is None or message.card is None:
        raise WorldError(f"the message {message_id} is no card of a bot")
    if element is not None:
        value = cards.callback_value(message.card, element)
    event = events.clicked(
        person, message.app, message=message.id, chat=message.chat, token=f"c-{uuid.uuid4().hex}", value=value
    )
    at_ms = world.clock.now_ms()
    payload = events.envelope(events.CARD_ACTION, message.app, event, event_id=uuid.uuid4().hex, at_ms=at_ms)
    outcome, data = await world.courier.ask(message.app, payload)
    answer = _read(outcome, data)
    if answer.card is not None:
        answer = _show(world, message, answer)
    world.log.note(ChangeKind.clicked, chat=message.chat, thread=message.thread, message=message.id, code=answer.code)
    return answer


def _read(outcome: Outcome, data: bytes | None) -> ClickAnswer:
    """What an acknowledgement says to the person."""
    match outcome:
        case Outcome.offline:
            return ClickAnswer(NOT_CONFIGURED)
        case Outcome.silent | Outcome.broken:
            return ClickAnswer(NO_ANSWER)
        case Outcome.refused:
            return ClickAnswer(NOT_200)
        case Outcome.acknowledged:
            return ClickAnswer(NO_DATA) if data is None else _parse(data)


def _parse(data: bytes) -> ClickAnswer:
    try:
        answer = json.loads(data)
        toast = answer.get("toast")
        card = answer.get("card")
        known = set(answer) <= {"toast", "card"}
        toast_good = toast is None or (toast.get("type", "info") in TOASTS and isinstance(toast.get("content"), str))
        card_good = card is None or (card["type"] == "raw" and isinstance(card["data"], dict))
    except (ValueError, AttributeError, KeyError, TypeError):
        return ClickAnswer(WRONG_FORMAT)
    if not (known and toast_good and card_good):
        return ClickAnswer(WRONG_FORMAT)
    return ClickAnswer(0, toast, card["data"] if card else None)


def _show(world: World, message: Message, answer: ClickAnswer) -> ClickAnswer:
    """Put the answer's card in the place of the old one, for everybody; not while the card streams."""
    assert answer.card is not None
    if answer.card.get("schema") != "2.0":
        return ClickAnswer(OLD_CARD)
    text = dumps(answer.card)
    try:
        cards.check(text)
    except BadCard:
        return ClickAnswer(BAD_CARD)
    entity = world.entities.get(message.entity) if message.entity else None
    if entity is not None and world.streams(entity):
        return replace(answer, card=None)
    if entity is not None:
        world.entities[entity.id] = replace(entity, card=answer.card, streaming_since_ms=None)
    world.revise(message.id, text, Via.clicked)
    return answer
