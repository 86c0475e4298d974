"""Restate: a virtual object a Session, one durable `run` a Turn; the server from npm, the handler behind hypercorn."""

import asyncio
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from work import measure, pool, write

INGRESS, ADMIN, NODE, HANDLER = 18080, 19070, 15122, 19080
STARTS = 150  # tries, 0.2 s apart


def made() -> Any:
    """The handlers, for hypercorn."""
    import restate

    session = restate.VirtualObject("session")
    kept: dict[str, Any] = {}

    @session.handler()
    async def turn(ctx: restate.ObjectContext, number: int) -> int:
        async def rows() -> int:
            if "pool" not in kept:
                kept["pool"] = asyncio.ensure_future(pool())
            await write(await kept["pool"], int(ctx.key()), number)
            return 1

        await ctx.run_typed("write", rows)
        return number

    return restate.app([session])


async def main() -> None:
    import httpx

    with tempfile.TemporaryDirectory(prefix="restate-") as folder, (Path(folder) / "log").open("w") as log:
        env = os.environ | {
            "RESTATE_BASE_DIR": folder,
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{INGRESS}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ADMIN}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{NODE}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{NODE}",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "warn",
        }
        start = asyncio.create_subprocess_exec
        server = await start(os.environ["RESTATE_BIN"], "--node-name", "n1", env=env, stdout=log, stderr=log)
        words = [sys.executable, "-m", "hypercorn", "-b", f"127.0.0.1:{HANDLER}", "restate_engine:app"]
        served = os.environ | {"BENCH_HANDLER": "1"}
        handler = await start(*words, env=served, stdout=log, stderr=log, cwd=Path(__file__).parent)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            async with httpx.AsyncClient(limits=limits, timeout=timedelta(minutes=5).total_seconds()) as http:
                await _registered(http)

                async def turn(key: int, number: int) -> None:
                    address = f"http://127.0.0.1:{INGRESS}/session/{key}/turn"
                    (await http.post(address, json=number)).raise_for_status()

                await measure(turn)
        finally:
            for process in (handler, server):
                process.terminate()
                await process.wait()


async def _registered(http: Any) -> None:
    import httpx

    for _ in range(STARTS):
        try:
            answer = await http.post(
                f"http://127.0.0.1:{ADMIN}/deployments", json={"uri": f"http://127.0.0.1:{HANDLER}"}
            )
            if answer.is_success:
                return
        except httpx.HTTPError:
            pass
        await asyncio.sleep(0.2)
    sys.exit("Restate did not start")


if os.environ.get("BENCH_HANDLER"):
    app = made()
if __name__ == "__main__":
    asyncio.run(main())
