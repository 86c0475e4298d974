"""Every word that people read in Feishu, in two languages at once. Both files have the same keys and slots; a test says so.

A text goes out with both languages in it, so that a client switches by itself and nothing is sent anew."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Text:
    """The same thing said in both languages."""

    en: str
    zh: str


@cache
def table(language: str) -> dict[str, str]:
    """One language's phrases by key."""
    text = (Path(__file__).parent / "locales" / f"{language}.toml").read_text(encoding="utf-8")
    return {key: str(value) for key, value in tomllib.loads(text).items()}


def say(key: str, **slots: "str | int | Text") -> Text:
    """A phrase with its slots filled. Raises KeyError for a key or a slot that is not there."""
    return Text(*(_filled(language, key, slots) for language in LANGUAGES))


def lasting(seconds: float) -> Text:
    """A span of time as people say it."""
    whole = max(0, round(seconds))
    return say("seconds", s=whole) if whole < 60 else say("minutes", m=whole // 60, s=f"{whole % 60:02}")


def _filled(language: str, key: str, slots: "dict[str, str | int | Text]") -> str:
    chosen = {name: getattr(value, language) if isinstance(value, Text) else value for name, value in slots.items()}
    return table(language)[key].format(**chosen)
