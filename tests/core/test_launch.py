"""What a Session runs on, as the rules' own tables and their full cross product: at a new launch (S9), at a wake (S5 to S8)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product

import msgspec
import pytest

from amux.core.events import FailReason, Fresh
from amux.core.inputs import Permission
from amux.core.launch import (
    DEFAULT_PROFILE,
    NOTHING_ASKED,
    PLAIN,
    Asked,
    Extra,
    Installed,
    LaunchSnapshot,
    McpServer,
    Profile,
    Record,
    Resolved,
    Saved,
    Unlaunchable,
    new_launch,
    resolve,
    saved,
)

ASK, BYPASS = Permission.ask, Permission.bypass
BUILTIN = Profile(
    DEFAULT_PROFILE, instructions="today's text", engine="elsewhere", model="M9", effort="low", environment=("ELSE",)
)
HANDED = Fresh.engine_lost

# -- the rules' tables ------------------------------------------------------------------------------------------------

PROFILES: dict[tuple[str | None, str | None, bool], str] = {  # record, snapshot, builtin/default is registered (S6)
    ("team/a", "team/b", True): "team/a",
    ("team/a", "team/b", False): "team/a",
    ("team/a", None, True): "team/a",
    ("team/a", None, False): "team/a",
    (None, "team/b", True): "team/b",
    (None, "team/b", False): "team/b",
    (None, None, True): DEFAULT_PROFILE,
    (None, None, False): PLAIN.id,
}
ENGINES: dict[tuple[str | None, str | None], tuple[str, Fresh | None]] = {  # record, snapshot: engine, fresh (S6, S8)
    ("codex", "claude"): ("codex", None),
    ("codex", None): ("codex", None),
    (None, "claude"): ("claude", None),
    (None, None): ("scripted", HANDED),
}
PERMISSIONS: dict[Permission | None, Permission] = {BYPASS: BYPASS, ASK: ASK, None: ASK}  # S6: lost, so it asks
ALL_ENGINES = ("codex", "claude", "scripted")
SOME_ENGINES = [frozenset(some) for n in range(4) for some in combinations(ALL_ENGINES, n)]
SETTINGS = list(product(("M1", None), ("high", None), ("/w1", None), PERMISSIONS, ("frozen text", None)))
NAMES, SERVERS = (
    ("A_TOKEN",),
    (McpServer("owl", ("hoot", "now"), "", ("OWL_KEY",)), McpServer("far", url="https://h/mcp")),
)
GIVEN = list(product((NAMES, ()), (SERVERS, ())))  # lost, or of before there were any: none
ALL_EXTRAS = frozenset(Extra)
SOME_EXTRAS = [frozenset(some) for n in range(3) for some in combinations(Extra, n)]
BEYOND = {Extra.environment: "environment variables (A_TOKEN)", Extra.mcp: "MCP servers (owl, far)"}


def installed(
    *, builtin: bool, engines: frozenset[str] = frozenset(ALL_ENGINES), extras: frozenset[Extra] = ALL_EXTRAS
) -> Installed:
    return Installed(engines, "scripted", {BUILTIN.id: BUILTIN} if builtin else {}, dict.fromkeys(engines, extras))


def every_case() -> Iterator[tuple[Record, Saved, Installed, Resolved | str]]:
    """The full cross product of what may be lost or gone; a word stands for the refusal that names it."""
    identities = product(PROFILES.items(), ENGINES.items())
    for lost, engines, kept, given, extras in product(identities, SOME_ENGINES, SETTINGS, GIVEN, SOME_EXTRAS):
        ((rp, sp, builtin), profile), ((re, se), (engine, fresh)) = lost
        model, effort, workspace, permission, text = kept
        expected: Resolved | str
        if engine not in engines:
            expected = engine
        elif workspace is None:
            expected = "workspace"
        elif beyond := next((b for b, what in zip(BEYOND, given, strict=True) if what and b not in extras), None):
            expected = BEYOND[beyond]
        else:
            said = text or (BUILTIN.instructions if profile == BUILTIN.id else "")
            launch = LaunchSnapshot(engine, workspace, profile, model, effort, PERMISSIONS[permission], said, *given)
            expected = Resolved(launch, Record(profile, engine), fresh)
        left = Saved(sp, se, workspace, model, effort, permission, text, *given)
        yield Record(rp, re), left, installed(builtin=builtin, engines=engines, extras=extras), expected


@pytest.mark.rule("S5", "S6", "S7", "S8", "A10")
def test_every_combination() -> None:
    seen = 0
    for seen, (record, left, today, expected) in enumerate(every_case(), 1):  # noqa: B007 - counted
        got = resolve(record, left, today)
        if isinstance(expected, str):
            assert isinstance(got, Unlaunchable), (record, left, today)
            assert expected in got.detail
            why = FailReason.engine_unavailable if expected in ALL_ENGINES else FailReason.open_failed
            assert got.reason is why
        else:
            assert got == expected, (record, left, today)
    assert seen == 8 * 4 * 8 * 2 * 2 * 2 * 3 * 2 * 4 * 4


WHOLE = Saved("team/a", "codex", "/w1", "M1", "high", ASK, "frozen text")


def run(record: Record, left: Saved, today: Installed) -> Resolved:
    got = resolve(record, left, today)
    assert isinstance(got, Resolved)
    return got


@pytest.mark.rule("S5", "S9")
@pytest.mark.parametrize("permission", Permission)
def test_what_is_recorded_outranks_todays_defaults(permission: Permission) -> None:
    left = Saved("team/a", "codex", "/w1", "M1", "high", permission, "frozen text", NAMES, SERVERS)
    edited = Profile("team/a", "", "edited", "claude", "M2", "low", ("OTHER",), (McpServer("cat", ("purr",)),))
    profiles = {"team/a": edited, BUILTIN.id: BUILTIN}
    today = Installed(frozenset(ALL_ENGINES), "claude", profiles, {"codex": ALL_EXTRAS})
    launch = LaunchSnapshot("codex", "/w1", "team/a", "M1", "high", permission, "frozen text", NAMES, SERVERS)
    assert resolve(Record("team/a", "codex"), left, today) == Resolved(launch, Record("team/a", "codex"))


@pytest.mark.rule("S5", "S6")
@pytest.mark.parametrize("model", ["M1", None])
def test_a_profile_that_is_fallen_back_to_brings_no_model(model: str | None) -> None:
    got = run(Record(None, "codex"), Saved(None, "codex", "/w1", model, permission=ASK), installed(builtin=True))
    assert (got.record.profile, got.launch.model, got.launch.effort) == (DEFAULT_PROFILE, model, None)


@pytest.mark.rule("S2", "S6")
@pytest.mark.parametrize("registered", [("OTHER", "MORE"), ()], ids=["edited", "emptied"])
def test_a_snapshot_of_before_has_no_environment_and_no_servers_and_gets_none(registered: tuple[str, ...]) -> None:
    old = msgspec.json.decode(b'{"engine":"codex","workspace":"/w1","profile":"team/a"}', type=Saved)
    edited = Profile("team/a", environment=registered, mcp=SERVERS)
    today = Installed(frozenset({"codex"}), "codex", {"team/a": edited}, {"codex": ALL_EXTRAS})
    got = run(Record("team/a", "codex"), old, today)
    assert (got.launch.environment, got.launch.mcp) == ((), ())


@pytest.mark.rule("S2")
def test_what_is_recorded_is_read_as_it_was_written() -> None:
    launch = LaunchSnapshot("codex", "/w", "team/a", "M1", "high", BYPASS, "Be brief.", NAMES, SERVERS)
    written = msgspec.json.encode(launch)
    assert msgspec.json.decode(written, type=Saved) == saved(launch)
    assert msgspec.json.decode(written, type=LaunchSnapshot) == launch


@pytest.mark.rule("A10")
def test_all_that_an_engine_lacks_is_named_at_once() -> None:
    lacking = replace(installed(builtin=True), extras={})
    got = resolve(Record(None, "codex"), Saved(workspace="/w1", environment=NAMES, mcp=SERVERS), lacking)
    detail = (
        "This Session has environment variables (A_TOKEN) and MCP servers (owl, far), which codex gives no agent. "
        "Start a new Session on another engine."
    )
    assert got == Unlaunchable("codex", FailReason.open_failed, detail)


@pytest.mark.rule("S6")
def test_a_lost_profile_does_not_stop_native_resume() -> None:
    assert run(Record(None, "codex"), Saved(workspace="/w1"), installed(builtin=True)).fresh is None


@pytest.mark.rule("S6")
def test_neither_identity_changes_the_other() -> None:
    every = product(PROFILES.items(), ENGINES.items())
    for ((rp, sp, builtin), profile), ((re, se), (engine, fresh)) in every:
        got = run(Record(rp, re), Saved(sp, se, "/w1"), installed(builtin=builtin))
        assert (got.record, got.fresh) == (Record(profile, engine), fresh)


@pytest.mark.rule("S6")
def test_the_bypass_of_a_shortcut_is_not_inherited() -> None:
    """Profile, engine and permission settings are lost: the asking mode. The setting still recorded: it stays."""
    assert run(Record(), Saved(workspace="/w1"), installed(builtin=True)).launch.permission is ASK
    kept = Saved(workspace="/w1", permission=BYPASS)
    assert run(Record(), kept, installed(builtin=True)).launch.permission is BYPASS


@pytest.mark.rule("S7")
@pytest.mark.parametrize(("record", "left"), [("codex", "claude"), ("codex", None), (None, "codex")])
def test_a_missing_engine_is_named_and_never_replaced(record: str | None, left: str | None) -> None:
    today = installed(builtin=True, engines=frozenset({"claude", "scripted"}))
    got = resolve(Record("team/a", record), Saved("team/a", left, "/w1"), today)
    assert got == Unlaunchable(
        "codex",
        FailReason.engine_unavailable,
        "This Session runs on codex, which is not here. Install it again, or start a new Session on another engine.",
    )


@pytest.mark.rule("S8")
def test_an_engine_lost_from_both_is_chosen_once_and_recorded() -> None:
    first = run(Record("team/a"), Saved("team/a", None, "/w1"), installed(builtin=True))
    assert (first.record, first.fresh) == (Record("team/a", "scripted"), HANDED)
    again = run(first.record, Saved("team/a", None, "/w1"), Installed(frozenset(ALL_ENGINES), "claude", {}, {}))
    assert (again.launch.engine, again.fresh) == ("scripted", None)


# -- a new launch -----------------------------------------------------------------------------------------------------

EXPERTS = {
    "builtin": Profile(DEFAULT_PROFILE),
    "of a person": Profile("mine/a", instructions="Be brief."),
    "of a project": Profile("team/b", engine="claude", model="M3", effort="max"),
    "asks for prompts": Profile("team/c", instructions="Ask for permission before every tool. permission = ask"),
}


@pytest.mark.rule("S9")
@pytest.mark.parametrize("given", [None, *Permission])
@pytest.mark.parametrize("preset", [None, *Permission])
@pytest.mark.parametrize("profile", EXPERTS.values(), ids=EXPERTS)
def test_bypass_unless_permission_arguments_were_given(
    profile: Profile, preset: Permission | None, given: Permission | None
) -> None:
    shortcut = Asked(permission=preset)
    asked = Asked(permission=given)
    launch = new_launch(profile, asked, engine="codex", workspace="/w", preset=shortcut)
    assert launch.permission is (given or preset or BYPASS)


@pytest.mark.rule("S2", "S9")
@pytest.mark.parametrize("who", list(chain.from_iterable(combinations("apd", n) for n in range(4))), ids="".join)
@pytest.mark.parametrize("setting", ["engine", "model", "effort"])
def test_what_is_said_outranks_the_shortcut_and_that_the_profile(setting: str, who: tuple[str, ...]) -> None:
    """Of asked (a), preset (p) and the profile's default (d), the first that says something."""
    asked, preset = (Asked(**{setting: by}) if by in who else NOTHING_ASKED for by in "ap")  # type: ignore[arg-type]
    profile = Profile("team/a", **({setting: "d"} if "d" in who else {}))  # type: ignore[arg-type]
    launch = new_launch(profile, asked, engine="codex", workspace="/w", preset=preset)
    assert getattr(launch, setting) == (who[0] if who else "codex" if setting == "engine" else None)


@pytest.mark.rule("S2")
def test_the_snapshot_holds_what_its_profile_says() -> None:
    profile = Profile("team/a", "Title", "Be brief.", "codex", "M1", "high", NAMES, SERVERS)
    launch = new_launch(profile, NOTHING_ASKED, engine="scripted", workspace="/w")
    assert launch == LaunchSnapshot("codex", "/w", "team/a", "M1", "high", BYPASS, "Be brief.", NAMES, SERVERS)
    elsewhere = new_launch(profile, Asked(engine="claude"), engine="scripted", workspace="/w")
    assert (elsewhere.environment, elsewhere.mcp) == (NAMES, SERVERS)


@pytest.mark.rule("S2")
def test_a_model_of_one_engine_is_not_asked_of_another() -> None:
    profile = Profile("team/a", instructions="Be brief.", engine="codex", model="M1", effort="high")
    launch = new_launch(profile, Asked(engine="claude"), engine="scripted", workspace="/w")
    assert launch == LaunchSnapshot("claude", "/w", "team/a", instructions="Be brief.")
    preset = Asked("codex", "M1", "high", ASK)
    launch = new_launch(Profile("team/a"), Asked(engine="claude"), engine="scripted", workspace="/w", preset=preset)
    assert launch == LaunchSnapshot("claude", "/w", "team/a", permission=ASK)
