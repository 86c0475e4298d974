"""What Alembic asks for: where to run. `upgrade` hands over its connection."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
