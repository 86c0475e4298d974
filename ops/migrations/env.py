"""What Alembic asks for: where to run. `upgrade` hands over its connection."""

from alembic import context

from ops.migrations.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
