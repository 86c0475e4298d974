"""What the tests of one machine share: homes that the user of root's Postgres can enter, and one prepared database."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from amux.local.home import Home, hold
from tests.servers import short_home


@pytest.fixture
def open_home() -> Iterator[Path]:
    with short_home() as home:
        yield home


@pytest.fixture(scope="session")
def kept_home() -> Iterator[Path]:
    """One home for the tests that may follow each other on the same data: a database takes a second to make."""
    with short_home() as home:
        yield home


@pytest.fixture
async def home(open_home: Path) -> AsyncIterator[Home]:
    """A home held by this test."""
    async with hold(open_home) as held:
        yield held
