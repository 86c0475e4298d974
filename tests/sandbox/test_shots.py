"""The pictures for the documents can be taken, from a sandbox whose bot works."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops.shots import main, take
from tests.sandbox.conftest import Cloud, Phone
from tests.sandbox.pages import joined, page_of, pushed, running, send, text, world

PNG = b"\x89PNG"


async def work(sandbox: Cloud, phone: Phone) -> None:
    """The first message starts a Turn; what follows joins it."""
    fold = {"tag": "collapsible_panel", "header": {"title": text("1 tool", "1 次工具调用")}, "elements": []}
    card = running()
    card["body"]["elements"].append(fold)
    async for frame, event in pushed(phone):
        await phone.ack(frame)
        asked = sandbox.world.messages[event["event"]["message"]["message_id"]]
        send(sandbox.world, card, chat=asked.chat, thread=asked.thread, answers=asked.id)
        card = joined()


@pytest.mark.browser
async def test_the_scene_is_played_and_photographed(tmp_path: Path) -> None:
    async with page_of(world()) as sandbox, sandbox.phone() as phone:
        bot = asyncio.create_task(work(sandbox, phone))
        taken = await asyncio.to_thread(take, sandbox.domain, tmp_path)
        bot.cancel()
    names = ["sandbox-start.png", "sandbox.png", "sandbox-dark.png", "sandbox-zh.png", "sandbox-phone.png"]
    assert [path.name for path in taken] == names
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in names)
    said = [message.text for message in sandbox.world.messages.values() if message.person]
    assert [words.removeprefix("@Coder ") for words in said] == [
        "The upload test fails one run in ten. Find out why.",
        "Look at the last chunk first.",
        "Also bump the patch version.",
    ]


def test_wrong_use_names_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "python -m ops.shots ADDRESS [DIRECTORY]" in capsys.readouterr().err
