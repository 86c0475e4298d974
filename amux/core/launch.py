"""The launch snapshot: the copy of all launch settings, taken once (S2, S5, S9). It decides nothing at run time."""

from dataclasses import dataclass

from amux.core.inputs import Permission


@dataclass(frozen=True, slots=True)
class LaunchSnapshot:
    """How a Session runs, for as long as it lives. None for model or effort: what the engine takes by itself."""

    engine: str
    workspace: str
    profile: str = "builtin/default"
    model: str | None = None
    effort: str | None = None
    permission: Permission = Permission.bypass
