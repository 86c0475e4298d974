"""A card that Feishu refuses to draw, as plain words. Pure.

Agents write what no card can hold: a sixth table, a mark that nobody closes. What is lost is the looks; words, buttons
and the order of things stay.
"""

from collections.abc import Mapping
from html import unescape


def without_markup(card: Mapping[str, object]) -> dict[str, object]:
    """The same card with every markdown element as a plain text of the same words, in all its languages."""
    return {key: _plain(value) for key, value in card.items()}


def _plain(value: object) -> object:
    match value:
        case {"tag": "markdown", "content": str(words), **rest}:
            text: dict[str, object] = {"tag": "plain_text", "content": unescape(words)}
            if isinstance(several := rest.get("i18n_content"), Mapping):
                text["i18n_content"] = {language: unescape(str(said)) for language, said in several.items()}
            kept: dict[str, object] = {key: rest[key] for key in ("element_id", "margin") if key in rest}
            return {"tag": "div", "text": text, **kept}
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
