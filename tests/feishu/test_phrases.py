"""The words: all of them in both languages, each one used, and spoken of in one way."""

import re
from pathlib import Path

import pytest

from amux.core.events import CancelReason, QueueReason
from amux.core.inputs import Verdict
from amux.feishu import phrases
from amux.feishu.phrases import Text, lasting, say
from amux.runtime.receive import Refusal
from tests.gates.phrases import judge

HERE = Path(phrases.__file__).parent
KEYS = sorted(phrases.table("en"))


def test_both_languages_have_the_same_phrases_and_slots() -> None:
    assert judge(HERE / "locales") == []


def test_what_is_looked_up_by_a_reason_is_there() -> None:
    needed = {f"waits_{reason}" for reason in QueueReason} | {f"notice_{refusal}" for refusal in Refusal}
    needed |= {f"ask_answered_{verdict}{nobody}" for verdict in Verdict for nobody in ("", "_nobody")}
    needed |= {f"cancelled_{reason}" for reason in CancelReason}
    assert needed <= set(KEYS)


def test_no_phrase_is_left_that_nobody_says() -> None:
    code = "\n".join(path.read_text() for path in (HERE.parent).rglob("*.py"))
    built = ("waits_", "notice_", "ask_answered_", "fate_", "cancelled_")  # whose end is a reason
    unsaid = [k for k in KEYS if f'"{k}"' not in code and not k.startswith(built) and not k.endswith("_nobody")]
    assert unsaid == []


@pytest.mark.parametrize("key", KEYS)
def test_a_phrase_reads_as_the_house_speaks(key: str) -> None:
    en, zh = phrases.table("en")[key], phrases.table("zh")[key]
    assert not re.search(r"!|\b(oops|please|sorry|successfully)\b", en, re.IGNORECASE)
    assert not re.search("[！您亲]", zh)
    assert not re.search(r"\blost\b", en), "one word must not mean two things: a Turn is cut off"
    assert not re.search("[,.:;?!]", re.sub(r"\{\w+\}|en\.toml", "", zh)), "full-width punctuation"
    assert not re.search("[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", zh), "a space between Han and Latin"


def test_slots_are_filled_in_each_language() -> None:
    assert say("receipt_started", time=lasting(69), turn=8) == Text(
        "**Waited 1 min 09 s, then started Turn 8.**", "**等待 1 分 09 秒后开启第 8 轮。**"
    )


def test_a_missing_phrase_or_slot_is_loud() -> None:
    with pytest.raises(KeyError):
        say("no_such_phrase")
    with pytest.raises(KeyError):
        say("receipt_started")


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3_599, "59 min 59 s")]
)
def test_a_span_of_time(seconds: float, said: str) -> None:
    assert lasting(seconds).en == said
