"""DBOS: one workflow a Turn on a queue partitioned by Session; worker and driver in one process."""

import asyncio

from dbos import DBOS, SetEnqueueOptions
from work import POSTGRES, measure, pool, write

POLL_SECONDS = 0.05


async def main() -> None:
    url = "postgresql+psycopg" + POSTGRES.removeprefix("postgresql")
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )
    connections = await pool()

    @DBOS.step()
    async def rows(session: int, number: int) -> None:
        await write(connections, session, number)

    @DBOS.workflow()
    async def turn(session: int, number: int) -> None:
        await rows(session, number)

    DBOS.launch()
    await asyncio.to_thread(
        DBOS.register_queue,
        "turns",
        partition_concurrency=1,
        worker_concurrency=200,
        polling_interval_sec=POLL_SECONDS,
    )

    async def one(session: int, number: int) -> None:
        with SetEnqueueOptions(queue_partition_key=str(session)):
            handle = await DBOS.enqueue_workflow_async("turns", turn, session, number)
        await handle.get_result(polling_interval_sec=POLL_SECONDS)

    await measure(one)
    DBOS.destroy()
    await connections.close()


asyncio.run(main())
