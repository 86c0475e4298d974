"""The real client's wire parts against the sandbox platform: what must be acknowledged, noticed, survived and stopped."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from amux.feishu import longconn, wire
from amux.feishu.longconn import Health, Link, LongConnection, Timing
from amux.sandbox import frames
from amux.sandbox.faults import EndpointFault, HandshakeFault
from amux.sandbox.feishu import CODER, CODER_SECRET, PAYMENTS, USER_A, platform, serving, small_world
from amux.sandbox.frames import Frame
from amux.sandbox.ledger import Ledger
from amux.sandbox.pace import Pace
from amux.sandbox.push import Connection, Outcome
from amux.sandbox.records import AppId, Bot, Hears
from amux.sandbox.world import World

DEADLINE = 30.0  # seconds; nothing here takes one, but the machine may be busy
AT_ONCE = 0.5  # seconds; it takes milliseconds, and the library's own farewell a second
QUICK = Timing(retry_first=0.02, retry_longest=0.05, retry_refused=0.05, steady=0)
SECOND = AppId("cli_second")


@pytest.fixture(scope="module", autouse=True)
async def _loaded() -> None:
    await wire.load()  # seconds, once


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A pretty traceback on an unconfigured log takes longer than an acknowledgement may."""
    with capture_logs():
        yield


@pytest.fixture
async def world() -> World:
    return small_world(pace=Pace(retry_seconds=(0.05, 0.1), ack_seconds=3.0))


@pytest.fixture
async def domain(world: World) -> AsyncIterator[str]:
    async with serving(platform(world)) as address:
        yield address


@dataclass
class Watched:
    """A running connection, with what its handler got; `answer` is what the handler does."""

    connection: LongConnection
    task: asyncio.Task[None]
    got: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Health] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(holds)

    async def up(self, *, times: int = 1) -> None:
        await self.until(lambda: sum(h.link is Link.up for h in self.seen) >= times)

    async def stop(self) -> float:
        began = time.monotonic()
        self.connection.stop()
        await self.task
        return time.monotonic() - began


Answer = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any] | None]]


async def nothing(_: dict[str, Any]) -> None:
    return None


@asynccontextmanager
async def connected(
    domain: str,
    answer: Answer = nothing,
    *,
    app: str = CODER,
    secret: str = CODER_SECRET,
    timing: Timing = QUICK,
) -> AsyncIterator[Watched]:
    notices: set[asyncio.Task[None]] = set()

    async def notice() -> None:
        async with watched.changed:
            watched.changed.notify_all()

    def noticed(health: Health | None = None) -> None:
        if health:
            watched.seen.append(health)
        task = asyncio.ensure_future(notice())
        notices.add(task)
        task.add_done_callback(notices.discard)

    async def handle(raw: bytes) -> Mapping[str, Any] | None:
        event = json.loads(raw)
        watched.got.append(event)
        noticed()
        return await answer(event)

    connection = LongConnection(app=app, secret=secret, domain=domain, handle=handle, timing=timing, watch=noticed)
    watched = Watched(connection, asyncio.ensure_future(asyncio.sleep(0)))
    watched.task = asyncio.ensure_future(connection.run())
    try:
        yield watched
    finally:
        await watched.stop()
        assert connection.health.link is Link.stopped


def texts(watched: Watched) -> list[str]:
    return sorted(json.loads(event["event"]["message"]["content"])["text"] for event in watched.got)


async def test_importing_the_driver_does_not_import_the_client() -> None:
    code = "import sys, amux.feishu.longconn; sys.exit('lark_oapi' in sys.modules)"
    assert (await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False)).returncode == 0


async def test_slow_handlers_delay_nobody(world: World, domain: str) -> None:
    """22 events at once, each handled in 0.4 s: all acknowledged at their first push, none after another's handling."""

    async def slow(_: object) -> None:
        await asyncio.sleep(0.4)

    async with connected(domain, slow) as watched:
        await watched.up()
        for n in range(22):
            world.say(USER_A, PAYMENTS, str(n))
        await world.courier.settled(seconds=DEADLINE)
    pushes = Ledger(world).messages(CODER)
    assert [[a.outcome for a in p.attempts] for p in pushes] == [[Outcome.acknowledged]] * 22
    assert len(watched.got) == 22


async def test_late_handling_is_refused_and_the_event_comes_again(world: World, domain: str) -> None:
    times = iter((True, False))

    async def late_once(_: object) -> None:
        if next(times):
            await asyncio.Event().wait()

    async with connected(domain, late_once, timing=Timing(acknowledge=0.5)) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        await world.courier.settled(seconds=DEADLINE)
    (push,) = Ledger(world).messages(CODER)
    assert [a.outcome for a in push.attempts] == [Outcome.refused, Outcome.acknowledged]


async def test_a_handler_that_nobody_can_call_back_is_refused_in_time(world: World, domain: str) -> None:
    """H37: a driver that has a statement at a frozen server waits for it even when it is cancelled."""
    times, thawed = iter((True, False)), asyncio.Event()

    async def stubborn_once(_: object) -> None:
        if next(times):
            try:
                await thawed.wait()
            finally:
                await thawed.wait()

    async with connected(domain, stubborn_once, timing=Timing(acknowledge=0.5)) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        try:
            await world.courier.settled(seconds=DEADLINE)
        finally:
            thawed.set()
    (push,) = Ledger(world).messages(CODER)
    assert [a.outcome for a in push.attempts] == [Outcome.refused, Outcome.acknowledged]


async def test_what_is_not_stored_is_refused_and_comes_again(world: World, domain: str) -> None:
    times = iter((True, False))

    async def fails_once(_: object) -> None:
        if next(times):
            raise ConnectionError

    async with connected(domain, fails_once) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        await world.courier.settled(seconds=DEADLINE)
    (push,) = Ledger(world).messages(CODER)
    assert [a.outcome for a in push.attempts] == [Outcome.refused, Outcome.acknowledged]


async def test_an_unknown_event_is_acknowledged(world: World, domain: str) -> None:
    async with connected(domain) as watched:
        await watched.up()
        world.publish(CODER, "brand.new_v9", {"x": 1})
        await world.courier.settled(seconds=DEADLINE)
    assert [a.outcome for p in world.courier.pushes() for a in p.attempts] == [Outcome.acknowledged]


def part(connection: Connection, push: str, payload: bytes, *, kind: str = "event", seq: int = 0, of: int = 1) -> bytes:
    headers = (("type", kind), ("message_id", push), ("trace_id", "t"), ("sum", str(of)), ("seq", str(seq)))
    return frames.encode(Frame(frames.DATA, headers, payload, seq_id=7, log_id=8, service=connection.service))


async def acknowledged(connection: Connection, push: str, *parts: bytes) -> Frame:
    answer = connection.waiting[push] = asyncio.get_running_loop().create_future()
    for frame in parts:
        await connection.send(frame)
    async with asyncio.timeout(DEADLINE):
        acknowledgement: Frame = await answer
    return acknowledgement


async def test_a_card_frame_is_answered_with_what_the_handler_says(world: World, domain: str) -> None:
    """The stock client drops frames of this type without a word, and the button is dead."""
    toast = {"toast": {"type": "info", "content": "已取消"}}

    async def answer(_: object) -> Mapping[str, Any]:
        return toast

    async with connected(domain, answer) as watched:
        await watched.up()
        (connection,) = world.courier.connections(CODER)
        frame = await acknowledged(connection, "p1", part(connection, "p1", b'{"n":1}', kind="card"))
    verdict = json.loads(frame.payload)
    assert (verdict["code"], json.loads(base64.b64decode(verdict["data"]))) == (200, toast)
    assert (frame.seq_id, frame.log_id, frame.header("type"), frame.header("message_id")) == (7, 8, "card", "p1")
    assert frame.header("biz_rt").isdecimal()


async def test_chunks_are_joined_in_any_order_and_acknowledged_once(world: World, domain: str) -> None:
    """1.5 MB in three parts, the last first; the same in one frame is above the library's own limit and comes too."""
    big = json.dumps({"text": "x" * 1_500_000}).encode()
    third = len(big) // 3
    pieces = [big[:third], big[third : 2 * third], big[2 * third :]]
    async with connected(domain) as watched:
        await watched.up()
        (connection,) = world.courier.connections(CODER)
        parts = [part(connection, "p1", pieces[n], seq=n, of=3) for n in (2, 0, 1)]
        assert json.loads((await acknowledged(connection, "p1", *parts)).payload) == {"code": 200}
        assert json.loads((await acknowledged(connection, "p2", part(connection, "p2", big))).payload) == {"code": 200}
        assert watched.got == [json.loads(big)] * 2
        assert watched.connection.health.reconnects == 0


@pytest.mark.parametrize(
    "poison",
    [b"\xff\xff\xff", b"", frames.encode(Frame(frames.DATA, (("sum", "x"),), b"{}"))],
    ids=["bytes", "empty", "sum"],
)
async def test_a_poisoned_frame_ends_nothing(world: World, domain: str, poison: bytes) -> None:
    async with connected(domain) as watched:
        await watched.up()
        (connection,) = world.courier.connections(CODER)
        await connection.send(poison)
        world.say(USER_A, PAYMENTS, "hello")
        await world.courier.settled(seconds=DEADLINE)
        assert len(watched.got) == 1
        assert watched.connection.health.reconnects == 0


async def test_a_mute_peer_is_noticed_and_replaced(world: World, domain: str) -> None:
    timing = Timing(ping=0.05, silence=0.5, retry_first=0.02)
    async with connected(domain, timing=timing) as watched:
        await watched.up()
        world.courier.mute(CODER)
        await watched.until(lambda: watched.connection.health.last_error)
        assert watched.connection.health.last_error == "Feishu was silent for 0.5 s after a ping."
        await watched.up(times=2)
        world.say(USER_A, PAYMENTS, "hello")
        await watched.until(lambda: watched.got)


async def test_pings_keep_a_quiet_connection(world: World, domain: str) -> None:
    async with connected(domain, timing=Timing(ping=0.02, silence=5)) as watched:
        await watched.up()
        (connection,) = world.courier.connections(CODER)
        send, pongs, enough = connection.send, [b""], asyncio.Event()

        async def counted(data: bytes) -> None:
            await send(data)
            pongs.append(data)
            if len(pongs) > 5:
                enough.set()

        connection.send = counted
        await asyncio.wait_for(enough.wait(), DEADLINE)
        assert watched.connection.health.reconnects == 0


@pytest.mark.parametrize("fault", [HandshakeFault.over_limit, HandshakeFault.forbidden, *EndpointFault])
async def test_every_refusal_is_survived(world: World, domain: str, fault: HandshakeFault | EndpointFault) -> None:
    """One 514 ends the stock client for good while it looks alive. Three of each kind here, and it comes back."""
    world.faults.arm(fault, times=3)
    connect = 0.3 if fault is EndpointFault.black_hole else DEADLINE
    timing = Timing(connect=connect, retry_first=0.02, retry_longest=0.05, retry_refused=0.05)
    async with connected(domain, timing=timing) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        await watched.until(lambda: watched.got)
        assert watched.connection.health.reconnects >= 3
        assert all(h.last_error for h in watched.seen if h.link is Link.down)


async def test_a_broken_connection_is_replaced_and_the_event_comes_again(world: World, domain: str) -> None:
    release = asyncio.Event()

    async def hold(_: object) -> None:
        await release.wait()

    async with connected(domain, hold) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        await watched.until(lambda: watched.got)
        world.courier.drop(CODER)
        release.set()
        await watched.up(times=2)
        await world.courier.settled(seconds=DEADLINE)
    (push,) = Ledger(world).messages(CODER)
    assert next(a.outcome for a in push.attempts) is Outcome.broken
    assert push.acknowledged_ms is not None


async def test_an_endpoint_that_never_answers_freezes_nobody() -> None:
    """The stock client asks on the loop, blocking and without a deadline: one black hole froze every bot of a process."""
    asked = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as hole:
        port = hole.sockets[0].getsockname()[1]
        async with connected(f"http://127.0.0.1:{port}", timing=Timing(connect=60)) as stuck:
            await asyncio.wait_for(asked.wait(), DEADLINE)
            assert await stuck.stop() < AT_ONCE


async def test_a_wrong_secret_says_what_to_mend(domain: str) -> None:
    async with connected(domain, secret="wrong") as watched:
        await watched.until(lambda: watched.connection.health.last_error)
        assert "AMUX_FEISHU_APP_SECRET" in str(watched.connection.health.last_error)
        assert "Credentials & Basic Info" in str(watched.connection.health.last_error)
        assert "wrong" not in str(watched.connection.health.last_error)


async def test_nobody_there_says_so() -> None:
    async with connected("http://127.0.0.1:1") as watched:
        await watched.until(lambda: watched.connection.health.last_error)
        assert "cannot be reached" in str(watched.connection.health.last_error)


async def test_a_proxy_is_not_used_for_loopback(world: World, domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with connected(domain) as watched:
        await watched.up()
        assert watched.connection.health.reconnects == 0


class Line:
    """A wire between client and platform that can be frozen: open, and nothing passes in either direction."""

    def __init__(self, platform_port: int) -> None:
        self._port = platform_port
        self._flows = asyncio.Event()
        self._flows.set()

    def freeze(self) -> None:
        self._flows.clear()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def through(domain: str) -> AsyncIterator[tuple[str, Line]]:
    line = Line(int(domain.rpartition(":")[2]))
    async with await asyncio.start_server(line, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", line


async def test_it_stops_at_once_even_when_nobody_says_goodbye(domain: str) -> None:
    async with through(domain) as (address, line), connected(address) as watched:
        await watched.up()
        line.freeze()
        assert await watched.stop() < AT_ONCE
        assert [h.link for h in watched.seen] == [Link.up, Link.stopped]


async def test_a_frozen_line_is_noticed_and_replaced(domain: str) -> None:
    timing = Timing(ping=0.05, silence=0.2, retry_first=0.02, connect=0.2, retry_longest=0.05)
    async with through(domain) as (address, line), connected(address, timing=timing) as watched:
        await watched.up()
        line.freeze()
        await watched.until(lambda: watched.connection.health.last_error)
        assert watched.connection.health.last_error == "Feishu was silent for 0.2 s after a ping."


async def test_what_is_being_handled_when_it_stops_is_still_acknowledged(world: World, domain: str) -> None:
    release = asyncio.Event()

    async def hold(_: object) -> None:
        await release.wait()

    async with connected(domain, hold) as watched:
        await watched.up()
        world.say(USER_A, PAYMENTS, "hello")
        await watched.until(lambda: watched.got)
        watched.connection.stop()
        asyncio.get_running_loop().call_later(0.05, release.set)
        await watched.task
        await world.log.until(lambda: bool(Ledger(world).acknowledged(CODER)), seconds=DEADLINE)


async def test_two_apps_in_one_process_get_only_their_own_events(world: World, domain: str) -> None:
    world.bots[SECOND] = Bot(SECOND, "second secret", "Second", USER_A, Hears.all_messages)
    async with connected(domain) as first, connected(domain, app=SECOND, secret="second secret") as second:
        await first.up()
        await second.up()
        for n in range(5):
            world.publish(CODER, "a.first", {"n": n})
            world.publish(SECOND, "a.second", {"n": n})
        await world.courier.settled(seconds=DEADLINE)
    assert {event["header"]["app_id"] for event in first.got} == {CODER}
    assert {event["header"]["app_id"] for event in second.got} == {SECOND}
    assert len(first.got) == len(second.got) == 5


async def test_it_leaves_no_task_behind(domain: str) -> None:
    before = asyncio.all_tasks()
    async with connected(domain) as watched:
        await watched.up()
    left = {t for t in asyncio.all_tasks() - before if "longconn" in repr(t) or "clear_cron" in repr(t)}
    assert not {t for t in left if not t.done() and not t.cancelling()}


def test_the_acknowledgement_stays_within_three_seconds() -> None:
    assert Timing().acknowledge < 3
    assert longconn.MAX_FRAME > 1 << 20
