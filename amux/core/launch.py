"""What a Session runs on: frozen once at its launch (S2, S9), and settled anew from what is left of that whenever it is
restarted or woken (S5 to S8).

Pure. It looks for no engine and reads no Pack: it is told what there is today. It never puts anything in the place of a
setting that is still recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from amux.core.events import FailReason, Fresh
from amux.core.inputs import Permission

DEFAULT_PROFILE = "builtin/default"
# Variables that begin so hold amux's own settings and the way into its database and its Redis: no agent is given one.
PRIVATE = ("AMUX_", "PG", "POSTGRES", "REDIS")


class Extra(StrEnum):
    """What a launch may bring that not every engine can give its agents. One that cannot says so (A10)."""

    environment = "environment"
    mcp = "mcp"


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server whose tools the agent has: a program that it starts by `command`, or one that it reaches at `url`.

    `environment` names what a program is given of the worker's variables. A value is looked up when the agent is
    started, and recorded nowhere."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    environment: tuple[str, ...] = ()


class WorkspaceUse(StrEnum):
    """How a Session works in its workspace. Two agents never write one at a time unless both may."""

    alone = "alone"
    shared = "shared"  # beside others that may too
    worktree = "worktree"  # in a git worktree of it that is the Session's own


@dataclass(frozen=True, slots=True)
class LaunchSnapshot:
    """How a Session runs, for as long as it lives. None for model or effort: what the engine takes by itself.

    `instructions`, `environment` and `mcp` are the profile's own as they stood at the launch: the Pack may be edited or
    deleted (S2). `environment` names the variables of the worker's that the agent is given; it holds no value."""

    engine: str
    workspace: str
    profile: str = DEFAULT_PROFILE
    model: str | None = None
    effort: str | None = None
    permission: Permission = Permission.bypass
    instructions: str = ""
    environment: tuple[str, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    use: WorkspaceUse = WorkspaceUse.alone


@dataclass(frozen=True, slots=True)
class Profile:
    """An Agent Profile, for people an "expert" (S2). It has no permission setting: that belongs to a launch (S9)."""

    id: str
    title: str = ""
    instructions: str = ""
    engine: str | None = None
    model: str | None = None
    effort: str | None = None
    environment: tuple[str, ...] = ()
    mcp: tuple[McpServer, ...] = ()


# The distribution's default builtin profile (S6): a part of the code, so that it is there whatever became of the Packs.
PLAIN = Profile("builtin/plain", "The agent as it comes")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was said with a launch, or by a shortcut in its place. None: nothing."""

    engine: str | None = None
    model: str | None = None
    effort: str | None = None
    permission: Permission | None = None


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A named launch preset. A permission bypass that it carries is valid for its own launches only (S6)."""

    id: str
    title: str = ""
    profile: str = DEFAULT_PROFILE
    asked: Asked = Asked()


NOTHING_ASKED = Asked()


def new_launch(
    profile: Profile,
    asked: Asked,
    *,
    engine: str,
    workspace: str,
    use: WorkspaceUse = WorkspaceUse.alone,
    preset: Asked = NOTHING_ASKED,
) -> LaunchSnapshot:
    """What a new Session records: what was asked for, else the shortcut's `preset`, else the profile's, else `engine`.

    Bypass unless permission arguments were given with this launch, whatever the entrance and the profile (S9)."""
    chosen = asked.engine or preset.engine or profile.engine or engine
    # a model is one of its engine's: it is not asked of another
    meant = preset if preset.engine in (None, chosen) else NOTHING_ASKED
    ours = profile if profile.engine in (None, chosen) else PLAIN
    return LaunchSnapshot(
        engine=chosen,
        workspace=workspace,
        profile=profile.id,
        model=asked.model or meant.model or ours.model,
        effort=asked.effort or meant.effort or ours.effort,
        permission=asked.permission or preset.permission or Permission.bypass,
        instructions=profile.instructions,
        environment=profile.environment,
        mcp=profile.mcp,
        use=use,
    )


@dataclass(frozen=True, slots=True)
class Record:
    """The execution identity in the Session's row. None: it is lost, or older than these columns."""

    profile: str | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """What is left of a launch snapshot. None: lost, or for model and effort what the engine takes by itself.

    Environment and servers that are lost are none, as in the snapshots of before there were any."""

    profile: str | None = None
    engine: str | None = None
    workspace: str | None = None
    model: str | None = None
    effort: str | None = None
    permission: Permission | None = None
    instructions: str | None = None
    environment: tuple[str, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    use: WorkspaceUse | None = None


def saved(launch: LaunchSnapshot) -> Saved:
    """A snapshot of which nothing is lost."""
    return Saved(
        launch.profile,
        launch.engine,
        launch.workspace,
        launch.model,
        launch.effort,
        launch.permission,
        launch.instructions,
        launch.environment,
        launch.mcp,
        launch.use,
    )


@dataclass(frozen=True, slots=True)
class Installed:
    """What there is today: all engines, the default launch runtime among them or not, the registered profiles, and what
    each engine can give its agents."""

    engines: frozenset[str]
    engine: str
    profiles: Mapping[str, Profile]
    extras: Mapping[str, frozenset[Extra]]


@dataclass(frozen=True, slots=True)
class Resolved:
    """How it runs. `fresh`: its native history is not resumed for that reason, and a handoff is due (S8).
    `record` is the identity that it has from now on: to be written down where it differs from what stands there."""

    launch: LaunchSnapshot
    record: Record
    fresh: Fresh | None = None

    @property
    def engine(self) -> str:
        """Its engine's name."""
        return self.launch.engine


@dataclass(frozen=True, slots=True)
class Unlaunchable:
    """It cannot run on `engine`: what woke it fails with this reason, nothing is recorded. `detail` is for people."""

    engine: str
    reason: FailReason
    detail: str


def resolve(record: Record, saved: Saved, installed: Installed) -> Resolved | Unlaunchable:
    """What a Session runs on at a restart or a wake (S5 to S8). Profile and engine fall back independently.

    A fallback brings an identity and nothing else: no model, no effort, no permission, no environment, no server. Where
    the permission setting is lost, the agent asks; where it is lost whether it may work beside others, it may not (S6).
    An engine that is still named is never replaced (S7)."""
    profile = record.profile or saved.profile or _fallback(installed)
    named = record.engine or saved.engine
    engine = named or installed.engine
    if engine not in installed.engines:
        what = "This Session runs on" if named else "The engine of this Session is lost, and the default is"
        detail = f"{what} {engine}, which is not here. Install it again, or start a new Session on another engine."
        return Unlaunchable(engine, FailReason.engine_unavailable, detail)
    if not saved.workspace:
        detail = "The workspace of this Session is lost from its record. Start a new Session with --workspace."
        return Unlaunchable(engine, FailReason.open_failed, detail)
    launch = LaunchSnapshot(
        engine=engine,
        workspace=saved.workspace,
        profile=profile,
        model=saved.model,
        effort=saved.effort,
        permission=saved.permission or Permission.ask,
        instructions=_text(profile, installed) if saved.instructions is None else saved.instructions,
        environment=saved.environment,
        mcp=saved.mcp,
        use=saved.use or WorkspaceUse.alone,
    )
    if lacking := _lacking(launch, installed.extras.get(engine, frozenset())):
        detail = f"This Session has {lacking}, which {engine} gives no agent. Start a new Session on another engine."
        return Unlaunchable(engine, FailReason.open_failed, detail)
    return Resolved(launch, Record(profile, engine), None if named else Fresh.engine_lost)


def _lacking(launch: LaunchSnapshot, extras: frozenset[Extra]) -> str:
    """What of that launch is beyond an engine that has only these extras, by name (A10); empty where nothing is."""
    environment = f"environment variables ({', '.join(launch.environment)})" if launch.environment else ""
    servers = f"MCP servers ({', '.join(server.name for server in launch.mcp)})" if launch.mcp else ""
    wanted = {Extra.environment: environment, Extra.mcp: servers}
    return " and ".join(what for extra, what in wanted.items() if what and extra not in extras)


def _fallback(installed: Installed) -> str:
    return DEFAULT_PROFILE if DEFAULT_PROFILE in installed.profiles else PLAIN.id


def _text(profile: str, installed: Installed) -> str:
    """For a snapshot that has no text of its own: those of before there were any had the default profile's, none."""
    return installed.profiles.get(profile, PLAIN).instructions
