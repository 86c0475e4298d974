"""The REST client: one token for all who wait, one refresh, the five families, a budget, and nothing said twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest
from structlog.testing import capture_logs

from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.feishu import codes
from amux.feishu.openapi import AUTH_PATH, Answer, Budget, OpenApi, http_client
from amux.sandbox.faults import RestFault
from amux.sandbox.feishu import CODER, CODER_SECRET, OPS, USER_A, platform, serving, small_world
from amux.sandbox.ledger import Ledger
from amux.sandbox.pace import UNLIMITED
from amux.sandbox.records import open_id
from amux.sandbox.world import World

MESSAGES = "/open-apis/im/v1/messages"
TO_CHAT = {"receive_id_type": "chat_id"}


class Pauses:
    """Pauses that are noted and not made."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def world() -> World:
    return small_world(limits=UNLIMITED)


@pytest.fixture
async def domain(world: World) -> AsyncIterator[str]:
    async with serving(platform(world)) as address:
        yield address


@asynccontextmanager
async def client(domain: str, *, secret: str = CODER_SECRET, pauses: Pauses | None = None) -> AsyncIterator[OpenApi]:
    async with http_client() as http:
        yield OpenApi(http, domain=domain, app=CODER, secret=secret, pause=pauses or Pauses())


def text(words: str, *, uuid: str | None = None) -> dict[str, str]:
    body = {"receive_id": OPS, "msg_type": "text", "content": json.dumps({"text": words})}
    return body | ({"uuid": uuid} if uuid else {})


async def test_the_bots_own_id(domain: str) -> None:
    async with client(domain) as api:
        assert await api.bot_open_id() == open_id(CODER, CODER)


async def test_a_wrong_secret_is_refused_by_the_name_of_its_setting(domain: str) -> None:
    async with client(domain, secret="wrong") as api:
        with pytest.raises(Refused) as refused:
            await api.repeat("GET", "/open-apis/bot/v3/info")
    assert "AMUX_FEISHU_APP_SECRET" in str(refused.value)
    assert "Credentials & Basic Info" in str(refused.value)
    assert "wrong" not in str(refused.value)
    assert refused.value.key == "bad_credentials"


Respond = Callable[[httpx2.Request], httpx2.Response]


@asynccontextmanager
async def scripted(respond: Respond, *, pauses: Pauses | None = None) -> AsyncIterator[OpenApi]:
    """A client whose calls, the token's apart, are answered by `respond`."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == AUTH_PATH:
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": "t-1", "expire": 7200})
        return respond(request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        yield OpenApi(http, domain="http://feishu", app=CODER, secret="s", pause=pauses or Pauses())


async def test_one_token_serves_all_who_wait_and_is_kept(world: World) -> None:
    asked: list[str] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        await asyncio.sleep(0)
        if request.url.path == AUTH_PATH:
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": "t-1", "expire": 7200})
        assert request.headers["authorization"] == "Bearer t-1"
        return httpx2.Response(200, json={"code": 0})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        api = OpenApi(http, domain="http://feishu", app=CODER, secret="s")
        await asyncio.gather(*(api.call("GET", "/x") for _ in range(20)))
        await api.call("GET", "/x")
    assert asked.count(AUTH_PATH) == 1


async def test_apps_and_clouds_have_tokens_of_their_own() -> None:
    seen: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == AUTH_PATH:
            token = f"{request.url.host}-{json.loads(request.content)['app_id']}"
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": token, "expire": 7200})
        seen.append((request.url.host, request.headers["authorization"]))
        return httpx2.Response(200, json={"code": 0})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        for host, app in (("cn", "cli_a"), ("intl", "cli_a"), ("cn", "cli_b")):
            await OpenApi(http, domain=f"http://{host}", app=app, secret="s").call("GET", "/x")
    assert seen == [("cn", "Bearer cn-cli_a"), ("intl", "Bearer intl-cli_a"), ("cn", "Bearer cn-cli_b")]


async def test_a_token_that_ends_soon_is_renewed_before_it_does(domain: str) -> None:
    tokens = iter(("t-1", "t-2"))

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == AUTH_PATH:
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": next(tokens), "expire": 0})
        return httpx2.Response(200, json={"code": 0, "data": {"by": request.headers["authorization"]}})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        api = OpenApi(http, domain="http://feishu", app=CODER, secret="s")
        assert [(await api.call("GET", "/x")).data["by"] for _ in range(2)] == ["Bearer t-1", "Bearer t-2"]


@pytest.mark.parametrize("body", [{"code": 0}, {"code": 0, "tenant_access_token": "t", "expire": "soon"}])
async def test_an_answer_without_a_token_is_no_token(body: dict[str, object]) -> None:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json=body))) as http:
        api = OpenApi(http, domain="http://feishu", app=CODER, secret="s")
        with pytest.raises(Unavailable):
            await api.call("GET", "/x")


async def test_an_answer_without_what_it_made_is_uncertain() -> None:
    with pytest.raises(Uncertain, match="message_id"):
        Answer(0, {"code": 0, "data": {}}).made("message_id")


async def test_a_dead_token_is_replaced_once_and_the_call_made_once(world: World, domain: str) -> None:
    world.faults.arm(RestFault.unauthorized, path="/im/v1/messages")
    async with client(domain) as api:
        await api.call("POST", MESSAGES, body=text("hello"), query=TO_CHAT)
    assert len(Ledger(world).sent(CODER)) == 1


async def test_a_token_refused_twice_is_not_asked_for_a_third_time() -> None:
    calls = 0

    def respond(_: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        return httpx2.Response(400, json={"code": 99991663, "msg": "dead"})

    async with scripted(respond) as api:
        with pytest.raises(Unavailable):
            await api.call("GET", "/x")
    assert calls == 2


def broken(error: Exception) -> Respond:
    def respond(_: httpx2.Request) -> httpx2.Response:
        raise error

    return respond


def status(number: int, **how: object) -> Respond:
    return lambda _: httpx2.Response(number, **how)  # type: ignore[arg-type]


HTML = "<html><h1>502 Bad Gateway</h1></html>"
BREAKS: dict[str, tuple[Respond, type[Exception]]] = {
    "no connection": (broken(httpx2.ConnectError("x")), Unavailable),
    "no connection in time": (broken(httpx2.ConnectTimeout("x")), Unavailable),
    "no free connection": (broken(httpx2.PoolTimeout("x")), Unavailable),
    "no proxy": (broken(httpx2.ProxyError("x")), Unavailable),
    "no answer in time": (broken(httpx2.ReadTimeout("x")), Uncertain),
    "broken while written": (broken(httpx2.WriteError("x")), Uncertain),
    "broken while read": (broken(httpx2.ReadError("x")), Uncertain),
    "broken off": (broken(httpx2.RemoteProtocolError("x")), Uncertain),
    "a page of a gateway": (status(502, text=HTML), Uncertain),
    "no code": (status(500, json={"msg": "x"}), Uncertain),
    "a list": (status(200, json=[]), Uncertain),
    "a code that is a text": (status(200, json={"code": "0"}), Uncertain),
    "limited": (status(429, json={"code": 99991400}), Unavailable),
    "limited as older calls say it": (status(400, json={"code": 99991400}), Unavailable),
    "a code nobody knows": (status(200, json={"code": 12345, "msg": "x"}), Uncertain),
}


@pytest.mark.parametrize(("respond", "family"), BREAKS.values(), ids=BREAKS)
async def test_what_breaks_has_a_family_and_is_not_repeated(respond: Respond, family: type[Exception]) -> None:
    calls = 0

    def counted(request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        return respond(request)

    async with scripted(counted) as api:
        with pytest.raises(family):
            await api.call("POST", "/x")
    assert calls == 1


CODES: dict[int, tuple[type[Exception], str]] = {
    99991672: (Refused, "im:message"),
    230002: (Refused, "add it again"),
    230011: (Refused, "gone"),
    230031: (Refused, "14 days"),
    230099: (Refused, "11310"),
    230020: (Unavailable, "within a second"),
    230049: (Unavailable, "still being sent"),
    200810: (Unavailable, "pressing"),
    230001: (Broken, "we made that call wrongly"),
    987654: (Uncertain, "amux/feishu/codes.py"),
}
SAID = "Access denied. One of the following scopes is required: [im:message, im:message:send_as_bot]. ErrCode: 11310;"


@pytest.mark.parametrize(("code", "expected"), CODES.items())
def test_every_code_says_what_to_do(code: int, expected: tuple[type[Exception], str]) -> None:
    error = codes.error(code, SAID, "POST /x")
    assert isinstance(error, expected[0])
    assert expected[1] in str(error)
    assert str(code) in str(error)


@pytest.mark.parametrize("code", sorted(codes.SCOPE))
def test_a_missing_scope_is_named_with_its_remedy(code: int) -> None:
    """By its key, so that a card waits until somebody has granted it."""
    error = codes.error(code, SAID, "POST /x")
    assert isinstance(error, Refused)
    assert (error.key, error.slots) == ("missing_scope", {"scopes": "im:message or im:message:send_as_bot"})
    lacks = f"The app lacks permission im:message or im:message:send_as_bot (POST /x: code {code}). "
    assert str(error) == lacks + codes.GRANT
    unnamed = codes.error(code, "Access denied.", "POST /x")
    assert str(unnamed) == f"The app lacks a permission that Feishu does not name (POST /x: code {code}). {codes.GRANT}"


@pytest.mark.parametrize("expects", [(), codes.SCOPE], ids=["an error", "an answer"])
async def test_the_log_names_a_missing_scope_once_and_its_remedy(expects: Collection[int]) -> None:
    """Also where the caller does without it: nobody else would say so."""
    async with scripted(status(400, json={"code": 99991672, "msg": SAID})) as api:
        with capture_logs() as logged:
            for _ in range(2):
                with suppress(Refused):
                    await api.call("POST", "/x", expects=expects)
    said = [line for line in logged if line["event"] == "feishu_missing_scope"]
    named = {"call": "POST /x", "scopes": "im:message or im:message:send_as_bot", "remedy": codes.GRANT}
    assert said == [{"event": "feishu_missing_scope", "log_level": "warning", "app": CODER, **named}]


async def test_an_expected_code_is_an_answer() -> None:
    async with scripted(status(400, json={"code": 300317, "msg": "x"})) as api:
        answer = await api.call("PUT", "/x", expects=codes.OUTRUN)
    assert answer == Answer(300317, {"code": 300317, "msg": "x"})


async def test_a_lost_answer_with_a_uuid_sends_once(world: World, domain: str) -> None:
    world.faults.arm(RestFault.answer_lost, times=2, method="POST", path="/im/v1/messages")
    async with client(domain) as api:
        answer = await api.repeat("POST", MESSAGES, body=text("hello", uuid="u-1"), query=TO_CHAT)
    (sent,) = Ledger(world).sent(CODER)
    assert answer.data["message_id"] == sent.id


async def test_a_lost_answer_without_one_is_told_and_not_repeated(world: World, domain: str) -> None:
    world.faults.arm(RestFault.answer_lost, method="POST", path="/im/v1/messages")
    async with client(domain) as api:
        with pytest.raises(Uncertain):
            await api.call("POST", MESSAGES, body=text("hello"), query=TO_CHAT)
    assert len(Ledger(world).sent(CODER)) == 1


@pytest.mark.parametrize("fault", [RestFault.bad_gateway, RestFault.rate_limited, RestFault.rate_limited_bare])
async def test_repeat_gives_up_after_four_with_what_came_last(world: World, domain: str, fault: RestFault) -> None:
    world.faults.arm(fault, times=4, path="/bot/v3/info")
    pauses = Pauses()
    async with client(domain, pauses=pauses) as api:
        with pytest.raises((Unavailable, Uncertain)):
            await api.repeat("GET", "/open-apis/bot/v3/info")
        assert await api.bot_open_id() == open_id(CODER, CODER)
    assert len([s for s in pauses.seconds if s >= 0.5]) >= 3


async def test_a_limit_holds_back_the_next_call_for_as_long_as_feishu_says(world: World) -> None:
    answers = iter(
        [
            httpx2.Response(429, json={"code": 99991400}, headers={"x-ogw-ratelimit-reset": "7"}),
            httpx2.Response(200, json={"code": 0}),
        ]
    )
    pauses = Pauses()
    async with scripted(lambda _: next(answers), pauses=pauses) as api:
        with pytest.raises(Unavailable):
            await api.call("GET", "/x")
        await api.call("GET", "/x")
    assert [round(s) for s in pauses.seconds] == [7]


def test_the_budget_is_fifty_a_second_and_a_thousand_a_minute() -> None:
    budget = Budget()
    now, went = 100.0, []
    for _ in range(1100):
        now += budget.reserve(now)
        went.append(now)
    assert went[49] == 100.0
    assert went[50] == 101.0
    assert went[999] < 160.0
    assert went[1000] == 160.0
    assert all(later - earlier >= 1 for earlier, later in zip(went, went[50:], strict=False))
    assert all(later - earlier >= 60 for earlier, later in zip(went, went[1000:], strict=False))


def test_a_closed_budget_opens_when_feishu_said() -> None:
    budget = Budget()
    budget.close(130.0)
    budget.close(120.0)
    assert budget.reserve(100.0) == 30.0
    assert budget.reserve(131.0) == 0.0


async def test_neither_token_nor_body_is_logged(world: World, domain: str) -> None:
    world.faults.arm(RestFault.rate_limited, path="/im/v1/messages")
    with capture_logs() as lines:
        async with client(domain) as api:
            await api.repeat("POST", MESSAGES, body=text("private words", uuid="u"), query=TO_CHAT)
            with pytest.raises(Broken) as why:
                await api.call("POST", f"{MESSAGES}/om_none/reply", body=text("private words"))
    assert lines
    assert "private words" not in f"{lines} {why.value}"
    assert "t-" not in str(lines)
    assert CODER_SECRET not in str(lines)


async def test_a_proxy_is_not_used_for_loopback(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with client(domain) as api:
        assert await api.bot_open_id() == open_id(CODER, CODER)


async def test_nobody_there_is_unavailable(world: World) -> None:
    async with client("http://127.0.0.1:1") as api:
        with pytest.raises(Unavailable, match="amux doctor"):
            await api.call("GET", "/open-apis/bot/v3/info")
    assert world.bots[CODER].owner == USER_A
