"""Three thin functions. Early acknowledgement is Celery's default, and right: a wake is only a hint."""

from celery import Task

from amux.core.ids import SessionKey, SessionRef
from workers.app import app
from workers.hooks import process


@app.task(name="drive", bind=True)
def drive(task: Task, session: int) -> None:
    """Own this Session until it rests; return at once if somebody does already. Holds a slot for that long."""
    id_ = task.request.id

    def owned(ref: SessionRef) -> None:
        process().show(id_, str(ref))

    process().run(process().host.drive(SessionKey(session), owned))


@app.task(name="deliver")
def deliver(session: int) -> None:
    """Show this Session's Turns in Feishu until everything is shown."""
    process().run(process().deliver(SessionKey(session)))


@app.task(name="sweep")
def sweep() -> None:
    """Knock where something was left lying."""
    process().run(process().sweep())
