"""What people see in Feishu: a view to Card JSON 2.0, both languages in each card. Pure; never sends, reads no clock.

What an agent or a person wrote is escaped, so that nobody is pinged and no link is forged (H27)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from amux.core import watchdog
from amux.core.again import offered
from amux.core.events import CancelReason, FailReason, ItemStatus, Outcome, QueueReason, Resolution, TurnFinished
from amux.core.inputs import Input, Verdict
from amux.core.view import AskView, Fate, ReceiptView, TurnView
from amux.feishu.escape import CONTROL, bare, code, literal, markdown
from amux.feishu.parts import Element, Look, button, card, md, plain_text, row, size, small
from amux.feishu.phrases import Text, lasting, say
from amux.feishu.split import split
from amux.runtime.fate import Forecast, Joins, Nothing, Starts, Waits

MAX_CARD = 24_000  # bytes of one card as it is sent; Feishu takes no more than 30 KB
MAX_PART = 16_000  # of them for the agent's text
MAX_TITLE, MAX_QUOTE, MAX_QUOTES, MAX_CAUSE = 80, 100, 3, 300  # characters, or how many
MAX_TOOLS, MAX_TOOL, MAX_ASK = 8, 120, 2_000
AGENTS: Mapping[str, str | Text] = {"codex": "Codex", "claude": "Claude", "scripted": say("agent_scripted")}


def render(view: TurnView | ReceiptView | AskView, nonce: str, *, shown: int = 1) -> Sequence[Mapping[str, object]]:
    """The cards of one view; its buttons carry the nonce and what they are for (H24). Where more were `shown` than it
    takes now, those that are left over say that they hold nothing any more."""
    match view:
        case TurnView():
            cards = _turn(view, nonce)
            return cards + [_left_over()] * (shown - len(cards))
        case ReceiptView():
            return [_receipt(view, nonce)]
        case AskView():
            return [_ask(view, nonce)]


# -- a Turn -----------------------------------------------------------------------------------------------------------


def _turn(view: TurnView, nonce: str) -> list[Mapping[str, object]]:
    """Its card, and more of them where the answer is too long for one. While it works, its newest words."""
    bare_card = _turn_card(view, nonce, "")
    parts = split(view.answer(), min(MAX_PART, MAX_CARD - size(bare_card)), _weight)
    if view.finished is None:
        parts = parts[-1:]
    first = _turn_card(view, nonce, markdown(parts[0])) if parts else bare_card
    return [first, *(_more(markdown(part), number, len(parts)) for number, part in enumerate(parts[1:], start=2))]


def _turn_card(view: TurnView, nonce: str, answer: str) -> Mapping[str, object]:
    parts = (_answer(answer), _joined(view), _tools(view))
    line, summary, title = _line(view), _summary(view), _title(view.title)
    if view.finished:
        elements = [*_news(view), *(element for part in parts for element in part), line]
        return card(elements, summary=summary, title=title, look=_LOOKS[view.finished.outcome])
    elements = [*_news(view), line, *(element for part in parts for element in part)]
    if not view.stopping:
        elements.append(row(button("button_interrupt", "danger", {"a": "interrupt", "n": nonce, "t": view.turn})))
    look = _STOPPING if view.stopping else (_ASKING if view.asking else _RUNNING)
    return card(elements, summary=summary, title=title, look=look)


def _weight(text: str) -> int:
    """What an agent's text weighs in a card, in bytes: escaped for Feishu, then for JSON."""
    return len(json.dumps(markdown(text), ensure_ascii=False).encode()) - 2


_LOOKS = {  # header colour, tag, its colour
    Outcome.completed: ("default", "tag_done", "green"),
    Outcome.interrupted: ("default", "tag_interrupted", "neutral"),
    Outcome.failed: ("red", "tag_failed", "red"),
    Outcome.lost: ("violet", "tag_lost", "violet"),
}


_RUNNING = ("blue", "tag_running", "blue")
_STOPPING = ("blue", "tag_stopping", "neutral")
_ASKING = ("orange", "tag_asks", "orange")


def _news(view: TurnView) -> list[Element]:
    """The first line on a phone: what it does now, or how it ended."""
    if view.finished is None:
        if view.stopping:
            return [md(_by("stopping", view.stopped_by))]
        if view.asking:
            return [md(say("asking"))]
        return [md(say("doing", tool=_code(view.doing())) if view.doing() else say("thinking"))]
    match view.finished.outcome:
        case Outcome.completed:
            return [] if view.answer().strip() else [md(say("done_empty"))]
        case Outcome.interrupted:
            return [md(_by("interrupted", view.stopped_by)), *_cancelled(view)]
        case Outcome.failed:
            return [md(_failed(view, view.finished)), small(say("failed_line"))]
        case Outcome.lost:
            return [md(say("lost")), small(say("lost_line"))]


def _failed(view: TurnView, end: TurnFinished) -> Text:
    if end.reason == watchdog.SILENT:
        return say("watchdog", agent=_agent(view))
    if end.reason == watchdog.TOO_LONG:
        return say("turn_limit")
    cause = literal(_short(end.detail or end.reason, MAX_CAUSE))
    return say("failed", agent=_agent(view), cause=cause) if cause else say("failed_unsaid", agent=_agent(view))


def _answer(text: str) -> list[Element]:
    return [md(Text(text, text), id="out")] if text else []


def _cancelled(view: TurnView) -> list[Element]:
    if not view.cancelled:
        return []
    count, quotes = len(view.cancelled), _quotes(view.cancelled)
    key = "interrupted_joined" if count == 1 else "interrupted_joined_many"
    return [small(say(key, count=count, text=quotes))]


def _joined(view: TurnView) -> list[Element]:
    gone = {i.id for i in view.cancelled}
    kept = [i for i in view.joined if i.id not in gone]
    return [small(say("joined_line", text=_quotes(kept)))] if kept else []


def _tools(view: TurnView) -> list[Element]:
    tools = [t for t in view.tools() if t.title]
    if not tools:
        return []
    marks = {ItemStatus.completed: "✓", ItemStatus.failed: "✗", ItemStatus.started: "●", ItemStatus.superseded: "–"}
    lines = "\n\n".join(f"{marks[t.status]} {_code(t.title)}" for t in tools[-MAX_TOOLS:])
    head = say("tools_line", count=len(tools)) if len(tools) > 1 else say("tools_line_one")
    panel = {"tag": "collapsible_panel", "element_id": "tools", "expanded": False}
    return [{**panel, "header": {"title": plain_text(head)}, "elements": [md(Text(lines, lines))]}]


def _line(view: TurnView) -> Element:
    slots: dict[str, Any] = {"turn": view.turn, "time": lasting(view.now - view.started), "agent": _agent(view)}
    usage = view.finished.usage if view.finished else None
    if usage and (usage.input_tokens or usage.output_tokens):
        tokens = usage.input_tokens + usage.output_tokens
        return small(say("turn_line_tokens", tokens=f"{tokens / 1000:.1f}k" if tokens >= 1000 else tokens, **slots))
    return small(say("turn_line", **slots))


def _agent(view: TurnView) -> str | Text:
    return AGENTS.get(view.engine) or (literal(_short(view.engine, MAX_TITLE)) if view.engine else say("agent"))


def _summary(view: TurnView) -> Text:
    """The chat list and the lock screen: how it stands, and its first words. Plain text, so nothing is escaped."""
    if view.finished is None:
        tag = say("tag_stopping" if view.stopping else ("tag_asks" if view.asking else "tag_running"))
    else:
        tag = say(_LOOKS[view.finished.outcome][1])
    words = _line_of(view.answer().replace("**", "").replace("`", ""))
    return Text(f"{tag.en} · {words}" if words else tag.en, f"{tag.zh} · {words}" if words else tag.zh)


def _more(text: str, part: int, parts: int) -> Mapping[str, object]:
    said = say("more", part=part, parts=parts)
    return card([md(Text(text, text), id="out"), small(said)], summary=said)


def _left_over() -> Mapping[str, object]:
    said = say("more_gone")
    return card([small(said)], summary=said)


# -- receipts and requests --------------------------------------------------------------------------------------------


def _receipt(view: ReceiptView, nonce: str) -> Mapping[str, object]:
    """A small card without header, replied to the message whose fate it tells. What did not run can be sent again (I5)."""
    head, line = _told(view)
    elements = [md(head), *([small(line)] if line else [])]
    if view.fate in (Fate.failed, Fate.cancelled) and offered(view.reason):
        elements.append(row(button("button_again", "default", {"a": "again", "n": nonce})))
    return card(elements, summary=Text(bare(head.en), bare(head.zh)))


def _told(view: ReceiptView) -> tuple[Text, Text | None]:
    turn = view.turn or 0
    match view.fate:
        case Fate.waiting:
            reason = view.reason if isinstance(view.reason, QueueReason) else QueueReason.no_running_turn
            why = _why(reason, turn, view.owner)
            return say("receipt_waiting", nth=_nth(view.ahead + 1)), why
        case Fate.joined if len(view.inputs) > 1:
            return say("receipt_joined_many", turn=turn, count=len(view.inputs)), say("receipt_joined_line")
        case Fate.joined:
            return say("receipt_joined", turn=turn), say("receipt_joined_line")
        case Fate.started:
            return say("receipt_started", time=lasting(view.now - view.since), turn=turn), None
        case Fate.cancelled:
            why_not = view.reason if isinstance(view.reason, CancelReason) else CancelReason.interrupted
            return say(f"cancelled_{why_not}"), None
        case Fate.failed if view.reason is FailReason.uncertain:
            return say("receipt_uncertain"), say("receipt_uncertain_line", text=_quotes(view.inputs))
        case Fate.failed:
            return say("receipt_failed"), _told_cause(view)


def fate(forecast: Forecast, name: str) -> Text | None:
    """The line above a composer: what pressing Send will do; None when it does nothing. `name`: whose Turn runs."""
    match forecast:
        case Starts(turn):
            return say("fate_starts", turn=turn)
        case Joins(turn):
            return say("fate_joins", turn=turn)
        case Waits(reason, ahead, turn):
            why = _why(reason, turn or 0, name)
            return say("fate_waits", nth=_nth(ahead + 1), why=why)
        case Nothing():
            return None


def _told_cause(view: ReceiptView) -> Text | None:
    cause = literal(_short(view.detail, MAX_CAUSE))
    return Text(cause, cause) if cause else None


def _ask(view: AskView, nonce: str) -> Mapping[str, object]:
    what = [md(Text(*[f"```\n{_fenced(view.title, MAX_ASK)}\n```"] * 2))]
    if detail := literal(_short(view.detail, MAX_CAUSE)):
        what.append(md(Text(detail, detail)))
    line = say("ask_line", turn=view.turn)
    if view.how is None:
        values = {verdict: {"a": verdict.value, "n": nonce, "r": view.request, "t": view.turn} for verdict in Verdict}
        buttons = row(
            button("button_allow", "primary", values[Verdict.allow]),
            button("button_always", "default", values[Verdict.always]),
            button("button_deny", "danger", values[Verdict.deny]),
        )
        summary = say("ask_summary", what=_line_of(view.title))
        return card([*what, small(line), buttons], summary=summary, title=say("ask_title"), look=_ASKING)
    told, look = _closed(view)
    summary = Text(bare(told.en), bare(told.zh))
    return card([*what, small(told)], summary=summary, title=say("ask_title"), look=look)


def _closed(view: AskView) -> tuple[Text, Look]:
    if view.how is Resolution.expired:
        return say("ask_expired"), ("default", "tag_denied", "neutral")
    if view.how is Resolution.withdrawn:
        return say("ask_withdrawn"), ("default", "tag_closed", "neutral")
    if view.how is not Resolution.answered or view.verdict is None:
        return say("ask_closed", turn=view.turn), ("default", "tag_closed", "neutral")
    tag = "tag_denied" if view.verdict is Verdict.deny else "tag_allowed"
    colour = "neutral" if view.verdict is Verdict.deny else "green"
    return _by(f"ask_answered_{view.verdict}", view.name), ("default", tag, colour)


# -- words on a card ---------------------------------------------------------------------------------------------------


def _title(text: str) -> Text:
    line = _line_of(text) or "…"
    return Text(line, line)


def _by(key: str, name: str) -> Text:
    """A sentence about who did it; where nobody is named, its other wording."""
    return say(key, who=literal(_short(name, MAX_TITLE))) if name else say(f"{key}_nobody")


def _why(reason: QueueReason, turn: int, owner: str) -> Text:
    """Why something waits; `owner` is whose Turn it waits for."""
    if reason is QueueReason.other_sender and not owner:
        return say("waits_other_sender_nobody", turn=turn)
    return say(f"waits_{reason}", turn=turn, who=literal(_short(owner, MAX_TITLE)))


def _quotes(inputs: Sequence[Input]) -> str:
    """What people wrote, the newest of it where it is much."""
    shown = [f"“{literal(_short(i.text, MAX_QUOTE))}”" for i in inputs[-MAX_QUOTES:]]
    return " · ".join((["…"] if len(inputs) > MAX_QUOTES else []) + shown)


def _code(text: str) -> str:
    return f"`{code(_short(text.replace('`', ' '), MAX_TOOL))}`" if text else ""


def _fenced(text: str, most: int) -> str:
    lines = code(text).replace("```", "ˋˋˋ").strip("\n")
    return lines if len(lines) <= most else f"{lines[:most]}…"


def _line_of(text: str) -> str:
    """The first line with a word in it, as plain text."""
    lines = (" ".join(line.split()) for line in CONTROL.sub("", text).splitlines())
    return _short(next(filter(None, lines), ""), MAX_TITLE)


def _short(text: str, most: int) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"


def _nth(number: int) -> Text:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return Text(f"{number}{ending}", str(number))
