"""Three thin functions. Early acknowledgement is Celery's default, and right: a wake is only a hint."""

from amux.core.ids import SessionKey
from workers.app import app
from workers.hooks import process


@app.task(name="drive")
def drive(session: int) -> None:
    """Own this Session until it rests; return at once if somebody does already. Holds a slot for that long."""
    process().run(process().host.drive(SessionKey(session)))


@app.task(name="deliver")
def deliver(session: int) -> None:
    """Show this Session's Turns in Feishu until everything is shown."""
    process().run(process().deliver(SessionKey(session)))


@app.task(name="sweep")
def sweep() -> None:
    """Knock where something was left lying."""
    process().run(process().sweep())
