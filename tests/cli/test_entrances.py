"""What a launch records, by the entrance, the expert, and whether permission arguments came with it (S9.a): real rows."""

from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest

from amux import wiring
from amux.core.admission import Access
from amux.core.ids import InputId, Principal
from amux.core.inputs import Permission
from amux.core.launch import Record
from amux.core.routing import Message
from amux.packs.loader import PROJECT
from amux.ports import Journaled, Session
from amux.settings import load
from tests.whole import cli

pytestmark = pytest.mark.real

PROMPTS = 'instructions = "Ask for permission before every tool. permission = ask"\n'


@pytest.fixture
def env(tmp_path: Path, postgres_url: str, redis_url: str) -> dict[str, str]:
    """Servers, nobody who works, and a Pack of a person and one of a project."""
    for parent, name in ((tmp_path / "packs", "mine"), (tmp_path / "work" / PROJECT, "theirs")):
        (parent / name).mkdir(parents=True)
        (parent / name / "plain.toml").write_text('title = "plain"\n')
        (parent / name / "careful.toml").write_text(PROMPTS)
    servers = {"AMUX_POSTGRES_URL": postgres_url, "AMUX_REDIS_URL": redis_url}
    return {"AMUX_HOME": str(tmp_path), "AMUX_WORKSPACE": str(tmp_path / "work"), **servers}


async def by_terminal(env: dict[str, str], expert: str | None, given: Permission | None) -> Session:
    words = [*(["--expert", expert] if expert else []), *(["--permission", given] if given else [])]
    said = await cli(env, "run", "hello", "--detach", *words)
    assert (said.code, said.err) == (0, "")
    async with wiring.stores(load(env)) as parts:
        return await parts.sessions.find(said.out.strip())


async def by_feishu(env: dict[str, str], expert: str | None, given: Permission | None) -> Session:
    """A mention in a group, which can name neither."""
    assert (expert, given) == (None, None)
    settings = load(env)
    said = Message(
        id=InputId("feishu:cli_bot:om_1"),
        app="cli_bot",
        chat="oc_group",
        topics=("om_1",),
        text="hello",
        sender=Principal("feishu:cli_bot:ou_a"),
        sent_at=100,
        mentions_bot=True,
    )
    async with wiring.stores(settings) as parts:
        journaled = await wiring.receiver(settings, parts, Access()).message(said)
        assert isinstance(journaled, Journaled)
        found = await parts.sessions.list(label=None, target=None, limit=100)
        return next(one for one in found if one.key == journaled.session)


Enter = Callable[[dict[str, str], str | None, Permission | None], Awaitable[Session]]
EXPERTS = (None, "builtin/default", "mine/plain", "mine/careful", "theirs/plain", "theirs/careful")
CASES: list[tuple[Enter, str | None, Permission | None]] = [
    *((by_terminal, expert, given) for expert, given in product(EXPERTS, (None, *Permission))),
    (by_feishu, None, None),
]


@pytest.mark.rule("S9", "S2")
@pytest.mark.parametrize(("enter", "expert", "given"), CASES)
async def test_bypass_is_recorded_unless_permission_arguments_were_given(
    env: dict[str, str], tmp_path: Path, enter: Enter, expert: str | None, given: Permission | None
) -> None:
    session = await enter(env, expert, given)
    assert session.saved.permission is (given or Permission.bypass)
    assert session.record == Record(expert or "builtin/default", "scripted")
    assert session.saved.instructions == (PROMPTS[16:-2] if expert and expert.endswith("careful") else "")
    assert session.saved.workspace == str(tmp_path / "work")
