"""The one way in: the journal's commit is the promise, the rest a hint; and each id counts once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from amux.core import events as e
from amux.core.errors import Refused, Unavailable
from amux.core.ids import InputId, Principal, SessionId, SessionKey, SessionRef, TurnId
from amux.core.inputs import MAX_TEXT, Input, Interrupt
from amux.core.launch import LaunchSnapshot
from amux.core.session import fold
from amux.ports import Append, Draft, Journaled, NewBinding
from amux.runtime import failpoints
from amux.runtime.submit import Submit
from tests.build import TOPIC, said
from tests.fakes import Crashed, Worker, World

ONE = said("user_a", "one", id="om_1")
STREAM = SessionKey(1)


@pytest.fixture
def world() -> World:
    world = World()
    world.session()
    return world


def submit(world: World) -> Submit:
    ports = Worker(world, "ingress")
    return Submit(ports.inputs, ports.inbox, ports.waker)


def posted(world: World) -> list[InputId]:
    return [one.said.id for one in world.streams.get(STREAM, [])]


async def test_it_is_journaled_posted_and_asked_for_once(world: World) -> None:
    assert await submit(world).to(STREAM, ONE) == Journaled(ONE, STREAM, "local", True)
    assert (list(world.journal), posted(world), world.wakes) == ([ONE.id], [ONE.id], [(STREAM, "local")])


@pytest.mark.rule("D2", "I5")
async def test_a_twin_is_told_where_the_first_one_went_and_is_not_posted(world: World) -> None:
    """Nothing is posted twice: posted after its acceptance it would start two Turns (H4)."""
    other = world.session("other")
    await submit(world).to(STREAM, ONE)
    twin = await submit(world).to(other, ONE)
    assert (twin.session, twin.fresh) == (STREAM, False)
    assert (posted(world), world.streams.get(other)) == ([ONE.id], None)


async def test_an_owner_at_work_is_rung_and_no_other_asked_for(world: World) -> None:
    rung: list[str] = []
    world.leases[STREAM] = ("w1|t", 60.0)
    world.bells["w1"] = {STREAM: lambda: rung.append("w1")}
    await submit(world).to(STREAM, ONE)
    assert (rung, world.wakes) == (["w1"], [])


async def test_a_second_message_asks_no_second_time(world: World) -> None:
    """H9."""
    await submit(world).to(STREAM, ONE)
    await submit(world).to(STREAM, said("user_b"))
    assert world.wakes == [(STREAM, "local")]


@pytest.mark.rule("D2")
async def test_without_redis_it_is_taken_all_the_same(world: World) -> None:
    world.redis_away = True
    assert (await submit(world).to(STREAM, ONE)).fresh
    assert (list(world.journal), posted(world), world.wakes) == ([ONE.id], [], [])


async def test_without_postgres_it_is_refused_and_nothing_is_posted(world: World) -> None:
    world.postgres_away = True
    with pytest.raises(Unavailable):
        await submit(world).to(STREAM, ONE)
    assert (world.journal, posted(world), world.wakes) == ({}, [], [])


@pytest.mark.rule("D2")
async def test_a_crash_after_the_journal_loses_nothing(world: World) -> None:
    def die() -> None:
        raise Crashed

    failpoints.arm("after_journal", die)
    with pytest.raises(Crashed):
        await submit(world).to(STREAM, ONE)
    failpoints.disarm()
    world.clock.advance(2)
    assert await Worker(world, "sweep").inputs.lying(older_than=1.0) == [(STREAM, "local")]


@pytest.mark.rule("A3")
async def test_an_interrupt_without_a_turn_gets_the_open_one(world: World) -> None:
    """H39: in the journal's own statement."""
    world.rows[STREAM].session = replace(world.rows[STREAM].session, open_turn=TurnId(7))
    stop = Interrupt(InputId("stop_1"), Principal("user_b"), None)
    journaled = await submit(world).to(STREAM, stop)
    assert journaled.said == replace(stop, turn=TurnId(7))
    assert world.streams[STREAM][0].said == journaled.said


TOO_MUCH = {
    "characters": (
        "x" * (MAX_TEXT + 1),
        "The message has 200,001 characters, and 200,000 is the most: nothing was sent.",
    ),
    "weight": ("长" * 120_000, "The message takes more than 256 KB as it is stored: nothing was sent."),
}


@pytest.mark.parametrize("way", ["to", "launch"])
@pytest.mark.parametrize(("text", "why"), TOO_MUCH.values(), ids=TOO_MUCH)
async def test_too_much_is_refused_before_the_journal(world: World, way: str, text: str, why: str) -> None:
    """What was journaled could be neither cut nor accepted, and would hold up its Session for ever."""
    draft = Draft(SessionRef("local", SessionId("n3w")), LaunchSnapshot("fake", "/work"), "title")
    one, way_in = said("user_a", text), submit(world)
    with pytest.raises(Refused) as refused:
        await (way_in.to(STREAM, one) if way == "to" else way_in.launch(draft, one))
    assert str(refused.value) == f"{why} Put it into a file in the workspace and name the file."
    assert refused.value.key == "message_too_long"
    assert (world.journal, len(world.rows)) == ({}, 1)


@pytest.mark.rule("B1")
async def test_who_loses_the_race_for_a_topic_is_told_of_the_winners_session(world: World) -> None:
    """H36."""
    made = []
    for n in (1, 2):
        draft = Draft(SessionRef("local", SessionId(f"new{n}")), LaunchSnapshot("fake", "/work"), "title")
        one = said("user_a", id=f"om_{n}")
        made.append(await submit(world).launch(draft, one, NewBinding(TOPIC, "omt_topic", 1)))
    assert made[0].session == made[1].session == 2
    assert [one.fresh for one in made] == [True, True]
    assert [r.session.ref.id for r in world.rows.values()] == ["7k3m", "new1"]
    assert [one.said.id for one in world.streams[SessionKey(2)]] == ["om_1", "om_2"]


# -- again ------------------------------------------------------------------------------------------------------------

B = Principal("user_b")
UNCERTAIN = e.SubmissionFailed((ONE.id,), e.FailReason.uncertain)


async def happened(world: World, *events: e.Event, inputs: Sequence[Input] = (ONE,)) -> None:
    """These inputs were said to the Session and accepted; then this happened."""
    ports = Worker(world, "owner")
    for one in inputs:
        await ports.inputs.journal(STREAM, one)
    opened = await ports.timeline.open(STREAM, "owner|1", worker="owner", young=False)
    assert opened
    all_ = (*map(e.InputAccepted, inputs), *events)
    accepts = tuple((one.id, n) for n, one in enumerate(inputs, 1))
    await ports.timeline.append(STREAM, opened.fence, Append(all_, fold(all_), accepts))


async def sent_again(world: World, original: InputId = ONE.id, session: SessionKey = STREAM) -> Journaled:
    return await submit(world).again(session, original, by=B, name="User B", sent_at=9)


@pytest.mark.rule("I5")
async def test_what_failed_is_sent_again_once_and_the_old_one_stays(world: World) -> None:
    await happened(world, UNCERTAIN)
    before = list(world.timeline[STREAM])
    first = await sent_again(world)
    new = replace(
        ONE,
        id=InputId("again:om_1"),
        sender=B,
        name="User B",
        sent_at=9,
        authorization=replace(ONE.authorization, principal=B),
    )
    assert first == Journaled(new, STREAM, "local", fresh=True)
    assert await sent_again(world) == Journaled(new, STREAM, "local", fresh=False)
    assert (posted(world), list(world.journal)) == ([new.id], [ONE.id, new.id])
    assert world.timeline[STREAM] == before


@pytest.mark.rule("I5")
async def test_a_submission_of_several_is_sent_again_whole(world: World) -> None:
    two = said("user_a", "two", id="om_2")
    await happened(world, e.SubmissionFailed((ONE.id, two.id), e.FailReason.queue_full), inputs=(ONE, two))
    for original in (ONE.id, two.id):
        new = (await sent_again(world, original)).said
        assert isinstance(new, Input)
        assert (new.id, new.text) == ("again:om_2", "one\n\ntwo")
    assert posted(world) == ["again:om_2"]


@pytest.mark.rule("I5")
async def test_what_is_sent_again_may_fail_and_be_sent_again(world: World) -> None:
    await happened(world, UNCERTAIN)
    once = (await sent_again(world)).said
    assert isinstance(once, Input)
    await happened(world, e.SubmissionFailed((once.id,), e.FailReason.uncertain), inputs=(once,))
    assert (await sent_again(world, once.id)).said.id == "again:again:om_1"


STARTED = e.TurnStarted(TurnId(1), (ONE.id,), e.Cause.input)
REFUSED = {
    "it waits": ((e.InputQueued((ONE.id,), e.QueueReason.other_sender),), ONE.id, STREAM, "again_waits"),
    "it runs": ((STARTED,), ONE.id, STREAM, "again_ran"),
    "unknown": ((UNCERTAIN,), InputId("om_none"), STREAM, "again_unknown"),
    "of another Session": ((UNCERTAIN,), ONE.id, SessionKey(2), "again_elsewhere"),
}


@pytest.mark.rule("I5")
@pytest.mark.parametrize(("events", "original", "session", "key"), REFUSED.values(), ids=REFUSED)
async def test_what_did_not_fail_here_is_not_sent_again(
    world: World, events: Sequence[e.Event], original: InputId, session: SessionKey, key: str
) -> None:
    world.session("other")
    await happened(world, *events)
    with pytest.raises(Refused) as refused:
        await sent_again(world, original, session)
    assert (refused.value.key, list(world.journal), world.streams) == (key, [ONE.id], {})


@pytest.mark.rule("I5")
async def test_what_is_not_accepted_yet_is_not_sent_again(world: World) -> None:
    """Pressed before anybody knows what becomes of it."""
    await submit(world).to(STREAM, ONE)
    with pytest.raises(Refused) as refused:
        await sent_again(world)
    assert (refused.value.key, posted(world)) == ("again_waits", [ONE.id])
