"""What amux itself says to an agent, in words that name their origin. Bounded; never a person's own text unmarked."""

from amux.core.inputs import Input

MAX_QUOTE = 2_000  # characters of one cancelled message in the note


def cancellation_note(cancelled: tuple[Input, ...]) -> str:
    """The note that opens the Turn after an interruption and names every cancelled input (I6); "" for none."""
    if not cancelled:
        return ""
    quotes = "\n".join(f"- {_quoted(i.text)}" for i in cancelled)
    return (
        "[Note from amux: the previous turn was stopped by a person. These messages were cancelled with it and must "
        f"not be acted on:\n{quotes}]"
    )


def _quoted(text: str) -> str:
    shown = text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]} [{len(text) - MAX_QUOTE} characters more]"
    return '"' + shown.replace("\n", " ") + '"'
