"""What people type. Each command is a call and a sentence; the work is elsewhere.

It exits 0 on success, 1 on a refusal or failure with one line on stderr, 2 on wrong usage, 3 when the outcome is
uncertain, 130 on Ctrl-C, which detaches and never kills the work."""

import typer

from amux import logs
from amux.cli import doctor, expert, harness, look, manage, resend, serve, talk, up, waiting

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
serve.add(app)
up.add(app)
talk.add(app)
resend.add(app)
waiting.add(app)
manage.add(app)
look.add(app)
expert.add(app)
doctor.add(app)
harness.add(app)


@app.callback()
def _amux() -> None:
    """Drive coding agents as durable Sessions."""
    logs.quiet()


def main() -> None:
    """The program `amux`."""
    app()
