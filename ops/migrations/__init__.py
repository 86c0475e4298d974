"""Brings a database to today's schema. The only place that imports Alembic (it takes half a second)."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from amux.settings import sqlalchemy_url

LOCK = 0x616D7578  # one migration at a time, whoever starts first


def upgrade(postgres_url: str) -> None:
    """Apply what is missing, in one transaction; at once when nothing is. Raises what SQLAlchemy raises."""
    engine = sa.create_engine(sqlalchemy_url(postgres_url), poolclass=sa.NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
