"""The real stores, straight and through proxies."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.conformance.sides import Real, Side, real_process, real_side
from tests.stores.proxy import Proxy, postgres_proxy, redis_proxy


@pytest.fixture
async def side(postgres_url: str, redis_url: str) -> AsyncIterator[Side]:
    """Two processes on the servers themselves."""
    async with real_side(postgres_url, redis_url) as side:
        yield side


@pytest.fixture
async def far(postgres_url: str, redis_url: str) -> AsyncIterator["Far"]:
    """A third process, which reaches both servers through proxies."""
    async with AsyncExitStack() as stack:
        postgres, far_postgres = await stack.enter_async_context(postgres_proxy(postgres_url))
        redis, far_redis = await stack.enter_async_context(redis_proxy(redis_url))
        process = await stack.enter_async_context(real_process(far_postgres, far_redis, "far", patience=3.0))
        yield Far(process, postgres, redis)


class Far:
    """That process and its proxies."""

    def __init__(self, process: Real, postgres: Proxy, redis: Proxy) -> None:
        self.process, self.postgres, self.redis = process, postgres, redis
