"""Three thin functions. Early acknowledgement is Celery's default, and right: a wake is only a hint."""

from celery import Task

from amux.core.ids import SessionKey, SessionRef
from workers.app import app
from workers.hooks import process


@app.task(name="drive", bind=True)
def drive(task: Task, session: int) -> None:
    """Own this Session until it rests; return at once if somebody does already. Holds a slot for that long."""
    id_, worker, loop = task.request.id, task.request.hostname, process().loop

    def tell(name: str) -> None:
        with app.events.default_dispatcher(hostname=worker) as events:
            events.send("task-started", uuid=id_, args=name)

    def owned(ref: SessionRef) -> None:
        """Flower then shows the task by what it owns. Telling it blocks, so it is done aside."""
        loop.run_in_executor(None, tell, str(ref))

    process().run(process().host.drive(SessionKey(session), owned))


@app.task(name="deliver")
def deliver(session: int) -> None:
    """Show this Session's Turns in Feishu until everything is shown."""
    process().run(process().deliver(SessionKey(session)))


@app.task(name="sweep")
def sweep() -> None:
    """Knock where something was left lying."""
    process().run(process().sweep())
