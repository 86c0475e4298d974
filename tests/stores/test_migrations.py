"""What the migrations make is what the code believes."""

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from amux.core.launch import Installed, LaunchSnapshot, Record, Resolved, resolve
from amux.settings import sqlalchemy_url
from amux.stores.postgres import Postgres
from amux.stores.sessions import PostgresSessions
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


# What release 0.1 writes, before these columns and beside newer code.
OLD_SNAPSHOT = (
    '{"engine":"codex","workspace":"/w1","profile":"builtin/default","model":"M1","effort":null,"permission":"bypass"}'
)
OLD_LAUNCH = sa.text("insert into sessions (target, id, snapshot, title) values ('local', :id, :snapshot, 't')")


@pytest.mark.rule("S5", "S6")
async def test_a_row_of_before_the_identity_columns_still_runs(fresh_database: str) -> None:
    engine = sa.create_engine(sqlalchemy_url(fresh_database), poolclass=sa.NullPool)
    settings = config()
    with engine.begin() as connection:
        connection.execute(sa.text("drop schema public cascade"))
        connection.execute(sa.text("create schema public"))
        settings.attributes["connection"] = connection
        command.upgrade(settings, "pre_0001")
        connection.execute(OLD_LAUNCH, {"id": "before", "snapshot": OLD_SNAPSHOT})
    upgrade(fresh_database)
    with engine.begin() as connection:
        connection.execute(OLD_LAUNCH, {"id": "beside", "snapshot": OLD_SNAPSHOT})
    postgres = Postgres(fresh_database, size=1)
    sessions = PostgresSessions(postgres)
    for id_ in ("before", "beside"):
        found = await sessions.find(id_)
        assert found.record == Record()
        settled = resolve(found.record, found.saved, Installed(frozenset({"codex"}), "scripted", {}, {}))
        launch = LaunchSnapshot("codex", "/w1", "builtin/default", "M1")
        assert settled == Resolved(launch, Record("builtin/default", "codex"))
    await postgres.close()
