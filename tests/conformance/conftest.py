"""Each suite runs on the fakes and on real Postgres and Redis."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.sides import Side, fake_side, real_side


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    if request.param == "fake":
        async with fake_side() as side:
            yield side
    else:
        urls = (request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url"))
        async with real_side(*urls) as side:
            yield side
