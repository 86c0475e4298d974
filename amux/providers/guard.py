"""The Guard: the parent of an agent's process tree, and a program of its own (H3, H57, H58).

Started as `python -I -S guard.py LOCK PLACE DEADLINE CONTROL PROGRAM [ARGUMENT...]`. It holds the lock of the Session's
home and that of its workspace, and kills every descendant when its deadline passes, when its owner's end of the control channel closes, or when the
agent ends by itself; so nothing acts longer than its owner may. It relays no data, logs nothing and imports nothing but
the standard library: it must start at once, and must go on when its owner is frozen.

LOCK is the home's lock file; PLACE the folder of its workspace's, behind `alone:` or
`shared:`; DEADLINE seconds of CLOCK_BOOTTIME, which goes on while the machine sleeps; CONTROL the number
of an inherited socket. On it the owner writes lines, `until SECONDS`, `stop GRACE_SECONDS`, `kill`, and the Guard
answers `running PID`, `wanted` whenever another one waits for the workspace, then `ended WHY CODE`; or, when nothing was
started, `failed WHAT ERRNO` and no more.

Elsewhere than on Linux (no subreaper, no PDEATHSIG, no /proc; not tested) the agent's process group stands for its tree,
and a lock that is held is waited for instead of taken."""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys
import time

LINUX = sys.platform == "linux"
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
MARK = "AGENT_GUARD"  # the variable that names the lock file in the environment of everything below a Guard
TAKE_OVER_SECONDS = 5.0  # how long a lock may stay held after its holder was killed
WAIT_SECONDS = 45.0  # for a workspace in which another agent works
LOOK_SECONDS, ASK_SECONDS = 0.05, 1.0  # between two tries, and between two words to that one's Guard
PAUSE_SECONDS = 0.002
NICE = 5  # of the agent and its tools: a build that takes every core must not keep owners from renewing (H67)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)
CHILDREN_FILES = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")  # a lean kernel has none
GONE = contextlib.suppress(ProcessLookupError, PermissionError)


class Failed(Exception):
    """Nothing was started: `late`, `held`, `taken`, `lock ERRNO`, `place ERRNO` or `exec ERRNO`."""


def now() -> float:
    """Seconds of the clock on which deadlines are given."""
    return time.clock_gettime(CLOCK)


class Alarm:
    """Something to poll that wakes at a time of CLOCK_BOOTTIME, also when the machine slept across it.

    A timeout of poll() would not: it does not count the sleep."""

    def __init__(self) -> None:
        self.fd: int = LIBC.timerfd_create(CLOCK, os.O_CLOEXEC | os.O_NONBLOCK) if LINUX else -1

    def set(self, at: float) -> int:
        """Wake at `at`; answers the timeout for poll() in milliseconds, -1 where the timer does the waking."""
        if self.fd < 0:
            return max(0, min(500, int((at - now()) * 1000) + 1))
        at = max(at, 0.001)  # zero would switch it off
        spec = (ctypes.c_long * 4)(0, 0, int(at), int(at % 1 * 1e9))
        LIBC.timerfd_settime(self.fd, 1, spec, None)  # 1: `at` is a time, not a length of time
        return -1


def descendants(root: int) -> list[int]:
    """Every process below `root`, dead ones that nobody has waited for included."""
    found: list[int] = []
    look = [root]
    while look:
        children = _children(look.pop())
        found += children
        look += children
    return found


def _children(pid: int) -> list[int]:
    if CHILDREN_FILES:
        tasks = _names(f"/proc/{pid}/task")
        return [int(child) for task in tasks for child in _read(f"/proc/{pid}/task/{task}/children").split()]
    return [each for each in _processes() if _stat(each)[1:2] == [b"%d" % pid]]


def _processes() -> list[int]:
    return [int(name) for name in _names("/proc") if name.isdigit()]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process is gone
        return []


def _stat(pid: int) -> list[bytes]:
    """The words of /proc/PID/stat behind the name: 0 is the state, 1 the parent, 19 the start time. Empty when gone."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    """What is in that file; nothing when it is gone, or not ours."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _alive(pid: int) -> bool:
    state = _stat(pid)[:1]
    return bool(state) and state[0] not in b"ZX"


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with GONE:  # or another user's: then it holds the Guard until it ends
        os.kill(pid, number)


def kill_tree(root: int) -> None:
    """Kill all that lives below `root`; when nothing does any more, `root` itself. Call it until `root` is gone."""
    living = [pid for pid in descendants(root) if _alive(pid)]
    for pid in living or [root]:
        _kill(pid)


class Owner:
    """What the owner has said so far: until when its agent may act, and whether it has to go before that."""

    def __init__(self, control: int, deadline: float) -> None:
        self.control, self.deadline = control, deadline
        self.why = "deadline"  # what the end will be called
        self._must_go = False
        self._heard = b""

    def hear(self) -> bool:
        """Read what was said since; whether the agent may act after that. One that was not scheduled for a while must not
        go by an old deadline."""
        try:
            while not self._must_go and (more := os.read(self.control, 4096)):
                *lines, self._heard = (self._heard + more).split(b"\n")
                for line in lines:
                    self._obey(*line.partition(b" ")[::2])
            if not self._must_go:
                self.why, self._must_go = "owner_gone", True
        except BlockingIOError:
            pass
        except OSError:
            self.why, self._must_go = "owner_gone", True
        return not self._must_go and now() < self.deadline

    def _obey(self, word: bytes, value: bytes) -> None:
        if word == b"kill":
            self.why, self._must_go = "killed", True
        elif word == b"stop" and not self._must_go and now() < self.deadline:
            self.why, self.deadline = "stopped", min(self.deadline, now() + float(value))
        elif word == b"until" and self.why == "deadline":
            self.deadline = float(value)


def hold(path: str, owner: Owner) -> int:
    """Take the lock of the home, from a Guard that still has it if need be; answers the open lock.

    Raises Failed, with nothing started, when the owner's time is over or the lock cannot be had in time."""
    give_up = now() + TAKE_OVER_SECONDS
    lock = _lock(path)
    while lock is None:
        if not owner.hear():
            raise Failed("late")
        if now() >= give_up:
            raise Failed("held")
        if holder := _holder(path):
            kill_tree(holder)
        time.sleep(PAUSE_SECONDS)
        lock = _lock(path)
    if not owner.hear():  # before anything is killed: a thawed owner's Guard must not harm the next owner's (H3)
        raise Failed("late")
    _finish(lock, path, give_up)
    if not owner.hear():  # what was left took its time to die
        raise Failed("late")
    os.pwrite(lock, b"%d %s" % (os.getpid(), _identity(os.getpid())), 0)
    return lock


def enter(place: str, home: str, owner: Owner) -> tuple[int, str]:
    """Take the workspace's lock, which no two agents hold unless all share; answers the open lock and our record of it.

    All that hold it are asked to leave when their Turns are over; what one left behind whose Guard was killed is killed
    first. Raises Failed when it cannot be had in time."""
    use, _, folder = place.partition(":")
    how = fcntl.LOCK_SH if use == "shared" else fcntl.LOCK_EX
    give_up, ask = now() + WAIT_SECONDS, 0.0
    while (lock := _lock(f"{folder}/lock", how, "place")) is None:
        if not owner.hear():
            raise Failed("late")
        if now() >= give_up:
            raise Failed("taken")
        if now() >= ask:
            ask = now() + ASK_SECONDS
            for guard in filter(None, map(_living, _records(folder))):
                _kill(guard, signal.SIGUSR1)
        time.sleep(LOOK_SECONDS)
    for record in _records(folder):
        if not _living(record):
            _settle(record, home)
    if not owner.hear():  # what was left took its time to die
        raise Failed("late")
    return lock, _note(folder, home)


def _records(folder: str) -> list[str]:
    """One for each Guard that is in that workspace, or was and did not live to take it away."""
    return [f"{folder}/{name}" for name in _names(folder) if name != "lock" and name[0] != "."]


def _living(record: str) -> int | None:
    """The Guard of that record, unless it is dead: then something may be left behind."""
    guard = _holder(record)
    return guard if guard and _alive(guard) else None


def _note(folder: str, home: str) -> str:
    identity = _identity(os.getpid())
    name = f"{os.getpid()}-{identity.decode().replace(' ', '-')}"
    record = f"{folder}/{name}"
    try:
        with open(f"{folder}/.{name}", "wb", buffering=0) as file:
            file.write(b"%d %s\n%s" % (os.getpid(), identity, os.fsencode(home)))
        os.rename(f"{folder}/.{name}", record)  # so that nobody finds half of it
    except OSError as e:
        raise Failed(f"place {e.errno}") from e
    return record


def _settle(record: str, ours: str) -> None:
    """Kill what a killed Guard left. One that lives where it cannot be seen holds its home, and keeps its record."""
    home = os.fsdecode(_read(record).partition(b"\n")[2])
    try:
        left = home != ours and os.path.exists(home) and not clear(home)
    except Failed as e:
        raise Failed("taken") from e
    if not left:
        with contextlib.suppress(OSError):
            os.unlink(record)


def _lock(path: str, how: int = fcntl.LOCK_EX, what: str = "lock") -> int | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise Failed(f"{what} {e.errno}") from e
    with contextlib.suppress(OSError):  # it is held
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    os.close(fd)
    return None


def _identity(pid: int) -> bytes:
    """What tells this process from a later one of the same number: its start time and the machine's boot."""
    fields = _stat(pid)
    return b"%s %s" % (fields[19] if fields else b"-", _read("/proc/sys/kernel/random/boot_id").strip())


def _holder(path: str) -> int | None:
    pid, _, identity = _read(path).partition(b"\n")[0].partition(b" ")
    return int(pid) if LINUX and pid.isdigit() and _identity(int(pid)) == identity else None


def clear(path: str) -> bool:
    """After a Guard that was killed: kill what it left, unless another one has the home; whether nothing is left."""
    lock = _lock(path)
    if lock is None:
        return False
    try:
        _finish(lock, path, now() + TAKE_OVER_SECONDS)
    finally:
        os.close(lock)
    return True


def _finish(lock: int, path: str, give_up: float) -> None:
    """Kill what carries the home's mark, when its last holder did not live to empty the record."""
    mark = f"{MARK}={path}\0".encode()
    while os.fstat(lock).st_size and (left := [pid for pid in _processes() if mark in _read(f"/proc/{pid}/environ")]):
        for pid in left:
            for each in [pid, *descendants(pid)]:
                _kill(each)
        if now() >= give_up:
            raise Failed("held")
        time.sleep(PAUSE_SECONDS)
    os.ftruncate(lock, 0)


def give_way() -> None:
    """Below its owner, also where the kernel weighs whole sessions (autogroup) and a process only within its own."""
    os.nice(NICE)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as group:
        group.write(str(NICE))


def start(program: list[str], mark: str) -> int:
    """Fork the agent in a session of its own, to die with this thread; answers its number once it runs.

    Raises Failed when the program cannot be run."""
    guard, (told, tell) = os.getpid(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            give_way()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and that is inherited
                signal.signal(number, signal.SIG_DFL)
            if LINUX:
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == guard:
                os.execvpe(program[0], program, {**os.environ, MARK: mark})
        except OSError as e:
            os.write(tell, str(e.errno).encode())
        finally:
            os._exit(127)
    os.close(tell)
    code = os.read(told, 16)  # ends when exec has closed it
    os.close(told)
    if code:
        os.waitpid(pid, 0)
        raise Failed(f"exec {code.decode()}")
    return pid


class Watch:
    """One agent's time: until it ends, its owner goes or asks, or its deadline passes."""

    def __init__(self, agent: int, owner: Owner) -> None:
        self.agent, self.owner = agent, owner
        self.code: int | None = None  # the agent's, once it is known
        self.why = ""

    def wait(self) -> None:
        """Return when the tree has to go; `why` says why."""
        alarm, poll, (woken, wake) = Alarm(), select.poll(), os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        for fd in filter(lambda fd: fd >= 0, (self.owner.control, woken, alarm.fd)):
            poll.register(fd, select.POLLIN)
        asked = False
        while self.reap() and self.code is None and self.owner.hear():
            if self.owner.why == "stopped" and not asked:
                asked = True
                _kill(self.agent, signal.SIGTERM)
            ready = dict(poll.poll(alarm.set(self.owner.deadline)))
            rang = {*os.read(woken, 4096)} if woken in ready else set()
            if signal.SIGUSR1 in rang:
                _tell(self.owner.control, "wanted")
            if rang - {signal.SIGCHLD, signal.SIGUSR1}:
                self.why = "killed"
                break
        self.reap()
        exited = self.code is not None and self.owner.why != "stopped"
        self.why = "exited" if exited else self.why or self.owner.why

    def reap(self) -> bool:
        """Wait for all that has ended; False once no child is left at all."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.agent:
                    self.code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def kill_all(self) -> None:
        """Kill until the kernel says that no child is left; then no descendant is, for orphans become children."""
        while self.reap():
            for pid in descendants(os.getpid()):
                _kill(pid)
            if not LINUX:
                with GONE:
                    os.killpg(self.agent, signal.SIGKILL)
            time.sleep(PAUSE_SECONDS)


def _tell(control: int, line: str) -> None:
    with contextlib.suppress(OSError):  # the owner is gone, which the next look at the channel finds out
        os.write(control, line.encode() + b"\n")


def main() -> int:
    path, place, program = sys.argv[1], sys.argv[2], sys.argv[5:]
    deadline, control = float(sys.argv[3]), int(sys.argv[4])
    os.set_inheritable(control, False)
    os.set_blocking(control, False)
    owner = Owner(control, deadline)
    signal.signal(signal.SIGUSR1, lambda *_: None)  # before anybody can read our number in a record
    if LINUX:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        lock = hold(path, owner)
        _, record = enter(place, path, owner)
        agent = start(program, path)
    except Failed as e:
        _tell(control, f"failed {e}")
        return 127
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # else the agent's pipes would seem open after its end
        os.dup2(nowhere, fd)
    _tell(control, f"running {agent}")
    watch = Watch(agent, owner)
    try:
        watch.wait()
    finally:
        watch.kill_all()
    os.ftruncate(lock, 0)  # nothing is left for the next Guard to look for
    with contextlib.suppress(OSError):
        os.unlink(record)
    code = watch.code if watch.code is not None else -signal.SIGKILL
    _tell(control, f"ended {watch.why} {code}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
