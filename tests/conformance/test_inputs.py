"""The journal: one id, one row, for good."""

import asyncio
from dataclasses import replace

import pytest

from amux.core.errors import Refused
from amux.core.events import Cause, FailReason, InputAccepted, SubmissionFailed, TurnStarted
from amux.core.ids import BindingId, InputId, Principal, RequestId, Seq, SessionKey, TurnId
from amux.core.inputs import Answer, Interrupt, Place, Verdict
from amux.core.session import fold
from amux.ports import Append, Binding, Journaled, Known, NewBinding
from tests.conformance.sides import Side

TOPIC = Place(BindingId(0), "cli_bot", "oc_group", "omt_topic")


@pytest.mark.rule("I9")
async def test_a_twin_is_told_where_the_first_one_went(side: Side) -> None:
    key, other = await side.session(), await side.session()
    said = side.said("once")
    assert await side.a.inputs.journal(key, said) == Journaled(said, key, "local", fresh=True)
    assert await side.b.inputs.journal(key, said) == Journaled(said, key, "local", fresh=False)
    assert await side.b.inputs.journal(other, said) == Journaled(said, key, "local", fresh=False)  # H35
    assert said not in await side.a.inputs.unaccepted(other)


@pytest.mark.rule("I9")
async def test_of_many_at_once_one_is_the_first(side: Side) -> None:
    key = await side.session()
    said = side.said("once")
    answers = await asyncio.gather(*(process.inputs.journal(key, said) for process in [side.a, side.b] * 8))
    assert sorted(answer.fresh for answer in answers) == [False] * 15 + [True]
    assert [one for one in await side.a.inputs.unaccepted(key) if one.id == said.id] == [said]


async def test_a_recall_finds_what_was_said(side: Side) -> None:
    key = await side.session()
    said = side.said("taken back")
    await side.a.inputs.journal(key, said)
    assert await side.b.inputs.recall(said.id) == key
    assert said in await side.a.inputs.unaccepted(key)  # its Session is told, and decides


@pytest.mark.rule("I9")
async def test_what_is_recalled_before_it_comes_is_never_taken(side: Side) -> None:
    """H43: by neither way in, however often either comes; and nothing is left lying."""
    key = await side.session()
    before = await side.a.inputs.lying(older_than=-1)
    late, first = side.said("too late"), side.said("a first one")
    for one in (late, first):
        assert await side.a.inputs.recall(one.id) is None
        assert await side.b.inputs.recall(one.id) is None
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await side.b.inputs.journal(key, late)
        assert refused.value.key == "recalled"
        with pytest.raises(Refused) as refused:
            await side.launch(first)
        assert refused.value.key == "recalled"
    assert await side.a.inputs.lying(older_than=-1) == before


async def test_a_message_and_its_recall_at_once_have_one_outcome(side: Side) -> None:
    key = await side.session()
    for number in range(20):
        said = side.said(f"number {number}")
        taken, found = await asyncio.gather(
            side.a.inputs.journal(key, said), side.b.inputs.recall(said.id), return_exceptions=True
        )
        assert (isinstance(taken, Journaled), found) in ((True, key), (False, None))


async def test_an_accepted_input_stays_known(side: Side) -> None:
    first = await side.launch()
    owner = await side.a.timeline.open(first.session, "a|1", worker="a", young=False)
    assert owner
    events = (InputAccepted(first.said),)  # type: ignore[arg-type]
    accept = Append(events, fold(events), ((first.said.id, 1),))
    await side.a.timeline.append(first.session, owner.fence, accept)
    assert not (await side.b.inputs.journal(first.session, first.said)).fresh
    assert list(await side.a.inputs.unaccepted(first.session)) == []


@pytest.mark.rule("I5")
async def test_what_was_said_stays_known_with_its_text_and_its_fate(side: Side) -> None:
    first = await side.launch()
    waits, other = side.said("a second", TOPIC), await side.session()
    await side.a.inputs.journal(first.session, waits)
    stop = side.interrupt()
    await side.a.inputs.journal(first.session, stop)
    asked = (waits.id, InputId("cli:user_a:never-said"), stop.id, first.said.id)
    unaccepted = [Known(waits, first.session, None), Known(first.said, first.session, None)]  # type: ignore[arg-type]
    assert list(await side.b.inputs.known(asked)) == unaccepted
    assert list(await side.b.inputs.fates(first.session, Seq(0))) == []
    owner = await side.a.timeline.open(first.session, "a|1", worker="a", young=False)
    assert owner
    failed = SubmissionFailed((first.said.id,), FailReason.uncertain)
    begun = TurnStarted(TurnId(1), (waits.id,), Cause.input)
    events = (InputAccepted(first.said), failed, InputAccepted(waits), begun)  # type: ignore[arg-type]
    await side.a.timeline.append(
        first.session, owner.fence, Append(events, fold(events), ((first.said.id, 1), (waits.id, 3)))
    )
    accepted = [replace(one, seq=Seq(seq)) for one, seq in zip(unaccepted, (3, 1), strict=True)]
    assert list(await side.b.inputs.known(asked)) == accepted
    assert list(await side.b.inputs.fates(first.session, Seq(0))) == [failed, begun]
    assert list(await side.b.inputs.fates(first.session, Seq(2))) == [begun]
    assert list(await side.b.inputs.fates(other, Seq(0))) == []


async def test_the_journal_keeps_its_order(side: Side) -> None:
    first = await side.launch()
    said = [side.said(f"number {n}") for n in range(40)]
    for one in said[:3]:
        await side.a.inputs.journal(first.session, one)
    await asyncio.gather(*(side.a.inputs.journal(first.session, one) for one in said[3:]))
    assert list(await side.b.inputs.unaccepted(first.session)) == [first.said, *said]


async def test_an_interrupt_names_the_turn_that_runs(side: Side) -> None:
    key = await side.session()
    owner = await side.a.timeline.open(key, "a|1", worker="a", young=False)
    assert owner
    early = side.interrupt()
    assert (await side.a.inputs.journal(key, early)).said == early  # nothing runs, so it names nothing
    events = (TurnStarted(TurnId(7), (), Cause.input),)
    await side.a.timeline.append(key, owner.fence, Append(events, fold(events)))
    late, named = side.interrupt(), side.interrupt(5)
    assert (await side.a.inputs.journal(key, late)).said == replace(late, turn=TurnId(7))
    assert (await side.a.inputs.journal(key, named)).said == named
    interrupts = [said for said in await side.a.inputs.unaccepted(key) if isinstance(said, Interrupt)]
    assert interrupts == [early, replace(late, turn=TurnId(7)), named]


async def test_an_answer_comes_back_as_it_was(side: Side) -> None:
    key = await side.session()
    answer = Answer(InputId(side.said().id + "-a"), Principal("cli:user_a"), RequestId("r1"), Verdict.allow, "User A")
    assert (await side.a.inputs.journal(key, answer)).fresh
    assert answer in await side.a.inputs.unaccepted(key)


async def test_no_session_no_journal(side: Side) -> None:
    with pytest.raises(Refused, match="no such Session"):
        await side.a.inputs.journal(SessionKey(10**12), side.said())


async def test_what_lies_too_long_is_found(side: Side) -> None:
    first = await side.launch()
    assert first.session not in dict(await side.a.inputs.lying(older_than=60))
    await side.pass_time(0.02)
    assert dict(await side.a.inputs.lying(older_than=0.01))[first.session] == "local"


@pytest.mark.rule("B1")
async def test_a_session_comes_with_its_binding(side: Side) -> None:
    topic = side.ref().id
    binding = NewBinding(TOPIC, topic, 5)
    made = await side.launch(side.said(place=TOPIC), binding)
    (found,) = await side.a.bindings.find("cli_bot", "oc_group", [topic])
    assert found == Binding(found.id, replace(TOPIC, binding=found.id), topic, made.session, 5, None)
    assert made.said.authorization.place == found.place  # type: ignore[union-attr]
    assert list(await side.a.inputs.unaccepted(made.session)) == [made.said]


async def test_who_loses_the_topic_speaks_to_the_winners_session(side: Side) -> None:
    topic = side.ref().id
    launches = [side.launch(side.said(place=TOPIC), NewBinding(TOPIC, topic, 5)) for _ in range(6)]
    made = await asyncio.gather(*launches)
    assert len({one.session for one in made}) == 1
    assert all(one.fresh for one in made)
    (found,) = await side.a.bindings.find("cli_bot", "oc_group", [topic])
    assert {one.said.authorization.place for one in made} == {found.place}  # type: ignore[union-attr]
    journal = {said.id for said in await side.a.inputs.unaccepted(made[0].session)}
    assert journal == {one.said.id for one in made}


async def test_a_launch_asked_twice_makes_one_session(side: Side) -> None:
    said, topic = side.said(place=TOPIC), side.ref().id
    first = await side.launch(said, NewBinding(TOPIC, topic, 5))
    again = await side.launch(said, NewBinding(TOPIC, topic, 5))
    assert (again.session, again.fresh) == (first.session, False)


async def test_a_topic_has_other_names(side: Side) -> None:
    topic, other = side.ref().id, side.ref().id
    made = await side.launch(side.said(place=TOPIC), NewBinding(TOPIC, topic, 5))
    (found,) = await side.a.bindings.find("cli_bot", "oc_group", [topic])
    await side.a.bindings.alias(found.id, other)
    await side.a.bindings.alias(found.id, other)
    assert list(await side.b.bindings.find("cli_bot", "oc_group", [other, "omt_none"])) == [found]
    assert list(await side.b.bindings.find("cli_bot", "oc_else", [other, topic])) == []
    assert found.session == made.session
