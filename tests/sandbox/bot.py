"""A bot that speaks REST by hand, for tests of the platform."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from amux.sandbox.feishu import CODER, CODER_SECRET
from amux.sandbox.world import World
from tests.sandbox.conftest import Cloud

Answer = dict[str, Any]


def text(content: str) -> dict[str, str]:
    return {"msg_type": "text", "content": json.dumps({"text": content})}


@dataclass
class Bot:
    world: World
    http: httpx2.AsyncClient
    token: str = ""

    async def renew(self) -> None:
        body = {"app_id": CODER, "app_secret": CODER_SECRET}
        answer = await self.http.post("/open-apis/auth/v3/tenant_access_token/internal", json=body)
        self.token = answer.json()["tenant_access_token"]

    async def raw(
        self, method: str, path: str, body: object = None, query: dict[str, str] | None = None, *, seconds: float = 10
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"/open-apis{path}"
        return await self.http.request(method, url, json=body, params=query, headers=headers, timeout=seconds)

    async def get(self, path: str, **query: str) -> Answer:
        answer: Answer = (await self.raw("GET", path, query=query)).json()
        return answer

    async def post(self, path: str, body: object, **query: str) -> Answer:
        answer: Answer = (await self.raw("POST", path, body, query)).json()
        return answer

    async def put(self, path: str, body: object) -> Answer:
        answer: Answer = (await self.raw("PUT", path, body)).json()
        return answer

    async def patch(self, path: str, body: object) -> Answer:
        answer: Answer = (await self.raw("PATCH", path, body)).json()
        return answer

    async def delete(self, path: str) -> Answer:
        answer: Answer = (await self.raw("DELETE", path)).json()
        return answer

    async def send(self, chat: str, content: dict[str, str], **more: object) -> Answer:
        return await self.post("/im/v1/messages", {"receive_id": chat, **content, **more}, receive_id_type="chat_id")

    async def reply(self, message: str, content: dict[str, str], **more: object) -> Answer:
        return await self.post(f"/im/v1/messages/{message}/reply", {**content, **more})

    async def patch_message(self, message: str, card: str) -> Answer:
        return await self.patch(f"/im/v1/messages/{message}", {"content": card})

    async def message(self, message: str) -> Answer:
        found: Answer = (await self.get(f"/im/v1/messages/{message}"))["data"]["items"][0]
        return found


async def bot_of(cloud: Cloud) -> Bot:
    bot = Bot(cloud.world, cloud.http)
    await bot.renew()
    return bot
