"""What people see, state by state in both languages: the files in __snapshots__ are the cards, for eyes to review.

And what holds for every card: below Feishu's bounds, complete in both languages, and nothing in it acts by itself."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from amux.core import events as e
from amux.core.ids import ItemId, RequestId, Seq, TurnId
from amux.core.inputs import Verdict
from amux.core.view import AskView, Fate, ItemView, ReceiptView, TurnView
from amux.feishu.cards import render
from amux.sandbox import cards as sandbox
from tests.build import TOPIC, said

View = TurnView | ReceiptView | AskView
LANGUAGES = {"en": "en_us", "zh": "zh_cn"}
T7 = TurnId(7)
ALIAS = said("User A", "Keep the old name as an alias.", id="om_2")
BRANCH = said("User A", "And push to a branch, not to main.", id="om_3")
BUMP = said("User B", "Also bump the patch version.", id="om_4")
ANSWER = "Fixed, and green 20 times in a row. `finalize()` waits for the flush.\n\n- `upload.py` +9 −3\n- `test_upload.py` +21"
DONE, STARTED, FAILED = e.ItemStatus.completed, e.ItemStatus.started, e.ItemStatus.failed


def tool(title: str, status: e.ItemStatus = DONE) -> ItemView:
    return ItemView(e.ItemType.tool, status, title, "output")


def message(text: str, status: e.ItemStatus = DONE) -> ItemView:
    return ItemView(e.ItemType.message, status, "", text)


def turn(
    *items: ItemView, ended: e.Outcome | None = None, detail: str = "", usage: e.Usage | None = None, **more: Any
) -> TurnView:
    """Turn 7 of Codex, after 72 seconds."""
    view = TurnView(
        turn=T7,
        place=TOPIC,
        reply_to=ALIAS.id,
        title="Fix it and prove it with 20 runs.",
        by="User A",
        engine="codex",
        started=1_000.0,
        first=Seq(1),
        seq=Seq(9),
        now=1_072.0,
        items={ItemId(str(n)): item for n, item in enumerate(items)},
        finished=e.TurnFinished(T7, ended, detail=detail, usage=usage) if ended else None,
    )
    return replace(view, **more)


def receipt(fate: Fate, *inputs: Any, **more: Any) -> ReceiptView:
    view = ReceiptView(inputs or (BUMP,), fate, Seq(5), Seq(6), since=1_000.0, now=1_009.0, turn=T7, owner="User A")
    return replace(view, **more)


ASK = AskView(
    T7, RequestId("7-1"), TOPIC, ALIAS.id, "git push origin fix/upload", "It leaves the workspace.", Seq(5), Seq(5)
)
EDIT, PYTEST = tool("edit upload.py"), tool("pytest tests/test_upload.py --count 20", STARTED)
TURNS: dict[str, TurnView] = {
    "turn just started": turn(),
    "turn running": turn(EDIT, message("I made `finalize()` wait."), PYTEST, joined=[ALIAS, BRANCH]),
    "turn asks": turn(EDIT, asking=True),
    "turn stopping": turn(EDIT, PYTEST, stopping=True, stopped_by="User B"),
    "turn stopping, by nobody named": turn(stopping=True),
    "turn completed": turn(
        message("Looking."), EDIT, message(ANSWER), ended=e.Outcome.completed, usage=e.Usage(90_000, 80_000, 1_400)
    ),
    "turn completed without a word": turn(ended=e.Outcome.completed, usage=e.Usage(120, 0, 5)),
    "turn interrupted": turn(
        EDIT, ended=e.Outcome.interrupted, stopped_by="User B", joined=[ALIAS, BRANCH], cancelled=[ALIAS]
    ),
    "turn interrupted, by nobody named": turn(
        ended=e.Outcome.interrupted, joined=[ALIAS, BUMP], cancelled=[ALIAS, BUMP]
    ),
    "turn failed": turn(ended=e.Outcome.failed, detail="You have hit your usage limit. It resets at 14:00."),
    "turn failed, unsaid": turn(ended=e.Outcome.failed, engine=""),
    "turn cut off": turn(
        EDIT, tool("git push", FAILED), message("Pushing now"), ended=e.Outcome.lost, engine="scripted"
    ),
}
RECEIPTS: dict[str, ReceiptView] = {
    "receipt joined": receipt(Fate.joined),
    "receipt joined as one": receipt(Fate.joined, ALIAS, BRANCH),
    "receipt started": receipt(Fate.started, turn=TurnId(8)),
    "receipt cancelled": receipt(Fate.cancelled, reason=e.CancelReason.interrupted),
    "receipt archived": receipt(Fate.cancelled, reason=e.CancelReason.archived),
    "receipt withdrawn": receipt(Fate.cancelled, reason=e.CancelReason.withdrawn),
    "receipt uncertain": receipt(Fate.failed, reason=e.FailReason.uncertain),
    "receipt not run": receipt(
        Fate.failed,
        reason=e.FailReason.engine_unavailable,
        detail="This Session runs on codex, which local does not have.",
    ),
    **{f"receipt waits, {reason}": receipt(Fate.waiting, reason=reason) for reason in e.QueueReason},
    "receipt waits, third of nobody": receipt(Fate.waiting, reason=e.QueueReason.other_sender, ahead=2, owner=""),
}
ASKS: dict[str, AskView] = {
    "ask": ASK,
    **{
        f"ask, {verdict}": replace(ASK, how=e.Resolution.answered, verdict=verdict, name="User A")
        for verdict in Verdict
    },
    "ask, allowed by nobody named": replace(ASK, how=e.Resolution.answered, verdict=Verdict.allow),
    "ask, interrupted": replace(ASK, how=e.Resolution.interrupted),
}
UNRUN = {Fate.failed: e.FailReason, Fate.cancelled: e.CancelReason}
VIEWS: dict[str, View] = {**TURNS, **RECEIPTS, **ASKS}


def read(part: Any, language: str) -> Any:
    """The card as a client of that language shows it."""
    match part:
        case {"i18n_content": several, **rest}:
            return read({**rest, "content": several[language]}, language)
        case dict():
            return {key: read(each, language) for key, each in part.items()}
        case list():
            return [read(each, language) for each in part]
        case _:
            return part


def only(view: View) -> Mapping[str, object]:
    (card,) = render(view, "nonce")
    return card


@pytest.mark.rule("B11", "I3", "I4", "I5", "I6", "T3")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_card(name: str, language: str, snapshot: SnapshotAssertion) -> None:
    shown = read(only(VIEWS[name]), LANGUAGES[language])
    assert shown == snapshot(extension_class=JSONSnapshotExtension)


def test_every_state_has_a_card() -> None:
    assert {v.finished.outcome for v in TURNS.values() if v.finished} == set(e.Outcome)
    assert {v.fate for v in RECEIPTS.values()} == set(Fate)
    assert {v.reason for v in RECEIPTS.values()} >= set(e.QueueReason)
    assert {v.verdict for v in ASKS.values()} >= set(Verdict)


# -- what holds for all -----------------------------------------------------------------------------------------------

NASTY = {
    "chinese": "长" * 40_000,
    "quotes": '"' * 40_000,
    "backslashes": "\\" * 40_000,
    "ampersands": "&" * 40_000,
    "tags": "<at id=all></at>" * 3_000,
    "marks": "*_`[]()" * 6_000,
    "emoji": "👋" * 20_000,
    "lines": "x\n" * 20_000,
    "code": "```python\n" + "if a < b & c:\n    pass\n" * 2_000 + "```\n",
    "controls": "a\x00\x1b[31m\u202eb\x7f\x85" * 5_000,
}


def nasty(text: str) -> Iterator[View]:
    """Everything that somebody else may write, at its longest."""
    many = [said(text, text, id=f"om_{n}") for n in range(60)]
    tools = [tool(text) for _ in range(100)]
    for outcome in (None, *e.Outcome):
        more: dict[str, Any] = {
            "joined": many,
            "cancelled": many[:30],
            "title": text,
            "stopped_by": text,
            "engine": text,
        }
        yield turn(*tools, message(text), ended=outcome, detail=text, **more)
    for fate in Fate:
        for reason in (*e.QueueReason, *e.FailReason):
            yield receipt(fate, *many, reason=reason, detail=text, owner=text)
    for how in (None, *e.Resolution):
        yield replace(ASK, title=text, detail=text, how=how, verdict=Verdict.allow, name=text)


EVERY = [(name, card) for name, view in VIEWS.items() for card in render(view, "nonce")]
WORST = [(name, card) for name, text in NASTY.items() for view in nasty(text) for card in render(view, "nonce")]


def parts(value: object) -> Iterator[Mapping[str, Any]]:
    """All objects of a card."""
    match value:
        case dict():
            yield value
            for each in value.values():
                yield from parts(each)
        case list():
            for each in value:
                yield from parts(each)
        case _:
            pass


def texts(card: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Every text with its tag, in each language."""
    for part in parts(card):
        if "content" in part:
            for text in (part["content"], *part.get("i18n_content", {}).values()):
                yield str(part.get("tag", "plain_text")), text


@pytest.mark.parametrize("cards", [EVERY, WORST], ids=["each state", "the worst that can be written"])
def test_cards_keep_below_feishus_bounds(cards: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    for name, card in cards:
        assert len(json.dumps(card, ensure_ascii=False).encode()) < 25_000, name
        assert sum("tag" in part for part in parts(card)) <= 60, name


def test_the_sandbox_takes_every_card_as_feishu_would() -> None:
    for _, card in (*EVERY, *WORST):
        sandbox.check(json.dumps(card, ensure_ascii=False))


@pytest.mark.parametrize("name", VIEWS)
def test_both_languages_say_it_all(name: str) -> None:
    card = only(VIEWS[name])
    shown: Any = card
    assert shown["config"]["summary"]["content"]
    assert shown["config"]["update_multi"] is True
    for part in parts(card):
        if "i18n_content" in part:
            assert set(part["i18n_content"]) == set(LANGUAGES.values())
            assert part["content"] == part["i18n_content"]["en_us"]
    english = {text for _, text in texts(read(card, "en_us"))}
    assert not [text for text in english if re.search("[\u4e00-\u9fff]", text)]
    assert not [text for _, text in texts(card) if re.search(r"[{}]", text)]


@pytest.mark.parametrize("name", VIEWS)
def test_labels_fit_a_phone_and_buttons_are_few(name: str) -> None:
    found = [part for part in parts(only(VIEWS[name])) if part.get("tag") == "button"]
    assert len(found) <= 3
    for button in found:
        texts_ = button["text"]["i18n_content"]
        assert len(texts_["en_us"]) <= 15
        assert len(texts_["zh_cn"]) <= 7


def test_buttons_stand_only_where_they_can_be_pressed() -> None:
    """A card that is settled has none; a press carries the nonce and what it is for."""
    with_buttons = {name for name, view in VIEWS.items() if any(p.get("tag") == "button" for p in parts(only(view)))}
    failed = {"receipt cancelled", "receipt uncertain", "receipt not run"}
    assert with_buttons == {"turn just started", "turn running", "turn asks", "ask", *failed}
    values = [p["value"] for p in parts(only(ASK)) if p.get("type") == "callback"]
    assert values == [{"a": verdict, "n": "nonce", "r": "7-1", "t": 7} for verdict in ("allow", "always", "deny")]


@pytest.mark.rule("I5")
def test_what_did_not_run_can_be_sent_again_where_that_is_of_use() -> None:
    """Not where the Session is archived, nor what somebody took back."""
    for view in (receipt(fate, reason=reason) for fate, reasons in UNRUN.items() for reason in reasons):
        values = [p["value"] for p in parts(only(view)) if p.get("type") == "callback"]
        assert values == ([] if view.reason in ("archived", "withdrawn") else [{"a": "again", "n": "nonce"}])


# -- other people's words ---------------------------------------------------------------------------------------------

FEISHU_TAG = re.compile(r"<(?!/?font\b)/?[a-z_]+", re.IGNORECASE)
HOSTILE = [
    "<at id=all></at>",
    "<AT id=all>",
    "`<at id=all></at>`",
    "```\n<at id=all></at>\n```",
    "a ` b <at id=all></at> ` c",
    "```\n``` <at id=all></at>",
    "~~~\n<at id=all></at>\n~~~",
    "<a href='https://bad.example'>https://good.example</a>",
    "<font color='red'>**Turn failed**</font>",
    "<person id='ou_1'></person><link url='x'>",
    "</font><at id=all>",
    "&lt;at id=all&gt;",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nobody_is_pinged_and_nothing_is_forged(text: str) -> None:
    """H27. Our own grey lines are the only tags of Feishu's on a card."""
    for view in nasty(text):
        for card in render(view, "nonce"):
            for tag, shown in texts(card):
                if tag == "markdown":
                    assert not FEISHU_TAG.search(shown), shown
                    assert shown.count("<font") == shown.count("</font>") == shown.startswith("<font color='grey'>")


def test_names_quotes_and_causes_are_no_markdown() -> None:
    """H27: a link in a quote would be the bot's word for it."""
    link = "[the docs](https://bad.example) **bold**"
    hostile = said(link, link, id="om_x")
    views: list[View] = [
        turn(ended=e.Outcome.failed, detail=link, engine=link),
        turn(ended=e.Outcome.interrupted, stopped_by=link, joined=[hostile], cancelled=[hostile]),
        turn(joined=[hostile]),
        receipt(Fate.waiting, reason=e.QueueReason.other_sender, owner=link),
        receipt(Fate.failed, hostile, reason=e.FailReason.uncertain),
        receipt(Fate.failed, reason=e.FailReason.open_failed, detail=link),
        replace(ASK, detail=link, how=e.Resolution.answered, verdict=Verdict.deny, name=link),
    ]
    for view in views:
        markdown = [text for tag, text in texts(only(view)) if tag == "markdown"]
        assert any("the docs" in text for text in markdown)
        assert not [text for text in markdown if "](" in text or "**bold" in text]


def test_no_control_character_reaches_a_card() -> None:
    """H30: no colours, no bell, no text that runs backwards."""
    for name, card in WORST:
        for _, text in texts(card):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), name


def test_code_is_shown_as_it_was_written() -> None:
    """Inside code an entity would stand there as it is."""
    code = "Use `a < b && c`:\n\n```python\nif a < b and b > c:\n    x = [y for y in z if y & 1]\n```\n\nand 1 < 2 & 3."
    (answer,) = [
        p["content"]
        for p in parts(only(turn(message(code), ended=e.Outcome.completed)))
        if p.get("element_id") == "out"
    ]
    assert answer == code.replace("1 < 2 & 3", "1 &lt; 2 &amp; 3")


def test_what_the_lock_screen_shows_is_plain_text() -> None:
    card: Any = only(turn(message("**Done:** `a < b` & more\n\nsecond"), ended=e.Outcome.completed))
    assert card["config"]["summary"]["content"] == "done · Done: a < b & more"
    shown: Any = only(receipt(Fate.waiting, reason=e.QueueReason.other_sender))
    assert shown["config"]["summary"]["i18n_content"] == {"en_us": "Waiting, 1st in line.", "zh_cn": "等待中，排第 1。"}


# -- long answers -----------------------------------------------------------------------------------------------------


def answers(cards: Sequence[Mapping[str, object]]) -> list[str]:
    return [p["content"] for card in cards for p in parts(card) if p.get("element_id") == "out"]


def test_a_long_answer_goes_on_in_numbered_messages() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "words " * 60 for n in range(150))
    cards = render(turn(message(text), ended=e.Outcome.completed), "nonce")
    assert " ".join("\n\n".join(answers(cards)).split()) == " ".join(text.split())
    lines = [[t for tag, t in texts(read(card, "en_us")) if "Part " in t] for card in cards]
    assert lines[0] == []
    assert all(f"Part {n} of {len(cards)}" in found[0] for n, found in enumerate(lines[1:], start=2))


def test_a_part_that_is_not_needed_any_more_says_so_in_both_languages() -> None:
    view = turn(message(ANSWER), ended=e.Outcome.completed)
    first, *rest = render(view, "nonce", shown=3)
    assert [first] == list(render(view, "nonce"))
    assert len(rest) == 2 and rest[0] == rest[1]
    said = {language: {t for _, t in texts(read(rest[0], code))} for language, code in LANGUAGES.items()}
    english, chinese = "This part is empty now: the whole answer stands above.", "这一部分现已为空：完整回答见上文。"
    assert said == {
        "en": {english, f"<font color='grey'>{english}</font>"},
        "zh": {chinese, f"<font color='grey'>{chinese}</font>"},
    }


def test_while_it_works_its_newest_words_are_shown() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "words " * 60 for n in range(150))
    (card,) = render(turn(message(text, STARTED)), "nonce")
    assert answers([card])[0].rstrip().endswith("words")
    assert "Paragraph 149." in answers([card])[0]
    assert "Paragraph 0." not in answers([card])[0]
