"""The platform against the real lark-oapi client: its long connection and its REST, unchanged but for the address."""

from __future__ import annotations

import asyncio
import importlib
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amux.sandbox.clicks import ClickAnswer
from amux.sandbox.feishu import CODER, CODER_SECRET, OPS, PAYMENTS, USER_A, USER_B
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import MessageId, open_id
from tests.sandbox.conftest import Cloud
from tests.sandbox.test_cards import WHOLE, card, markdown

Got = queue.SimpleQueue[Any]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Stock:
    """The stock WebSocket client on a loop and thread of its own, as it blocks its loop while it asks for the address."""

    def __init__(self, cloud: Cloud, handler: Any) -> None:
        self._module = importlib.import_module("lark_oapi.ws.client")
        self._loop = asyncio.new_event_loop()
        self._before, vars(self._module)["loop"] = self._module.loop, self._loop
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.client = self._module.Client(CODER, CODER_SECRET, event_handler=handler, domain=cloud.domain)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        self._thread.start()
        await self.run(self.client._connect())
        pinging = asyncio.run_coroutine_threadsafe(self.client._ping_loop(), self._loop)
        try:
            yield
        finally:
            self.client._auto_reconnect = False
            pinging.cancel()
            await self.run(self.client._disconnect())
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, 5)
            vars(self._module)["loop"] = self._before


def handler(got: Got, answer: dict[str, Any]) -> Any:
    lark = importlib.import_module("lark_oapi")
    callback = importlib.import_module("lark_oapi.event.callback.model.p2_card_action_trigger")

    def clicked(event: Any) -> Any:
        got.put(event)
        return callback.P2CardActionTriggerResponse(answer)

    builder = lark.EventDispatcherHandler.builder("", "")
    return builder.register_p2_im_message_receive_v1(got.put).register_p2_card_action_trigger(clicked).build()


async def take(got: Got) -> Any:
    return await asyncio.to_thread(got.get, timeout=10)


async def test_the_stock_client_receives_acknowledges_and_answers_clicks(cloud: Cloud) -> None:
    got: Got = queue.SimpleQueue()
    toast = {"type": "info", "content": "Stopping", "i18n": {"zh_cn": "停止"}}
    new = card(markdown("stopping"))
    stock = Stock(cloud, handler(got, {"toast": toast, "card": {"type": "raw", "data": new}}))
    api = Api(cloud)
    async with stock.connected():
        topic = cloud.world.open_topic(USER_A, PAYMENTS, "hello")
        first = await take(got)
        second_id = cloud.world.say(USER_B, PAYMENTS, "and more", topic=topic)
        second = await take(got)
        shown = await api.send(OPS, "interactive", json.dumps(WHOLE))
        seen = await cloud.world.click(USER_B, MessageId(shown.data.message_id), "stop")
        click = await take(got)
        await cloud.world.courier.settled(seconds=10)
        assert stock.client._ping_interval == cloud.world.pace.ping_seconds
    root = cloud.world.topics[topic].root
    said = first.event.message
    assert (said.message_id, said.thread_id, said.root_id, said.content) == (
        root,
        None,
        None,
        '{"text":"@_user_1 hello"}',
    )
    assert said.mentions[0].id.open_id == open_id(CODER, CODER)
    assert first.event.sender.sender_id.open_id == open_id(CODER, USER_A)
    assert (second.event.message.thread_id, second.event.message.root_id) == (topic, root)
    assert Ledger(cloud.world).acknowledged(CODER) == {root, second_id}
    assert (click.event.operator.open_id, click.event.action.value) == (open_id(CODER, USER_B), {"do": "stop"})
    assert seen == ClickAnswer(0, toast, new)
    assert cloud.world.messages[MessageId(shown.data.message_id)].card == new


class Api:
    """lark-oapi's own REST client; its calls block, so they run in threads. Its tokens are cached for the process."""

    def __init__(self, cloud: Cloud) -> None:
        self.lark = importlib.import_module("lark_oapi")
        self.im = importlib.import_module("lark_oapi.api.im.v1")
        self.kit = importlib.import_module("lark_oapi.api.cardkit.v1")
        builder = self.lark.Client.builder().app_id(CODER).app_secret(CODER_SECRET).domain(cloud.domain).timeout(10)
        self.client = builder.cache(Forgetful()).build()

    async def call(self, method: Callable[[Any], Any], request: Any) -> Any:
        return await asyncio.to_thread(method, request)

    async def send(self, chat: str, msg_type: str, content: str, uuid: str = "") -> Any:
        body = self.im.CreateMessageRequestBody.builder().receive_id(chat).msg_type(msg_type).content(content)
        if uuid:
            body = body.uuid(uuid)
        request = self.im.CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body.build()).build()
        return await self.call(self.client.im.v1.message.create, request)

    async def reply(self, message: str, content: str, uuid: str) -> Any:
        body = self.im.ReplyMessageRequestBody.builder().msg_type("text").content(content)
        body = body.reply_in_thread(True).uuid(uuid).build()
        request = self.im.ReplyMessageRequest.builder().message_id(message).request_body(body).build()
        return await self.call(self.client.im.v1.message.reply, request)

    async def patch(self, message: str, content: str) -> Any:
        body = self.im.PatchMessageRequestBody.builder().content(content).build()
        request = self.im.PatchMessageRequest.builder().message_id(message).request_body(body).build()
        return await self.call(self.client.im.v1.message.patch, request)

    async def history(self, thread: str) -> Any:
        builder = self.im.ListMessageRequest.builder().container_id_type("thread").container_id(thread)
        return await self.call(self.client.im.v1.message.list, builder.build())

    async def make(self, whole: dict[str, Any]) -> Any:
        body = self.kit.CreateCardRequestBody.builder().type("card_json").data(json.dumps(whole)).build()
        request = self.kit.CreateCardRequest.builder().request_body(body).build()
        return await self.call(self.client.cardkit.v1.card.create, request)

    async def content(self, card_id: str, text: str, sequence: int) -> Any:
        body = self.kit.ContentCardElementRequestBody.builder().content(text).sequence(sequence).build()
        builder = self.kit.ContentCardElementRequest.builder().card_id(card_id).element_id("out")
        return await self.call(self.client.cardkit.v1.card_element.content, builder.request_body(body).build())


class Forgetful:
    """A token cache that keeps nothing: the client's own is shared by all clouds of the process."""

    def get(self, key: str) -> str:
        return ""

    def set(self, key: str, value: str, expire: int) -> None:
        pass


async def test_the_stock_rest_client_is_understood(cloud: Cloud) -> None:
    api = Api(cloud)
    topic = cloud.world.open_topic(USER_A, PAYMENTS, "hello")
    root = cloud.world.topics[topic].root
    first = await api.reply(root, '{"text":"yes"}', "u1")
    again = await api.reply(root, '{"text":"yes"}', "u1")
    assert first.success(), first.msg
    assert first.get_log_id()
    assert (again.data.message_id, again.data.thread_id) == (first.data.message_id, topic)
    listed = await api.history(topic)
    assert [item.message_id for item in listed.data.items] == [root, first.data.message_id]
    shown = await api.send(OPS, "interactive", json.dumps(WHOLE))
    assert (await api.patch(shown.data.message_id, json.dumps(card(markdown("two"))))).success()
    refused = await api.patch(shown.data.message_id, "{}")
    assert (refused.code, refused.raw.status_code) == (230099, 400)
    made = await api.make(
        card(markdown("...", element_id="out"), config={"update_multi": True, "streaming_mode": True})
    )
    sent = await api.send(OPS, "interactive", json.dumps({"type": "card", "data": {"card_id": made.data.card_id}}))
    codes = [(await api.content(made.data.card_id, text, at)).code for text, at in (("a", 2), ("b", 2), ("c", 3))]
    assert codes == [0, 300317, 0]
    message = cloud.world.message(MessageId(sent.data.message_id))
    assert message.card is not None
    assert message.card["body"]["elements"][0]["content"] == "c"
