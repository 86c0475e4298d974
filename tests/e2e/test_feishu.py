"""From a message in Feishu to a card that says how it ended: the real client, workers, servers; only the cloud is ours."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amux.core import events as e
from amux.core.inputs import MAX_TEXT, Verdict
from amux.feishu.openapi import OpenApi, http_client
from amux.feishu.phrases import say
from amux.ports import Session
from amux.sandbox import feishu
from amux.sandbox.clicks import ClickAnswer
from amux.sandbox.ledger import Ledger
from amux.sandbox.push import Outcome, Push
from amux.sandbox.records import ChatId, MessageId, ThreadId, open_id
from amux.settings import load
from ops.drills.drill import stage_settings
from tests.providers.conftest import carriers
from tests.whole import FULL_DISK, House, until

pytestmark = [pytest.mark.real]

WORK = "!stream 3000 x 0.1"  # minutes of it; what is steered is taken between two words
Running = tuple[ThreadId, Session]


@pytest.fixture
async def running(house: House) -> AsyncIterator[Running]:
    """User A's topic, in which a Turn runs until somebody ends it."""
    topic, session = await house.begun(feishu.USER_A, WORK)
    await house.told(session, e.TurnStarted)
    yield topic, session
    await house.cli("interrupt", session.ref.id)
    await house.finished(session, 1)


def header(house: House, card: MessageId) -> dict[str, Any]:
    found: dict[str, Any] = house.stage.shown(card)["header"]
    return found


async def value(house: House, card: MessageId, button: str) -> Any:
    """What a button of a card carries, once the card is known to who sent it: people are slower than that."""
    carried = _value(house.stage.shown(card), button)

    async def known() -> bool:
        row = await house.parts.cards.by_nonce(carried["n"])
        return row is not None and row.message_id is not None

    await until(known)
    return carried


def _value(part: Any, button: str) -> Any:
    if isinstance(part, dict):
        if part.get("element_id") == button:
            return part["behaviors"][0]["value"]
        part = list(part.values())
    return next((found for each in part if (found := _value(each, button))), None) if isinstance(part, list) else None


def toast(answer: ClickAnswer) -> tuple[int, str, str]:
    """Code, kind and words of what a person sees after a click."""
    shown = answer.toast or {}
    return answer.code, shown.get("type", ""), shown.get("content", "")


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("B1", "T1")
async def test_a_message_ends_in_one_card_with_the_answer(house: House) -> None:
    topic, session = await house.begun(feishu.USER_A, "!tool read README.md\n!say All is well.")
    card = await house.card(topic, "All is well.", "done")
    assert (await house.finished(session, 1)).outcome is e.Outcome.completed
    assert [sent.id for sent in house.sent(topic)] == [card]
    assert header(house, card)["template"] == "default"


@pytest.mark.rule("I3")
async def test_the_senders_follow_up_joins_the_turn(house: House, running: Running) -> None:
    topic, session = running
    said = house.say(feishu.USER_A, "Look at the last chunk first.", topic)
    joined = await house.told(session, e.InputSteered)
    assert (joined.turn, joined.inputs) == (1, (said,))
    await house.card(topic, "Joined Turn 1.")


@pytest.mark.rule("I4")
async def test_another_members_message_waits_and_says_why(house: House, running: Running) -> None:
    topic, session = running
    said = house.say(feishu.USER_B, "!say Of another", topic)
    queued = await house.told(session, e.InputQueued)
    assert (queued.inputs, queued.reason) == ((said,), e.QueueReason.other_sender)
    receipt = await house.card(topic, "Waiting, 1st in line.", "Turn 1 belongs to")
    await house.cli("interrupt", session.ref.id)
    await house.finished(session, 2)
    await house.card(topic, "Of another", "done")
    assert receipt == await house.card(topic, "then started Turn 2.")


@pytest.mark.rule("B7")
@pytest.mark.rule("I4", "T1")
async def test_a_message_that_waits_is_recalled_and_does_not_run(house: House, running: Running) -> None:
    """H43."""
    topic, session = running
    waits = house.say(feishu.USER_B, "!say Of another", topic)
    await house.told(session, e.InputQueued)
    house.stage.world.recall(feishu.USER_B, MessageId(waits.rpartition(":")[2]))
    cancelled = await house.told(session, e.InputCancelled)
    assert (cancelled.inputs, cancelled.reason) == ((waits,), e.CancelReason.withdrawn)


async def test_a_stranger_starts_nothing(house: House) -> None:
    topic = house.stage.world.open_topic(feishu.USER_C, feishu.PAYMENTS, "!say I am a stranger")
    await house.card(topic, "Only people who may drive this bot can start work here.")
    assert [s.title for s in await sessions(house) if "stranger" in s.title] == []


# -- buttons -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("B7", "B11")
async def test_a_permission_is_asked_and_answered_once(house: House) -> None:
    topic, session = await house.begun(feishu.USER_A, "!ask Delete the branch?\n!say It is gone.")
    ask, world = await house.card(topic, "Run this command?", "Delete the branch?"), house.stage.world
    allow, deny = await value(house, ask, "button_allow"), await value(house, ask, "button_deny")
    stranger = await world.click(feishu.USER_C, ask, value=allow)
    assert toast(stranger) == (0, "error", say("toast_not_driver").en)
    assert toast(await world.click(feishu.USER_A, ask, value=allow)) == (0, "success", "Answered")
    resolved = await house.told(session, e.PermissionResolved)
    assert (resolved.how, resolved.verdict) == (e.Resolution.answered, Verdict.allow)
    assert await house.card(topic, "Run this command?", "allowed") == ask
    assert toast(await world.click(feishu.USER_B, ask, value=deny)) == (0, "error", say("toast_stale").en)
    await house.card(topic, "It is gone.", "done")
    assert len(house.sent(topic)) == 2


@pytest.mark.rule("I6")
async def test_a_turn_is_interrupted_by_its_button(house: House, running: Running) -> None:
    topic, session = running
    card = await house.card(topic, "running")
    pressed = await value(house, card, "button_interrupt")
    assert toast(await house.stage.world.click(feishu.USER_A, card, value=pressed)) == (
        0,
        "success",
        say("toast_interrupting", turn=1).en,
    )
    assert (await house.finished(session, 1)).outcome is e.Outcome.interrupted
    assert await house.card(topic, "interrupted") == card
    late = await house.stage.world.click(feishu.USER_A, card, value=pressed)
    assert toast(late) == (0, "error", say("toast_stale").en)


@pytest.mark.crash
@pytest.mark.rule("I5", "B11")
async def test_what_may_not_have_arrived_is_sent_again_by_its_button_once(house: House) -> None:
    topic, session = await house.begun(feishu.USER_A, "!hang")
    await house.told(session, e.TurnStarted)
    said = house.say(feishu.USER_A, "!say Here it is.", topic)
    await house.told(session, e.SteerRequested)
    for pid in carriers(house.stage.home / "sessions" / session.ref.target / session.ref.id):
        os.kill(pid, signal.SIGKILL)
    await house.finished(session, 1)
    receipt, world = await house.card(topic, "May not have arrived.", "Here it is."), house.stage.world
    pressed = await value(house, receipt, "button_again")
    assert toast(await world.click(feishu.USER_C, receipt, value=pressed)) == (0, "error", say("toast_not_driver").en)
    assert toast(await world.click(feishu.USER_B, receipt, value=pressed)) == (0, "success", "Sent again")
    started = await house.told(session, e.TurnStarted, lambda turn: turn.turn == 2)
    b = f"feishu:{feishu.CODER}:{open_id(feishu.CODER, feishu.USER_B)}"
    assert (started.inputs, started.senders) == ((f"again:{said}",), (b,))
    answer = await house.card(topic, "Here it is.", "done")
    assert {world.messages[one].answers for one in (receipt, answer)} == {MessageId(said.rpartition(":")[2])}
    twin = await world.click(feishu.USER_A, receipt, value=pressed)
    assert toast(twin) == (0, "info", say("toast_again_before").en)


async def test_people_are_known_by_name(house: House) -> None:
    bot = load(house.stage.env, Path("/nonexistent/amux.toml")).feishu
    assert bot
    async with http_client() as http:
        api = OpenApi(http, domain=bot.domain, app=bot.app_id, secret=bot.app_secret)
        found = await api.call("GET", f"/open-apis/contact/v3/users/{open_id(feishu.CODER, feishu.USER_B)}")
    assert found.data["user"]["name"] == "User B"


# -- harm --------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.rule("T8")
async def test_a_killed_worker_leaves_a_violet_card_and_the_queue_goes_on(house: House) -> None:
    topic, session = await house.begun(feishu.USER_A, WORK)
    card = await house.card(topic, "running")
    waits = house.say(feishu.USER_B, "!say Still here.", topic)
    await house.told(session, e.InputQueued)
    house.stage.signal("worker", signal.SIGKILL)
    assert (await house.finished(session, 1)).outcome is e.Outcome.lost
    assert await house.card(topic, "Cut off", "Nothing was run again", "cut off") == card
    assert header(house, card)["template"] == "violet"
    assert (await house.told(session, e.TurnStarted, lambda turn: waits in turn.inputs)).turn == 2
    await house.card(topic, "Still here.", "done")


@pytest.mark.parametrize("payload", [b"no json at all", b"[]", b'{"header": {}}', b"\xff\xfe"])
async def test_a_payload_that_cannot_be_read_is_acknowledged(house: House, payload: bytes) -> None:
    pushed(house, "im.message.receive_v1", payload)
    push = await acknowledged(house, payload)
    assert len(push.attempts) == 1
    await still_hears(house)


async def test_an_event_of_unknown_type_is_acknowledged(house: House) -> None:
    payload = b'{"schema": "2.0", "header": {"event_type": "im.moon.risen_v9", "event_id": "e1"}, "event": {"x": 1}}'
    pushed(house, "im.moon.risen_v9", payload)
    assert len((await acknowledged(house, payload)).attempts) == 1
    await still_hears(house)


async def test_a_message_of_two_megabytes_is_refused_by_name(house: House) -> None:
    topic = house.stage.world.open_topic(feishu.USER_A, feishu.PAYMENTS, "x" * (2 << 20))
    await house.card(topic, "The message is too long, and nothing was sent.")
    root = house.stage.world.topics[topic].root
    assert root in Ledger(house.stage.world).acknowledged(feishu.CODER)
    assert all(len(s.title) < MAX_TEXT and "xxxx" not in s.title for s in await sessions(house))
    house.say(feishu.USER_A, "!say Short again.", topic)
    await house.card(topic, "Short again.", "done")


async def test_a_full_disk_acknowledges_nothing_and_loses_nothing(house: House) -> None:
    world = house.stage.world
    with psycopg.connect(stage_settings(house.stage).postgres_url or "", autocommit=True) as connection:
        connection.execute(FULL_DISK)
        topic = world.open_topic(feishu.USER_A, feishu.PAYMENTS, "!say There is room again.")
        root = world.topics[topic].root

        async def refused() -> bool:
            pushes = [p for p in Ledger(world).messages(feishu.CODER) if p.message == root]
            return any(attempt.outcome is Outcome.refused for push in pushes for attempt in push.attempts)

        await until(refused, lambda: "the push was not refused")
        assert root in Ledger(world).unacknowledged(feishu.CODER)
        connection.execute("drop trigger full_disk on inputs")
    await house.card(topic, "There is room again.", "done")
    assert root in Ledger(world).acknowledged(feishu.CODER)


def pushed(house: House, event_type: str, payload: bytes) -> None:
    house.stage.world.courier.publish(feishu.CODER, event_type, lambda _id: payload, chat=ChatId("nowhere"))


async def acknowledged(house: House, payload: bytes) -> Push:
    async def look() -> Push | None:
        found = [p for p in house.stage.world.courier.pushes() if p.payload == payload]
        return next((p for p in found if p.acknowledged_ms is not None), None)

    return await until(look, lambda: "it was not acknowledged")


async def still_hears(house: House) -> None:
    """The next message works as if nothing had been."""
    topic, _ = await house.begun(feishu.USER_A, "!say Still here.")
    await house.card(topic, "Still here.", "done")


async def sessions(house: House) -> list[Session]:
    return list(await house.parts.sessions.list(label=None, target=None, limit=1_000))
