"""The door of the long connection: who gets an address and who is let in, and how both can fail."""

from __future__ import annotations

import asyncio

import pytest
import websockets
from websockets.exceptions import InvalidStatus

from amux.sandbox.faults import EndpointFault, HandshakeFault
from amux.sandbox.feishu import CODER, CODER_SECRET
from tests.sandbox.conftest import Cloud


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"AppID": CODER, "AppSecret": "wrong"}, 514),
        ({"AppID": "cli_nobody", "AppSecret": CODER_SECRET}, 514),
        ({"AppID": CODER}, 1000040344),
    ],
)
async def test_who_is_not_known_gets_no_address(cloud: Cloud, body: dict[str, str], code: int) -> None:
    answer = await cloud.http.post("/callback/ws/endpoint", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["data"]) == (200, code, {})


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (EndpointFault.status_500, 500, 1000040343),
        (EndpointFault.busy, 200, 1),
        (EndpointFault.forbidden, 200, 403),
        (EndpointFault.auth_failed, 200, 514),
        (EndpointFault.over_limit, 200, 1000040350),
    ],
)
async def test_the_endpoint_fails_once(cloud: Cloud, fault: EndpointFault, status: int, code: int) -> None:
    cloud.world.faults.arm(fault)
    body = {"AppID": CODER, "AppSecret": CODER_SECRET}
    first = await cloud.http.post("/callback/ws/endpoint", json=body)
    second = await cloud.http.post("/callback/ws/endpoint", json=body)
    assert (first.status_code, first.json()["code"]) == (status, code)
    assert second.json()["code"] == 0


async def test_the_endpoint_swallows_a_request(cloud: Cloud) -> None:
    cloud.world.faults.arm(EndpointFault.black_hole)
    body = {"AppID": CODER, "AppSecret": CODER_SECRET}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await cloud.http.post("/callback/ws/endpoint", json=body)
    assert (await cloud.http.post("/callback/ws/endpoint", json=body)).json()["code"] == 0


@pytest.mark.parametrize(
    ("fault", "status", "auth"),
    [(HandshakeFault.forbidden, "403", "1000040343"), (HandshakeFault.over_limit, "514", "1000040350")],
)
async def test_a_handshake_is_refused(cloud: Cloud, fault: HandshakeFault, status: str, auth: str) -> None:
    cloud.world.faults.arm(fault)
    with pytest.raises(InvalidStatus) as refused:
        async with cloud.phone():
            pass
    headers = refused.value.response.headers
    assert (headers["handshake-status"], headers["handshake-autherrcode"]) == (status, auth)
    async with cloud.phone():
        pass


async def test_a_ticket_opens_once(cloud: Cloud) -> None:
    answer = await cloud.http.post("/callback/ws/endpoint", json={"AppID": CODER, "AppSecret": CODER_SECRET})
    url = answer.json()["data"]["URL"]
    async with websockets.connect(url, proxy=None):
        with pytest.raises(InvalidStatus):
            await websockets.connect(url, proxy=None)


async def test_the_fifty_first_connection_is_too_many(cloud: Cloud) -> None:
    async with cloud.phone():
        (live,) = cloud.world.courier.connections(CODER)
        for _ in range(49):
            cloud.world.courier.attach(live)
        body = {"AppID": CODER, "AppSecret": CODER_SECRET}
        answer = await cloud.http.post("/callback/ws/endpoint", json=body)
        for _ in range(49):
            cloud.world.courier.detach(live)
    assert answer.json()["code"] == 1000040350
