"""An owner in a process of its own, to be frozen and killed: it starts an agent and moves its deadline on.

Run as `python -m tests.providers.owner HOME WORKSPACE LEASE_SECONDS PROGRAM`. Writes `running PID`, then `until SECONDS`
at each renewal; when its input says so it speaks to the agent and writes what came of it."""

import asyncio
import sys
from pathlib import Path

from amux.core.errors import Unavailable
from amux.core.ids import SessionId, SessionRef
from amux.core.launch import LaunchSnapshot
from amux.extensions import Opening
from amux.providers.process import Process, boottime


def deadline(lease: float) -> float:
    """As an owner reckons it: from the sending of the renewal on, a fifth before the lease ends."""
    return boottime() + lease * 0.8


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def own(home: Path, workspace: Path, lease: float, program: str) -> None:
    until = deadline(lease)
    argv = [sys.executable, "-I", "-S", "-c", program]
    launch = LaunchSnapshot("python", str(workspace))
    opening = Opening(SessionRef("local", SessionId(home.name)), launch, str(home), until)
    process = await Process.start(argv, opening, env={})
    tell(f"running {process.pid}")
    speak = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    while not speak.done():
        tell(
            f"until {until}"
        )  # before it is so: when this process is frozen here, the Guard's deadline is an earlier one
        process.extend(until)
        await asyncio.wait({speak}, timeout=lease / 3)
        until = deadline(lease)
    try:
        await process.send({"do": "act"})
        tell("sent")
    except Unavailable:
        tell("nothing was sent")
    await process.kill()


if __name__ == "__main__":
    asyncio.run(own(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
