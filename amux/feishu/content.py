"""What a Feishu message says: its `content`, in any of the platform's types, as plain text and what came with it.

Pure. It replaces placeholders, never judges whom they mean for admission, and never raises on odd content: what it
cannot read is left out. Text is cleaned of what neither Postgres nor UTF-8 can hold.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

MaterialKind = StrEnum("MaterialKind", "image file audio video sticker folder forward other")
Named = Mapping[str, tuple[str | None, str]]  # a mention's placeholder: the open id it stands for, and its name


@dataclass(frozen=True, slots=True)
class Material:
    """Something that came with the text. `key` is Feishu's key of the resource, fetched by key alone (H27)."""

    kind: MaterialKind
    key: str
    name: str = ""


def read(message_type: str, content: str, named: Named, *, bot: str) -> tuple[str, tuple[Material, ...]]:
    """The text without the leading mention of `bot`, and what came with it. `content` is JSON inside a string."""
    node = obj(content)
    match message_type:
        case "text":
            return _spoken(_str(node, "text"), named, bot), ()
        case "post":
            return _post(node, named, bot)
        case "merge_forward":
            return "", (Material(MaterialKind.forward, ""),)
        case kind if kind in _RESOURCES:
            key = _str(node, "image_key" if kind == "image" else "file_key")
            return "", (Material(_RESOURCES[kind], key, _str(node, "file_name")),)
        case kind:
            return "", (Material(MaterialKind.other, "", kind),)


_RESOURCES = {
    "image": MaterialKind.image,
    "file": MaterialKind.file,
    "audio": MaterialKind.audio,
    "media": MaterialKind.video,
    "sticker": MaterialKind.sticker,
    "folder": MaterialKind.folder,
}


def _post(content: Mapping[str, object], named: Named, bot: str) -> tuple[str, tuple[Material, ...]]:
    paragraphs = [p for p in _list(content.get("content")) if isinstance(p, list)]
    nodes = [[obj(node) for node in paragraph] for paragraph in paragraphs]
    body = _spoken("\n".join("".join(map(_inline, line)) for line in nodes), named, bot)
    text = "\n".join(part for part in (_str(content, "title"), body) if part)
    return text, tuple(m for line in nodes for node in line if (m := _embedded(node)))


def _inline(node: Mapping[str, object]) -> str:
    match node.get("tag"):
        case "a":
            text, href = _str(node, "text"), _str(node, "href")
            return text if text == href or not href else f"{text} ({href})"
        case "at":
            who = _str(node, "user_id")
            return "@_all" if who == "all" else who
        case "code_block":
            return f"\n```{_str(node, 'language').lower()}\n{_str(node, 'text').rstrip()}\n```\n"
        case "emotion":
            return f":{_str(node, 'emoji_type')}:"
        case "hr":
            return "\n---\n"
        case _:
            return _str(node, "text")


def _embedded(node: Mapping[str, object]) -> Material | None:
    match node.get("tag"):
        case "img":
            return Material(MaterialKind.image, _str(node, "image_key"))
        case "media":
            return Material(MaterialKind.video, _str(node, "file_key"))
        case _:
            return None


def _spoken(text: str, named: Named, bot: str) -> str:
    """Replace every placeholder in one pass, longest key first (`@_user_1` begins `@_user_10`), after the leading
    mention of this bot is gone. The mentions of others stay, by name."""
    words = {"@_all": "@all"} | {key: f"@{name or who or '?'}" for key, (who, name) in named.items()}
    any_key = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    text = text.lstrip()
    while (found := any_key.match(text)) and named.get(found.group(), (None, ""))[0] == bot:
        text = text[found.end() :].lstrip()
    return any_key.sub(lambda m: words[m.group()], text).strip()


def obj(value: object) -> Mapping[str, object]:
    """A JSON object, given as one or as the text of one; anything else is empty."""
    if isinstance(value, str):
        try:
            value = loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _str(node: Mapping[str, object], key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else ""


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # Postgres refuses NUL, UTF-8 a lone surrogate (H5)


def loads(text: str) -> object:
    # the standard library joins good surrogate pairs and lets lone ones through, which msgspec would refuse
    return _clean(json.loads(text))


def _clean(value: object) -> object:
    match value:
        case str():
            return _UNSTORABLE.sub("\ufffd", value)
        case dict():
            return {_clean(k): _clean(v) for k, v in value.items()}
        case list():
            return [_clean(v) for v in value]
        case _:
            return value
