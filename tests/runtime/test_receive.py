"""A Feishu message's way to its Session: by the Bindings as they stood, by who may drive, and once."""

from dataclasses import dataclass, field, replace

import pytest

from amux.core.admission import Access
from amux.core.errors import Uncertain
from amux.core.ids import BindingId, InputId, Principal, SessionRef
from amux.core.inputs import Authorization, Input, Origin, Place
from amux.core.launch import LaunchSnapshot, saved
from amux.core.routing import Message
from amux.ports import Journaled
from amux.runtime.receive import ALPHABET, Receive, Refusal, new_session_id, title_of
from amux.runtime.submit import Submit
from tests.fakes import Worker, World
from tests.runtime.house import until

A, B = Principal("feishu:cli_bot:ou_a"), Principal("feishu:cli_bot:ou_b")
FIRST = Message(
    id=InputId("feishu:cli_bot:om_1"),
    app="cli_bot",
    chat="oc_group",
    topics=("om_1",),
    text="fix the test",
    sender=A,
    sent_at=100,
    name="User A",
    mentions_bot=True,
)
REPLY = replace(FIRST, id=InputId("feishu:cli_bot:om_2"), topics=("omt_1", "om_1", "om_2"), thread="omt_1", sent_at=200)


@dataclass
class Bridge:
    """The Bridge over a fake world."""

    access: Access = field(default_factory=Access)
    world: World = field(default_factory=World)
    launched: list[SessionRef] = field(default_factory=list)

    async def push(self, said: Message) -> Journaled | Refusal | None:
        ports = Worker(self.world, "ingress")
        submit = Submit(ports.inputs, ports.inbox, ports.waker)
        return await Receive(submit, ports.bindings, self.access, "local", self._settings).message(said)

    def _settings(self, ref: SessionRef) -> LaunchSnapshot:
        self.launched.append(ref)
        return LaunchSnapshot("scripted", f"/work/{ref.id}", model="m1")

    def inputs(self) -> list[Input]:
        return [entry.said for entry in self.world.journal.values() if isinstance(entry.said, Input)]


@pytest.fixture
def bridge() -> Bridge:
    return Bridge()


@pytest.mark.rule("B1", "S2", "S5")
async def test_a_first_message_makes_session_binding_and_input(bridge: Bridge) -> None:
    journaled = await bridge.push(FIRST)
    (ref,) = bridge.launched
    row = bridge.world.rows[journaled.session]  # type: ignore[union-attr]
    assert (row.session.ref, row.session.title) == (ref, "fix the test")
    assert row.session.saved == saved(LaunchSnapshot("scripted", f"/work/{ref.id}", model="m1"))
    (binding,) = bridge.world.bindings.values()
    assert (binding.topic, binding.since, binding.until, binding.session) == ("om_1", 100, None, row.session.key)
    rights = Authorization(A, Place(BindingId(1), "cli_bot", "oc_group"))
    assert bridge.inputs() == [Input(FIRST.id, "fix the test", A, rights, 100, "User A")]


@pytest.mark.rule("B1", "I3")
async def test_its_replies_reach_it_under_the_same_authorization(bridge: Bridge) -> None:
    """Whether or not they name the thread; else the sender could not steer."""
    await bridge.push(FIRST)
    await bridge.push(REPLY)
    later = replace(REPLY, id=InputId("feishu:cli_bot:om_3"), topics=("omt_1", "om_3"))
    await bridge.push(later)
    assert len(bridge.world.rows) == 1
    assert len({one.authorization for one in bridge.inputs()}) == 1
    assert bridge.world.aliases == [(1, "omt_1")]


@pytest.mark.rule("B5", "B9")
async def test_a_message_is_routed_by_what_stood_when_it_was_sent(bridge: Bridge) -> None:
    """H38: whenever it arrives."""
    await bridge.push(FIRST)
    bridge.world.bindings[BindingId(1)] = replace(bridge.world.bindings[BindingId(1)], until=300)
    assert isinstance(await bridge.push(REPLY), Journaled)
    late = replace(REPLY, id=InputId("feishu:cli_bot:om_3"), sent_at=300)
    assert await bridge.push(late) is Refusal.topic_ended
    early = replace(REPLY, id=InputId("feishu:cli_bot:om_4"), sent_at=99)
    assert await bridge.push(early) is None
    assert [one.id for one in bridge.inputs()] == [FIRST.id, REPLY.id]


@pytest.mark.rule("B7")
async def test_who_may_not_drive_neither_starts_nor_joins(bridge: Bridge) -> None:
    bridge.access = Access(None, frozenset({A}))
    await bridge.push(FIRST)
    by_b = replace(REPLY, sender=B)
    assert await bridge.push(by_b) is Refusal.not_driver
    assert await bridge.push(replace(by_b, topics=("om_9",))) is Refusal.not_driver
    assert len(bridge.world.rows) == len(bridge.inputs()) == 1


@pytest.mark.rule("B7", "I4")
@pytest.mark.parametrize("sender", [None, B])
async def test_a_bot_comes_in_only_where_everybody_may(bridge: Bridge, sender: Principal | None) -> None:
    by_bot = replace(FIRST, sender=sender, origin=Origin.bot)
    bridge.access = Access(A, frozenset())
    assert await bridge.push(by_bot) is None
    bridge.access = Access(A)
    assert isinstance(await bridge.push(by_bot), Journaled)
    assert bridge.inputs()[0].sender == sender


@pytest.mark.rule("B6")
async def test_what_is_not_meant_for_the_bot_leaves_no_trace(bridge: Bridge) -> None:
    assert await bridge.push(replace(FIRST, mentions_bot=False)) is None
    assert (bridge.world.rows, bridge.world.journal) == ({}, {})


@pytest.mark.rule("D2")
async def test_pushed_again_it_is_the_same_input(bridge: Bridge) -> None:
    first = await bridge.push(FIRST)
    twin = await bridge.push(FIRST)
    assert isinstance(first, Journaled) and isinstance(twin, Journaled)
    assert (first.session, first.fresh, twin.session, twin.fresh) == (1, True, 1, False)


@pytest.mark.rule("D2")
async def test_what_stands_still_ends_at_the_deadline_and_is_journaled_once(bridge: Bridge) -> None:
    """H37: nobody may acknowledge it, Feishu pushes it again, and both come to one input."""
    ports = Worker(bridge.world, "ingress")
    submit = Submit(ports.inputs, ports.inbox, ports.waker)
    receive = Receive(submit, ports.bindings, bridge.access, "local", bridge._settings, deadline=0.01)
    ports.freeze()
    with pytest.raises(Uncertain):
        await receive.message(FIRST)
    assert bridge.inputs() == []
    ports.thaw()
    await until(bridge.inputs)
    twin = await bridge.push(FIRST)
    assert isinstance(twin, Journaled) and not twin.fresh
    assert len(bridge.inputs()) == 1


def test_a_session_id_is_sixteen_letters_that_nobody_misreads() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id) == 16 and set(id) <= set(ALPHABET) for id in ids)
    assert not set("ilou") & set(ALPHABET)


@pytest.mark.parametrize(
    ("prompt", "title"),
    [("", ""), ("\n\n  fix it  \nnow", "fix it"), ("x" * 81, "x" * 79 + "…"), ("长" * 80, "长" * 80)],
)
def test_a_title_is_the_first_line_of_the_first_prompt(prompt: str, title: str) -> None:
    assert title_of(prompt) == title
