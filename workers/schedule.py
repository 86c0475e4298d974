"""Beat: the sweep, again and again. One that could not run before the next is due is dropped unread."""

SWEEP_SECONDS = 1.0

BEAT = {"sweep": {"task": "sweep", "schedule": SWEEP_SECONDS, "options": {"expires": SWEEP_SECONDS}}}
