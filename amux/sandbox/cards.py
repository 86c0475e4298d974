"""What a card may be: JSON 2.0 in the parts that are known to exist, within Feishu's limits. Pure. A part or property
that nobody has proven is refused here as Feishu refuses what it does not know, so that nothing relies on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amux.sandbox.records import Json, WorldError

MAX_BYTES, MAX_ELEMENTS, MAX_TABLES = 30 * 1024, 200, 5
TOO_BIG, TOO_MANY, DUPLICATE_ID, NOT_SHARED, NOT_2_0 = 200860, 300305, 300301, 300302, 300303
BAD_JSON, UNKNOWN_TAG, TABLES = 200621, 200861, 11310
ELEMENT_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}")

TEXT = {"tag", "content", "i18n_content", "text_size", "text_color", "text_align", "lines"}
COMMON = {"tag", "element_id", "margin"}
TEXT_TAGS = {"plain_text": TEXT, "lark_md": TEXT}
ELEMENTS: dict[str, set[str]] = {
    "markdown": {"content", "i18n_content", "text_size", "text_align", "icon"},
    "div": {"text", "icon", "width"},
    "hr": set(),
    "button": {"text", "type", "size", "width", "icon", "behaviors"},
    "column_set": {"columns", "flex_mode", "horizontal_spacing", "horizontal_align", "background_style"},
    "column": {"elements", "width", "weight", "vertical_align", "vertical_spacing", "background_style", "padding"},
    "collapsible_panel": {
        "elements",
        "expanded",
        "header",
        "border",
        "background_color",
        "padding",
        "vertical_spacing",
    },
    "table": {"columns", "rows", "page_size", "row_height", "row_max_height", "header_style", "freeze_first_column"},
}
PARTS: dict[str, set[str]] = {
    "card": {"schema", "config", "header", "body", "card_link"},
    "config": {
        "update_multi", "streaming_mode", "streaming_config", "summary", "enable_forward",
        "enable_forward_interaction", "width_mode", "locales", "use_custom_translation", "style",
    },
    "summary": {"content", "i18n_content"},
    "header": {"template", "title", "subtitle", "text_tag_list", "icon", "padding"},
    "text_tag": {"tag", "element_id", "text", "color"},
    "body": {"elements", "direction", "padding", "vertical_spacing", "horizontal_spacing"},
    "panel header": {"title", "icon", "background_color", "vertical_align", "padding", "icon_position", "width"},
    "callback": {"type", "value"},
    "open_url": {"type", "default_url", "pc_url", "ios_url", "android_url"},
}  # fmt: skip
CHOICES: dict[tuple[str, str], set[str]] = {
    ("header", "template"): {
        "blue",
        "wathet",
        "turquoise",
        "green",
        "yellow",
        "orange",
        "red",
        "carmine",
        "violet",
        "purple",
        "indigo",
        "grey",
        "default",
    },
    ("text_tag", "color"): {
        "neutral",
        "blue",
        "turquoise",
        "lime",
        "orange",
        "violet",
        "indigo",
        "wathet",
        "green",
        "yellow",
        "red",
        "purple",
        "carmine",
    },
    ("button", "type"): {
        "default",
        "primary",
        "danger",
        "text",
        "primary_text",
        "danger_text",
        "primary_filled",
        "danger_filled",
        "laser",
    },
    ("button", "size"): {"tiny", "small", "medium", "large"},
    ("column_set", "flex_mode"): {"none", "stretch", "flow", "bisect", "trisect"},
}


@dataclass(frozen=True)
class BadCard(Exception):
    """This is no card that Feishu takes. `code` is CardKit's own, and the inner ErrCode where a message carries it."""

    code: int
    text: str


def check(text: str) -> Json:
    """The card in `text`. Raises BadCard for the first thing wrong with it."""
    try:
        card = json.loads(text)
    except ValueError:
        raise BadCard(BAD_JSON, "parse card json err, please check whether the card json is correct") from None
    if not isinstance(card, dict) or card.get("schema") != "2.0":
        raise BadCard(NOT_2_0, "schema must be 2.0")
    if len(text.encode()) > MAX_BYTES:
        raise BadCard(TOO_BIG, "card content exceeds 30 KB")
    _shape(card, "card", "ROOT")
    config = card.get("config", {})
    _shape(config, "config", "config")
    if config.get("update_multi", True) is not True:
        raise BadCard(NOT_SHARED, "update_multi must be true")
    _text_part(config.get("summary"), "summary", "config -> summary")
    _header(card.get("header"))
    body = _shape(card.get("body", {}), "body", "body")
    for at, element in enumerate(_list(body.get("elements", []), "body -> elements")):
        _element(element, f"body -> elements -> [{at}]", "body")
    _count(card)
    return card


def wants_streaming(card: Json) -> bool:
    return card.get("config", {}).get("streaming_mode") is True


def elements(card: Json) -> Iterator[Json]:
    """Every element of a card, containers before what they hold."""
    stack = list(reversed(card.get("body", {}).get("elements", [])))
    while stack:
        element = stack.pop()
        yield element
        if element.get("tag") != "table":
            stack += reversed([*element.get("columns", ()), *element.get("elements", ())])


def find(card: Json, element_id: str) -> Json | None:
    """The element with this id; a text inside a div has an id of its own."""
    for element in elements(card):
        inner = element.get("text")
        for candidate in (element, inner if isinstance(inner, dict) else {}):
            if candidate.get("element_id") == element_id:
                return candidate
    return None


def callback_value(card: Json, element_id: str) -> object:
    """What pressing this button sends. Raises WorldError when the card as it stands has no such button."""
    button = find(card, element_id) or {}
    for behavior in button.get("behaviors", ()):
        if behavior.get("type") == "callback":
            value: object = behavior["value"]
            return value
    raise WorldError(f"the card has no button {element_id} that calls back")


def _count(card: Json) -> None:
    found = list(elements(card))
    if len(found) > MAX_ELEMENTS:
        raise BadCard(TOO_MANY, "element exceeds the limit")
    tables = sum(e["tag"] == "table" for e in found) + sum(_markdown_tables(e) for e in found)
    if tables > MAX_TABLES:
        raise BadCard(TABLES, "card table number over limit; ErrorValue: table")
    ids = [e["element_id"] for e in found if "element_id" in e]
    for element_id in ids:
        if not (isinstance(element_id, str) and ELEMENT_ID.fullmatch(element_id)):
            raise BadCard(BAD_JSON, f"element_id is invalid, property: {element_id}")
        if ids.count(element_id) > 1:
            raise BadCard(DUPLICATE_ID, f"duplicate element_id: {element_id}")


def _markdown_tables(element: Json) -> int:
    if element["tag"] != "markdown":
        return 0
    return len(re.findall(r"^\s*\|?[ :-]*-{2,}[ :|-]*\|[ :|-]*$", element.get("content", ""), re.MULTILINE))


def _element(element: Any, path: str, inside: str) -> None:
    tag = element.get("tag") if isinstance(element, dict) else None
    if tag not in ELEMENTS or (tag == "column") != (inside == "column_set"):
        raise BadCard(UNKNOWN_TAG, f"not support tag: {tag}; path: {path}")
    if tag == "table" and inside != "body":
        raise BadCard(UNKNOWN_TAG, f"a table cannot be nested; path: {path}")
    _known(element, ELEMENTS[tag] | COMMON, tag, path)
    match tag:
        case "markdown":
            _content(element, path)
        case "div":
            _text(element.get("text"), f"{path} -> text")
        case "button":
            _button(element, path)
        case "collapsible_panel":
            head = _shape(element.get("header", {}), "panel header", f"{path} -> header")
            _text(head.get("title"), f"{path} -> header -> title")
    held = "columns" if tag == "column_set" else "elements"
    for at, child in enumerate(_list(element.get(held, []), f"{path} -> {held}")):
        _element(child, f"{path} -> {held} -> [{at}]", tag)


def _button(button: Json, path: str) -> None:
    _text(button.get("text"), f"{path} -> text")
    for at, behavior in enumerate(_list(button.get("behaviors", []), f"{path} -> behaviors")):
        where = f"{path} -> behaviors -> [{at}]"
        kind = behavior.get("type") if isinstance(behavior, dict) else None
        if kind not in ("callback", "open_url"):
            raise BadCard(BAD_JSON, f"unknown behavior {kind}; path: {where}")
        _shape(behavior, kind, where)
        if kind == "callback" and not isinstance(behavior.get("value"), dict | str):
            raise BadCard(BAD_JSON, f"value must be an object; path: {where}")
        if kind == "open_url" and not isinstance(behavior.get("default_url"), str):
            raise BadCard(BAD_JSON, f"default_url is missing; path: {where}")


def _header(header: Any) -> None:
    if header is None:
        return
    _shape(header, "header", "header")
    _text(header.get("title"), "header -> title")
    if "subtitle" in header:
        _text(header["subtitle"], "header -> subtitle")
    for at, tag in enumerate(_list(header.get("text_tag_list", []), "header -> text_tag_list")):
        path = f"header -> text_tag_list -> [{at}]"
        _shape(tag, "text_tag", path)
        _text(tag.get("text"), f"{path} -> text")


def _text(text: Any, path: str) -> None:
    tag = text.get("tag") if isinstance(text, dict) else None
    if tag not in TEXT_TAGS:
        raise BadCard(UNKNOWN_TAG, f"not support tag: {tag}; path: {path}")
    _known(text, TEXT_TAGS[tag] | {"element_id"}, tag, path)
    _content(text, path)


def _text_part(text: Any, part: str, path: str) -> None:
    if text is not None:
        _content(_shape(text, part, path), path)


def _content(text: Json, path: str) -> None:
    several = text.get("i18n_content", {})
    if not isinstance(text.get("content", "" if several else None), str) or not isinstance(several, dict):
        raise BadCard(BAD_JSON, f"content must be a string; path: {path}")


def _shape(value: Any, part: str, path: str) -> Json:
    if not isinstance(value, dict):
        raise BadCard(BAD_JSON, f"an object belongs here; path: {path}")
    _known(value, PARTS[part], part, path)
    return value


def _known(value: Json, known: set[str], part: str, path: str) -> None:
    for key, content in value.items():
        if key not in known:
            raise BadCard(BAD_JSON, f"unknown property, property: {key}; path: {path}")
        choices = CHOICES.get((part, key))
        if choices and content not in choices:
            raise BadCard(BAD_JSON, f"wrong value for {key}; path: {path}")


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadCard(BAD_JSON, f"a list belongs here; path: {path}")
    return value
