"""Pictures of the sandbox page for the documents: a person who asks, adds and speaks as somebody else in a sandbox that
runs, photographed in four looks. It shows what there is and stages nothing.

Run it beside `python3 run.py demo`: `python -m ops.shots ADDRESS [DIRECTORY]`; needs playwright and a Chromium."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Error, Page, ViewportSize, sync_playwright

ARGUMENTS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
USAGE = "usage: python -m ops.shots ADDRESS [DIRECTORY], as in: python -m ops.shots http://127.0.0.1:8700 docs/images"
DESKTOP, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)
CONNECT_MS, ANSWER_MS = 60_000, 30_000


def take(address: str, directory: Path) -> list[Path]:
    """Play the scene and write `sandbox*.png`. Raises playwright's Error when something does not appear in time."""
    chromium = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS.split())
        page = browser.new_page(viewport=DESKTOP, device_scale_factor=1.5, locale="en-US", color_scheme="light")
        page.goto(f"{address.rstrip('/')}/sandbox?lang=en")
        page.locator("#bot:not(.off)").wait_for(timeout=CONNECT_MS)
        page.get_by_role("link", name="New topic").click()
        page.locator("#hello").wait_for()
        pictures = [_picture(page, directory / "sandbox-start.png")]
        _scene(page)
        pictures += [_picture(page, directory / f"sandbox{name}.png", look) for name, look in LOOKS.items()]
        browser.close()
    return pictures


def _scene(page: Page) -> None:
    page.get_by_role("button", name="Find out why.").click()
    page.locator(".fcard").first.wait_for(timeout=ANSWER_MS)
    _say(page, "Look at the last chunk first.")
    page.locator(".m:has-text('last chunk') .rc").wait_for(timeout=ANSWER_MS)
    page.locator("[data-digit='2']").click()
    page.locator("[data-digit='2'][aria-current]").wait_for()
    _say(page, "Also bump the patch version.")
    page.locator(".m:has-text('patch version') .rc").wait_for(timeout=ANSWER_MS)
    page.locator(".fcard .fold").first.wait_for(timeout=ANSWER_MS)  # it has used a tool: there is something to see


def _say(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")


def _dark(page: Page) -> None:
    page.emulate_media(color_scheme="dark")


def _chinese(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.get_by_role("link", name="中文").click()
    page.locator("html[lang=zh]").wait_for()


def _phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="EN").click()
    page.locator("html[lang=en]").wait_for()


LOOKS: dict[str, Callable[[Page], None] | None] = {"": None, "-dark": _dark, "-zh": _chinese, "-phone": _phone}


def _picture(page: Page, path: Path, look: Callable[[Page], None] | None = None) -> Path:
    if look:
        look(page)
    page.evaluate("document.activeElement?.blur()")
    page.screenshot(path=path, animations="disabled")
    return path


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or not arguments[0].startswith("http"):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        pictures = take(arguments[0], Path(arguments[1] if len(arguments) == 2 else "docs/images"))
    except Error as e:
        print(f"No pictures: {e.message.splitlines()[0]} Does the demo run at {arguments[0]}?", file=sys.stderr)
        return 1
    print(*pictures, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
