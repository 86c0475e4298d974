"""What the page's tests share: the whole sandbox served over one small world, and a bot's cards in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from amux.sandbox import frames
from amux.sandbox.app import create
from amux.sandbox.feishu import CODER, PAYMENTS, serving, small_world
from amux.sandbox.frames import Frame
from amux.sandbox.pace import UNLIMITED
from amux.sandbox.page.routes import Fate
from amux.sandbox.records import ChatId, Message, MessageId, Revision, ThreadId, Via, dumps
from amux.sandbox.world import World
from tests.sandbox.conftest import PATIENT, Cloud, Phone


@asynccontextmanager
async def page_of(world: World, fate: Fate | None = None) -> AsyncIterator[Cloud]:
    async with (
        serving(create(world, fate=fate)) as domain,
        httpx2.AsyncClient(base_url=domain, trust_env=False) as http,
    ):
        yield Cloud(world, domain, http)


def world() -> World:
    return small_world(pace=PATIENT, limits=UNLIMITED, seed=7)


def text(en: str, zh: str, tag: str = "plain_text") -> dict[str, Any]:
    return {"tag": tag, "content": en, "i18n_content": {"en_us": en, "zh_cn": zh}}


def button(en: str, zh: str, value: dict[str, Any], kind: str = "default") -> dict[str, Any]:
    return {"tag": "button", "type": kind, "text": text(en, zh), "behaviors": [{"type": "callback", "value": value}]}


def row(*buttons: dict[str, Any]) -> dict[str, Any]:
    columns = [{"tag": "column", "width": "auto", "elements": [each]} for each in buttons]
    return {"tag": "column_set", "flex_mode": "flow", "columns": columns}


def card(*elements: dict[str, Any], title: tuple[str, str] | None = None, look: str = "blue") -> dict[str, Any]:
    made: dict[str, Any] = {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": list(elements)}}
    if title:
        tag = {"tag": "text_tag", "text": text("running", "运行中"), "color": look}
        made["header"] = {"template": look, "title": text(*title), "text_tag_list": [tag]}
    return made


def running(step: str = "Reading version.py", step_zh: str = "正在读 version.py") -> dict[str, Any]:
    return card(
        text(f"**{step}**", f"**{step_zh}**", "markdown"),
        text("<font color='grey'>Turn 1 · 6 s</font>", "<font color='grey'>第 1 轮 · 6 秒</font>", "markdown"),
        row(
            button("Interrupt", "打断", {"do": "interrupt", "turn": 1}, "danger"),
            button("Queue", "队列", {"do": "queue"}),
        ),
        title=("Bump the version.", "升版本号。"),
    )


def done() -> dict[str, Any]:
    made = card(text("Bumped to **0.2**.", "已升到 **0.2**。", "markdown"), title=("Bump the version.", "升版本号。"))
    made["header"] |= {"template": "default"}
    made["header"]["text_tag_list"] = [{"tag": "text_tag", "text": text("done", "已完成"), "color": "green"}]
    return made


def joined() -> dict[str, Any]:
    return card(text("**Joined Turn 1.**", "**已并入第 1 轮。**", "markdown"))


def send(
    world: World,
    content: dict[str, Any] | str,
    *,
    chat: ChatId = PAYMENTS,
    thread: ThreadId | None = None,
    answers: MessageId | None = None,
) -> MessageId:
    """A bot's card appears, as it does at the end of a REST call."""
    said = content if isinstance(content, str) else dumps(content)
    message = Message(
        id=world.new_message_id(),
        chat=chat,
        person=None,
        app=CODER,
        msg_type="interactive",
        created_ms=world.clock.moment_ms(),
        revisions=(Revision(world.clock.now_ms(), Via.sent, said),),
        thread=thread,
        answers=answers,
    )
    world.add(message)
    return message.id


def revise(world: World, message: MessageId, content: dict[str, Any]) -> None:
    world.revise(message, dumps(content), Via.patched)


async def pushed(phone: Phone) -> AsyncIterator[tuple[Frame, dict[str, Any]]]:
    """Every event that comes, however long it takes: a person is not in a hurry."""
    async for data in phone.socket:
        assert isinstance(data, bytes)
        frame = frames.decode(data)
        yield frame, json.loads(frame.payload)
