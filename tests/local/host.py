"""A supervisor as a program, for tests that signal and kill it: both servers, and a service that forks.

It prints "ready", or one line on stderr why it is not; it ends with 128 + the signal that stopped it."""

import asyncio
import signal
import sys
from pathlib import Path

from amux.core.errors import Refused, Unavailable
from amux.local.binaries import find_binaries
from amux.local.home import hold
from amux.local.restarter import Service
from amux.local.services import POSTGRES, REDIS, embedded, urls
from amux.local.supervisor import Supervisor, ending_on_signals

FORKER = ("/bin/sh", "-c", 'trap "exit 0" TERM; sleep 1000 & wait')


async def main(path: Path) -> int:
    with ending_on_signals() as ending:
        async with hold(path) as home:
            servers = await embedded(home, find_binaries(None, None))
            forker = Service("forker", FORKER, {}, after=(POSTGRES, REDIS))
            async with Supervisor(home, (*servers, forker)) as supervisor:
                await supervisor.ready()
                at = urls(path)
                home.note(urls={"postgres": at.postgres, "redis": at.redis, "web": "http://127.0.0.1:8420"})
                say("ready")
                await asyncio.get_running_loop().create_future()
    return 128 + (ending.by or signal.SIGTERM)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(Path(sys.argv[1]))))
    except (Refused, Unavailable) as why:
        sys.exit(str(why))
