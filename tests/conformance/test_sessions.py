"""People name a Session by any unambiguous beginning of its id."""

import pytest

from amux.core.errors import Refused
from amux.core.events import Label
from amux.core.inputs import Permission
from amux.core.launch import LaunchSnapshot, Record, saved
from amux.ports import Draft
from tests.conformance.sides import Side

LAUNCH = LaunchSnapshot("fake", "/w 长", "team/a", "m", "high", Permission.ask, 'Say "hello".\n长')
RECORD = Record("team/a", "fake")


@pytest.mark.rule("S1", "S9")
async def test_a_session_is_found_by_its_beginning(side: Side) -> None:
    ref = side.ref("aa")
    made = await side.a.inputs.launch(Draft(ref, LAUNCH, "title"), side.said(), None)
    for prefix in (ref.id, ref.id[:-1], str(ref), f"local/{ref.id[:-2]}"):
        found = await side.b.sessions.find(prefix)
        assert (found.key, found.ref, found.title) == (made.session, ref, "title")
        assert (found.record, found.saved, found.label) == (RECORD, saved(LAUNCH), Label.created)


@pytest.mark.parametrize("prefix", ["", "nobody", "local/", "elsewhere/bb", "%", "_", "\\", "b'b", "x\0"])
async def test_no_such_session(side: Side, prefix: str) -> None:
    await side.session("bb")
    with pytest.raises(Refused, match="no such Session"):
        await side.a.sessions.find(prefix)


async def test_an_ambiguous_beginning_lists_them(side: Side) -> None:
    refs = [(await side.a.sessions.find(f"cc{n}")).ref for n in (1, 2) if await side.session(f"cc{n}")]
    with pytest.raises(Refused, match="several Sessions") as refused:
        await side.a.sessions.find("cc")
    assert all(str(ref) in str(refused.value) for ref in refs)


async def test_the_newest_come_first(side: Side) -> None:
    keys = [await side.session() for _ in range(3)]
    assert [s.key for s in await side.a.sessions.list(label=None, target=None, limit=2)] == [keys[2], keys[1]]
    assert [s.key for s in await side.a.sessions.list(label=Label.created, target="local", limit=1)] == [keys[2]]
    assert list(await side.a.sessions.list(label=Label.archived, target=None, limit=9)) == []
    assert list(await side.a.sessions.list(label=None, target="elsewhere", limit=9)) == []
