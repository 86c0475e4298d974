"""procrastinate: one job a Turn, locked by its Session; worker and driver in one process, as it ran best."""

import asyncio

import procrastinate
from work import POSTGRES, measure, pool, write

CONCURRENCY = 64


async def main() -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=POSTGRES, max_size=20))
    connections = await pool()
    done: dict[tuple[int, int], asyncio.Event] = {}

    @app.task(name="turn", queue="turns")
    async def turn(session: int, number: int) -> None:
        await write(connections, session, number)
        done[session, number].set()

    async def one(session: int, number: int) -> None:
        ended = done[session, number] = asyncio.Event()
        await turn.configure(lock=str(session)).defer_async(session=session, number=number)
        await ended.wait()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.ensure_future(
            app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False, fetch_job_polling_interval=0.5)
        )
        await measure(one)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    await connections.close()


asyncio.run(main())
