"""The sandbox page in a real browser: what a person sees happen, at three widths, in both languages and themes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from amux.sandbox.feishu import PAYMENTS, USER_B
from amux.sandbox.records import MessageId, ThreadId
from tests.sandbox.conftest import Cloud, Phone
from tests.sandbox.pages import done, joined, page_of, pushed, revise, running, send, world

pytestmark = pytest.mark.browser

SECONDS = 20  # the longest wait for the page
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
DESKTOP, PHONE, SMALLEST = (1440, 900), (390, 844), (320, 640)
Theme = Literal["light", "dark"]
expect.set_options(timeout=10_000)


@pytest.fixture(scope="module")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=QUIET.split())
        yield browser
        await browser.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Cloud]:
    async with page_of(world()) as cloud:
        yield cloud


@asynccontextmanager
async def tab(browser: Browser, size: tuple[int, int] = DESKTOP, *, theme: Theme = "light") -> AsyncIterator[Page]:
    """A page that fails the test when it complains: an error in its script, or a breach of its policy."""
    width, height = size
    context: BrowserContext = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, locale="en-US"
    )
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if "Security Policy" in m.text else None)
    yield page
    assert wrong == []
    await context.close()


async def answered(sandbox: Cloud) -> tuple[MessageId, ThreadId]:
    """Wait until somebody spoke, then answer with a running card, as a bot does."""
    await sandbox.world.log.until(lambda: bool(sandbox.world.messages), seconds=10)
    asked = next(iter(sandbox.world.messages.values()))
    assert asked.thread is not None
    return send(sandbox.world, running(), thread=asked.thread, answers=asked.id), asked.thread


async def serve_clicks(phone: Phone, toast: str) -> None:
    """The bot's side: take everything, and answer each click with a toast."""
    async for frame, event in pushed(phone):
        clicked = event["header"]["event_type"] == "card.action.trigger"
        await phone.ack(frame, data={"toast": {"type": "info", "content": toast}} if clicked else None)


async def test_the_main_job_a_person_asks_sees_the_card_live_and_presses_its_button(
    browser: Browser, sandbox: Cloud
) -> None:
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(tab(browser))
        await page.goto(sandbox.domain)
        await expect(page.locator("#bot")).to_have_text("Coder is connecting")
        await page.get_by_role("button", name="The upload test fails").click()
        await expect(page.locator(".m.mine .bub")).to_contain_text("@Coder The upload test fails")
        await expect(page.locator(".m.mine .rc")).to_have_text("Waits for the bot to connect")
        phone = await stack.enter_async_context(sandbox.phone())
        bot = asyncio.create_task(serve_clicks(phone, "Interrupting Turn 1."))
        await expect(page.locator("#bot")).to_have_text("Coder is connected")
        await expect(page.locator(".m.mine .rc")).to_have_count(0)
        message, thread = await answered(sandbox)
        await expect(page.locator(f"#m-{message} .tt")).to_have_text("running")
        await expect(page.locator("#chats .st.run")).to_be_visible()
        revise(sandbox.world, message, running("Running the tests"))
        await expect(page.locator(f"#m-{message} strong").first).to_have_text("Running the tests")
        await page.get_by_role("button", name="Interrupt").click()
        await expect(page.locator(".toast")).to_have_text("Interrupting Turn 1.")
        revise(sandbox.world, message, done())
        await expect(page.locator(f"#m-{message} .tt")).to_have_text("done")
        await expect(page.locator("#told")).to_have_text("Coder Bump the version., done")
        await page.get_by_role("link", name="中文").click()
        await expect(page.locator(f"#m-{message} .tt")).to_have_text("已完成")
        await expect(page.locator("html")).to_have_attribute("lang", "zh")
        assert len(sandbox.world.messages[message].revisions) == 3, "a language needs no new send"
        bot.cancel()
        assert thread in page.url


async def test_another_person_by_key_with_the_draft_kept_and_without_the_mention(
    browser: Browser, sandbox: Cloud
) -> None:
    thread = sandbox.world.open_topic(USER_B, PAYMENTS, "Bump the version.")
    async with tab(browser) as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        await page.locator("#text").fill("I agree")
        await page.keyboard.press("Escape")
        await page.keyboard.press("2")
        await expect(page.locator(".me [aria-current]")).to_contain_text("User B")
        await expect(page.locator("#text")).to_have_value("I agree")
        await page.locator(".at").click()
        await page.locator("#text").press("Enter")
        await expect(page.locator(".m.mine .bub").last).to_have_text("I agree")
        await expect(page.locator("#text")).to_have_value("")
        await expect(page.locator("[name=mention]").last).to_be_checked()
    said = list(sandbox.world.messages.values())[-1]
    assert (said.person, said.text, said.thread) == (USER_B, "I agree", thread)


async def holds(page: Page, expression: str) -> None:
    """Wait for it, frame by frame: the page's own policy lets nobody wait by `eval` inside it."""
    async with asyncio.timeout(SECONDS):
        while not await page.evaluate(expression):
            await page.evaluate("new Promise(requestAnimationFrame)")


async def test_the_page_never_scrolls_under_a_reader(browser: Browser, sandbox: Cloud) -> None:
    thread = sandbox.world.open_topic(USER_B, PAYMENTS, "Bump the version.")
    for _ in range(12):
        send(sandbox.world, running(), thread=thread)
    async with tab(browser) as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        # a reader scrolls until the page has settled: while fonts arrive it still goes to its end by itself
        await holds(page, "(document.getElementById('msgs').scrollTop = 100, !following)")
        send(sandbox.world, done(), thread=thread)
        await expect(page.locator("#pill")).to_be_visible()
        assert await page.locator("#msgs").evaluate("m => m.scrollTop") == 100
        await page.locator("#pill").click()
        await expect(page.locator("#pill")).to_be_hidden()
        send(sandbox.world, done(), thread=thread)
        await expect(page.locator(".m")).to_have_count(15)
        at_the_end = "(m => m.scrollHeight - m.scrollTop - m.clientHeight < 2)(document.getElementById('msgs'))"
        await holds(page, at_the_end)


async def test_a_fold_and_the_focus_survive_an_update(browser: Browser, sandbox: Cloud) -> None:
    thread = sandbox.world.open_topic(USER_B, PAYMENTS, "Bump the version.")
    fold = {
        "tag": "collapsible_panel",
        "header": {"title": {"tag": "plain_text", "content": "3 tools"}},
        "elements": [],
    }
    card = running()
    card["body"]["elements"].append(fold)
    message = send(sandbox.world, card, thread=thread)
    async with tab(browser) as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        await page.get_by_text("3 tools").click()
        await page.get_by_role("button", name="Queue").focus()
        card["body"]["elements"][0]["content"] = card["body"]["elements"][0]["i18n_content"]["en_us"] = "now"
        revise(sandbox.world, message, card)
        await expect(page.locator(f"#m-{message} .md").first).to_have_text("now")
        assert await page.locator("details").get_attribute("open") == ""
        await expect(page.get_by_role("button", name="Queue")).to_be_focused()


async def test_what_is_written_while_the_connection_is_lost_is_sent_once_when_it_is_back(
    browser: Browser, sandbox: Cloud
) -> None:
    topic = sandbox.world.open_topic(USER_B, PAYMENTS, "Bump the version.")
    async with tab(browser) as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        await expect(page.locator(".m")).to_have_count(1)
        context = page.context
        await context.set_offline(True)
        await page.locator("#text").fill("and the lock file")
        await page.locator("#text").press("Enter")
        await expect(page.locator(".m.mine .rc")).to_contain_text("Not sent: the connection is lost.")
        await expect(page.locator("#conn")).to_be_visible()
        await page.locator("#text").fill("never mind")
        await page.locator("#text").press("Enter")
        await page.locator(".m.mine .link").last.click()
        await context.set_offline(False)
        await page.locator("#again").click()
        await expect(page.locator("#conn")).to_be_hidden()
        await expect(page.locator(".m.mine[data-n]")).to_have_count(1)
        said = [m.text for m in sandbox.world.messages.values() if m.thread == topic]
        assert said == ["@Coder Bump the version.", "@Coder and the lock file"]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, SMALLEST], ids=lambda s: str(s[0]))
async def test_nothing_overflows(browser: Browser, sandbox: Cloud, size: tuple[int, int], lang: str) -> None:
    async with tab(browser, size) as page:
        for path in ("/sandbox", "/sandbox?chat=none"):
            await page.goto(f"{sandbox.domain}{path}{'&' if '?' in path else '?'}lang={lang}")
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
            thread = sandbox.world.open_topic(USER_B, PAYMENTS, "x" * 300 + " " + "the upload test fails " * 20)
            asked = sandbox.world.say(USER_B, PAYMENTS, "https://" + "y" * 200, topic=thread)
            send(sandbox.world, joined(), thread=thread, answers=asked)
            send(sandbox.world, running("z" * 200, "长" * 120), thread=thread)
        await expect(page.locator("#chats .in")).not_to_have_count(1)
        await page.goto(f"{sandbox.domain}/sandbox?lang={lang}")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
        wide = "[...document.querySelectorAll('#main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
        assert await page.evaluate(wide) == 0


async def test_on_a_phone_people_and_chats_are_within_reach(browser: Browser, sandbox: Cloud) -> None:
    async with tab(browser, PHONE) as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        await page.get_by_role("link", name="User B").click()
        await expect(page.locator("#text")).to_have_attribute("placeholder", "Message as User B")
        await page.get_by_role("button", name="Chats").click()
        await page.locator("#left").get_by_role("link", name="ops-room").click()
        await expect(page.locator("#left")).to_be_hidden()
        await expect(page.locator(".chat header h2")).to_have_text("ops-room")


async def test_the_theme_follows_the_system_until_a_person_chooses(browser: Browser, sandbox: Cloud) -> None:
    ground = "getComputedStyle(document.querySelector('.chat')).backgroundColor"
    async with tab(browser, theme="dark") as page:
        await page.goto(f"{sandbox.domain}/sandbox")
        assert await page.evaluate(ground) == "rgb(26, 27, 30)"
        await page.locator("#theme").click()
        assert await page.evaluate(ground) == "rgb(255, 255, 255)"
        await page.reload()
        assert await page.evaluate(ground) == "rgb(255, 255, 255)", "the choice is remembered"


NAMELESS = """[...document.querySelectorAll('a[href], button, input:not([type=hidden]), textarea, [role=log], nav, aside')]
  .filter(e => e.checkVisibility() && !(e.ariaLabel || e.getAttribute('aria-labelledby') || e.innerText?.trim() || e.labels?.length))
  .map(e => e.outerHTML)"""
CONTRAST = """() => {
  const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (c) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = c; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const low = new Set();
  for (const e of document.querySelectorAll('body :not(.sr)')) {
    if (!e.checkVisibility({opacityProperty: true}) || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) low.add(e.textContent.trim() + ' ' + ((a + .05) / (b + .05)).toFixed(2));
  }
  return [...low];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_everything_has_a_name_and_can_be_read(browser: Browser, sandbox: Cloud, theme: Theme) -> None:
    thread = sandbox.world.open_topic(USER_B, PAYMENTS, "Bump the version.")
    asked = sandbox.world.say(USER_B, PAYMENTS, "also the lock file", topic=thread)
    send(sandbox.world, joined(), thread=thread, answers=asked)
    for look in ("blue", "orange", "red", "violet", "green", "grey", "default"):
        card = running()
        card["header"] |= {"template": look}
        card["header"]["text_tag_list"][0] |= {"color": "neutral" if look in ("grey", "default") else look}
        send(sandbox.world, card, thread=thread)
    send(sandbox.world, "{}", thread=thread)
    async with tab(browser, theme=theme) as page:
        for size in (DESKTOP, PHONE):
            await page.set_viewport_size({"width": size[0], "height": size[1]})
            await page.goto(f"{sandbox.domain}/sandbox?as=user_b")
            assert await page.evaluate(NAMELESS) == []
            assert await page.evaluate(CONTRAST) == []
        await page.goto(f"{sandbox.domain}/sandbox?chat={PAYMENTS}")
        assert await page.evaluate(CONTRAST) == []
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
