"""One small world, served on loopback, and a plain client of its long connection."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from amux.sandbox import frames
from amux.sandbox.feishu import CODER, CODER_SECRET, platform, serving, small_world
from amux.sandbox.frames import Frame
from amux.sandbox.pace import UNLIMITED, Pace
from amux.sandbox.world import World

PATIENT = Pace(ack_seconds=10, scale=1e-5, ping_seconds=1, reconnect_seconds=1, reconnect_nonce=0)
HASTY = Pace(ack_seconds=0.5, scale=1e-5, ping_seconds=1, reconnect_seconds=1, reconnect_nonce=0)


@dataclass(frozen=True)
class Phone:
    """A plain client of one long connection: receives by hand, acknowledges when told."""

    socket: ClientConnection
    service: int

    async def frame(self) -> Frame:
        async with asyncio.timeout(5):
            data = await self.socket.recv()
        assert isinstance(data, bytes)
        return frames.decode(data)

    async def event(self) -> tuple[Frame, dict[str, Any]]:
        frame = await self.frame()
        return frame, json.loads(frame.payload)

    async def ack(self, frame: Frame, code: int = 200, data: object = None) -> None:
        answer: dict[str, object] = {"code": code}
        if data is not None:
            answer["data"] = base64.b64encode(json.dumps(data).encode()).decode()
        await self.socket.send(frames.encode(frame.with_payload(json.dumps(answer).encode(), ("biz_rt", "1"))))

    async def take(self) -> dict[str, Any]:
        """The next event, acknowledged."""
        frame, event = await self.event()
        await self.ack(frame)
        return event


@dataclass(frozen=True)
class Cloud:
    """A served world and how to reach it."""

    world: World
    domain: str
    http: httpx2.AsyncClient

    @asynccontextmanager
    async def phone(self) -> AsyncIterator[Phone]:
        answer = await self.http.post("/callback/ws/endpoint", json={"AppID": CODER, "AppSecret": CODER_SECRET})
        url = answer.json()["data"]["URL"]
        async with websockets.connect(url, ping_interval=None, close_timeout=1, proxy=None) as socket:
            yield Phone(socket, int(url.split("service_id=")[1].split("&")[0]))


@asynccontextmanager
async def cloud_of(world: World) -> AsyncIterator[Cloud]:
    async with serving(platform(world)) as domain, httpx2.AsyncClient(base_url=domain, trust_env=False) as http:
        yield Cloud(world, domain, http)


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    """No deadline passes here by itself."""
    async with cloud_of(small_world(pace=PATIENT, limits=UNLIMITED, seed=7)) as cloud:
        yield cloud


@pytest.fixture
async def hasty() -> AsyncIterator[Cloud]:
    """Here a push waits for half a second."""
    async with cloud_of(small_world(pace=HASTY, limits=UNLIMITED, seed=7)) as cloud:
        yield cloud
