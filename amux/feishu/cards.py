"""What people see in Feishu: a view to Card JSON 2.0, both languages in each card. Pure; never sends, reads no clock.

What an agent or a person wrote is escaped, so that nobody is pinged and no link is forged (H27)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amux.core.events import FailReason, ItemStatus, Outcome, QueueReason, Resolution
from amux.core.inputs import Input, Verdict
from amux.core.view import AskView, Fate, ReceiptView, TurnView
from amux.feishu.phrases import Text, lasting, say
from amux.feishu.split import split
from amux.runtime.fate import Forecast, Joins, Nothing, Starts, Waits

Element = dict[str, Any]
MAX_PART = 16_000  # bytes of agent text in one card: with both languages, escapes and the rest it stays below 25 KB
MAX_TITLE, MAX_QUOTE, MAX_TOOLS, MAX_TOOL = 80, 160, 8, 120
AGENTS: Mapping[str, str | Text] = {"codex": "Codex", "claude": "Claude", "scripted": say("agent_scripted")}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def render(view: TurnView | ReceiptView | AskView, nonce: str) -> Sequence[Mapping[str, object]]:
    """The cards of one view; its buttons carry the nonce and what they are for (H24)."""
    match view:
        case TurnView():
            return _turn(view, nonce)
        case ReceiptView():
            return [_receipt(view)]
        case AskView():
            return [_ask(view, nonce)]


def plain(text: str) -> str:
    """Somebody else's words, without control characters and with nothing that Feishu would act on."""
    return _CONTROL.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- a Turn -----------------------------------------------------------------------------------------------------------


def _turn(view: TurnView, nonce: str) -> list[Mapping[str, object]]:
    finished = view.finished.outcome if view.finished else None
    parts = split(plain(view.answer()), MAX_PART)
    if finished is None:
        parts = parts[-1:]  # while it works, its newest words
    first, rest = (parts[0] if parts else ""), parts[1:]
    look = _LOOKS[finished] if finished else (_asks(view) or _stopping(view) or ("blue", "tag_running", "blue"))
    elements = [*_news(view), *_answer(first), *_joined(view), *_tools(view), _line(view)]
    if finished is None and not view.stopping:
        elements.append(_buttons(_button("button_interrupt", "danger", {"a": "interrupt", "n": nonce, "t": view.turn})))
    card = _card(elements, summary=_summary(view, first), title=_title(view.title), look=look)
    return [card, *(_more(part, number, len(parts)) for number, part in enumerate(rest, start=2))]


_LOOKS = {  # header colour, tag, its colour
    Outcome.completed: ("default", "tag_done", "green"),
    Outcome.interrupted: ("default", "tag_interrupted", "neutral"),
    Outcome.failed: ("red", "tag_failed", "red"),
    Outcome.lost: ("violet", "tag_lost", "violet"),
}


def _asks(view: TurnView) -> tuple[str, str, str] | None:
    return ("orange", "tag_asks", "orange") if view.asking else None


def _stopping(view: TurnView) -> tuple[str, str, str] | None:
    return ("blue", "tag_stopping", "neutral") if view.stopping else None


def _news(view: TurnView) -> list[Element]:
    """The first line on a phone: what it does now, or how it ended."""
    if view.finished is None:
        if view.stopping:
            return [_md(say("stopping", who=_who(view.stopped_by)))]
        return [_md(say("doing", tool=_code(view.doing())) if view.doing() else say("thinking"))]
    match view.finished.outcome:
        case Outcome.completed:
            return [] if view.answer() else [_md(say("done_empty"))]
        case Outcome.interrupted:
            return [_md(say("interrupted", who=_who(view.stopped_by))), *_cancelled(view)]
        case Outcome.failed:
            cause = plain(_short(view.finished.detail or view.finished.reason, MAX_QUOTE))
            return [_md(say("failed", agent=_agent(view), cause=cause)), _small(say("failed_line"))]
        case Outcome.lost:
            return [_md(say("lost")), _small(say("lost_line"))]


def _answer(text: str) -> list[Element]:
    return [_md(Text(text, text), id="out")] if text else []


def _cancelled(view: TurnView) -> list[Element]:
    if not view.cancelled:
        return []
    return [_small(say("interrupted_joined", count=len(view.cancelled), text=_quotes(view.cancelled)))]


def _joined(view: TurnView) -> list[Element]:
    gone = {i.id for i in view.cancelled}
    kept = [i for i in view.joined if i.id not in gone]
    return [_small(say("joined_line", text=_quotes(kept)))] if kept else []


def _tools(view: TurnView) -> list[Element]:
    tools = [t for t in view.tools() if t.title]
    if not tools:
        return []
    marks = {ItemStatus.completed: "✓", ItemStatus.failed: "✗", ItemStatus.started: "●", ItemStatus.superseded: "–"}
    lines = "\n\n".join(f"{marks[t.status]} {_code(t.title)}" for t in tools[-MAX_TOOLS:])
    head = say("tools_line", count=len(tools)) if len(tools) > 1 else say("tools_line_one")
    panel = {"tag": "collapsible_panel", "element_id": "tools", "expanded": False}
    return [{**panel, "header": {"title": _text(head)}, "elements": [_md(Text(lines, lines))]}]


def _line(view: TurnView) -> Element:
    slots: dict[str, Any] = {"turn": view.turn, "time": lasting(view.now - view.started), "agent": _agent(view)}
    usage = view.finished.usage if view.finished else None
    if usage and (usage.input_tokens or usage.output_tokens):
        tokens = usage.input_tokens + usage.output_tokens
        return _small(say("turn_line_tokens", tokens=f"{tokens / 1000:.1f}k" if tokens >= 1000 else tokens, **slots))
    return _small(say("turn_line", **slots))


def _agent(view: TurnView) -> str | Text:
    return AGENTS.get(view.engine) or (plain(view.engine) if view.engine else say("agent"))


def _summary(view: TurnView, answer: str) -> Text:
    if view.finished is None:
        tag = say("tag_asks") if view.asking else say("tag_running")
    else:
        tag = say(_LOOKS[view.finished.outcome][1])
    words = _short(answer.split("\n", 1)[0], MAX_TITLE)
    return Text(f"{tag.en} · {words}" if words else tag.en, f"{tag.zh} · {words}" if words else tag.zh)


def _more(text: str, part: int, parts: int) -> Mapping[str, object]:
    said = say("more", part=part, parts=parts)
    return _card([_md(Text(text, text), id="out"), _small(said)], summary=said)


# -- receipts and requests --------------------------------------------------------------------------------------------


def _receipt(view: ReceiptView) -> Mapping[str, object]:
    """A small card without header, replied to the message whose fate it tells."""
    head, line = _told(view)
    return _card([_md(head), *([_small(line)] if line else [])], summary=Text(_bare(head.en), _bare(head.zh)))


def _told(view: ReceiptView) -> tuple[Text, Text | None]:
    turn = view.turn or 0
    match view.fate:
        case Fate.waiting:
            reason = view.reason if isinstance(view.reason, QueueReason) else QueueReason.no_running_turn
            why = say(f"waits_{reason}", turn=turn, who=_who(view.owner))
            return say("receipt_waiting", nth=_nth(view.ahead + 1)), why
        case Fate.joined if len(view.inputs) > 1:
            return say("receipt_joined_many", turn=turn, count=len(view.inputs)), say("receipt_joined_line")
        case Fate.joined:
            return say("receipt_joined", turn=turn), say("receipt_joined_line")
        case Fate.started:
            return say("receipt_started", time=lasting(view.now - view.since), turn=turn), None
        case Fate.cancelled:
            return say("receipt_cancelled"), None
        case Fate.failed if view.reason is FailReason.uncertain:
            return say("receipt_uncertain"), say("receipt_uncertain_line", text=_quotes(view.inputs))
        case Fate.failed:
            return say("receipt_failed", cause=plain(_short(view.detail, MAX_QUOTE * 2))), None


def fate(forecast: Forecast, name: str) -> Text | None:
    """The line above a composer: what pressing Send will do; None when it does nothing. `name`: whose Turn runs."""
    match forecast:
        case Starts(turn):
            return say("fate_starts", turn=turn)
        case Joins(turn):
            return say("fate_joins", turn=turn)
        case Waits(reason, ahead, turn):
            why = say(f"waits_{reason}", turn=turn or 0, who=_who(name))
            return say("fate_waits", nth=_nth(ahead + 1), why=why)
        case Nothing():
            return None


def _ask(view: AskView, nonce: str) -> Mapping[str, object]:
    what = _md(Text(*[f"```\n{_fenced(view.title)}\n```"] * 2))
    line = say("ask_line", turn=view.turn)
    if view.how is None:
        values = {verdict: {"a": verdict.value, "n": nonce, "r": view.request, "t": view.turn} for verdict in Verdict}
        buttons = _buttons(
            _button("button_allow", "primary", values[Verdict.allow]),
            _button("button_always", "default", values[Verdict.always]),
            _button("button_deny", "danger", values[Verdict.deny]),
        )
        look = ("orange", "tag_asks", "orange")
        return _card([what, _small(line), buttons], summary=say("ask_title"), title=say("ask_title"), look=look)
    told, look = _closed(view)
    return _card([what, _small(told)], summary=told, title=say("ask_title"), look=look)


def _closed(view: AskView) -> tuple[Text, tuple[str, str, str]]:
    if view.how is not Resolution.answered or view.verdict is None:
        return say("ask_closed", turn=view.turn), ("default", "tag_closed", "neutral")
    tag = "tag_denied" if view.verdict is Verdict.deny else "tag_allowed"
    colour = "neutral" if view.verdict is Verdict.deny else "green"
    return say(f"ask_answered_{view.verdict}", who=_who(view.name)), ("default", tag, colour)


# -- parts of a card --------------------------------------------------------------------------------------------------


def _card(
    elements: list[Element], *, summary: Text, title: Text | None = None, look: tuple[str, str, str] | None = None
) -> Mapping[str, object]:
    shown = {"content": summary.en, "i18n_content": {"en_us": summary.en, "zh_cn": summary.zh}}
    config: dict[str, object] = {
        "update_multi": True,
        "enable_forward_interaction": False,
        "width_mode": "default",
        "summary": shown,
    }
    card: dict[str, object] = {"schema": "2.0", "config": config, "body": {"elements": elements}}
    if title and look:
        template, tag, colour = look
        tags = [{"tag": "text_tag", "text": _text(say(tag)), "color": colour}]
        card["header"] = {"template": template, "title": _text(title), "text_tag_list": tags}
    return card


def _text(text: Text, tag: str = "plain_text") -> Element:
    element = {"tag": tag, "content": text.en}
    return element if text.en == text.zh else {**element, "i18n_content": {"en_us": text.en, "zh_cn": text.zh}}


def _md(text: Text, *, id: str | None = None) -> Element:
    element = _text(text, "markdown")
    return {**element, "element_id": id} if id else element


def _small(text: Text) -> Element:
    grey = Text(f"<font color='grey'>{text.en}</font>", f"<font color='grey'>{text.zh}</font>")
    return {**_md(grey), "text_size": "notation"}


def _button(key: str, type: str, value: Mapping[str, object]) -> Element:
    behaviors = [{"type": "callback", "value": dict(value)}]
    return {"tag": "button", "element_id": key, "type": type, "text": _text(say(key)), "behaviors": behaviors}


def _buttons(*buttons: Element) -> Element:
    columns = [{"tag": "column", "width": "auto", "elements": [button]} for button in buttons]
    return {"tag": "column_set", "flex_mode": "flow", "horizontal_spacing": "8px", "columns": columns}


def _title(text: str) -> Text:
    line = _short(next((x.strip() for x in _CONTROL.sub("", text).splitlines() if x.strip()), "…"), MAX_TITLE)
    return Text(line, line)


def _who(name: str) -> str | Text:
    return plain(name) if name else say("somebody")


def _quotes(inputs: Iterable[Input]) -> str:
    return " · ".join(f"“{plain(_short(i.text, MAX_QUOTE))}”" for i in inputs)


def _code(text: str) -> str:
    return f"`{plain(_short(text.replace('`', ' '), MAX_TOOL))}`" if text else ""


def _fenced(text: str) -> str:
    return _short(_CONTROL.sub("", text).replace("```", "ˋˋˋ"), 2_000)


def _short(text: str, most: int) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"


def _bare(markdown: str) -> str:
    return markdown.replace("**", "")


def _nth(number: int) -> Text:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return Text(f"{number}{ending}", str(number))
