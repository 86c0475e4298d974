"""What an agent's life asks for when nobody hears it any more."""

import asyncio

from amux.providers.life import Life
from tests.providers.conftest import World, carriers


async def test_an_agent_that_nobody_hears_any_more_is_killed(world: World) -> None:
    process = await world.run("import time\ntime.sleep(60)\n")
    died: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def listen() -> None:
        raise ZeroDivisionError

    life = Life(process, listen, died=died.set_result)
    async with asyncio.timeout(30):
        assert await died == "was killed"
        await life.close(seconds=1)
    assert carriers(world.home) == []
