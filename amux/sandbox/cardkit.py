"""Card entities over REST: made, sent once elsewhere, then changed under strictly increasing sequences. Everything that
changes an entity goes through one gate, so that no older state ever lands on a newer one."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amux.sandbox import cards
from amux.sandbox.cards import BadCard
from amux.sandbox.pace import DAY_MS
from amux.sandbox.records import CardId, Entity, Json, Via, dumps
from amux.sandbox.rest import BAD_FIELD, ApiError, Call, Table, rate_limited

MISSING, EXPIRED, FOREIGN, OLD_SEQUENCE, REPEATED = 200740, 200750, 300311, 300317, 200770
STREAM_TIMED_OUT, STREAM_CLOSED, NOT_TEXT, NO_ELEMENT = 200850, 300309, 300310, 300313
MAX_CHARACTERS, MAX_SEQUENCE, MAX_UUID = 100_000, (1 << 31) - 1, 64
INSERTIONS = ("insert_before", "insert_after", "append")


def create(call: Call) -> Json:
    """A card entity, not yet to be seen anywhere."""
    if call.text("type") != "card_json":
        raise ApiError(BAD_FIELD, "field validation failed: type must be card_json")
    card = _good(call.text("data"))
    now = call.world.clock.now_ms()
    streaming = now if cards.wants_streaming(card) else None
    card_id = CardId("7" + str(uuid.uuid4().int)[:18])
    call.world.entities[card_id] = Entity(card_id, call.bot.app_id, card, now, streaming_since_ms=streaming)
    return {"data": {"card_id": card_id}}


def content(call: Call) -> Json:
    """The whole text of one element, while the card streams."""
    text = call.text("content")
    if not 1 <= len(text) <= MAX_CHARACTERS:
        raise ApiError(BAD_FIELD, "field validation failed: content must have 1 to 100000 characters")

    def change(entity: Entity) -> Entity:
        if not call.world.streams(entity):
            raise _not_streaming(entity)
        element = _element(entity.card, call.path["element_id"])
        if element.get("tag") not in ("markdown", "plain_text"):
            raise ApiError(NOT_TEXT, "ErrMsg: the element is not a text element;")
        element["content"] = text
        element.pop("i18n_content", None)
        return entity

    return _change(call, Via.entity_content, change)


def settings(call: Call) -> Json:
    """Another config; switching streaming on starts its ten minutes anew."""
    given = _json(call.text("settings"))
    return _change(call, Via.entity_settings, lambda entity: _configured(call, entity, given))


def update(call: Call) -> Json:
    """Another card in the place of the whole card."""
    whole = call.body.get("card")
    if not isinstance(whole, dict) or whole.get("type") != "card_json" or not isinstance(whole.get("data"), str):
        raise ApiError(BAD_FIELD, "field validation failed: card must be of type card_json, with data")
    card = _good(whole["data"])
    since = call.world.clock.now_ms() if cards.wants_streaming(card) else None
    return _change(call, Via.entity_updated, lambda entity: replace(entity, card=card, streaming_since_ms=since))


def batch(call: Call) -> Json:
    """Several changes at once, all or none."""
    actions = _json(call.text("actions"))
    if not isinstance(actions, list) or not all(isinstance(a, dict) for a in actions):
        raise ApiError(BAD_FIELD, "field validation failed: actions must be a list")

    def change(entity: Entity) -> Entity:
        for action in actions:
            entity = _act(call, entity, action)
        return entity

    return _change(call, Via.entity_batch, change)


def _change(call: Call, via: Via, change: Callable[[Entity], Entity]) -> Json:
    """The one gate. `change` gets a copy of the entity that it may alter. Nothing is changed and no sequence used up
    when ApiError is raised."""
    entity = _own(call)
    sequence, key = call.body.get("sequence"), call.text("uuid", "")
    if not isinstance(sequence, int) or not 0 < sequence <= MAX_SEQUENCE or len(key) > MAX_UUID:
        raise ApiError(BAD_FIELD, "field validation failed: sequence must be an int32 above 0, uuid at most 64 long")
    if key in entity.uuids:
        raise ApiError(REPEATED, "ErrMsg: the uuid was used before;")
    if sequence <= entity.sequence:
        raise ApiError(OLD_SEQUENCE, "ErrMsg: sequence number compare failed;")
    limit = call.world.limits.calls_per_card
    if not call.world.streams(entity) and not call.world.meter.admits("card", entity.id, limit=limit):
        raise rate_limited(limit=limit, seconds=1)
    changed = change(replace(entity, card=copy.deepcopy(entity.card)))
    text = dumps(changed.card)
    _good(text)
    uuids = entity.uuids | {key} if key else entity.uuids
    call.world.entities[entity.id] = replace(changed, sequence=sequence, uuids=uuids)
    if entity.message is not None:
        call.world.revise(entity.message, text, via, sequence=sequence)
    return {"data": {}}


def _own(call: Call) -> Entity:
    entity = call.world.entities.get(CardId(call.path["card_id"]))
    if entity is None:
        raise ApiError(MISSING, "ErrMsg: the card does not exist;")
    if entity.app != call.bot.app_id:
        raise ApiError(FOREIGN, "ErrMsg: the card belongs to another app;")
    if call.world.clock.now_ms() - entity.created_ms > 14 * DAY_MS:
        raise ApiError(EXPIRED, "ErrMsg: the card has expired;")
    return entity


def _not_streaming(entity: Entity) -> ApiError:
    if entity.streaming_since_ms is None:
        return ApiError(STREAM_CLOSED, "ErrMsg: streaming mode is closed;")
    return ApiError(STREAM_TIMED_OUT, "ErrMsg: card streaming timeout;")


def _act(call: Call, entity: Entity, action: Json) -> Entity:
    card, params = entity.card, action.get("params") or {}
    match action.get("action"):
        case "partial_update_setting":
            return _configured(call, entity, params.get("settings"))
        case "partial_update_element":
            _element(card, params.get("element_id")).update(params.get("partial_element") or {})
        case "update_element":
            element = _element(card, params.get("element_id"))
            element.clear()
            element.update(params.get("element") or {})
        case "delete_elements":
            for element_id in params.get("element_ids") or []:
                _remove(card, _element(card, element_id))
        case "add_elements":
            _insert(card, params)
        case other:
            raise ApiError(BAD_FIELD, f"field validation failed: unknown action {other}")
    return entity


def _configured(call: Call, entity: Entity, given: Any) -> Entity:
    config = given.get("config") if isinstance(given, dict) else None
    if not isinstance(config, dict):
        raise ApiError(BAD_FIELD, "field validation failed: settings must hold a config")
    card = {**entity.card, "config": {**entity.card.get("config", {}), **config}}
    since = entity.streaming_since_ms
    if "streaming_mode" in config:
        since = call.world.clock.now_ms() if cards.wants_streaming(card) else None
    return replace(entity, card=card, streaming_since_ms=since)


def _insert(card: Json, params: Json) -> None:
    kind, new = params.get("type"), params.get("elements")
    if kind not in INSERTIONS or not isinstance(new, list):
        raise ApiError(BAD_FIELD, "field validation failed: add_elements needs type and elements")
    target = params.get("target_element_id")
    if kind == "append":
        holder = _element(card, target) if target else card.setdefault("body", {})
        holder.setdefault("elements", []).extend(new)
        return
    element = _element(card, target)
    siblings = _siblings(card, element)
    at = next(i for i, e in enumerate(siblings) if e is element) + (kind == "insert_after")
    siblings[at:at] = new


def _remove(card: Json, element: Json) -> None:
    siblings = _siblings(card, element)
    siblings[:] = [e for e in siblings if e is not element]


def _siblings(card: Json, element: Json) -> list[Json]:
    """The list that holds this element."""
    for holder in (card.get("body", {}), *cards.elements(card)):
        for key in ("elements", "columns"):
            held: list[Json] = holder.get(key) or []
            if any(e is element for e in held):
                return held
    raise ApiError(NO_ELEMENT, "ErrMsg: the element stands in no list;")


def _element(card: Json, element_id: object) -> Json:
    element = cards.find(card, str(element_id))
    if element is None:
        raise ApiError(NO_ELEMENT, f"ErrMsg: not find elementID : {element_id};")
    return element


def _good(text: str) -> Json:
    try:
        return cards.check(text)
    except BadCard as bad:
        raise ApiError(bad.code, f"ErrMsg: {bad.text};") from bad


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise ApiError(BAD_FIELD, "field validation failed: this string must hold JSON") from e


TABLE: Table = {
    ("POST", "/cardkit/v1/cards"): create,
    ("PUT", "/cardkit/v1/cards/{card_id}"): update,
    ("PATCH", "/cardkit/v1/cards/{card_id}/settings"): settings,
    ("POST", "/cardkit/v1/cards/{card_id}/batch_update"): batch,
    ("PUT", "/cardkit/v1/cards/{card_id}/elements/{element_id}/content"): content,
}
