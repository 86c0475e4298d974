"""Beat: the sweep, again and again. One that could not run before the next two are due is dropped unread."""

from datetime import timedelta


def beat(lease: float) -> dict[str, dict[str, object]]:
    """What beat asks for. The sweep comes several times in a Lease, so that a dead owner's Session does not wait long."""
    every = max(0.25, min(2.0, lease / 12))
    return {"sweep": {"task": "sweep", "schedule": timedelta(seconds=every), "options": {"expires": 2 * every}}}
