"""Text as agents write it, made fit to be kept: nothing but text, and not too much of it.

Pure, and the same for every agent; what one agent's words mean is said where that agent is."""

MAX_TEXT = 20_000  # characters kept of a command's output or of a diff: its beginning and its end


def bounded(text: str) -> str:
    """At most MAX_TEXT characters, and how many are left out."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[{len(text) - MAX_TEXT} characters left out]\n{text[-half:]}"


def as_text(value: object) -> str:
    """The value where it is a text, else none: what an agent sends may have any shape."""
    return value if isinstance(value, str) else ""
