"""The markdown of a card as HTML: CommonMark and tables, no HTML but the few tags that Feishu knows.
Everything else that looks like a tag is text, so nothing an agent wrote becomes markup of the page."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markupsafe import Markup

BREAK = re.compile(r"<br\s*/?>")
FONT = re.compile(r"<font color=(['\"])([a-z]+(?:-\d+)?)\1>")
CLOSE = "</font>"
COLOURS = frozenset({"grey", "red", "green", "blue", "orange", "violet"})


def html(text: str) -> Markup:
    """Render the content of one markdown element. Raises nothing: what is not understood is shown as it was written."""
    return Markup(_READER.render(text))  # noqa: S704  the reader escapes all text and passes no HTML


def _feishu_tags(state: StateInline, silent: bool) -> bool:  # noqa: FBT001  the parser calls its rules so
    if state.src[state.pos] != "<":
        return False
    if found := BREAK.match(state.src, state.pos):
        if not silent:
            state.push("hardbreak", "br", 0)
        state.pos = found.end()
        return True
    found = FONT.match(state.src, state.pos)
    end = state.src.find(CLOSE, found.end()) if found else -1
    if not found or not 0 <= end < state.posMax:
        return False
    if not silent:
        _inside(state, found.end(), end, found[2])
    state.pos = end + len(CLOSE)
    return True


def _inside(state: StateInline, start: int, end: int, colour: str) -> None:
    limit = state.posMax
    opened = state.push("font_open", "span", 1)
    opened.attrSet("class", f"fg-{colour}" if colour in COLOURS else "fg-other")
    state.pos, state.posMax = start, end
    state.md.inline.tokenize(state)
    state.push("font_close", "span", -1)
    state.posMax = limit


def _page_attributes(state: StateCore) -> None:
    """Headings stand below those of the page, links open beside it, and a column's alignment is a class: the page's
    policy allows no inline style."""
    for token in (inner for outer in state.tokens for inner in (outer, *(outer.children or ()))):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 3, 6)}"
        elif token.type == "link_open":
            token.attrSet("target", "_blank")
            token.attrSet("rel", "noopener noreferrer")
        elif style := token.attrs.pop("style", None):
            token.attrSet("class", str(style).removeprefix("text-align:"))


def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    reader.disable("image")  # a card shows images by key only; a link to one stays a link
    reader.inline.ruler.before("html_inline", "feishu_tags", _feishu_tags)
    reader.core.ruler.push("page_attributes", _page_attributes)
    return reader


_READER = _reader()
