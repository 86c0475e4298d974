"""A Timeline over HTTP, on real stores: from a position, again from where a reader was, from the head."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from amux.core import events as e
from amux.sandbox.feishu import serving
from amux.web.app import create
from tests.sessions.conftest import Room, opened

pytestmark = pytest.mark.real
SECONDS = 30.0


@pytest.fixture
async def room(env: dict[str, str]) -> AsyncIterator[Room]:
    async with opened(env) as room:
        yield room


@asynccontextmanager
async def client(room: Room) -> AsyncIterator[httpx2.AsyncClient]:
    app = create(room.parts.sessions, room.parts.attach)
    async with serving(app) as address, httpx2.AsyncClient(base_url=address, timeout=SECONDS) as http:
        yield http


Row = tuple[int, dict[str, Any]]


async def read(http: httpx2.AsyncClient, path: str, until: str, **headers: str) -> list[Row]:
    """The events of a stream, up to the first of that kind: each with its id."""
    found: list[Row] = []
    async with asyncio.timeout(SECONDS), http.stream("GET", path, headers=headers) as stream:
        number = 0
        async for line in stream.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            if name == "data":
                found.append((number, json.loads(value)))
                if found[-1][1]["kind"] == until:
                    return found
    raise AssertionError("the stream ended")


@pytest.mark.rule("T5", "T7")
async def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_twice(room: Room) -> None:
    session = await room.begin("!say one\n!say two")
    await room.finished(session)
    async with client(room) as http:
        path = f"/api/sessions/{session.ref.id}/events"
        whole = await read(http, path, "turn_finished")
        assert [number for number, _ in whole] == [row["seq"] for _, row in whole] == list(range(1, len(whole) + 1))
        rest = await read(http, path, "turn_finished", **{"Last-Event-ID": str(whole[2][0])})
        assert rest == whole[3:]


@pytest.mark.rule("T5")
async def test_tail_begins_at_the_head_with_the_running_turns_start(room: Room) -> None:
    """T5.b."""
    session = await room.begin("!say one\n!stream 100 x 0.05")
    await room.seen(session, e.Item)
    async with client(room) as http:
        path = f"/api/sessions/{session.ref.id}/events"
        told = await read(http, f"{path}?tail", "turn_finished")
        kinds = [row["kind"] for _, row in told]
        assert kinds[0] == "turn_started"
        assert kinds.count("turn_started") == 1
        numbers = [number for number, _ in told]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        again = await read(http, f"{path}?tail", "turn_finished", **{"Last-Event-ID": str(numbers[0])})
        assert again == told[1:]


@pytest.mark.parametrize("position", ["-1", "x", "1.5", "9" * 30, "\u0663"])
async def test_what_is_no_position_is_refused(room: Room, position: str) -> None:
    session = await room.begin("!say one")
    await room.finished(session)
    async with client(room) as http:
        answer = await http.get(f"/api/sessions/{session.ref.id}/events", params={"after": position})
        assert answer.status_code == 400
        assert answer.json() == {
            "error": f"{position[:40]!r} is no position: give the seq of the last event seen, or 0."
        }


async def test_no_such_session(room: Room) -> None:
    async with client(room) as http:
        answer = await http.get("/api/sessions/zzz/events")
        assert (answer.status_code, answer.json()) == (
            404,
            {"error": "no such Session: zzz. `amux ls` shows what there is."},
        )


@pytest.mark.rule("T5")
async def test_hundreds_of_viewers_read_once_each_and_all_see_the_same(room: Room) -> None:
    session = await room.begin("!say one\n!stream 20 x 0.05")
    async with client(room) as http:
        path = f"/api/sessions/{session.ref.id}/events"
        told = await asyncio.gather(*(read(http, path, "turn_finished") for _ in range(100)))
        assert all(one == told[0] for one in told)
