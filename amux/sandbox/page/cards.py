"""A card as something to draw: the parts of JSON 2.0, typed. Whether a card is one that Feishu takes is judged by
`amux.sandbox.cards` alone; what that refuses is `Refused` here, with Feishu's reason, and drawn in red.
Draws nothing; the macros in card.html do."""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from amux.sandbox.cards import BadCard, check

Value = dict[str, object] | str
SHORT = 400  # characters of a receipt


class Text(msgspec.Struct, frozen=True):
    """A text in as many languages as it was given."""

    content: str = ""
    i18n_content: dict[str, str] = {}
    text_size: str = ""


class Markdown(Text, frozen=True, tag_field="tag", tag="markdown"):
    element_id: str = ""


class Plain(msgspec.Struct, frozen=True, tag_field="tag", tag="div"):
    text: Text = Text()


class Hr(msgspec.Struct, frozen=True, tag_field="tag", tag="hr"):
    pass


class Behavior(msgspec.Struct, frozen=True):
    type: str
    value: Value | None = None
    default_url: str = ""


class Button(msgspec.Struct, frozen=True, tag_field="tag", tag="button"):
    text: Text = Text()
    type: str = "default"
    width: str = "default"
    behaviors: list[Behavior] = []

    @property
    def value(self) -> Value | None:
        """What the bot is told when this is pressed; None when it only opens a page."""
        return next((b.value for b in self.behaviors if b.type == "callback"), None)

    @property
    def url(self) -> str:
        """The web page that pressing opens, or nothing."""
        urls = (b.default_url for b in self.behaviors if b.type == "open_url")
        return next((u for u in urls if u.startswith(("http://", "https://"))), "")


class Column(msgspec.Struct, frozen=True):
    elements: list["Element"] = []
    width: str = "auto"
    weight: int = 1


class ColumnSet(msgspec.Struct, frozen=True, tag_field="tag", tag="column_set"):
    columns: list[Column] = []
    flex_mode: str = "none"


class FoldHeader(msgspec.Struct, frozen=True):
    title: Text = Text()


class Fold(msgspec.Struct, frozen=True, tag_field="tag", tag="collapsible_panel"):
    header: FoldHeader = FoldHeader()
    elements: list["Element"] = []
    expanded: bool = False


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    display_name: str = ""


class Table(msgspec.Struct, frozen=True, tag_field="tag", tag="table"):
    columns: list[TableColumn] = []
    rows: list[dict[str, object]] = []


Element = Markdown | Plain | Hr | Button | ColumnSet | Fold | Table


class TextTag(msgspec.Struct, frozen=True):
    text: Text
    color: str = "neutral"


class Header(msgspec.Struct, frozen=True):
    title: Text
    subtitle: Text | None = None
    template: str = "default"
    text_tag_list: list[TextTag] = []


class Config(msgspec.Struct, frozen=True):
    summary: Text = Text()
    width_mode: str = "default"


class Body(msgspec.Struct, frozen=True):
    elements: list[Element] = []


class Card(msgspec.Struct, frozen=True):
    """A card that Feishu shows."""

    body: Body = Body()
    config: Config = Config()
    header: Header | None = None

    @property
    def look(self) -> str:
        """The colour of its header; empty without one."""
        return self.header.template if self.header else ""

    @property
    def short(self) -> bool:
        """Whether it is a receipt: a few words about another message. Text with an id of its own is part of an answer."""
        texts = [e for e in self.body.elements if isinstance(e, Markdown)]
        words = sum(len(text.content) for text in texts) if not any(text.element_id for text in texts) else SHORT + 1
        return self.header is None and len(self.body.elements) <= 3 and words <= SHORT


@dataclass(frozen=True, slots=True)
class Refused:
    """A card that Feishu does not show, and why."""

    reason: str


@lru_cache(maxsize=512)
def read(text: str) -> Card | Refused:
    """The card in a message's content. Raises nothing: what cannot be shown is Refused."""
    try:
        return msgspec.convert(check(text), Card)
    except BadCard as e:
        return Refused(f"{e.code}: {e.text}")
    except msgspec.ValidationError as e:
        return Refused(str(e))


def button(card: Card, path: str) -> Button | None:
    """The button that the page drew at `path`: places in the body, then in column and column's elements, or in a fold."""
    held: list[Element] = card.body.elements
    places = [int(place) for place in path.split(".") if place.isascii() and place.isdecimal()]
    while places:
        found = held[places[0]] if places[0] < len(held) else None
        match found, places[1:]:
            case Button(), []:
                return found
            case Fold(), rest:
                held, places = found.elements, rest
            case ColumnSet(), [column, *rest] if column < len(found.columns):
                held, places = found.columns[column].elements, rest
            case _:
                return None
    return None
