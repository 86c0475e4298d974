"""The journal when Postgres misbehaves: nothing that was promised is lost, nothing is doubled."""

import asyncio

import pytest

from amux.core.errors import Broken, Unavailable, Uncertain
from amux.core.ids import BindingId, InputId
from amux.core.inputs import Place
from amux.ports import Journaled, NewBinding
from tests.conformance.sides import Side
from tests.stores.conftest import Far

pytestmark = pytest.mark.real
TOPIC = Place(BindingId(0), "cli_bot", "oc_group", "omt_topic")


async def test_a_lost_answer_is_asked_again(side: Side, far: Far) -> None:
    key, said = await side.session(), side.said()
    far.postgres.swallow()
    assert await far.process.inputs.journal(key, said) == Journaled(said, key, "local", fresh=False)  # the sweep knocks
    assert [one for one in await side.a.inputs.unaccepted(key) if one.id == said.id] == [said]


async def test_a_launch_whose_answer_was_lost_is_known_as_ours(side: Side, far: Far) -> None:
    topic = side.ref().id
    far.postgres.swallow(after=1)  # the Binding's number comes, the launch's answer does not
    made = await Side(far.process, side.b, side.wipe, side.pass_time).launch(
        side.said(place=TOPIC), NewBinding(TOPIC, topic, 5)
    )
    assert made.fresh
    (found,) = await side.a.bindings.find("cli_bot", "oc_group", [topic])
    assert found.session == made.session
    assert made.said.authorization.place == found.place  # type: ignore[union-attr]


async def test_postgres_away_takes_nothing(side: Side, far: Far) -> None:
    key, said = await side.session(), side.said()
    far.postgres.go_away()
    with pytest.raises(Unavailable, match="nothing was taken"):
        await far.process.inputs.journal(key, said)
    far.postgres.away = False
    assert (await far.process.inputs.journal(key, said)).fresh


async def test_postgres_gone_after_it_was_asked_is_uncertain(side: Side, far: Far) -> None:
    key, said = await side.session(), side.said()
    await far.process.inputs.unaccepted(key)
    far.postgres.swallow()
    far.postgres.away = True  # this connection answers no more, and there is no other
    with pytest.raises(Uncertain, match="again is safe"):
        await far.process.inputs.journal(key, said)
    far.postgres.away = False
    await far.process.inputs.journal(key, said)
    assert [one for one in await side.a.inputs.unaccepted(key) if one.id == said.id] == [said]


async def test_one_bad_line_of_ten_is_refused_alone(side: Side) -> None:
    key = await side.session()
    lines = [side.said() for _ in range(9)]
    bad = side.said(name="nul\0")
    answers = await asyncio.gather(*(side.a.inputs.journal(key, one) for one in [*lines, bad]), return_exceptions=True)
    assert isinstance(answers.pop(), Broken)
    assert all(getattr(answer, "fresh", False) for answer in answers)


async def test_a_text_of_any_kind_comes_back(side: Side) -> None:
    key = await side.session()
    texts = ['"\\{},\n\t', "\x1e\x1f\x7f", "中文 🙂", "'; drop table inputs; --", "x" * 200_000]
    said = [side.said(text) for text in texts]
    await asyncio.gather(*(side.a.inputs.journal(key, one) for one in said))
    assert list(await side.b.inputs.unaccepted(key))[1:] == said
    odd = side.said(name='"quoted, {and} \\ braced"')
    assert (await side.a.inputs.journal(key, odd)).fresh
    assert not (await side.b.inputs.journal(key, odd)).fresh
    assert InputId(odd.id) in {one.id for one in await side.b.inputs.unaccepted(key)}
