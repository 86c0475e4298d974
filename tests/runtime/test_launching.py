"""What a Session is woken on: by its record, on this engine or on none, and anew only where its history cannot be had."""

from dataclasses import replace

import pytest

from amux.core.context import handoff
from amux.core.events import (
    ConversationOpening,
    FailReason,
    Fresh,
    Outcome,
    SubmissionFailed,
    TurnFinished,
    TurnStarted,
)
from amux.core.ids import InputId, Principal, SessionId, SessionKey, SessionRef, TurnId
from amux.core.inputs import Action, Interrupt, Manage, Permission
from amux.core.launch import DEFAULT_PROFILE, Extra, LaunchSnapshot, McpServer, Record, Saved, saved
from amux.extensions import Emit, Opening, Refused, Unavailable
from amux.ports import Draft, NewBinding
from amux.runtime.submit import Submit
from tests.build import TOPIC, said
from tests.fakes import FakeConversation, FakeProvider
from tests.runtime.house import LEASE, LINGER, House, until

LAUNCH = LaunchSnapshot("fake", "/w1", "team/a", "M1", "high", Permission.ask, "Be brief.")


def session(house: House, record: Record | None = None, kept: Saved | None = None) -> SessionKey:
    """One that was launched so, with what is left of that."""
    key = house.world.session()
    keep(house, key, record or Record(LAUNCH.profile, LAUNCH.engine), kept or saved(LAUNCH))
    return key


def keep(house: House, key: SessionKey, record: Record, kept: Saved) -> None:
    row = house.world.rows[key]
    row.session = replace(row.session, record=record, saved=kept)


def record(house: House, key: SessionKey) -> Record:
    return house.world.rows[key].session.record


async def turn(house: House, key: SessionKey, number: int, text: str = "text", answer: str = "done") -> None:
    """Say it and let the agent answer."""
    await house.say(key, said("user_a", text, id=f"om_{number}"))
    house.drive(next(iter(house.workers)))
    await until(lambda: any(t == number for opened in house.agent.opened for t, _ in opened.prompts))
    house.agent.opened[-1].say(answer)
    house.agent.opened[-1].finish()
    await until(lambda: TurnFinished(TurnId(number), Outcome.completed) in house.events(key))


async def sleep(house: House) -> None:
    """Every owner has let go."""
    ((name, (_, host)),) = house.workers.items()
    await until(lambda: all(owner.idle_since is not None for owner in host.owners.values()))
    for _ in range(6):
        house.world.clock.advance(LINGER / 6)
        await house.renew(name)
    await until(lambda: not host.owners)


def openings(house: House, key: SessionKey) -> list[ConversationOpening]:
    return [event for event in house.events(key) if isinstance(event, ConversationOpening)]


async def failed(house: House, key: SessionKey, number: int) -> SubmissionFailed:
    """What became of that text."""
    await house.say(key, said("user_a", "text", id=f"om_{number}"))
    house.drive(next(iter(house.workers)))
    ids = (InputId(f"om_{number}"),)
    await until(lambda: any(isinstance(x, SubmissionFailed) and x.inputs == ids for x in house.events(key)))
    return next(x for x in house.events(key) if isinstance(x, SubmissionFailed) and x.inputs == ids)


@pytest.mark.rule("S5", "S9")
async def test_a_wake_runs_on_what_is_recorded(house: House) -> None:
    key = session(house)
    await turn(house, key, 1)
    await sleep(house)
    await turn(house, key, 2)
    assert [opened.opening.launch for opened in house.agent.opened] == [LAUNCH, LAUNCH]
    assert record(house, key) == Record("team/a", "fake")


@pytest.mark.rule("S4", "A5")
async def test_a_restart_keeps_address_binding_and_what_waits(house: House) -> None:
    """S4.a: onto another process, and what waited runs in its order, each once."""
    ports = house.workers["w1"][0]
    first = said("user_a", "one", id="om_1")
    binding = NewBinding(TOPIC, "omt_topic", 1)
    ref = SessionRef("local", SessionId("7k3m"))
    journaled = await Submit(ports.inputs, ports.inbox, ports.waker).launch(Draft(ref, LAUNCH, "t"), first, binding)
    key = journaled.session
    house.drive()
    await until(lambda: house.agent.opened and house.agent.opened[0].prompts)
    for n in (2, 3):
        await house.say(key, said(f"user_{n}", "waits", id=f"om_{n}", material=["a.png"]))
    await until(lambda: house.kinds(key).count("InputQueued") == 2)
    await house.say(key, Manage(InputId("restart_1"), Principal("user_a"), Action.restart))
    await until(lambda: len(house.agent.opened) == 2 and house.agent.opened[1].prompts)
    house.agent.opened[1].finish()
    await until(lambda: len(house.agent.opened[1].prompts) == 2)
    house.agent.opened[1].finish()
    await until(lambda: TurnFinished(TurnId(3), Outcome.completed) in house.events(key))
    assert (house.agent.opened[0].closed, house.agent.opened[1].opening.native_id) == (True, "native-1")
    assert house.agent.opened[1].opening.launch == LAUNCH
    started = [x.inputs for x in house.events(key) if isinstance(x, TurnStarted)]
    assert started == [("om_1",), ("om_2",), ("om_3",)]
    ends = [(x.turn, x.outcome) for x in house.events(key) if isinstance(x, TurnFinished)]
    assert ends == [(1, Outcome.interrupted), (2, Outcome.completed), (3, Outcome.completed)]
    (bound,) = await ports.bindings.find(TOPIC.app, TOPIC.chat, ["omt_topic"])
    assert (bound.session, bound.until) == (key, None)
    assert (await ports.sessions.find("7k3m")).ref == ref


@pytest.mark.rule("S5")
async def test_a_model_that_is_no_longer_taken_is_named_and_not_replaced(house: House) -> None:
    key = session(house)
    house.agent.fault = lambda: Refused("Fake has no model M1. It has: M2.", key="no_model")
    assert await failed(house, key, 1) == SubmissionFailed(
        (InputId("om_1"),), FailReason.open_failed, "Fake has no model M1. It has: M2."
    )
    assert not any(isinstance(event, TurnStarted) for event in house.events(key))
    assert house.agent.opened == []


@pytest.mark.rule("S6")
async def test_a_lost_profile_resumes_and_is_recorded(house: House) -> None:
    key = session(house)
    await turn(house, key, 1)
    await sleep(house)
    keep(house, key, Record(None, "fake"), replace(saved(LAUNCH), profile=None))
    await turn(house, key, 2)
    assert house.agent.opened[-1].opening.native_id == "native-1"
    assert house.agent.opened[-1].opening.launch == replace(LAUNCH, profile=DEFAULT_PROFILE)
    assert house.agent.opened[-1].prompts[0][1].note == ""
    assert record(house, key) == Record(DEFAULT_PROFILE, "fake")


@pytest.mark.rule("S6")
async def test_with_everything_lost_the_agent_asks(house: House) -> None:
    key = session(house, Record(), Saved(workspace="/w1"))
    await turn(house, key, 1)
    assert house.agent.opened[0].opening.launch == LaunchSnapshot("fake", "/w1", permission=Permission.ask)


@pytest.mark.rule("S6")
async def test_a_row_of_before_the_record_is_given_one(house: House) -> None:
    """Its snapshot has it, so its history is resumed."""
    key = session(house)
    await turn(house, key, 1)
    await sleep(house)
    keep(house, key, Record(), saved(LAUNCH))
    await turn(house, key, 2)
    assert (record(house, key), openings(house, key)[-1]) == (
        Record("team/a", "fake"),
        ConversationOpening("fake", "native-1"),
    )


@pytest.mark.rule("S7")
async def test_a_missing_engine_is_an_error_until_it_is_back(house: House) -> None:
    key = session(house)
    await turn(house, key, 1)
    await sleep(house)
    fake, claude = house.agent, FakeProvider("claude")
    house.workers.clear()
    house.agent, house.default = claude, "claude"
    house.worker("w2")
    why = await failed(house, key, 9)
    assert why.reason is FailReason.engine_unavailable
    assert why.detail.startswith("This Session runs on fake, which is not here.")
    assert (claude.opened, record(house, key)) == ([], Record("team/a", "fake"))
    await sleep(house)
    house.workers.clear()
    house.agent = fake
    house.worker("w3")
    await turn(house, key, 2)
    assert [opened.opening.native_id for opened in fake.opened] == [None, "native-1"]
    assert [event.turn for event in house.events(key) if isinstance(event, TurnStarted)] == [1, 2]


@pytest.mark.rule("S7")
async def test_a_program_that_is_gone_is_an_error_until_it_is_back(house: House) -> None:
    key = session(house)
    await turn(house, key, 1)
    await sleep(house)
    house.agent.fault = lambda: Unavailable("The fake program is not installed.")
    why = await failed(house, key, 9)
    assert (why.reason, why.detail) == (FailReason.engine_unavailable, "The fake program is not installed.")
    house.agent.fault = None
    await turn(house, key, 2, text="again")
    assert house.agent.opened[-1].opening.native_id == "native-1"


@pytest.mark.rule("S5")
async def test_a_lost_workspace_is_an_error(house: House) -> None:
    key = session(house, kept=replace(saved(LAUNCH), workspace=None))
    why = await failed(house, key, 1)
    assert why.reason is FailReason.open_failed
    assert why.detail.startswith("The workspace of this Session is lost from its record.")
    assert house.agent.opened == []


@pytest.mark.rule("A10", "S5")
async def test_what_an_engine_does_not_give_is_named_and_not_left_out(house: House) -> None:
    house.agent.extras = frozenset({Extra.environment})
    server = McpServer("owl", ("hoot",), environment=("OWL_KEY",))
    key = session(house, kept=replace(saved(LAUNCH), environment=("GH_TOKEN",), mcp=(server,)))
    why = await failed(house, key, 9)
    assert (why.reason, why.detail) == (
        FailReason.open_failed,
        "This Session has MCP servers (owl), which fake gives no agent. Start a new Session on another engine.",
    )
    assert (house.agent.opened, any(isinstance(event, TurnStarted) for event in house.events(key))) == ([], False)
    await sleep(house)
    house.agent.extras = frozenset(Extra)
    await turn(house, key, 1)
    launch = house.agent.opened[0].opening.launch
    assert (launch.environment, launch.mcp) == (("GH_TOKEN",), (server,))


@pytest.mark.rule("A10")
async def test_a_plug_in_that_says_nothing_of_extras_has_none(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeProvider, "extras")
    del house.agent.extras
    key = session(house, kept=replace(saved(LAUNCH), environment=("GH_TOKEN",)))
    assert "environment variables (GH_TOKEN), which fake gives no agent" in (await failed(house, key, 1)).detail


@pytest.mark.rule("S8", "S3")
async def test_a_lost_engine_begins_anew_with_a_handoff_once(house: House) -> None:
    key = session(house)
    await turn(house, key, 1, text="remember 17", answer="I shall.")
    await sleep(house)
    keep(house, key, Record("team/a"), replace(saved(LAUNCH), engine=None))
    await turn(house, key, 2, text="which number?")
    anew = house.agent.opened[-1]
    assert anew.opening.native_id is None
    assert openings(house, key)[-1] == ConversationOpening("fake", None, Fresh.engine_lost)
    ((_, prompt),) = anew.prompts
    assert prompt.note == handoff(house.events(key), Fresh.engine_lost, before=TurnId(2))
    assert "remember 17" in prompt.note
    assert "I shall." in prompt.note
    assert "which number?" not in prompt.note
    assert record(house, key) == Record("team/a", "fake")

    await sleep(house)
    await turn(house, key, 3)
    again = house.agent.opened[-1]
    assert (again.opening.native_id, again.prompts[0][1].note) == ("native-2", "")


@pytest.mark.rule("S8")
async def test_an_engine_is_recorded_with_its_opening_and_not_before(house: House) -> None:
    """H69: an owner that wrote something else and died must not leave a record by which the old handle is resumed."""
    key = session(house)
    await turn(house, key, 1, text="remember 17")
    await sleep(house)
    keep(house, key, Record("team/a"), replace(saved(LAUNCH), engine=None))
    await house.say(key, Interrupt(InputId("stop_1"), Principal("user_a"), None))
    house.drive()
    await until(lambda: house.kinds(key)[-1] == "ControlRefused")
    assert record(house, key) == Record("team/a")
    house.crash("w1")
    house.worker("w2")
    house.world.clock.advance(LEASE + 1)
    await house.sweep()
    await turn(house, key, 2)
    assert openings(house, key)[-1] == ConversationOpening("fake", None, Fresh.engine_lost)
    assert record(house, key) == Record("team/a", "fake")


@pytest.mark.rule("S8")
async def test_an_engine_that_was_chosen_stays_when_the_default_changes(house: House) -> None:
    key = session(house, Record("team/a"), replace(saved(LAUNCH), engine=None))
    await turn(house, key, 1)
    await sleep(house)
    house.workers.clear()
    house.default = "claude"
    house.worker("w2")
    await turn(house, key, 2)
    assert house.agent.opened[-1].opening.native_id == "native-1"


@pytest.mark.rule("S8")
async def test_a_handoff_that_nobody_is_seen_to_hold_is_given_again(house: House) -> None:
    key = session(house)
    await turn(house, key, 1, text="remember 17")
    await sleep(house)
    keep(house, key, Record("team/a"), replace(saved(LAUNCH), engine=None))
    await house.say(key, said("user_a", "which number?", id="om_2"))
    house.drive()
    await until(lambda: house.agent.opened[-1].prompts and house.agent.opened[-1].prompts[0][0] == 2)
    house.crash("w1")
    house.worker("w2")
    house.world.clock.advance(LEASE + 1)
    await house.sweep()
    await turn(house, key, 3)
    again = house.agent.opened[-1]
    assert again.opening.native_id == "native-2"
    assert "remember 17" in again.prompts[0][1].note


@pytest.mark.rule("A5", "S8")
async def test_a_history_that_is_gone_begins_anew_with_a_handoff(house: House) -> None:
    key = session(house)
    await turn(house, key, 1, text="remember 17")
    await sleep(house)
    gone = Forgetful()
    gone.opened = house.agent.opened
    house.workers.clear()
    house.agent = gone
    house.worker("w2")
    await turn(house, key, 2)
    assert openings(house, key)[1:] == [
        ConversationOpening("fake", "native-1"),
        ConversationOpening("fake", None, Fresh.history_gone),
    ]
    assert "remember 17" in gone.opened[-1].prompts[0][1].note
    await turn(house, key, 3)
    assert gone.opened[-1].prompts[1][1].note == ""


class Forgetful(FakeProvider):
    """Has no conversation of before any more."""

    async def open(self, opening: Opening, emit: Emit) -> FakeConversation:
        if opening.native_id == "native-1":
            raise Refused("There is no such conversation.", key="no_history")
        return await super().open(opening, emit)
