"""Cards on the sandbox platform: shown once, changed in order, found again, and answered elsewhere when theirs is gone."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from amux.core.errors import Refused, Uncertain
from amux.core.ids import BindingId, SessionKey, TurnId
from amux.core.inputs import Place
from amux.feishu.messenger import FeishuMessenger
from amux.feishu.openapi import OpenApi, http_client
from amux.ports import CardRow, Messenger
from amux.sandbox.faults import RestFault
from amux.sandbox.feishu import CODER, CODER_SECRET, OPS, PAYMENTS, USER_A, platform, serving, small_world
from amux.sandbox.ledger import Ledger
from amux.sandbox.pace import UNLIMITED
from amux.sandbox.records import ChatId, MessageId, ThreadId, Via
from amux.sandbox.world import World

HOUR = 3600.0


async def no_pause(_: float) -> None:
    return None


@pytest.fixture
def world() -> World:
    return small_world(limits=UNLIMITED)


@pytest.fixture
async def messenger(world: World) -> AsyncIterator[FeishuMessenger]:
    async with serving(platform(world)) as domain, http_client() as http:
        yield FeishuMessenger({CODER: OpenApi(http, domain=domain, app=CODER, secret=CODER_SECRET, pause=no_pause)})


def card(words: str) -> dict[str, Any]:
    body = {"elements": [{"tag": "markdown", "content": words}]}
    return {"schema": "2.0", "config": {"update_multi": True}, "body": body}


def row(world: World, to: str, *, chat: str = PAYMENTS, thread: str | None = None, uuid: str = "u-1") -> CardRow:
    return CardRow(
        session=SessionKey(1),
        slot="turn:1",
        turn=TurnId(1),
        place=Place(BindingId(1), CODER, chat, thread),
        reply_to=to,
        uuid=uuid,
        nonce="n",
        made_at=world.clock.now_ms() / 1000,
    )


def asked(world: World, chat: ChatId = PAYMENTS) -> tuple[MessageId, ThreadId | None]:
    message = world.say(USER_A, chat, "go")
    return message, world.messages[message].thread


async def shown(messenger: FeishuMessenger, row: CardRow, words: str) -> CardRow:
    return await messenger.send_card(await messenger.make_card(row, card(words)), card(words))


def contents(world: World) -> list[list[str]]:
    """Of every card the bot sent, what it said over time."""
    return [
        [json.loads(r.content)["body"]["elements"][0]["content"] for r in sent.revisions]
        for sent in Ledger(world).sent(CODER)
    ]


async def test_it_is_the_messenger(messenger: FeishuMessenger) -> None:
    port: Messenger = messenger
    assert port is messenger


@pytest.mark.rule("B11")
async def test_a_card_answers_in_its_topic(world: World, messenger: FeishuMessenger) -> None:
    message, thread = asked(world)
    made = row(world, message)
    got = await shown(messenger, made, "one")
    (sent,) = Ledger(world).sent(CODER)
    assert (sent.thread, sent.answers, sent.uuid) == (thread, message, "u-1")
    assert got == replace(made, card_id=got.card_id, message_id=sent.id, place=replace(made.place, thread=thread))


@pytest.mark.rule("B1")
async def test_in_an_ordinary_group_the_answer_opens_a_topic(world: World, messenger: FeishuMessenger) -> None:
    message, _ = asked(world, OPS)
    got = await shown(messenger, row(world, message, chat=OPS), "one")
    assert got.place.thread is not None
    assert got.place.thread == world.messages[message].thread


async def test_a_card_that_answers_nothing_is_a_message_of_its_own(world: World, messenger: FeishuMessenger) -> None:
    got = await shown(messenger, row(world, "", chat=OPS), "one")
    (sent,) = Ledger(world).sent(CODER, chat=OPS)
    assert (got.message_id, got.place.thread, sent.answers) == (sent.id, None, None)


async def test_updates_are_ordered_by_feishu(world: World, messenger: FeishuMessenger) -> None:
    """A thawed deliverer's older state is refused, and that is success: the card already shows more (H12)."""
    got = await shown(messenger, row(world, asked(world)[0]), "one")
    await messenger.update_card(got, card("three"), sequence=3)
    await messenger.update_card(got, card("two"), sequence=2)
    await messenger.update_card(got, card("three again"), sequence=3)
    assert contents(world) == [["one", "three"]]
    await messenger.update_card(got, card("four"), sequence=4)
    assert contents(world) == [["one", "three", "four"]]


async def test_a_second_send_shows_nothing_new_and_its_card_can_still_be_changed(
    world: World, messenger: FeishuMessenger
) -> None:
    """Crash between send and save: the row holds the entity that is shown, because it was saved before."""
    saved = await messenger.make_card(row(world, asked(world)[0]), card("one"))
    first = await messenger.send_card(saved, card("one"))
    second = await messenger.send_card(saved, card("one"))
    assert second == first
    await messenger.update_card(second, card("two"), sequence=2)
    assert contents(world) == [["one", "two"]]


@pytest.mark.parametrize("path", ["/cardkit/v1/cards", "/reply"])
@pytest.mark.parametrize("fault", [RestFault.answer_lost, RestFault.bad_gateway, RestFault.rate_limited])
async def test_a_fault_on_the_way_makes_no_second_card(
    world: World, messenger: FeishuMessenger, path: str, fault: RestFault
) -> None:
    world.faults.arm(fault, times=2, method="POST", path=path)
    got = await shown(messenger, row(world, asked(world)[0]), "one")
    await messenger.update_card(got, card("two"), sequence=2)
    assert contents(world) == [["one", "two"]]


async def test_a_lost_update_is_repeated_and_counts_once(world: World, messenger: FeishuMessenger) -> None:
    got = await shown(messenger, row(world, asked(world)[0]), "one")
    world.faults.arm(RestFault.answer_lost, method="PUT", path="/cardkit/")
    await messenger.update_card(got, card("two"), sequence=2)
    assert contents(world) == [["one", "two"]]


async def test_with_feishus_own_limits_every_card_is_shown_once() -> None:
    """Five a second in one group, shared by all that is said there: what is held back comes later, and once (H60)."""
    world = small_world()
    async with serving(platform(world)) as domain, http_client() as http:
        messenger = FeishuMessenger({CODER: OpenApi(http, domain=domain, app=CODER, secret=CODER_SECRET)})
        message, _ = asked(world)
        rows = [row(world, message, uuid=f"u-{n}") for n in range(8)]
        await asyncio.gather(*(shown(messenger, each, each.uuid) for each in rows))
    assert sorted(contents(world)) == [[f"u-{n}"] for n in range(8)]


async def test_an_outage_is_told(world: World, messenger: FeishuMessenger) -> None:
    world.faults.arm(RestFault.answer_lost, times=4, method="POST", path="/reply")
    with pytest.raises(Uncertain):
        await shown(messenger, row(world, asked(world)[0]), "one")


async def test_without_an_entity_the_message_is_patched(world: World, messenger: FeishuMessenger) -> None:
    got = await messenger.send_card(row(world, asked(world)[0]), card("one"))
    await messenger.update_card(got, card("two"), sequence=2)
    (sent,) = Ledger(world).sent(CODER)
    assert [r.via for r in sent.revisions] == [Via.sent, Via.patched]
    assert contents(world) == [["one", "two"]]


async def test_when_the_question_is_recalled_another_message_of_the_topic_is_answered(
    world: World, messenger: FeishuMessenger
) -> None:
    root, thread = asked(world)
    follow_up = world.say(USER_A, PAYMENTS, "and this", topic=thread)
    world.recall(USER_A, follow_up)
    await shown(messenger, row(world, follow_up, thread=thread), "one")
    (sent,) = Ledger(world).sent(CODER)
    assert (sent.thread, sent.answers) == (thread, root)


async def test_a_topic_of_which_nothing_is_left_says_so(world: World, messenger: FeishuMessenger) -> None:
    root, thread = asked(world)
    world.recall(USER_A, root)
    with pytest.raises(Refused, match="recalled"):
        await shown(messenger, row(world, root, thread=thread), "one")


async def test_a_recalled_question_outside_of_topics_is_answered_in_the_chat(
    world: World, messenger: FeishuMessenger
) -> None:
    message, _ = asked(world, OPS)
    world.recall(USER_A, message)
    await shown(messenger, row(world, message, chat=OPS), "one")
    (sent,) = Ledger(world).sent(CODER)
    assert (sent.chat, sent.answers) == (OPS, None)


async def test_a_bot_that_is_not_in_the_chat_says_so(world: World, messenger: FeishuMessenger) -> None:
    message, _ = asked(world)
    world.remove_bot(USER_A, PAYMENTS, CODER)
    with pytest.raises(Refused, match="add it again"):
        await shown(messenger, row(world, message), "one")


async def test_a_bot_that_is_not_set_up_says_so(world: World, messenger: FeishuMessenger) -> None:
    strange = row(world, "om_1")
    with pytest.raises(Refused, match="AMUX_FEISHU_APP_ID"):
        await messenger.make_card(replace(strange, place=replace(strange.place, app="cli_other")), card("one"))


@pytest.mark.parametrize("known", [True, False], ids=["topic known", "topic opened by the lost send"])
async def test_what_a_crash_left_unsaved_is_found_after_the_hour(
    world: World, messenger: FeishuMessenger, known: bool
) -> None:
    """The uuid's hour is over, so a second send would be a second card (H13)."""
    message, thread = asked(world) if known else asked(world, OPS)
    chat = PAYMENTS if known else OPS
    other = await shown(messenger, row(world, message, chat=chat, thread=thread, uuid="u-0"), "other")
    world.clock.advance(seconds=120)
    saved = await messenger.make_card(row(world, message, chat=chat, thread=thread), card("one"))
    lost = await messenger.send_card(saved, card("one"))
    world.say(USER_A, chat, "meanwhile", topic=ThreadId(str(lost.place.thread)))
    world.clock.advance(seconds=HOUR)
    found = await messenger.find_sent(saved, claimed=[str(other.message_id)])
    assert found == lost
    await messenger.update_card(found, card("two"), sequence=2)
    assert contents(world) == [["other"], ["one", "two"]]


async def test_nothing_sent_is_nothing_found(world: World, messenger: FeishuMessenger) -> None:
    """Neither the claimed card, nor one from before the row, nor what people or other apps said."""
    message, thread = asked(world)
    await shown(messenger, row(world, message, thread=thread, uuid="u-0"), "before, and claimed by nobody")
    world.clock.advance(seconds=120)
    saved = row(world, message, thread=thread)
    claimed = await shown(messenger, row(world, message, thread=thread, uuid="u-2"), "claimed")
    world.say(USER_A, PAYMENTS, "words", topic=thread)
    assert await messenger.find_sent(saved, claimed=[str(claimed.message_id)]) is None


async def test_what_cannot_be_found_is_sent_anew_and_can_be_changed(world: World, messenger: FeishuMessenger) -> None:
    """An entity is sent once. After the uuid's hour, and without the right to list, two answers are better than none."""
    saved = await messenger.make_card(row(world, asked(world)[0]), card("one"))
    await messenger.send_card(saved, card("one"))
    world.clock.advance(seconds=HOUR + 60)
    anew = await messenger.send_card(saved, card("one"))
    await messenger.update_card(anew, card("two"), sequence=2)
    assert contents(world) == [["one"], ["one", "two"]]


TABLE = "\n\n".join(f"|a|b|\n|---|---|\n|{n}|&lt;x&gt;|" for n in range(9))


@pytest.mark.parametrize("entity", [True, False], ids=["entity", "message"])
async def test_a_card_that_feishu_cannot_draw_is_shown_in_plain_words(
    world: World, messenger: FeishuMessenger, entity: bool
) -> None:
    """A sixth table ended other bots' answers without a word."""
    made = row(world, asked(world)[0])
    if entity:
        made = await messenger.make_card(made, card("one"))
    got = await messenger.send_card(made, card("one") if entity else card(TABLE))
    await messenger.update_card(got, card(TABLE), sequence=2)
    (sent,) = Ledger(world).sent(CODER)
    (element,) = json.loads(sent.revisions[-1].content)["body"]["elements"]
    assert element == {"tag": "div", "text": {"tag": "plain_text", "content": TABLE.replace("&lt;x&gt;", "<x>")}}


async def test_a_first_card_that_feishu_cannot_draw_is_made_in_plain_words(
    world: World, messenger: FeishuMessenger
) -> None:
    got = await shown(messenger, row(world, asked(world)[0]), TABLE)
    await messenger.update_card(got, card("two"), sequence=2)
    assert len(Ledger(world).sent(CODER)) == 1


async def test_a_card_too_large_for_feishu_is_refused(world: World, messenger: FeishuMessenger) -> None:
    with pytest.raises(Refused, match="too large"):
        await shown(messenger, row(world, asked(world)[0]), "x" * 40_000)


async def test_who_may_not_list_finds_nothing(world: World, messenger: FeishuMessenger) -> None:
    message, thread = asked(world)
    saved = row(world, message, thread=thread)
    world.remove_bot(USER_A, PAYMENTS, CODER)
    assert await messenger.find_sent(saved, claimed=[]) is None


async def test_a_long_topic_is_paged_through(world: World, messenger: FeishuMessenger) -> None:
    message, thread = asked(world)
    lost = await shown(messenger, row(world, message, thread=thread), "one")
    for n in range(120):
        world.say(USER_A, PAYMENTS, str(n), topic=thread)
    found = await messenger.find_sent(row(world, message, thread=thread), claimed=[])
    assert found is not None
    assert found.message_id == lost.message_id


async def test_the_topic_that_a_lost_send_opened_is_found_where_a_chat_lists_only_first_messages(world: World) -> None:
    """Whether a chat's listing holds the replies in its topics differs between tenants, so it is not relied on."""
    ours = {"message_id": "om_lost", "msg_type": "interactive", "thread_id": "omt_1", "sender": {"id": CODER}}
    pages = {
        "/open-apis/im/v1/messages/om_1": [{"message_id": "om_1", "thread_id": "omt_1"}],
        "chat": [{"message_id": "om_1", "msg_type": "text", "create_time": str(world.clock.now_ms())}],
        "thread": [ours | {"create_time": str(world.clock.now_ms())}],
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/internal"):
            return httpx2.Response(200, json={"code": 0, "tenant_access_token": "t-1", "expire": 7200})
        items = pages[request.url.params.get("container_id_type") or request.url.path]
        return httpx2.Response(200, json={"code": 0, "data": {"items": items}})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        messenger = FeishuMessenger({CODER: OpenApi(http, domain="http://feishu", app=CODER, secret="s")})
        found = await messenger.find_sent(row(world, "om_1", chat=OPS), claimed=[])
    assert found is not None
    assert (found.message_id, found.place.thread) == ("om_lost", "omt_1")
