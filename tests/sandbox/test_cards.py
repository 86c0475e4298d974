"""What the platform takes as a card, and what it refuses, by the code it refuses with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amux.sandbox import cards
from amux.sandbox.cards import BadCard
from amux.sandbox.records import WorldError


def text(content: str) -> dict[str, Any]:
    return {"tag": "plain_text", "content": content, "i18n_content": {"zh_cn": content, "en_us": content}}


def button(element_id: str = "stop", **more: object) -> dict[str, Any]:
    click = {"type": "callback", "value": {"do": element_id}}
    return {"tag": "button", "element_id": element_id, "text": text("Stop"), "behaviors": [click], **more}


def markdown(content: object = "hello", **more: object) -> dict[str, Any]:
    return {"tag": "markdown", "content": content, **more}


def card(*elements: object, **more: object) -> dict[str, Any]:
    return {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": [*elements]}} | more


TABLE = "| a | b |\n| --- | --- |\n| 1 | 2 |"
WHOLE = card(
    markdown(element_id="out"),
    {"tag": "hr"},
    {
        "tag": "column_set",
        "flex_mode": "flow",
        "columns": [{"tag": "column", "width": "auto", "elements": [button(type="danger", size="medium")]}],
    },
    {"tag": "collapsible_panel", "expanded": False, "header": {"title": text("3 tools")}, "elements": [markdown()]},
    config={
        "update_multi": True,
        "streaming_mode": True,
        "streaming_config": {"print_step": {"default": 1}},
        "summary": {"content": "Running", "i18n_content": {"zh_cn": "运行中"}},
        "enable_forward_interaction": False,
        "width_mode": "fill",
    },
    header={
        "template": "blue",
        "title": text("Task"),
        "text_tag_list": [{"tag": "text_tag", "text": text("running"), "color": "blue"}],
    },
)
REFUSED: dict[str, tuple[object, int]] = {
    "no JSON": ("{", cards.BAD_JSON),
    "a list": ([], cards.NOT_2_0),
    "a card of 1.0": ({"config": {}, "elements": []}, cards.NOT_2_0),
    "above 30 KB": (card(markdown("x" * 31_000)), cards.TOO_BIG),
    "Han counts in bytes": (card(markdown("汉" * 11_000)), cards.TOO_BIG),
    "201 elements": (card(*[{"tag": "hr"}] * 201), cards.TOO_MANY),
    "201 elements, nested": (
        card({"tag": "collapsible_panel", "header": {"title": text("x")}, "elements": [{"tag": "hr"}] * 200}),
        cards.TOO_MANY,
    ),
    "six tables": (card(*[markdown(TABLE)] * 6), cards.TABLES),
    "the same id twice": (card(button("a"), button("a")), cards.DUPLICATE_ID),
    "an id that begins with a figure": (card(button("1a")), cards.BAD_JSON),
    "an id of 21 characters": (card(button("a" * 21)), cards.BAD_JSON),
    "not shared": (card(config={"update_multi": False}), cards.NOT_SHARED),
    "an action module": (card({"tag": "action", "actions": []}), cards.UNKNOWN_TAG),
    "a note": (card({"tag": "note", "elements": []}), cards.UNKNOWN_TAG),
    "a column outside of a set": (card({"tag": "column", "elements": []}), cards.UNKNOWN_TAG),
    "a button in a set without its column": (card({"tag": "column_set", "columns": [button()]}), cards.UNKNOWN_TAG),
    "an unproven confirm": (card(button(confirm={"title": text("Sure?")})), cards.BAD_JSON),
    "an unproven disabled": (card(button(disabled=True)), cards.BAD_JSON),
    "an unknown property": (card(markdown(colour="red")), cards.BAD_JSON),
    "an unknown config": (card(config={"wide": True}), cards.BAD_JSON),
    "an unknown part": (card(elements=[]), cards.BAD_JSON),
    "an unknown colour": (card(header={"template": "pink", "title": text("x")}), cards.BAD_JSON),
    "an unknown kind of button": (card(button(type="loud")), cards.BAD_JSON),
    "a text that is none": (card(markdown(content=7)), cards.BAD_JSON),
    "a button without text": (card({"tag": "button"}), cards.UNKNOWN_TAG),
    "a callback without value": (card(button(behaviors=[{"type": "callback"}])), cards.BAD_JSON),
    "an unknown behavior": (card(button(behaviors=[{"type": "shout"}])), cards.BAD_JSON),
    "an element that is no object": (card("hr"), cards.UNKNOWN_TAG),
    "elements that are no list": (card(body={"elements": {}}), cards.BAD_JSON),
    "a nested table": (
        card({"tag": "collapsible_panel", "header": {"title": text("x")}, "elements": [{"tag": "table"}]}),
        cards.UNKNOWN_TAG,
    ),
}


def test_a_card_of_known_parts_is_taken() -> None:
    assert cards.check(json.dumps(WHOLE)) == WHOLE


@pytest.mark.parametrize(("bad", "code"), REFUSED.values(), ids=REFUSED)
def test_refused(bad: object, code: int) -> None:
    with pytest.raises(BadCard) as refused:
        cards.check(bad if isinstance(bad, str) else json.dumps(bad, ensure_ascii=False))
    assert refused.value.code == code


def test_at_the_limit_is_taken() -> None:
    cards.check(json.dumps(card(*[{"tag": "hr"}] * 200)))
    cards.check(json.dumps(card(*[markdown(TABLE)] * 5)))
    cards.check(json.dumps(card(button("a" * 20))))


def test_a_button_is_found_wherever_it_stands() -> None:
    assert cards.callback_value(WHOLE, "stop") == {"do": "stop"}
    for nothing in ("out", "nowhere"):
        with pytest.raises(WorldError):
            cards.callback_value(WHOLE, nothing)
