"""The sandbox page as text: what is shown to whom, what an act does, and what the stream sends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amux.sandbox.changes import ChangeKind
from amux.sandbox.feishu import CODER, OPS, PAYMENTS, USER_A, USER_B, USER_C
from amux.sandbox.page import cards, markdown, render, routes, stream, view
from amux.sandbox.page.view import Reader, Spot
from amux.sandbox.records import ThreadId, dumps, private_chat_id
from amux.sandbox.world import World
from tests.sandbox.conftest import Cloud
from tests.sandbox.pages import card, done, joined, page_of, revise, running, send, text, world

PAGE = Path(render.__file__).parent
JSON = {"accept": "application/json"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'"


@pytest.fixture
async def a_world() -> AsyncIterator[World]:
    made = world()
    yield made
    await made.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Cloud]:
    async with page_of(world()) as cloud:
        yield cloud


def opened(a_world: World, said: str = "Bump the version.") -> Spot:
    return Spot(PAYMENTS, a_world.open_topic(USER_A, PAYMENTS, said))


def shown(a_world: World, spot: Spot, lang: str = "en") -> dict[str, str]:
    """The messages as the page draws them, by id."""
    here = stream.here(a_world, Reader(USER_A, lang), spot)
    return {f"m-{said.id}": render.message(here, said) for said in view.messages(a_world, spot)}


# -- words


def test_both_languages_have_the_same_slots_and_every_phrase_is_used() -> None:
    sources = "".join(path.read_text() for path in [*PAGE.glob("*.html"), *PAGE.glob("*.py")])
    for key, both in render.WORDS.items():
        assert sorted(both) == ["en", "zh"], key
        assert all(both.values()), key
        assert re.findall(render.SLOT, both["en"]) == re.findall(render.SLOT, both["zh"]), key
        assert f"'{key}'" in sources or f'"{key}"' in sources, f"nothing says {key}"


# -- cards and markdown


async def test_a_card_is_drawn_as_it_was_sent_in_either_language(a_world: World) -> None:
    spot = opened(a_world)
    send(a_world, running(), thread=spot.topic)
    (_, english), (_, chinese) = (list(shown(a_world, spot, lang).values()) for lang in ("en", "zh"))
    fields = re.compile(r"<input type=\"hidden\"[^>]*>|^.*?<form|</form>.*$", re.DOTALL)
    assert re.sub(r"\s+", " ", fields.sub("", english)) == (
        ' class="fcard default" method="post" action="/sandbox/click" data-click><header class="blue">'
        '<b>Bump the version.</b><i class="tt blue">running</i></header><div class="bd">'
        '<div class="md "><p><strong>Reading version.py</strong></p> </div>'
        '<div class="md "><p><span class="fg-grey">Turn 1 · 6 s</span></p> </div>'
        '<div class="cs flow"><div class="auto w1"><button class="fb danger" name="button" value="2.0.0" '
        'data-key="2.0.0" >Interrupt</button></div><div class="auto w1"><button class="fb default" name="button" '
        'value="2.1.0" data-key="2.1.0" >Queue</button></div></div></div>'
    )
    words = re.findall(r">([^<>\s][^<>]*)<", fields.sub("", chinese))
    assert words == ["升版本号。", "运行中", "正在读 version.py", "第 1 轮 · 6 秒", "打断", "队列"]


MARKDOWN = {
    "plain": ("**a** `b`", "<p><strong>a</strong> <code>b</code></p>\n"),
    "Feishu's colour": (
        "<font color='grey'>a **b**</font>",
        '<p><span class="fg-grey">a <strong>b</strong></span></p>\n',
    ),
    "a colour of nobody's": ("<font color='pink'>a</font>", '<p><span class="fg-other">a</span></p>\n'),
    "a tag left open": ("<font color='red'>a", "<p>&lt;font color='red'&gt;a</p>\n"),
    "a tag that was escaped": (
        "&lt;font color='red'&gt;a&lt;/font&gt;",
        "<p>&lt;font color='red'&gt;a&lt;/font&gt;</p>\n",
    ),
    "a tag in code": ("`<br>`", "<p><code>&lt;br&gt;</code></p>\n"),
    "a break": ("a<br>b", "<p>a<br />\nb</p>\n"),
    "no HTML": ("<b>a</b>", "<p>&lt;b&gt;a&lt;/b&gt;</p>\n"),
    "no script": ("[a](javascript:alert)", "<p>[a](javascript:alert)</p>\n"),
    "a link": ("[a](https://b)", '<p><a href="https://b" target="_blank" rel="noopener noreferrer">a</a></p>\n'),
    "no image": ("![a](https://b)", '<p>!<a href="https://b" target="_blank" rel="noopener noreferrer">a</a></p>\n'),
    "a heading below the page's": ("# a", "<h4>a</h4>\n"),
    "a table without inline style": (
        "|a|\n|-:|\n|1|",
        '<table>\n<thead>\n<tr>\n<th class="right">a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td class="right">1</td>\n</tr>\n</tbody>\n</table>\n',
    ),
}


@pytest.mark.parametrize(("written", "drawn"), MARKDOWN.values(), ids=MARKDOWN)
def test_markdown(written: str, drawn: str) -> None:
    assert str(markdown.html(written)) == drawn


def test_tags_nested_without_end_are_text_and_do_not_break_the_page() -> None:
    assert "fg-red" in markdown.html("<font color='red'>" * 2000 + "a" + "</font>" * 2000)


async def test_a_card_that_feishu_refuses_is_shown_in_red_with_its_reason(a_world: World) -> None:
    spot = opened(a_world)
    bad = send(a_world, {"schema": "2.0", "body": {"elements": [{"tag": "action"}]}}, thread=spot.topic)
    drawn = shown(a_world, spot)[f"m-{bad}"]
    assert '<div class="fcard refused" role="alert"><header><b>Feishu refuses this card</b></header>' in drawn
    assert "200861: not support tag: action; path: body -&gt; elements -&gt; [0]" in drawn


@pytest.mark.parametrize(("code", "visible"), [(230099, True), (200861, True), (230020, False), (300317, False)])
async def test_a_refused_send_is_shown_where_it_would_have_stood_if_its_card_is_to_blame(
    a_world: World, code: int, visible: bool
) -> None:
    spot, other = opened(a_world), opened(a_world)
    a_world.log.note(ChangeKind.send_refused, chat=PAYMENTS, thread=spot.topic, app=CODER, code=code, reason="why")
    refused = [said.refused for said in view.messages(a_world, spot) if said.refused]
    assert refused == ([f"{code}: why"] if visible else [])
    assert not any(said.refused for said in view.messages(a_world, other))


def test_a_button_is_found_by_the_place_at_which_it_was_drawn() -> None:
    fold = {"tag": "collapsible_panel", "header": {"title": text("a", "a")}, "elements": running()["body"]["elements"]}
    read = cards.read(dumps(card(fold)))
    assert isinstance(read, cards.Card)
    found = cards.button(read, "0.2.1.0")
    assert found is not None
    assert found.value == {"do": "queue"}
    for path in ("", "0", "0.2", "0.2.7.0", "9", "x", "0.2.1.0.0", "-1"):
        assert cards.button(read, path) is None, path


# -- what is shown to whom


async def test_what_is_asked_for_leads_to_the_nearest_that_exists(a_world: World) -> None:
    old, new = opened(a_world), opened(a_world)
    mine, yours = private_chat_id(USER_A, CODER), private_chat_id(USER_B, CODER)
    cases = {
        ("", "", ""): (USER_A, new),
        ("user_b", PAYMENTS, str(old.topic)): (USER_B, old),
        ("user_b", PAYMENTS, ""): (USER_B, Spot(PAYMENTS)),
        ("nobody", "nowhere", "omt_none"): (USER_A, Spot(PAYMENTS)),
        ("user_a", OPS, str(old.topic)): (USER_A, Spot(OPS)),
        ("user_b", mine, ""): (USER_B, Spot(yours)),
    }
    assert {asked: view.settle(a_world, *asked) for asked in cases} == cases


async def test_the_list_of_chats_says_what_runs_and_what_waits_for_a_person(a_world: World) -> None:
    first = opened(a_world, "Bump the version.\nAnd say so.")
    send(a_world, running(), thread=first.topic)
    second = opened(a_world, "Push it.")
    ask = send(
        a_world, running() | {"header": {"template": "orange", "title": text("Run?", "运行？")}}, thread=second.topic
    )
    listed = [(row.title, row.note, row.mark) for row in view.rows(a_world, USER_A)]
    assert listed == [
        ("payments-api", "bound_topic", ""),
        ("", "", ""),
        ("Push it.", "", "wait"),
        ("Bump the version.", "", "run"),
        ("ops-room", "bound_mention", ""),
        ("Coder", "bound_private", ""),
    ]
    revise(a_world, ask, done())
    assert [row.mark for row in view.rows(a_world, USER_A)] == ["", "", "", "run", "", ""]


async def test_a_receipt_hangs_below_what_it_answers_and_an_answer_stands_by_itself(a_world: World) -> None:
    spot = opened(a_world)
    (root,) = view.messages(a_world, spot)
    answer = send(a_world, running(), thread=spot.topic, answers=a_world.topics[ThreadId(spot.topic or "")].root)
    added = a_world.say(USER_A, PAYMENTS, "also the lock file", topic=spot.topic, mentions=())
    receipt = send(a_world, joined(), thread=spot.topic, answers=added)
    rest = card({**text("The rest.", "其余。", "markdown"), "element_id": "out"})
    part = send(a_world, rest, thread=spot.topic, answers=added)
    assert [(said.id, [r.id for r in said.receipts]) for said in view.messages(a_world, spot)] == [
        (root.id, []),
        (answer, []),
        (added, [receipt]),
        (part, []),
    ]


async def test_a_message_waits_visibly_until_the_bot_has_it(a_world: World) -> None:
    spot = opened(a_world)
    (drawn,) = shown(a_world, spot).values()
    assert "Waits for the bot to connect" in drawn


async def test_the_page_is_whole_without_script(sandbox: Cloud) -> None:
    spot = opened(sandbox.world, HOSTILE)
    send(sandbox.world, card(text(HOSTILE, HOSTILE, "markdown"), title=(HOSTILE, HOSTILE)), thread=spot.topic)
    page = await sandbox.http.get("/sandbox")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert re.findall(r"<script(?! src=\"/sandbox/static/page.js\" defer)", page.text) == []
    assert re.findall(r"<[^>]+\s(?:style|on\w+)=", page.text.replace("onerror=alert(1)&gt;", "")) == []
    assert page.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert len(re.findall("<h1", page.text)) == 1
    for name in render.STATIC:
        assert (await sandbox.http.get(f"/sandbox/static/{name}")).status_code == 200
    assert (await sandbox.http.get("/sandbox/static/routes.py")).status_code == 404
    assert (await sandbox.http.get("/")).headers["location"] == "/sandbox"


async def test_an_empty_topic_offers_three_sentences(sandbox: Cloud) -> None:
    page = (await sandbox.http.get("/sandbox")).text
    offered = re.findall(r'<button name="text" value="([^"]*)"', page)
    assert [sentence.partition("\n")[0] for sentence in offered] == [
        "The upload test fails one run in ten. Find out why.",
        "Push the fix, but ask me first.",
        "Run the whole suite twenty times.",
    ]
    answer = await sandbox.http.post("/sandbox/say", data={"text": offered[1], "mention": "1"})
    (message,) = sandbox.world.messages.values()
    assert message.text == f"@Coder {offered[1]}"
    assert "!ask git push origin fix/upload-retry" in message.text
    assert answer.status_code == 303
    assert f"topic={message.thread}" in answer.headers["location"]


async def test_the_language_is_the_links_then_the_cookies_then_the_browsers(sandbox: Cloud) -> None:
    async def language(address: str, **headers: str) -> str:
        page = await sandbox.http.get(address, headers=headers)
        return page.text.partition('<html lang="')[2][:2]

    assert await language("/sandbox", **{"accept-language": "de,en"}) == "en"
    assert await language("/sandbox", **{"accept-language": "zh-CN,zh"}) == "zh"
    assert await language("/sandbox?lang=zh") == "zh"
    assert await language("/sandbox", **{"accept-language": "en"}) == "zh", "the link's choice is remembered"
    assert await language("/sandbox?lang=xx") == "en"


# -- what a person does


async def test_what_is_said_opens_a_topic_and_is_said_once_however_often_it_is_sent(sandbox: Cloud) -> None:
    form = {"as": "user_b", "chat": PAYMENTS, "topic": "", "text": " Fix it. ", "mention": "1", "key": "k1"}
    first, second = [(await sandbox.http.post("/sandbox/say", data=form, headers=JSON)).json() for _ in "ab"]
    (message,) = sandbox.world.messages.values()
    assert (message.person, message.text) == (USER_B, "@Coder Fix it.")
    assert first == second
    assert first == {
        "message": message.id,
        "place": f"{PAYMENTS}/{message.thread}",
        "url": f"/sandbox?as=user_b&chat={PAYMENTS}&topic={message.thread}&lang=en",
    }


async def test_without_the_chip_nobody_is_mentioned(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    form = {"chat": PAYMENTS, "topic": spot.topic or "", "text": "I agree."}
    await sandbox.http.post("/sandbox/say", data=form, headers=JSON)
    said = list(sandbox.world.messages.values())[-1]
    assert (said.text, said.mentions, said.thread) == ("I agree.", (), spot.topic)


async def test_a_topic_is_opened_by_its_first_message(sandbox: Cloud) -> None:
    answer = await sandbox.http.post("/sandbox/topic", data={"chat": PAYMENTS, "text": "Fix it."}, headers=JSON)
    (topic,) = sandbox.world.topics
    assert answer.json()["topic"] == topic
    refused = await sandbox.http.post("/sandbox/topic", data={"chat": OPS, "text": "Fix it."}, headers=JSON)
    assert (refused.status_code, list(refused.json())) == (400, ["error"])


async def test_nothing_is_refused_with_a_sentence(sandbox: Cloud) -> None:
    answer = await sandbox.http.post("/sandbox/say", data={"text": "  ", "lang": "zh"}, headers=JSON)
    assert (answer.status_code, answer.json()) == (400, {"error": "没有可发送的内容：请先写点什么。"})
    assert not sandbox.world.messages


FOREIGN = {
    "another site": {"origin": "https://evil.example"},
    "another port": {"origin": "http://127.0.0.1:1"},
    "a sandboxed frame": {"origin": "null"},
    "a name that points here": {"host": "evil.example"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_another_site_can_neither_speak_nor_listen(sandbox: Cloud, headers: dict[str, str]) -> None:
    for answer in (
        await sandbox.http.post("/sandbox/say", data={"text": "rm -rf"}, headers=headers),
        await sandbox.http.get("/sandbox", headers=headers),
        await sandbox.http.get("/sandbox/stream", headers=headers),
    ):
        assert answer.status_code == 403
    assert not sandbox.world.messages


def click(message: str, button: str, revision: int = 0, **more: str) -> dict[str, str]:
    return {"as": "user_b", "message": message, "button": button, "revision": str(revision), **more}


async def test_a_click_says_what_the_button_on_the_screen_says_and_shows_the_answer(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    async with sandbox.phone() as phone:
        await phone.take()
        message = send(sandbox.world, running(), thread=spot.topic)
        revise(sandbox.world, message, done())  # this browser still shows the first state
        form = click(message, "2.0.0", chat=PAYMENTS, topic=spot.topic or "", lang="zh")
        pressed = asyncio.create_task(sandbox.http.post("/sandbox/click", data=form, headers=JSON))
        frame, event = await phone.event()
        toast = {"type": "info", "content": "Stale.", "i18n": {"zh_cn": "卡片已过期。", "en_us": "Stale."}}
        await phone.ack(frame, data={"toast": toast})
        answer = (await pressed).json()
    assert event["event"]["action"]["value"] == {"do": "interrupt", "turn": 1}
    assert answer["toast"] == "卡片已过期。"


async def test_a_click_that_nobody_answers_shows_feishus_code(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    message = send(sandbox.world, running(), thread=spot.topic)
    answer = await sandbox.http.post("/sandbox/click", data=click(message, "2.0.0"), headers=JSON)
    assert answer.json()["toast"] == "Feishu shows error 200340: the bot did not answer this click."


async def test_a_button_that_no_card_has_is_refused(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    message = send(sandbox.world, running(), thread=spot.topic)
    for form in (click(message, "9"), click(message, "2.0.0", 5), click("om_none", "2.0.0"), {}):
        answer = await sandbox.http.post("/sandbox/click", data=form, headers=JSON)
        assert answer.status_code == 400, form


# -- the fate line


async def test_the_fate_line_is_amuxs_answer_and_nothing_else() -> None:
    asked: list[tuple[str, str, str | None, str]] = []

    async def fate(person: str, chat: str, topic: str | None, words: str) -> dict[str, str] | None:
        asked.append((person, chat, topic, words))
        return {"en": "This starts Turn <1>.", "zh": "将开启第 1 轮。"} if words.startswith("@Coder") else None

    async with page_of(world(), fate) as sandbox:
        address = f"/sandbox/fate?as=user_b&chat={PAYMENTS}&topic=&text=hi&lang="
        waits = (await sandbox.http.get(address + "en")).text
        async with sandbox.phone():
            told = [(await sandbox.http.get(address + more)).text for more in ("en&mention=1", "zh&mention=1", "en")]
    assert "Coder is connecting. Write now: it gets your message as soon as it is there." in waits
    assert [re.findall(r"<span>(.*?)</span>", each) for each in told] == [
        ["This starts Turn &lt;1&gt;."],
        ["将开启第 1 轮。"],
        [],
    ]
    assert asked == [
        ("user_b", PAYMENTS, None, "@Coder hi"),
        ("user_b", PAYMENTS, None, "@Coder hi"),
        ("user_b", PAYMENTS, None, "hi"),
    ]


async def test_the_page_does_not_wait_for_a_fate_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "FATE_SECONDS", 0.05)

    async def fate(person: str, chat: str, topic: str | None, words: str) -> None:
        await asyncio.Event().wait()

    async with page_of(world(), fate) as sandbox, sandbox.phone():
        page = await sandbox.http.get("/sandbox")
        assert '<p class="fate" id="fate"></p>' in page.text


# -- the stream


async def test_patches_lead_to_what_a_fresh_page_shows(a_world: World) -> None:
    spot, other = opened(a_world), opened(a_world)
    held, at = shown(a_world, spot), a_world.log.head

    def follow() -> list[str]:
        nonlocal at
        news, at = a_world.log.since(at), a_world.log.head
        patches = dict(stream.patches(a_world, news, reader=Reader(USER_A), spot=spot))
        held.update({name: html for name, html in patches.items() if name.startswith("m-")})
        for name in [name for name, html in held.items() if not html]:
            del held[name]
        assert held == shown(a_world, spot)
        return sorted(patches)

    answer = send(a_world, running(), thread=spot.topic)
    assert follow() == ["chats", f"m-{answer}"]
    revise(a_world, answer, done())
    assert follow() == ["chats", f"m-{answer}"]
    added = a_world.say(USER_A, PAYMENTS, "also this", topic=spot.topic)
    assert follow() == ["chats", f"m-{added}"]
    receipt = send(a_world, joined(), thread=spot.topic, answers=added)
    follow()
    revise(a_world, receipt, running())  # now it is a message of its own
    assert f"m-{receipt}" in follow()
    assert f"m-{receipt}" in held
    revise(a_world, receipt, joined())  # and now it is none again
    follow()
    assert f"m-{receipt}" not in held
    a_world.recall(USER_A, added)
    follow()
    a_world.log.note(ChangeKind.send_refused, chat=PAYMENTS, thread=spot.topic, app=CODER, code=230099, reason="why")
    assert follow() == [f"m-refused-{at}"]
    send(a_world, running(), thread=other.topic)
    assert follow() == ["chats"]


async def events(cloud: Cloud, address: str, count: int) -> list[tuple[str, str, dict[str, str]]]:
    """The first events of a stream: kind, position, data."""
    seen: list[tuple[str, str, dict[str, str]]] = []
    async with asyncio.timeout(10), cloud.http.stream("GET", address) as answer:
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            seen.append((fields["event"], fields["id"], json.loads(fields["data"])))
            if len(seen) == count:
                break
    return seen


async def test_the_stream_goes_on_from_where_the_page_was_made(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    page = (await sandbox.http.get("/sandbox")).text
    address = re.findall(r'data-stream="([^"]+)"', page)[0].replace("&amp;", "&")
    answer = send(sandbox.world, running(), thread=spot.topic)  # between the page and its stream
    beat, chats, patch = await events(sandbox, address, 3)
    assert [beat[0], chats[0], patch[0]] == ["beat", "patch", "patch"]
    assert [chats[2]["id"], patch[2]] == [
        "chats",
        {"id": f"m-{answer}", "html": shown(sandbox.world, spot)[f"m-{answer}"]},
    ]
    again = await events(sandbox, re.sub("from=[^&]+", f"from={patch[1]}", address), 1)
    assert again == [("beat", patch[1], {})]


@pytest.mark.parametrize("position", ["", "0", "other-7", "x"])
async def test_a_page_of_an_earlier_run_is_told_to_come_again(sandbox: Cloud, position: str) -> None:
    ((kind, _, _),) = await events(sandbox, f"/sandbox/stream?from={position}", 1)
    assert kind == "again"


async def test_a_quiet_stream_beats(sandbox: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.05)
    page = (await sandbox.http.get("/sandbox")).text
    address = re.findall(r'data-stream="([^"]+)"', page)[0].replace("&amp;", "&")
    assert [kind for kind, _, _ in await events(sandbox, address, 3)] == ["beat", "beat", "beat"]


async def test_the_page_learns_when_the_bot_connects(sandbox: Cloud) -> None:
    spot = opened(sandbox.world)
    before = sandbox.world.log.head
    async with sandbox.phone() as phone:
        await phone.take()
        await sandbox.world.courier.settled(seconds=5)
        news = sandbox.world.log.since(before)
        patches = dict(stream.patches(sandbox.world, news, reader=Reader(USER_C), spot=spot))
    (message,) = sandbox.world.messages
    assert sorted(patches) == ["bot", f"m-{message}"]
    assert "Coder is connected" in patches["bot"]
    assert "Waits for the bot" not in patches[f"m-{message}"]
