"""The parts of Card JSON 2.0 that we use, each text in both languages. Pure; knows no view and escapes nothing."""

import json
from collections.abc import Mapping
from typing import Any

from amux.feishu.phrases import Text, say

Element = dict[str, Any]
Look = tuple[str, str, str]  # the header's colour, its tag, the tag's colour


def card(
    elements: list[Element], *, summary: Text, title: Text | None = None, look: Look | None = None
) -> Mapping[str, object]:
    """A card. `summary` is what the chat list and the lock screen show; without a look it has no header."""
    shown = {"content": summary.en, "i18n_content": {"en_us": summary.en, "zh_cn": summary.zh}}
    config: dict[str, object] = {
        "update_multi": True,
        "enable_forward_interaction": False,
        "width_mode": "default",
        "summary": shown,
    }
    whole: dict[str, object] = {"schema": "2.0", "config": config, "body": {"elements": elements}}
    if title and look:
        template, tag, colour = look
        tags = [{"tag": "text_tag", "text": plain_text(say(tag)), "color": colour}]
        whole["header"] = {"template": template, "title": plain_text(title), "text_tag_list": tags}
    return whole


def plain_text(text: Text, tag: str = "plain_text") -> Element:
    """One text; the client picks its language."""
    element = {"tag": tag, "content": text.en}
    return element if text.en == text.zh else {**element, "i18n_content": {"en_us": text.en, "zh_cn": text.zh}}


def md(text: Text, *, id: str | None = None) -> Element:
    """Markdown."""
    element = plain_text(text, "markdown")
    return {**element, "element_id": id} if id else element


def small(text: Text) -> Element:
    """A grey line."""
    grey = Text(f"<font color='grey'>{text.en}</font>", f"<font color='grey'>{text.zh}</font>")
    return {**md(grey), "text_size": "notation"}


def button(key: str, type: str, value: Mapping[str, object]) -> Element:
    """A button whose phrase is `key`; a press sends `value` back."""
    behaviors = [{"type": "callback", "value": dict(value)}]
    return {"tag": "button", "element_id": key, "type": type, "text": plain_text(say(key)), "behaviors": behaviors}


def row(*elements: Element) -> Element:
    """Buttons side by side; the row breaks on a phone."""
    columns = [{"tag": "column", "width": "auto", "elements": [each]} for each in elements]
    return {"tag": "column_set", "flex_mode": "flow", "horizontal_spacing": "8px", "columns": columns}


def size(whole: Mapping[str, object]) -> int:
    """Bytes of a card as it is sent."""
    return len(json.dumps(whole, ensure_ascii=False).encode())
