"""`queue` from a terminal, on the real house: listed, cancelled, put first, each by its number."""

import json

import pytest

from amux.core import events as e
from amux.core.ids import InputId, Principal
from amux.core.inputs import ContextAction, ContextWish
from tests.whole import House, cli

pytestmark = pytest.mark.real
WISH = ContextWish(InputId("cli:user_a:clear-of-the-queue"), Principal("cli:user_a"), ContextAction.clear, "User A")


@pytest.mark.rule("I4", "T1")
async def test_what_waits_is_listed_cancelled_and_put_first(house: House) -> None:
    begun = await house.cli("run", "!hang", "--detach")
    session = await house.session(begun.out.strip())
    await house.told(session, e.TurnStarted)
    id_, other = session.ref.id, {**house.env, "LOGNAME": "user_b"}
    assert (await house.cli("queue", id_)).out == "Nothing waits.\n"
    for text in ("!say first", "!say second", "!say third"):
        assert (await cli(other, "send", id_, text)).code == 0
    waits = ["  1  user_b: !say first", "  2  user_b: !say second", "  3  user_b: !say third"]
    assert (await house.cli("queue", id_)).lines == waits
    assert (await house.cli("queue", id_, "cancel", "2")).out == "Cancelled. It will not run.\n"
    assert (await house.cli("queue", id_, "first", "2")).out == "It is the next one now.\n"
    again = await house.cli("queue", id_, "first", "1")
    assert (again.code, again.err) == (1, "It is the next one already.\n")
    rows = [json.loads(line) for line in (await house.cli("queue", id_, "--json")).lines]
    assert [(row["number"], row["by"], row["text"]) for row in rows] == [
        (1, "user_b", "!say third"),
        (2, "user_b", "!say first"),
    ]
    none = await house.cli("queue", id_, "cancel", "9")
    assert (none.code, none.err) == (1, f"2 wait, so there is no number 9. `amux queue {id_}` lists them.\n")
    await house.parts.submit.to(session.key, WISH)
    await house.told(session, e.ContextQueued)
    assert (await house.cli("queue", id_)).lines[2:] == ["  3  User A: [clear]"]
    for do in ("cancel", "first"):
        kept = await house.cli("queue", id_, do, "3")
        assert (kept.code, kept.err) == (1, "Number 3 is a clear: it keeps its place and cannot be taken back.\n")
    assert (await house.cli("archive", id_)).code == 0


async def test_a_number_is_needed_to_do_something(house: House) -> None:
    said = await house.cli("queue", "7k3", "cancel")
    assert (said.code, said.err) == (1, "Say which one, by its number in the list: amux queue 7k3 cancel 2\n")
