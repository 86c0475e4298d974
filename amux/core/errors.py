"""Five families of failure, named by what the caller should do. Edges translate foreign errors into them at once.

They carry words for people; they never carry what people or agents wrote, nor a secret."""


class Refused(Exception):
    """The person can mend it. `key` names a phrase, `slots` fill it, and the message itself says what to do."""

    def __init__(self, message: str, *, key: str = "refused", **slots: str) -> None:
        super().__init__(message)
        self.key, self.slots = key, slots


class Unavailable(Exception):
    """Try later: it certainly did not happen."""


class Uncertain(Exception):
    """It may have happened: tell the person, never repeat (I5)."""


class Stale(Exception):
    """Somebody else owns this Session now: stop quietly."""


class Broken(Exception):
    """A rule of the house failed: stop loudly."""
