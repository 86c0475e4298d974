"""Experts and shortcuts from a terminal: what there is, what is wrong with a Pack, and what a launch records of them."""

import json
from pathlib import Path

import pytest

from amux import wiring
from amux.core.errors import Refused
from amux.core.ids import SessionId, SessionRef
from amux.core.inputs import Permission
from amux.core.launch import Asked, LaunchSnapshot
from amux.packs import loader
from amux.packs.loader import PROJECT
from amux.settings import load
from tests.whole import cli

REF = SessionRef("local", SessionId("7k3m"))
PACK = {
    "reviewer.toml": 'title = "Reads a change"\nengine = "codex"\nmodel = "m1"\ninstructions = "Be brief."\n',
    "careful.md": '+++\ntitle = "Asks"\n+++\nAsk before every tool: use permission = "ask".\n',
    "keeper.toml": """\
environment = ["GH_TOKEN"]
[mcp.owl]
command = ["owl-server", "a b"]
environment = ["OWL_KEY"]
[mcp.far]
url = "https://h/mcp"
""",
    "shortcuts.toml": '[quick]\nexpert = "team/reviewer"\neffort = "low"\npermission = "bypass"\n',
}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home with a Pack, and a project that brings one too."""
    for parent in (tmp_path / "home" / "packs" / "team", tmp_path / "work" / PROJECT / "here"):
        parent.mkdir(parents=True)
        for name, text in PACK.items():
            (parent / name).write_text(text)
    (tmp_path / "work" / PROJECT / "here" / "keeper.toml").unlink()  # no project's Pack may
    return {"AMUX_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "GH_TOKEN": "for-nobody-to-see"}


@pytest.mark.rule("S2")
async def test_ls_names_them_and_what_is_wrong(env: dict[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "home" / "packs" / "wrong" / "a.toml"
    bad.parent.mkdir()
    bad.write_text('title = "x"\nmodle = "m"\n')
    said = await cli(env, "expert", "ls")
    assert (said.code, said.err) == (
        0,
        f"{bad}:2: there is no key modle; write model; the Pack wrong is left out\n",
    )
    assert said.lines == [
        "ID               KIND      FROM     TITLE",
        "builtin/default  expert    builtin  The agent as it comes",
        "team/careful     expert    user     Asks",
        "team/keeper      expert    user",
        "team/reviewer    expert    user     Reads a change",
        "team/quick       shortcut  user",
    ]
    listed = await cli(env, "expert", "ls", "--workspace", str(tmp_path / "work"), "--json")
    rows = [json.loads(line) for line in listed.lines]
    assert [row["id"] for row in rows if row["from"] == "project"] == ["here/careful", "here/reviewer", "here/quick"]


async def test_show(env: dict[str, str]) -> None:
    said = await cli(env, "expert", "show", "team/reviewer")
    assert (said.code, said.lines[0], said.lines[-1]) == (0, "id           team/reviewer", "Be brief.")
    said = await cli(env, "expert", "show", "team/quick", "--json")
    assert json.loads(said.out) == {
        "id": "team/quick",
        "kind": "shortcut",
        "from": "user",
        "title": "",
        "engine": "",
        "model": "",
        "effort": "low",
        "expert": "team/reviewer",
        "permission": "bypass",
    }
    said = await cli(env, "expert", "show", "team/keeper")
    assert [line for line in said.lines if line.startswith(("environment", "mcp"))] == [
        "environment  GH_TOKEN",
        "mcp          owl: owl-server 'a b' (given OWL_KEY)",
        "mcp          far: https://h/mcp",
    ]
    assert "for-nobody-to-see" not in said.out
    said = await cli(env, "expert", "show", "team/reviewr")
    assert (said.code, said.err) == (1, "There is no expert team/reviewr. Did you mean team/reviewer?\n")


@pytest.mark.rule("S2")
async def test_run_with_an_unknown_expert_makes_nothing(env: dict[str, str], tmp_path: Path) -> None:
    servers = {"AMUX_POSTGRES_URL": "postgresql://nobody@127.0.0.1:1/none", "AMUX_REDIS_URL": "redis://127.0.0.1:1/0"}
    said = await cli({**env, **servers}, "run", "hello", "--expert", "team/nobody")
    assert (said.code, said.out) == (1, "")
    assert said.err == "There is no expert team/nobody. `amux expert ls` shows what there is.\n"
    assert not (tmp_path / "home" / "workspaces").exists()


@pytest.mark.rule("S2", "S9")
def test_a_shortcut_brings_its_settings_and_gives_way_to_what_is_said(env: dict[str, str], tmp_path: Path) -> None:
    settings = load({**env, "AMUX_WORKSPACE": str(tmp_path / "work")})
    work = str(tmp_path / "work")
    quick = wiring.launch_settings(settings, REF, shortcut="team/quick")
    assert quick == LaunchSnapshot("codex", work, "team/reviewer", "m1", "low", Permission.bypass, "Be brief.")
    asked = Asked(model="m2", permission=Permission.ask)
    other = wiring.launch_settings(settings, REF, asked, expert="team/careful", shortcut="team/quick")
    text = 'Ask before every tool: use permission = "ask".'
    assert other == LaunchSnapshot("scripted", work, "team/careful", "m2", "low", Permission.ask, text)


@pytest.mark.rule("S2")
def test_a_pack_that_is_gone_launches_nothing_new(env: dict[str, str], tmp_path: Path) -> None:
    settings = load(env)
    before = wiring.launch_settings(settings, REF, expert="team/careful")
    (tmp_path / "home" / "packs" / "team").rename(tmp_path / "elsewhere")
    assert before.instructions.startswith("Ask before")
    with pytest.raises(Refused, match="There is no expert team/careful"):
        wiring.launch_settings(settings, REF, expert="team/careful")


@pytest.mark.rule("S6")
def test_without_the_builtin_pack_a_launch_still_has_the_distributions_own(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "BUILTIN", tmp_path / "none")
    assert wiring.launch_settings(load(env), REF).profile == "builtin/plain"
