"""One child process that cannot outlive its parent: spawned in a session of its own, and told by the kernel to
die with us. It never restarts anything (restarter.py does) and never reads what the child says."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from amux.core.errors import Broken
from amux.local.pids import ProcessId, kill_group, started

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork: loading takes locks


@dataclass(frozen=True, slots=True)
class User:
    """The account that a child runs as, when it is not ours."""

    name: str
    uid: int
    gid: int


def enters(user: User, folder: Path) -> bool:
    """Whether `user` can get into `folder`, whatever grants or denies it."""
    asked = ("/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder))
    done = subprocess.run(asked, capture_output=True, check=False, user=user.uid, group=user.gid, extra_groups=[])
    return done.returncode == 0


@dataclass(frozen=True, slots=True)
class Child:
    """A running child, the leader of its own session and process group."""

    process: asyncio.subprocess.Process
    id: ProcessId

    async def stop(self, number: signal.Signals, *, grace_seconds: float) -> None:
        """Ask it to stop, wake it if it is frozen, and kill its group when the grace is over."""
        self.id.signal(number)
        self.id.signal(signal.SIGCONT)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self.process.wait()
        self.kill_group()
        await self.process.wait()

    def kill_group(self) -> None:
        """SIGKILL whatever is left of it and of what it forked in its own group."""
        kill_group(self.id.pid)


async def spawn(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    output: int,
    death_signal: signal.Signals,
    user: User | None = None,
    keep: tuple[int, ...] = (),
) -> Child:
    """Start `argv` in "/", with stdout and stderr to the descriptor `output`; it inherits the descriptors `keep`.

    `death_signal` is what the kernel sends it when we die by whatever cause (Linux). Raises OSError when it cannot
    be started, Broken off the main thread: the kernel watches the thread that forked, not the process."""
    if threading.current_thread() is not threading.main_thread():
        raise Broken("a child must be spawned from the main thread, or it dies with the thread that spawned it")
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=dict(env),
        cwd="/",
        start_new_session=True,
        pass_fds=keep,
        preexec_fn=_die_with(os.getpid(), death_signal),
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )
    return Child(process, ProcessId(process.pid, started(process.pid)))


def _die_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    def in_the_child() -> None:  # runs after the change of user, which would undo it
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # the parent died before the kernel was told
            os._exit(1)

    return in_the_child
