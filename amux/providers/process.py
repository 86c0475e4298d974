"""An agent behind its Guard: JSON lines both ways, a home of its own, a scrubbed environment, an end with a reason.

A provider talks to its agent through this alone. A library that would start the program itself is given a transport on
it instead, since such libraries pass the whole environment on. It restarts nothing, retries nothing, and logs nothing
that went through it."""

import asyncio
import contextlib
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from amux.core.errors import Unavailable
from amux.extensions import Opening
from amux.providers import guard
from amux.providers.pipes import LastWords, Line, Lines, Reader, Writer, decode
from amux.providers.spawn import environment, not_started, prepare, spawn

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|AUTH|CREDENTIAL")
START_SECONDS = 10.0 + guard.TAKE_OVER_SECONDS + guard.WAIT_SECONDS  # the Guard's own start, and its two locks
GUARD_SECONDS = 5.0  # for a Guard to kill its tree when it is told to
CLOSING_SECONDS = 2.0  # from the end of an agent's stdout to its own


class Why(StrEnum):
    """Why an agent's process tree is gone."""

    exited = "exited"  # by itself, or killed by a stranger: see the code
    deadline = "deadline"  # its permission to act ran out
    stopped = "stopped"  # we asked
    killed = "killed"  # we made it
    flooded = "flooded"  # it wrote more than can be kept
    garbled = "garbled"  # it wrote what is no JSON, again and again
    guard_lost = "guard_lost"  # the Guard was killed, and took the agent with it


@dataclass(frozen=True, slots=True)
class End:
    """How an agent came to its end. `code` is its exit code, or minus the signal that killed it; None when not known.

    `said` is for people and holds nothing that the agent wrote; `last_words`, the newest lines of its stderr, may hold
    anything: it is plain text without the secrets that we gave, to be shown, never to be logged."""

    why: Why
    code: int | None
    said: str
    last_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What of an agent's output is kept. `unread_bytes` bounds the lines that nobody has taken yet (H33)."""

    line_bytes: int = 64 * 2**20
    unread_bytes: int = 64 * 2**20
    stderr_lines: int = 20
    garbage_lines: int = 20  # so many lines that are no JSON, one after the other, are skipped


def boottime() -> float:
    """Seconds of CLOCK_BOOTTIME: what deadlines are given in. It goes on while the machine sleeps."""
    return guard.now()


class Process:
    """One running agent. Made by `start`; belongs to the event loop that started it.

    Whoever started it ends it with `stop` or `kill`; when the owner's process dies the Guard does."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], control: socket.socket, limits: Limits) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.name = name
        self.pid = 0  # the agent's own, not its Guard's
        self.guard_pid = popen.pid
        self._popen, self._control, self._limits = popen, control, limits
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[str] = self._loop.create_future()
        self._ended: asyncio.Future[End] = self._loop.create_future()
        self._ending: asyncio.Task[None] | None = None
        self._told = b""
        self._verdict: tuple[Why, str] | None = None
        self._lock = self._remedy = ""
        self._wanted: Callable[[], None] = lambda: None
        self._wants = 0
        self._secrets: tuple[str, ...] = ()
        self._lines = Lines(
            line_bytes=limits.line_bytes,
            unread_bytes=limits.unread_bytes,
            overflow=lambda why: self._condemn(Why.flooded, why),
        )
        self._last_words = LastWords(limits.stderr_lines)
        self._stdin = Writer(popen.stdin.fileno(), name)
        self._stdout = Reader(popen.stdout.fileno(), self._lines.take, self._lines.finish)
        self._stderr = Reader(popen.stderr.fileno(), self._last_words.take, lambda: None)
        self._loop.add_reader(control, self._hear)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        opening: Opening,
        *,
        env: Mapping[str, str],
        hidden: Iterable[str] = (),
        name: str = "",
        remedy: str = "`amux doctor` says what is missing.",
        limits: Limits = Limits(),
    ) -> "Process":
        """Run `argv` behind a Guard, in the Session's own home and in its workspace, until the opening's deadline at most,
        unless what `guarded` is told at once moves it on.

        `env` is what the provider adds to the few names that pass; `name` is what people call the agent; `hidden` are values
        that nothing told may hold, beside those of names like `*_KEY`. Whatever still acts in that home is killed first; a
        workspace in which another agent works is waited for, and that one's owner is told. Raises Unavailable (and says
        `remedy`) when the program cannot be run, the home not be used or not be had; Refused when the workspace is not
        there, or is not left by others; Stale when the deadline has passed. Nothing runs then."""
        name = name or Path(argv[0]).name
        locks = prepare(opening, name)
        try:
            popen, control = spawn(argv, locks, opening, environment(os.environ, env, Path(opening.home)))
        except OSError as e:
            raise Unavailable(f"{name} cannot be started: {e.strerror}. {remedy}") from e
        self = cls(name, popen, control, limits)
        self._lock, self._remedy, self._wanted = locks.home, remedy, opening.wanted
        secrets = [*hidden, *(value for key, value in env.items() if SECRET.search(key.upper()))]
        self._secrets = tuple(line for value in secrets for line in value.splitlines() if len(line) > 5)
        opening.guarded(self.extend)
        await self._wait_for_start(opening)
        return self

    async def _wait_for_start(self, opening: Opening) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                word, _, value = (await self._started).partition(" ")
        except TimeoutError:
            await self._abandon()
            raise Unavailable(f"{self.name} did not start within {START_SECONDS:g} s. {self._remedy}") from None
        except asyncio.CancelledError:
            self._control.shutdown(socket.SHUT_RDWR)
            raise
        if word == "running":
            self.pid = int(value)
            return
        await self.wait()
        raise not_started(self.name, value, opening, self._remedy)

    async def _abandon(self) -> None:
        self._popen.kill()
        await self.wait()

    def lines(self) -> AsyncIterator[Line]:
        """Every JSON object that the agent writes, for one consumer at a time; ends when its stdout does.

        Other lines are skipped; after `Limits.garbage_lines` of them in a row the agent is killed as garbled."""
        return self._objects()

    async def _objects(self) -> AsyncIterator[Line]:
        garbage = 0
        async for raw in self._lines:
            line = decode(raw)
            garbage = 0 if line is not None else garbage + 1
            if line is not None:
                yield line
            elif garbage > self._limits.garbage_lines:
                self._condemn(Why.garbled, f"wrote {garbage} lines that are no JSON")
                return

    async def send(self, line: Mapping[str, object]) -> None:
        """Write one object as a line. Raises as `write` does."""
        await self.write(msgspec.json.encode(line) + b"\n")

    async def write(self, data: bytes) -> None:
        """Write whole lines; return when the pipe has taken them, which is not yet the agent's word.

        Raises Unavailable when nothing was written, Uncertain when the agent ended in the midst of it. When it is
        cancelled before a byte was written nothing will be; after that, all of it will."""
        await self._stdin.write(data)

    def extend(self, deadline: float) -> None:
        """Set the Guard's deadline, in seconds of `boottime`. Never waits, never raises; the dead stay dead."""
        self._ask(f"until {deadline!r}")

    async def stop(self, grace_seconds: float) -> End:
        """Ask the agent to end, kill its tree after `grace_seconds`, and answer when nothing of it is left."""
        self._ask(f"stop {grace_seconds!r}")
        return await self.wait()

    async def kill(self) -> End:
        """Kill its tree now, and answer when nothing of it is left. May be called again."""
        self._ask("kill")
        while not self._ended.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GUARD_SECONDS):
                    return await self.wait()
            guard.kill_tree(self._popen.pid)  # the Guard is stopped, or starved
        return self._ended.result()

    async def wait(self) -> End:
        """Answer how it ended, once nothing of it is left."""
        return await asyncio.shield(self._ended)

    async def after_lines(self) -> End:
        """Answer how it ended, once `lines` has: one that goes on without its stdout is killed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                return await self.wait()
        return await self.kill()

    async def failure(self) -> Unavailable:
        """For an agent whose lines ended before it had answered anything: what it was, how it ended, what to do."""
        end = await self.after_lines()
        last = f" Its last words: {end.last_words[-1][:200]}" if end.last_words else ""
        return Unavailable(f"{self.name} {end.said}.{last} {self._remedy}")

    def _condemn(self, why: Why, said: str) -> None:
        if self._verdict is None:
            self._verdict = why, said
            self._ask("kill")

    def _ask(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the Guard is gone, or is stopped and will find the deadline passed
            self._control.send(line.encode() + b"\n")

    def _hear(self) -> None:
        try:
            more = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._told += more
        first, whole, _ = self._told.partition(b"\n")
        if whole and not self._started.done():
            self._started.set_result(first.decode())
        if (wants := self._told.count(b"wanted\n")) > self._wants:
            self._wants = wants
            self._wanted()
        if not more:
            self._loop.remove_reader(self._control)
            self._ending = self._loop.create_task(self._end(), name=f"end of {self.name}")

    async def _end(self) -> None:
        try:
            await asyncio.to_thread(self._popen.wait)
            if self._told.startswith(b"running ") and b"\nended " not in self._told:
                with contextlib.suppress(guard.Failed):  # something does not die; the next Guard says so
                    await asyncio.to_thread(guard.clear, self._lock)
        finally:
            self._close()
            self._ended.set_result(self._account())

    def _close(self) -> None:
        self._stdin.close()
        for reader in (self._stdout, self._stderr):
            reader.drain()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr, self._control):
            if pipe:
                pipe.close()
        if not self._started.done():
            self._started.set_result("failed guard")

    def _account(self) -> End:
        """The Guard's last word, unless we had passed a verdict ourselves."""
        told = [line.split() for line in self._told.decode().splitlines() if line.startswith("ended ")]
        why, code = (Why(told[0][1]), int(told[0][2])) if told else (Why.guard_lost, None)
        said = _said(why, code)
        if self._verdict and why is not Why.exited:
            why, said = self._verdict
        return End(why, code, said, tuple(map(self._redact, self._last_words.lines())))

    def _redact(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, "[secret]")
        return line


def _said(why: Why, code: int | None) -> str:
    match why:
        case Why.exited if code is not None and code < 0:
            return f"was killed by signal {-code}"
        case Why.exited:
            return f"ended by itself with code {code}"
        case Why.deadline:
            return "was killed when its owner's permission to act ran out"
        case Why.guard_lost:
            return "died with its Guard"
        case _:
            return f"was {why}"
