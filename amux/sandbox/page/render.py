"""The page and its fragments as HTML, in one language. The stream sends what the page shows, made by the same templates,
so that there is one rendering of a message. Every text is escaped by the templates."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from amux.sandbox.page import cards, markdown
from amux.sandbox.page.view import Reader, Row, Said, Spot, Who

HERE = files("amux.sandbox.page")
STATIC = {
    name: (HERE / name).read_text("utf-8")
    for name in ("tokens.css", "amux.css", "feishu.css", "sandbox.css", "page.js", "mark.svg")
}
WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
TRIES = (
    ("try_ask", ""),
    ("try_permission", "\n!tool run the tests\n!ask git push origin fix/upload-retry"),
    ("try_long", "\n!tool start the suite\n!sleep 60\n!say Twenty runs, all green."),
)
"What a newcomer may click: phrases, and the steps by which the built-in agent is told to ask or to take its time."
LOCALES = {"en": "en_us", "zh": "zh_cn"}
SLOT = re.compile(r"\{(\w+)\}")


def word(lang: str, key: str, **slots: object) -> str:
    """One phrase of words.toml. Raises KeyError for a key or slot that is not there."""
    return SLOT.sub(lambda slot: str(slots[slot[1]]), WORDS[key][lang])


def pick(lang: str, text: cards.Text) -> str:
    """A card's text in this language, else in the one it has, as Feishu's client chooses."""
    several = text.i18n_content
    return several.get(LOCALES[lang]) or text.content or several.get("en_us") or next(iter(several.values()), "")


@dataclass(frozen=True, slots=True)
class Bot:
    name: str
    connected: bool


@dataclass(frozen=True, slots=True)
class Here:
    """What every fragment needs: who reads, where, and whether the bot hears them."""

    reader: Reader
    spot: Spot
    bot: Bot

    def url(self, path: str = "/sandbox", **other: str) -> str:
        """The address of this page, or of another one of it: person, chat, topic and lang may be replaced."""
        now = {
            "as": self.reader.person,
            "chat": self.spot.chat,
            "topic": self.spot.topic or "",
            "lang": self.reader.lang,
        }
        now |= {"as" if name == "person" else name: value for name, value in other.items()}
        return f"{path}?{urlencode(now)}"

    @property
    def place(self) -> str:
        """Names the chat and topic, for the browser to tell one from another."""
        return f"{self.spot.chat}/{self.spot.topic or ''}"


@dataclass(frozen=True, slots=True)
class Page:
    here: Here
    people: tuple[Who, ...]
    rows: tuple[Row, ...]
    messages: tuple[Said, ...]
    title: str
    note: str
    start: bool
    fate: str | None
    mention: bool
    position: str


def page(shown: Page) -> str:
    me = next(p for p in shown.people if p.id == shown.here.reader.person)
    values = {
        name: getattr(shown, name) for name in ("people", "messages", "title", "note", "start", "fate", "mention")
    }
    stream = shown.here.url("/sandbox/stream", **{"from": shown.position})
    fate = shown.here.url("/sandbox/fate")
    return _fill("page.html", shown.here, me=me, rows=shown.rows, stream=stream, fate_url=fate, tries=TRIES, **values)


def message(here: Here, said: Said) -> str:
    return _fill("said.html", here, m=said)


def chats(here: Here, rows: tuple[Row, ...]) -> str:
    return _fill("chats.html", here, rows=rows)


def bot(here: Here) -> str:
    return _fill("bot.html", here)


def fate(here: Here, words: str | None) -> str:
    return _fill("fate.html", here, fate=words)


def _fill(template: str, here: Here, **values: object) -> str:
    common = {"reader": here.reader, "spot": here.spot, "bot": here.bot, "place": here.place, "url": here.url}
    return _environment(here.reader.lang).get_template(template).render(**common, **values).strip()


def _state(lang: str, said: Said) -> str:
    """What is worth announcing about a message: its words, or a card's title and tags; not text that still grows."""
    if said.card is None:
        return said.refused or "".join(piece.text for piece in said.pieces)
    head = said.card.header
    texts = [head.title, *(tag.text for tag in head.text_tag_list)] if head else [said.card.config.summary]
    return ", ".join(pick(lang, text) for text in texts)


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")


@cache
def _environment(lang: str) -> jinja2.Environment:
    templates = {p.name: p.read_text("utf-8") for p in HERE.iterdir() if p.name.endswith(".html")}
    made = jinja2.Environment(
        loader=jinja2.DictLoader(templates),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

    def say(key: str, **slots: object) -> str:
        return word(lang, key, **slots)

    def choose(text: cards.Text) -> str:
        return pick(lang, text)

    def formatted(text: cards.Text) -> Markup:
        return markdown.html(pick(lang, text))

    made.filters |= {"clock": _clock, "state": lambda said: _state(lang, said)}
    made.globals |= {"t": say, "pick": choose, "md": formatted}
    for kind in (cards.Markdown, cards.Plain, cards.Hr, cards.Button, cards.Fold, cards.ColumnSet, cards.Table):
        made.tests[kind.__name__.lower()] = lambda value, kind=kind: isinstance(value, kind)
    return made
