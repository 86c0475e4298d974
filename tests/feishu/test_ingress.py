"""What Feishu pushes: journaled before it is acknowledged, told when it is refused, and no button believed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio.lowlevel
import httpx2
import pytest

from amux.core import events as e
from amux.core.admission import Access
from amux.core.errors import Unavailable
from amux.core.ids import BindingId, InputId, Principal, RequestId, SessionKey, TurnId
from amux.core.inputs import MAX_TEXT, Answer, Input, Interrupt, Origin, Place, Said, Verdict
from amux.core.launch import LaunchSnapshot
from amux.core.session import fold
from amux.feishu import ingress as module
from amux.feishu.ingress import Ingress, access
from amux.feishu.openapi import OpenApi
from amux.ports import Append, CardRow
from amux.runtime.deliver import FINAL
from amux.runtime.receive import Receive
from amux.runtime.submit import Submit
from tests.fake_world import Door
from tests.fakes import Worker, World
from tests.feishu.test_normalize import APP, AT_BOT, BOT, envelope, said
from tests.runtime.house import until

A = Principal(f"feishu:{APP}:ou_a")
T7 = TurnId(7)
EVERYONE = Access()


@dataclass
class Feishu:
    """The platform, as far as ingress asks it. `asked` are its calls; `before` may hold one up or fail it."""

    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.endswith("/internal"):
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": "t-1", "expire": 7200})
        if self.before:
            await self.before()
        self.asked.append((request.method, path, json.loads(request.content or b"null")))
        return httpx2.Response(200, json={"code": 0, "data": {"user": {"name": "User A"}}})

    def notices(self) -> list[Any]:
        return [body for method, _, body in self.asked if method == "POST"]


@dataclass
class Buttons:
    """The card rows, by nonce."""

    world: World
    door: Door

    async def by_nonce(self, nonce: str) -> CardRow | None:
        async with self.door:
            return next((row for row in self.world.cards.values() if row.nonce == nonce), None)


@dataclass
class Bot:
    """One bot's ingress over a fake world."""

    ingress: Ingress
    world: World
    feishu: Feishu

    async def push(self, payload: Any) -> Mapping[str, Any] | None:
        return await self.ingress.handle(json.dumps(payload).encode())

    def journal(self) -> list[Said]:
        return [entry.said for entry in self.world.journal.values()]

    def input(self) -> Input:
        (one,) = self.journal()
        assert isinstance(one, Input)
        return one


def bot_of(world: World, feishu: Feishu, http: httpx2.AsyncClient, app: str = APP, who: Access = EVERYONE) -> Bot:
    ports = Worker(world, "ingress")
    submit = Submit(ports.inputs, ports.inbox, ports.waker)
    receive = Receive(submit, ports.bindings, who, "local", lambda _: LaunchSnapshot("scripted", "/work"))
    api = OpenApi(http, domain="http://feishu", app=app, secret="s")
    return Bot(Ingress(api, BOT, receive, Buttons(world, ports.postgres), who), world, feishu)


@pytest.fixture
async def http() -> AsyncIterator[tuple[Feishu, httpx2.AsyncClient]]:
    feishu = Feishu()
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(feishu.answer)) as http:
        yield feishu, http


@pytest.fixture
def bot(http: tuple[Feishu, httpx2.AsyncClient]) -> Bot:
    return bot_of(World(), *http)


def asks(text: str = "go", **more: object) -> dict[str, Any]:
    """User A mentions the bot."""
    return said({"text": f"@_user_1 {text}"}, **{"mentions": [AT_BOT], **more})  # type: ignore[arg-type]


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("B1", "B6")
async def test_a_mention_starts_a_session_of_its_topic(bot: Bot) -> None:
    assert await bot.push(asks("fix the test")) is None
    one = bot.input()
    assert (one.id, one.text, one.sender, one.name) == (f"feishu:{APP}:om_1", "fix the test", A, "User A")
    assert (one.origin, one.authorization.principal) == (Origin.person, A)
    assert one.authorization.place == Place(BindingId(1), APP, "oc_1")
    assert [row.session.title for row in bot.world.rows.values()] == ["fix the test"]
    assert bot.world.wakes == [(1, "local")]
    assert bot.feishu.notices() == []


@pytest.mark.rule("D2")
async def test_what_cannot_be_journaled_is_not_acknowledged(bot: Bot) -> None:
    """Feishu pushes it again, and then it runs, once."""
    bot.world.postgres_away = True
    with pytest.raises(Unavailable):
        await bot.push(asks())
    assert (bot.journal(), bot.feishu.notices()) == ([], [])
    bot.world.postgres_away = False
    await bot.push(asks())
    await bot.push(asks())
    assert bot.input().text == "go"
    assert bot.world.wakes == [(1, "local")]


@pytest.mark.rule("D2")
async def test_without_redis_it_is_journaled_and_acknowledged_all_the_same(bot: Bot) -> None:
    bot.world.redis_away = True
    assert await bot.push(asks()) is None
    assert bot.input().text == "go"
    assert bot.world.wakes == []


@pytest.mark.rule("B6", "T2")
async def test_peoples_own_talk_is_not_stored_and_asks_feishu_nothing(bot: Bot) -> None:
    await bot.push(said({"text": "what do you think?"}))
    await bot.push(said({"text": "@_user_1 all of you"}, mentions=[{"key": "@_all", "name": "all"}]))
    assert (bot.journal(), bot.world.rows, bot.feishu.asked) == ([], {}, [])


@pytest.mark.rule("B1")
async def test_a_topics_starter_and_its_first_reply_are_one_session(bot: Bot) -> None:
    """B1.a: the starter comes without a thread; the reply names thread and root."""
    await bot.push(asks("one"))
    await bot.push(asks("two", message_id="om_2", root_id="om_1", parent_id="om_1", thread_id="omt_1"))
    await bot.push(asks("three", message_id="om_3", root_id="om_2", parent_id="om_2", thread_id="omt_1"))
    assert [e.session for e in bot.world.journal.values()] == [1, 1, 1]
    assert len({one.authorization for one in bot.journal() if isinstance(one, Input)}) == 1  # or they could not steer


@pytest.mark.rule("B1")
async def test_two_topics_are_two_sessions(bot: Bot) -> None:
    await bot.push(asks("one", thread_id="omt_1"))
    await bot.push(asks("two", message_id="om_2", thread_id="omt_2"))
    assert [e.session for e in bot.world.journal.values()] == [1, 2]


@pytest.mark.rule("B3")
async def test_one_message_to_two_bots_is_two_inputs(bot: Bot, http: tuple[Feishu, httpx2.AsyncClient]) -> None:
    """H34: they get one message id."""
    other = bot_of(bot.world, *http, app="cli_b")
    await bot.push(asks())
    push = asks()
    push["header"]["app_id"] = "cli_b"
    await other.push(push)
    assert [one.id for one in bot.journal()] == ["feishu:cli_a:om_1", "feishu:cli_b:om_1"]
    assert len(bot.world.rows) == 2


@pytest.mark.rule("B7")
async def test_who_may_not_drive_is_told_where_they_wrote_and_nothing_changes(
    http: tuple[Feishu, httpx2.AsyncClient],
) -> None:
    bot = bot_of(World(), *http, who=access(APP, "ou_owner", frozenset({"ou_b"})))
    for _ in range(2):  # a redelivery
        assert await bot.push(asks(thread_id="omt_1")) is None
    await until(lambda: len(bot.feishu.notices()) == 2)
    first, second = bot.feishu.notices()
    assert first == second  # the same uuid, so Feishu shows it once
    paths = {path for method, path, _ in bot.feishu.asked if method == "POST"}
    assert paths == {"/open-apis/im/v1/messages/om_1/reply"}
    text = json.loads(first["content"])["text"]
    assert "Only people who may drive" in text and "只有可以驱动" in text
    assert first["reply_in_thread"] is True
    assert (bot.journal(), bot.world.rows) == ([], {})


BOT_SENDER = {"sender_id": {"open_id": "ou_other_bot"}, "sender_type": "app"}
NOBODY = {"sender_id": {}, "sender_type": "user"}


@pytest.mark.rule("I4", "B7")
@pytest.mark.parametrize("sender", [BOT_SENDER, NOBODY], ids=["a bot", "nobody"])
async def test_a_bot_or_nobody_is_never_taken_for_a_person(
    http: tuple[Feishu, httpx2.AsyncClient], sender: object
) -> None:
    """I4.c. Where people are named who may drive, it starts nothing, and is not argued with."""
    everyone = bot_of(World(), *http)
    await everyone.push(asks(sender=sender))
    assert everyone.input().origin is Origin.bot
    chosen = bot_of(World(), *http, who=access(APP, "ou_a", frozenset()))
    await chosen.push(asks(sender=sender))
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    assert (chosen.journal(), chosen.feishu.notices()) == ([], [])


async def test_a_message_over_the_limit_is_refused_by_name(bot: Bot) -> None:
    assert await bot.push(asks("x" * (MAX_TEXT + 1))) is None
    await until(bot.feishu.notices)
    assert "too long" in bot.feishu.notices()[0]["content"]
    assert bot.journal() == []


@pytest.mark.rule("B9")
async def test_a_topic_that_ended_says_so_and_starts_nothing(bot: Bot) -> None:
    await bot.push(asks(thread_id="omt_1"))
    (binding,) = bot.world.bindings.values()
    bot.world.bindings[binding.id] = replace(binding, until=binding.since + 1)
    await bot.push(asks(message_id="om_2", thread_id="omt_1", create_time=str(binding.since + 2)))
    await until(bot.feishu.notices)
    assert "has ended" in bot.feishu.notices()[0]["content"]
    assert len(bot.journal()) == 1


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xfe", b"{", b"[]", b"null", b'{"header": 1}', json.dumps(envelope("im.unheard_of_v9", {})).encode()],
)
async def test_poison_is_acknowledged_and_does_nothing(bot: Bot, raw: bytes) -> None:
    """An error would bring it back four times."""
    assert await bot.ingress.handle(raw) is None
    assert (bot.journal(), bot.feishu.asked) == ([], [])


async def test_a_name_that_is_slow_to_come_holds_up_nothing(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAME_SECONDS", 0.01)
    bot.feishu.before = asyncio.Event().wait  # type: ignore[assignment]
    await bot.push(asks())
    assert (bot.input().text, bot.input().name) == ("go", "")


async def test_a_name_is_asked_for_once(bot: Bot) -> None:
    await bot.push(asks())
    await bot.push(asks(message_id="om_2"))
    assert [method for method, *_ in bot.feishu.asked] == ["GET"]


async def test_a_notice_that_cannot_be_sent_disturbs_nobody(http: tuple[Feishu, httpx2.AsyncClient]) -> None:
    bot = bot_of(World(), *http, who=access(APP, None, frozenset()))

    async def gone() -> None:
        raise httpx2.ConnectError("gone")

    bot.feishu.before = gone
    assert await bot.push(asks()) is None


# -- clicks -----------------------------------------------------------------------------------------------------------


def row(slot: str = "turn:7", **more: Any) -> CardRow:
    made = CardRow(
        session=SessionKey(1),
        slot=slot,
        turn=T7,
        place=Place(BindingId(1), APP, "oc_1", "omt_1"),
        reply_to="om_1",
        uuid="u",
        nonce="right",
        made_at=0.0,
        message_id="om_card",
        state="shown",
    )
    return replace(made, **more)


def press(
    value: object, *, who: str | None = "ou_a", chat: str = "oc_1", card: str = "om_card", id: str = "ev_1"
) -> Any:
    operator = {"open_id": who} if who else {}
    where = {"open_message_id": card, "open_chat_id": chat}
    event = {"operator": operator, "action": {"tag": "button", "value": value}, "context": where}
    return envelope("card.action.trigger", event, event_id=id)


STOP = {"a": "interrupt", "n": "right", "t": 7}


@pytest.fixture
def shown(bot: Bot) -> Bot:
    """Turn 7's card is shown, and a request of it."""
    bot.world.session()
    for one in (row(), row("ask:7-1", nonce="asked", message_id="om_ask")):
        bot.world.cards[one.session, one.slot] = one
    return bot


def told(answer: Mapping[str, Any] | None) -> tuple[str, str]:
    """What the toast says in English, and that it says it in Chinese too."""
    assert answer
    toast = answer["toast"]
    assert set(toast["i18n"]) == {"en_us", "zh_cn"}
    assert toast["content"] == toast["i18n"]["en_us"]
    return toast["type"], toast["content"]


@pytest.mark.rule("A3")
async def test_a_press_on_interrupt_names_its_turn(shown: Bot) -> None:
    """H39. What the button says about its Turn is not believed; its card's row is."""
    assert told(await shown.push(press({**STOP, "t": 99}))) == ("success", "Asked Turn 7 to stop")
    assert shown.journal() == [Interrupt(InputId(f"feishu:{APP}:ev_1"), A, T7, "User A")]


@pytest.mark.rule("A12")
@pytest.mark.parametrize("verdict", Verdict)
async def test_a_press_answers_its_request(shown: Bot, verdict: Verdict) -> None:
    answer = await shown.push(press({"a": verdict, "n": "asked", "r": "9-9"}, card="om_ask"))
    assert told(answer) == ("success", "Answered")
    assert shown.journal() == [Answer(InputId(f"feishu:{APP}:ev_1"), A, RequestId("7-1"), verdict, "User A")]


STALE = {
    "a forged nonce": press({**STOP, "n": "wrong"}),
    "no nonce": press({"a": "interrupt", "t": 7}),
    "a nonce that is no text": press({**STOP, "n": ["right"]}),
    "a value that is no object": press("interrupt"),
    "no value": press(None),
    "another chat": press(STOP, chat="oc_other"),
    "a forwarded card": press(STOP, card="om_copy"),
    "an action that this card has not": press({**STOP, "a": "allow"}),
    "an unheard-of action": press({**STOP, "a": "rm -rf"}),
    "a request's card asked to interrupt": press({"a": "interrupt", "n": "asked"}, card="om_ask"),
}


@pytest.mark.rule("B7", "A12")
@pytest.mark.parametrize("push", STALE.values(), ids=STALE)
async def test_a_press_that_fits_no_card_changes_nothing(shown: Bot, push: Any) -> None:
    """H24."""
    assert told(await shown.push(push)) == ("error", "This card is from an older Turn")
    assert (shown.journal(), shown.world.wakes) == ([], [])


async def test_a_press_on_a_card_that_is_settled_is_stale(shown: Bot) -> None:
    shown.world.cards[SessionKey(1), "turn:7"] = row(state=FINAL)
    assert told(await shown.push(press(STOP))) == ("error", "This card is from an older Turn")
    assert shown.journal() == []


@pytest.mark.rule("B7")
@pytest.mark.parametrize("who", ["ou_z", None], ids=["a stranger", "nobody"])
async def test_a_press_by_who_may_not_drive_is_refused_by_name_of_the_right(
    http: tuple[Feishu, httpx2.AsyncClient], who: str | None
) -> None:
    """B7.b: that somebody sees the card authorises nobody."""
    bot = bot_of(World(), *http, who=access(APP, "ou_owner", frozenset({"ou_a"})))
    bot.world.session()
    bot.world.cards[SessionKey(1), "turn:7"] = row()
    refused = ("error", "Only people who may drive this Session can do that")
    assert told(await bot.push(press(STOP, who=who))) == refused
    assert bot.journal() == []
    assert told(await bot.push(press(STOP, who="ou_a")))[0] == "success"


@pytest.mark.rule("A3")
async def test_the_same_press_pushed_twice_is_one(shown: Bot) -> None:
    for _ in range(2):
        assert told(await shown.push(press(STOP)))[0] == "success"
    assert len(shown.journal()) == 1


async def test_a_press_that_cannot_be_journaled_says_so(shown: Bot) -> None:
    shown.world.postgres_away = True
    assert told(await shown.push(press(STOP))) == ("error", "It could not be taken; press again")
    assert shown.journal() == []


# -- again ------------------------------------------------------------------------------------------------------------

AGAIN = {"a": "again", "n": "failed"}
FAILED = InputId(f"feishu:{APP}:om_1")
UNCERTAIN = e.SubmissionFailed((FAILED,), e.FailReason.uncertain)


async def receipted(bot: Bot, *events: e.Event) -> Bot:
    """User A's first message was accepted, then this happened; its receipt, which names no Turn, is shown to its end."""
    await bot.push(asks())
    one, ports = bot.input(), Worker(bot.world, "owner")
    opened = await ports.timeline.open(SessionKey(1), "owner|1", worker="owner", young=False)
    assert opened
    all_ = (e.InputAccepted(one), *events)
    await ports.timeline.append(SessionKey(1), opened.fence, Append(all_, fold(all_), ((one.id, 1),)))
    shown = row(f"receipt:{FAILED}", turn=None, nonce="failed", message_id="om_receipt", state=FINAL)
    bot.world.cards[shown.session, shown.slot] = shown
    return bot


@pytest.mark.rule("I5")
async def test_a_press_on_a_failed_receipt_sends_it_again_for_who_presses(bot: Bot) -> None:
    """What else the button carries is not believed. It is one, whoever presses however often."""
    await receipted(bot, UNCERTAIN)
    push = press({**AGAIN, "i": "om_other", "text": "rm"}, who="ou_b", card="om_receipt")
    assert told(await bot.push(push)) == ("success", "Sent again")
    old, new = bot.journal()
    assert isinstance(old, Input) and isinstance(new, Input)
    b = Principal(f"feishu:{APP}:ou_b")
    rights = replace(old.authorization, principal=b)
    pressed_at = int(push["header"]["create_time"])
    assert new == replace(old, id=InputId(f"again:{FAILED}"), sender=b, authorization=rights, sent_at=pressed_at)
    for who, id_ in (("ou_b", "ev_2"), ("ou_a", "ev_3")):
        twin = await bot.push(press(AGAIN, who=who, card="om_receipt", id=id_))
        assert told(twin) == ("info", "It was sent again before")
    assert bot.journal() == [old, new]


NOT_AGAIN = {
    "it waits": (
        (e.InputQueued((FAILED,), e.QueueReason.other_sender),),
        "Nothing was sent: it waits and will run by itself",
    ),
    "it runs": (
        (e.TurnStarted(T7, (FAILED,), e.Cause.input),),
        "Nothing was sent: it went to the agent with Turn 7",
    ),
}


@pytest.mark.rule("I5")
@pytest.mark.parametrize(("events", "why"), NOT_AGAIN.values(), ids=NOT_AGAIN)
async def test_a_receipt_of_what_did_not_fail_sends_nothing(bot: Bot, events: tuple[e.Event, ...], why: str) -> None:
    await receipted(bot, *events)
    assert told(await bot.push(press(AGAIN, card="om_receipt"))) == ("error", why)
    assert len(bot.journal()) == 1


@pytest.mark.rule("I5", "B7")
async def test_only_who_may_drive_sends_it_again(http: tuple[Feishu, httpx2.AsyncClient]) -> None:
    bot = await receipted(bot_of(World(), *http, who=access(APP, "ou_owner", frozenset({"ou_a"}))), UNCERTAIN)
    refused = ("error", "Only people who may drive this Session can do that")
    assert told(await bot.push(press(AGAIN, who="ou_z", card="om_receipt"))) == refused
    assert len(bot.journal()) == 1


NO_RECEIPT = {
    "a forged nonce": press({**AGAIN, "n": "wrong"}, card="om_receipt"),
    "another chat": press(AGAIN, card="om_receipt", chat="oc_other"),
    "a forwarded receipt": press(AGAIN, card="om_copy"),
    "another action on a receipt": press({**AGAIN, "a": "interrupt"}, card="om_receipt"),
    "another kind of card": press({"a": "again", "n": "right"}),
}


@pytest.mark.rule("I5", "B7")
@pytest.mark.parametrize("push", NO_RECEIPT.values(), ids=NO_RECEIPT)
async def test_a_press_that_fits_no_receipt_sends_nothing_again(bot: Bot, push: Any) -> None:
    """H24."""
    await receipted(bot, UNCERTAIN)
    other = row(f"ask:{FAILED}")
    bot.world.cards[other.session, other.slot] = other
    assert told(await bot.push(push)) == ("error", "This card is from an older Turn")
    assert len(bot.journal()) == 1


@pytest.mark.rule("I5")
async def test_a_press_while_postgres_is_away_may_be_repeated(bot: Bot) -> None:
    await receipted(bot, UNCERTAIN)
    bot.world.postgres_away = True
    assert told(await bot.push(press(AGAIN, card="om_receipt"))) == ("error", "It could not be taken; press again")
    bot.world.postgres_away = False
    assert told(await bot.push(press(AGAIN, card="om_receipt"))) == ("success", "Sent again")
