"""The built-in agent keeps the promises of every agent: start, stream, steer, interrupt, ask, resume, die."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from amux.core.ids import Principal, SessionId
from amux.core.inputs import Authorization
from amux.extensions import (
    Conversation,
    DeltaSeen,
    Died,
    Extend,
    Extra,
    Input,
    InputId,
    ItemSeen,
    ItemStatus,
    ItemType,
    LaunchSnapshot,
    Opening,
    Outcome,
    PermissionAsked,
    Prompt,
    Provider,
    ProviderEvent,
    Refused,
    SessionRef,
    TurnEnded,
    TurnId,
    Unavailable,
    Uncertain,
    Verdict,
)
from amux.providers.process import boottime
from amux.providers.scripted import Scripted, ScriptedInWorker
from amux.providers.scripted_agent import Failed, Step, parse
from tests.providers.conftest import carriers, eventually, last_tick, read

T1, T2 = TurnId(1), TurnId(2)


def said(text: str, name: str = "one") -> Input:
    sender = Principal("cli:user_a")
    return Input(InputId(f"cli:user_a:{name}"), text, sender, Authorization(sender), sent_at=0)


@dataclass
class Desk:
    """An owner's view of one Session on the scripted agent."""

    home: Path
    workspace: Path
    events: list[ProviderEvent] = field(default_factory=list)
    opened: list[Conversation] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(
        self,
        provider: Provider | None = None,
        *,
        native_id: str | None = None,
        seconds: float = 60,
        instructions: str = "",
        environment: tuple[str, ...] = (),
    ) -> Conversation:
        launch = LaunchSnapshot("scripted", str(self.workspace), instructions=instructions, environment=environment)
        ref = SessionRef("local", SessionId("abc"))
        opening = Opening(ref, launch, str(self.home), boottime() + seconds, native_id, self.extends.append)
        conversation = await (provider or Scripted(seconds=0.1, patience=20)).open(opening, self._emit)
        self.opened.append(conversation)
        return conversation

    def _emit(self, event: ProviderEvent) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, holds: Callable[[ProviderEvent], bool]) -> ProviderEvent:
        """The first event that is so, once there is one."""
        with anyio.fail_after(30):
            while not (found := [event for event in self.events if holds(event)]):
                self._more.clear()
                await self._more.wait()
        return found[0]

    async def ended(self, turn: TurnId = T1) -> TurnEnded:
        event = await self.until(lambda e: isinstance(e, TurnEnded) and e.turn == turn)
        assert isinstance(event, TurnEnded)
        return event

    async def died(self) -> Died:
        event = await self.until(lambda e: isinstance(e, Died))
        assert isinstance(event, Died)
        return event

    def texts(self, turn: TurnId = T1) -> list[str]:
        """What the agent said in that Turn, message by message, as the deltas and as the items tell it."""
        done = [e for e in self.events if isinstance(e, ItemSeen) and e.turn == turn and e.type is ItemType.message]
        final = {e.item: e.text for e in done if e.status is ItemStatus.completed}
        for item, text in final.items():
            deltas = [e for e in self.events if isinstance(e, DeltaSeen) and e.item == item]
            assert [d.text for d in deltas] == [text[d.offset : d.offset + len(d.text)] for d in deltas]
            assert sum(len(d.text) for d in deltas) in {0, len(text)}
        return [*final.values()]

    def record(self) -> list[tuple[str, str]]:
        lines = (self.home / "record.jsonl").read_text().splitlines()
        return [(line["input"].rpartition(":")[2], line["how"]) for line in map(json.loads, lines)]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    desk = Desk(tmp_path / "homes" / "abc", workspace)
    yield desk
    with anyio.fail_after(30):
        for conversation in desk.opened:
            await conversation.close()
    await eventually(lambda: not carriers(desk.home))


@pytest.fixture(params=[Scripted(seconds=0.1, patience=20), ScriptedInWorker()], ids=["program", "worker"])
def provider(request: pytest.FixtureRequest) -> Provider:
    kind: Provider = request.param
    return kind


async def test_an_ordinary_prompt_is_worked_on_and_quoted(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("Summarise the changelog"),)))
    ended = await desk.ended()
    assert (ended.outcome, ended.unhandled, desk.events[-1]) == (Outcome.completed, (), ended)
    assert desk.texts()[-1] == 'You said "Summarise the changelog". I know 0 earlier messages.'
    tools = [(e.title, e.status) for e in desk.events if isinstance(e, ItemSeen) and e.type is ItemType.tool]
    names = ["read README.md", "search the workspace", "run the tests"]
    assert tools == [(name, status) for name in names for status in (ItemStatus.started, ItemStatus.completed)]


async def test_the_same_script_does_the_same_again(desk: Desk, tmp_path: Path, provider: Provider) -> None:
    other = Desk(tmp_path / "homes" / "other", desk.workspace)
    for each in (desk, other):
        conversation = await each.open(provider)
        await conversation.start_turn(T1, Prompt((said("!say hello\n!stream 3 x 0\n!tool write_file notes.md"),)))
        await each.ended()
        await conversation.close()
    assert desk.events == other.events
    assert desk.texts() == ["hello", "word 1 word 2 word 3 "]


@pytest.mark.rule("S2")
async def test_an_experts_instructions_are_thought_over_in_each_turn(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider, instructions="Be brief.")
    for turn, note in ((T1, "A note."), (T2, "")):
        await conversation.start_turn(turn, Prompt((said(f"!say {turn}"),), note=note))
        await desk.ended(turn)
    thoughts = [e.text for e in desk.events if isinstance(e, ItemSeen) and e.type is ItemType.reasoning and e.text]
    assert list(dict.fromkeys(thoughts)) == ["Be brief.\n\nA note.", "Be brief."]


async def test_a_note_goes_before_the_text(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("!say hello"),), note="Cancelled: one message."))
    await desk.ended()
    first = desk.events[0]
    assert isinstance(first, ItemSeen)
    assert (first.type, first.text) == (ItemType.reasoning, "Cancelled: one message.")


@pytest.mark.rule("I3")
async def test_what_is_steered_is_taken_between_two_steps_and_answered(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    assert conversation.steering is not None
    await conversation.start_turn(T1, Prompt((said("!sleep 0.2\n!say first"),)))
    await conversation.steering.steer(T1, (said("also in Chinese", "two"),))
    await desk.ended()
    assert desk.texts() == ["first", 'You added "also in Chinese".']


async def test_what_is_steered_is_taken_between_two_pieces_of_a_text(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    assert conversation.steering is not None
    await conversation.start_turn(T1, Prompt((said("!stream 2 x 0.1\n!hang"),)))
    await conversation.steering.steer(T1, (said("and more", "two"),))
    await conversation.interrupt(T1)
    assert (await desk.ended()).unhandled == (said("", "two").id,)


@pytest.mark.rule("I3")
async def test_one_that_listens_takes_what_is_steered_at_once_until_the_interrupt(
    desk: Desk, provider: Provider
) -> None:
    conversation = await desk.open(provider)
    assert conversation.steering is not None
    await conversation.start_turn(T1, Prompt((said("!listen"),)))
    for name in ("two", "three"):
        await conversation.steering.steer(T1, (said("and more", name),))  # returns when it is committed
    await conversation.interrupt(T1)
    ended = await desk.ended()
    assert (ended.outcome, ended.unhandled) == (Outcome.interrupted, (said("", "two").id, said("", "three").id))


@pytest.mark.rule("I4")
async def test_a_steer_for_another_turn_is_refused(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    assert conversation.steering is not None
    with pytest.raises(Refused):
        await conversation.steering.steer(T1, (said("too early"),))
    await conversation.start_turn(T2, Prompt((said("!hang"),)))
    with pytest.raises(Refused):
        await conversation.steering.steer(T1, (said("for another", "two"),))
    await conversation.interrupt(T2)
    with pytest.raises(Refused):
        await conversation.steering.steer(T2, (said("too late", "three"),))


async def test_a_steer_that_is_not_taken_before_the_interrupt_is_refused(desk: Desk) -> None:
    conversation = await desk.open()
    assert conversation.steering is not None
    await conversation.start_turn(T1, Prompt((said("!hang"),)))
    refused = []

    async def steer() -> None:
        assert conversation.steering is not None
        with pytest.raises(Refused):
            await conversation.steering.steer(T1, (said("and more", "two"),))
        refused.append("two")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        await anyio.lowlevel.checkpoint()
        await conversation.interrupt(T1)
    assert (refused, desk.record()) == (["two"], [("one", "start")])


@pytest.mark.rule("I6")
async def test_an_interrupt_names_what_was_steered_and_not_handled(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    assert conversation.steering is not None
    await conversation.start_turn(T1, Prompt((said("!sleep 0.1\n!hang"),)))
    await conversation.steering.steer(T1, (said("and more", "two"),))
    await conversation.interrupt(T1)
    ended = await desk.ended()
    assert (ended.outcome, ended.unhandled) == (Outcome.interrupted, (said("", "two").id,))


@pytest.mark.parametrize("script", ["!hang", "!sleep 60", "!tool x\n!stream 9 x 60", "!ask for it"])
async def test_an_interrupt_stops_any_step(desk: Desk, provider: Provider, script: str) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said(script),)))
    await conversation.interrupt(T1)
    assert (await desk.ended()).outcome is Outcome.interrupted
    await conversation.start_turn(T2, Prompt((said("!say again", "two"),)))
    await desk.ended(T2)
    assert desk.texts(T2) == ["again"]


async def test_a_message_that_is_cut_is_superseded(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("!stream 2 x 60"),)))
    await conversation.interrupt(T1)
    statuses = [e.status for e in desk.events if isinstance(e, ItemSeen)]
    assert statuses == [ItemStatus.started, ItemStatus.superseded]


async def test_an_interrupt_for_another_turn_does_nothing(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("!sleep 0.1\n!say done"),)))
    await conversation.interrupt(T2)
    assert (await desk.ended()).outcome is Outcome.completed


async def test_an_interrupt_stops_the_tools(desk: Desk) -> None:
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!clock ticks\n!hang"),)))
    ticks = desk.workspace / "ticks"
    await eventually(lambda: ticks.exists() and ticks.read_text().count("\n") > 1)
    await conversation.interrupt(T1)
    assert len(carriers(desk.home)) == 1


@pytest.mark.parametrize("verdict", Verdict)
async def test_it_asks_and_waits_for_the_answer(desk: Desk, provider: Provider, verdict: Verdict) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said('!ask "run rm -rf"'),)))
    asked = await desk.until(lambda e: isinstance(e, PermissionAsked))
    assert isinstance(asked, PermissionAsked)
    assert asked == PermissionAsked(T1, asked.request, "run rm -rf")
    await conversation.answer(asked.request, verdict)
    await desk.ended()
    assert desk.texts() == [f"The answer was: {verdict}."]
    await conversation.answer(asked.request, Verdict.allow)


async def test_it_fails_when_told_to(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("!fail out_of_luck"),)))
    ended = await desk.ended()
    assert (ended.outcome, ended.reason) == (Outcome.failed, "out_of_luck")


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("!sing", "No such step. There are: !ask, !clock, !die,"),
        ("!sleep long", '"long" is no number.'),
        ("!stream x x x", '"x x" is no number.'),
    ],
)
async def test_a_bad_script_says_what_is_wrong(desk: Desk, provider: Provider, script: str, detail: str) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said(script),)))
    ended = await desk.ended()
    assert (ended.outcome, ended.reason, ended.detail[: len(detail)]) == (Outcome.failed, "bad_script", detail)


@pytest.mark.rule("T8")
async def test_its_death_is_told_once(desk: Desk) -> None:
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!say hello\n!die"),)))
    assert await desk.died() == Died("The scripted agent was killed by signal 9.")
    with pytest.raises(Unavailable):
        await conversation.start_turn(T2, Prompt((said("more", "two"),)))
    assert [e for e in desk.events if isinstance(e, Died)] == [Died("The scripted agent was killed by signal 9.")]


@pytest.mark.rule("I5")
async def test_a_steer_that_a_dying_agent_did_not_answer_is_uncertain(desk: Desk) -> None:
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!hang"),)))
    uncertain = []

    async def steer() -> None:
        assert conversation.steering is not None
        with pytest.raises(Uncertain):
            await conversation.steering.steer(T1, (said("and more", "two"),))
        uncertain.append("two")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        await anyio.lowlevel.checkpoint()
        os.kill(carriers(desk.home)[0], signal.SIGKILL)
    assert uncertain == ["two"]
    assert conversation.steering is not None
    with pytest.raises(Refused):
        await conversation.steering.steer(T1, (said("to the dead", "three"),))


async def test_an_agent_that_prints_garbage_dies_of_it(desk: Desk) -> None:
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!garbage\n!hang"),)))
    assert await desk.died() == Died("The scripted agent wrote 21 lines that are no JSON.")


async def test_a_little_garbage_is_skipped(desk: Desk) -> None:
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!garbage 5\n!say hello"),)))
    assert (await desk.ended()).outcome is Outcome.completed


async def test_an_agent_that_never_answers(desk: Desk) -> None:
    conversation = await desk.open(Scripted(patience=0.5))
    with pytest.raises(Uncertain, match=r"did not answer within 0\.5 s"):
        await conversation.start_turn(T1, Prompt((said("!silent"),)))
    assert not desk.home.joinpath("record.jsonl").exists()


async def test_an_agent_that_does_not_obey_is_killed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amux.providers.scripted.STOP_SECONDS", 0.2)
    conversation = await desk.open()
    await conversation.start_turn(T1, Prompt((said("!say hello\n!silent"),)))
    await conversation.interrupt(T1)
    assert await desk.died() == Died("The scripted agent was killed.")
    assert carriers(desk.home) == []


async def test_it_knows_what_was_said_before_it_was_killed(desk: Desk) -> None:
    first = await desk.open()
    await first.start_turn(T1, Prompt((said("!say hello"),)))
    await desk.ended()
    await first.start_turn(T2, Prompt((said("!hang", "two"),)))
    os.kill(carriers(desk.home)[0], signal.SIGKILL)
    await desk.died()
    desk.events.clear()
    second = await desk.open(native_id=first.native_id)
    assert second.native_id == first.native_id
    await second.start_turn(TurnId(3), Prompt((said("what do you know?", "three"),)))
    await desk.ended(TurnId(3))
    assert desk.texts(TurnId(3))[-1] == 'You said "what do you know?". I know 2 earlier messages.'
    assert desk.record() == [("one", "start"), ("two", "start"), ("three", "start")]


async def test_a_conversation_that_is_not_there(desk: Desk) -> None:
    with pytest.raises(Refused) as refused:
        await desk.open(native_id="scripted-9")
    assert refused.value.key == "no_history"


async def test_a_new_conversation_knows_nothing_of_the_old(desk: Desk) -> None:
    first = await desk.open()
    await first.start_turn(T1, Prompt((said("!say hello"),)))
    await first.close()
    second = await desk.open()
    await second.start_turn(T2, Prompt((said("hello", "two"),)))
    await desk.ended(T2)
    assert (first.native_id, second.native_id) == ("scripted-1", "scripted-2")
    assert desk.texts(T2)[-1].endswith("I know 0 earlier messages.")


async def test_its_tools_end_with_its_deadline(desk: Desk) -> None:
    conversation = await desk.open(seconds=5)
    await conversation.start_turn(T1, Prompt((said("!clock ticks\n!hang"),)))
    until = boottime() + 2
    desk.extends[0](until)
    died = await desk.died()
    assert died == Died("The scripted agent was killed when its owner's permission to act ran out.")
    assert until - 1 < last_tick(desk.workspace / "ticks") < until + 1  # a second is what a Lease has left (H3)


async def test_closing_tells_nothing_more(desk: Desk, provider: Provider) -> None:
    conversation = await desk.open(provider)
    await conversation.start_turn(T1, Prompt((said("!hang"),)))
    await conversation.close()
    await conversation.close()
    assert desk.events == []


@pytest.mark.rule("S5", "A10")
async def test_it_has_the_variables_that_it_is_given_and_no_servers(desk: Desk) -> None:
    worker = {"GH_TOKEN": "token-for-the-agent", "OTHER": "for-nobody"}
    await desk.open(Scripted(env=worker), environment=("GH_TOKEN",))
    env = [read(f"/proc/{pid}/environ").decode().split("\0") for pid in carriers(desk.home)]
    assert [[line for line in one if line.startswith(("GH_TOKEN", "OTHER"))] for one in env] == [
        ["GH_TOKEN=token-for-the-agent"]
    ] * len(env)
    assert env
    with pytest.raises(Refused, match="is given GONE, which the worker does not have"):
        await desk.open(Scripted(env=worker), environment=("GONE",))
    assert (Scripted.extras, ScriptedInWorker.extras) == (frozenset({Extra.environment}), frozenset())


def test_parse() -> None:
    text = "!say hello there\n\nplain text\n  !stream 20 x 0.1s\n!hang"
    assert parse(text) == [
        Step("say", "hello there"),
        Step("say", "plain text"),
        Step("stream", "20 x 0.1s"),
        Step("hang", ""),
    ]
    assert parse("ordinary text\nof two lines") == []
    with pytest.raises(Failed):
        parse("!")
