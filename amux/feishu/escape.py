"""Other people's words on a card: shown as they were written, and acted on by nobody (H27). Pure.

Feishu's markdown is CommonMark with a few tags of its own. Outside code `<` and `&` are escaped; inside it CommonMark
shows entities as they stand, so there a tag of Feishu's is broken by a character without width, and all else is left."""

import re
from html import unescape

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_TAG = re.compile(
    r"<(?=/?(?:a|at|audio|br|font|hr|img|link|local_datetime|number_tag|person|raw|record|text_tag)\b)", re.IGNORECASE
)
_CODE = re.compile(
    r"^ {0,3}(`{3,})[^`\n]*\n.*?(?:^ {0,3}\1`*[ \t]*$|\Z)|(?<!`)(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL
)
_MARKS = re.compile(r"[*_~`\[\]()#!|\\]")


def markdown(text: str) -> str:
    """An agent's markdown. Its code and its looks stay; nobody is pinged and nothing else of Feishu's is forged.

    That holds whatever Feishu takes for code: no tag of its own is whole in the result."""
    text = CONTROL.sub("", text)
    done, at = [], 0
    for found in _CODE.finditer(text):
        done += [_escaped(text[at : found.start()]), code(found[0])]
        at = found.end()
    return "".join((*done, _escaped(text[at:])))


def code(text: str) -> str:
    """What stands inside a code span or block."""
    return _TAG.sub("<\u200b", CONTROL.sub("", text))


def literal(text: str) -> str:
    """A name, a quote, a cause: no markdown at all in it."""
    return _MARKS.sub(lambda found: f"&#{ord(found[0])};", _escaped(CONTROL.sub("", text)))


def bare(text: str) -> str:
    """Markdown of ours as plain text, for what the chat list and the lock screen show."""
    return unescape(text.replace("**", "")).replace("。 ", "。")  # a space that only the bold needed


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
