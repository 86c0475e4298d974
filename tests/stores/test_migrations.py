"""What the migrations make is what the code believes."""

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from amux.settings import sqlalchemy_url
from ops.migrations import HEAD, config, upgrade
from ops.migrations.schema import metadata

pytestmark = pytest.mark.real


def test_the_tables_are_those_of_the_code(postgres_url: str) -> None:
    engine = sa.create_engine(sqlalchemy_url(postgres_url), poolclass=sa.NullPool)
    options = {
        "compare_type": True,
        "include_object": lambda _o, name, kind, *_: (
            kind not in ("index", "unique_constraint") and name != "alembic_version"
        ),
    }
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_the_newest_revision_is_known_without_alembic() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(fresh_database: str) -> None:
    upgrade(fresh_database)
    engine = sa.create_engine(sqlalchemy_url(fresh_database), poolclass=sa.NullPool)
    with engine.connect() as connection:
        assert connection.execute(sa.text("select version, oldest_code from schema")).all() == [(1, "0.1")]
