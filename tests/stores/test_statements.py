"""Every SQL statement fits the schema: Postgres itself prepares it (ADR 12)."""

import importlib
import pkgutil
import re

import psycopg
import pytest

from amux import cli, stores

pytestmark = pytest.mark.real
STATEMENT = re.compile(r"\s*(with|select|insert|update|delete)\s", re.IGNORECASE)


def statements() -> dict[str, str]:
    """By the names of their constants."""
    found = {}
    for module in [
        *pkgutil.iter_modules(stores.__path__, "amux.stores."),
        *pkgutil.iter_modules(cli.__path__, "amux.cli."),
    ]:
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if name[0] != "_" and name.isupper() and isinstance(value, str) and STATEMENT.match(value):
                    found[f"{module.name.rpartition('.')[2]}.{name}"] = value
    return found


def numbered(statement: str) -> str:
    """With Postgres' own marks in the place of psycopg's."""
    names: list[str] = []

    def mark(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f"nth {len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return re.sub(r"%%|%(?:\((\w+)\))?s", mark, statement)


@pytest.mark.parametrize("name", statements())
def test_a_statement_fits_the_schema(name: str, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"prepare one as {numbered(statements()[name])}".encode())


def test_they_are_found() -> None:
    assert {"sessions.LIST", "bindings.FIND", "timeline.OPEN", "inputs.UNACCEPTED", "reach.OWNED"} <= set(statements())
