"""Brings a database to today's schema. The only place that imports Alembic, and only when there is something to do: with
SQLAlchemy it takes a second, for which a person waits at every start."""

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from amux.core.errors import Refused, Unavailable
from amux.settings import sqlalchemy_url

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "pre_0002"  # the newest revision; a test compares it with the files
LOCK = 0x616D7578  # one migration at a time, whoever starts first


def upgrade(postgres_url: str) -> None:
    """Apply what is missing, in one transaction; at once when nothing is.

    Raises Unavailable when Postgres does not answer, Refused when the URL is none or the user may not do it."""
    if _revision(postgres_url) == HEAD:
        return
    import sqlalchemy as sa
    from alembic import command

    engine = sa.create_engine(sqlalchemy_url(postgres_url), poolclass=sa.NullPool)
    settings = config()
    try:
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
            settings.attributes["connection"] = connection
            command.upgrade(settings, "head")
    except sa.exc.DBAPIError as why:
        raise _judged(why.orig) from why


def config() -> "Config":
    """Alembic's settings: where the revisions are."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return settings


def _revision(postgres_url: str) -> str | None:
    """What the database stands at; None for a new one."""
    try:
        with psycopg.connect(postgres_url, connect_timeout=10) as connection:
            row = connection.execute("select version_num from alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    except psycopg.Error as why:
        raise _judged(why) from why
    return row[0] if row else None


def _judged(why: BaseException | None) -> Refused | Unavailable:
    """What it means for who started amux. Only what libpq says of a connection is quoted: other words may hold the URL."""
    if isinstance(why, psycopg.OperationalError):
        return Unavailable(
            f"Postgres does not let us in: {str(why).splitlines()[0]}. Start it, or correct AMUX_POSTGRES_URL."
        )
    if isinstance(why, psycopg.errors.InsufficientPrivilege):
        return Refused(
            "This user may not make tables in Postgres: give it the rights, or put another in AMUX_POSTGRES_URL."
        )
    name = type(why).__name__
    return Refused(
        f"Postgres cannot be brought to today's schema ({name}); see its own log, and check AMUX_POSTGRES_URL."
    )
