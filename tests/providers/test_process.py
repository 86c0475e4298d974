"""What an owner sees of its agent: lines, limits, the environment it gets, and how it came to its end."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from amux.core.errors import Refused, Unavailable, Uncertain
from amux.providers import guard
from amux.providers.pipes import Line, plain
from amux.providers.process import End, Limits, Process, Why, boottime
from tests.providers.conftest import World, carriers, eventually, processes, read

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)\n"
SAYS = "import sys, time\nsys.stdout.buffer.write({!r})\nsys.stdout.flush()\n"
THEN_WAITS = "time.sleep(60)\n"
MIB = 2**20


async def first(process: Process) -> Line:
    async for line in process.lines():
        return line
    raise AssertionError(await process.wait())


async def everything(process: Process) -> list[Line]:
    return [line async for line in process.lines()]


async def test_lines_go_both_ways(world: World) -> None:
    process = await world.run(ECHO)
    await process.send({"text": "你好\n", "n": 1})
    assert await first(process) == {"text": "你好\n", "n": 1}


async def test_a_message_of_two_megabytes_goes_both_ways(world: World) -> None:
    process = await world.run(ECHO)
    message = {"text": "x" * 2 * MIB}
    await process.send(message)
    assert await first(process) == message


async def test_lines_that_are_no_json_objects_are_skipped(world: World) -> None:
    written = (
        b'\xff\xfe\n\nTraceback (most recent\n[1]\n"text"\n{"broken": \n{"n": 1}\n'
        + b"[" * 100_000
        + b'\n{"n": 2}\n{"cut":'
    )
    process = await world.run(SAYS.format(written))
    assert await everything(process) == [{"n": 1}, {"n": 2}]


async def test_what_is_nearly_utf8_is_read(world: World) -> None:
    process = await world.run(SAYS.format(b'{"a": "\\ud83d"}\n{"b": "\xff"}\n{"c": "\\ud83d\\ude00"}\n'))
    assert await everything(process) == [{"a": "?"}, {"b": "\ufffd"}, {"c": "😀"}]


async def test_an_agent_that_prints_garbage_is_killed(world: World) -> None:
    process = await world.run(SAYS.format(b"no json\n" * 21) + THEN_WAITS)
    assert await everything(process) == []
    assert await process.wait() == End(Why.garbled, -9, "wrote 21 lines that are no JSON")
    assert str(await process.failure()) == f"{process.name} wrote 21 lines that are no JSON. Install it."


async def test_a_line_past_the_limit_ends_the_agent(world: World) -> None:
    limits = Limits(line_bytes=MIB)
    program = SAYS.format(b'{"n": 1}\n') + "sys.stdout.write('x' * 1048577)\nsys.stdout.flush()\n" + THEN_WAITS
    process = await world.run(program, limits=limits)
    assert await everything(process) == [{"n": 1}]
    assert await process.wait() == End(Why.flooded, -9, "wrote a line of more than 1048576 bytes")


COUNTS = """
import json, sys
for n in range({count}):
    print(json.dumps({{"n": n, "text": "x" * 1000}}))
sys.stdout.flush()
open("done", "w").write("all of it")
sys.stdin.read()
"""


async def test_a_slow_consumer_stalls_no_agent(world: World) -> None:
    process = await world.run(COUNTS.format(count=4000))
    assert await world.written("done") == "all of it"  # far more than a pipe holds, and nobody has taken a line yet
    taken = []
    async for line in process.lines():
        taken.append(line["n"])
        if len(taken) == 4000:
            break
    assert taken == [*range(4000)]


async def test_output_that_nobody_takes_is_bounded(world: World) -> None:
    process = await world.run(COUNTS.format(count=4000), limits=Limits(unread_bytes=MIB))
    end = await process.wait()
    assert end == End(Why.flooded, end.code, "wrote 1048576 bytes faster than they could be taken")
    assert 900 < len(await everything(process)) < 1100


async def test_one_line_is_taken_however_small_the_bound(world: World) -> None:
    process = await world.run(SAYS.format(b'{"text": "' + b"x" * 100 + b'"}\n'), limits=Limits(unread_bytes=10))
    assert await everything(process) == [{"text": "x" * 100}]


WORKER = {
    "PATH": os.environ["PATH"],
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "AMUX_POSTGRES_URL": "postgresql://user_a:secret@host/amux",
    "AMUX_FEISHU_APP_SECRET": "secret",
    "AMUX_HOME": "/srv/amux",
    "PGPASSWORD": "secret",
    "PGHOST": "host",
    "REDISCLI_AUTH": "secret",
    "REDIS_URL": "redis://:secret@host",
    "FEISHU_APP_SECRET": "secret",
    "OTHER_API_KEY": "secret",
    "HTTPS_PROXY": "http://user_a:secret@proxy",
    "LD_PRELOAD": "",
    "PYTHONPATH": "/srv/amux",
    "HOME": "/home/user_a",
    "TMPDIR": "/home/user_a/tmp",
}


async def test_nothing_of_the_workers_environment_passes_but_a_few_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    process = await world.run(
        "import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n"
        "parent = open(f'/proc/{os.getppid()}/environ').read()\nprint(json.dumps({'guard': parent}))",
        env={"PROVIDER_API_KEY": "theirs"},
    )
    agents, guards = await everything(process)
    expected = {
        "PATH": WORKER["PATH"],
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "PROVIDER_API_KEY": "theirs",
        "HOME": str(world.home),
        "TMPDIR": str(world.home / "tmp"),
    }
    assert agents == {**expected, guard.MARK: f"{world.home}.lock"}
    assert dict(each.split("=", 1) for each in guards["guard"].split("\0") if each) == expected


async def test_the_agent_stands_in_its_workspace_with_a_home_of_its_own(world: World) -> None:
    process = await world.run(
        "import json, os, tempfile\nhome = os.path.expanduser('~')\n"
        "print(json.dumps({'cwd': os.getcwd(), 'home': home, 'tmp': tempfile.gettempdir(), "
        "'mode': oct(os.stat(home).st_mode)[-3:], 'leader': os.getsid(0) == os.getpid(), "
        "'open': sorted(map(int, os.listdir('/proc/self/fd')))[:-1]}))"
    )
    assert await everything(process) == [
        {
            "cwd": str(world.workspace),
            "home": str(world.home),
            "tmp": str(world.home / "tmp"),
            "mode": "700",
            "leader": True,
            "open": [0, 1, 2],
        }
    ]


async def test_the_last_words_are_plain_and_without_our_secrets(world: World) -> None:
    written = "\x1b[31mred\x1b[0m and \x1b]0;title\x07plain\r\nthe key is key-12345678\nbell\x07\n\n"
    program = f"import sys\nfor n in range(30): print(n, file=sys.stderr)\nsys.stderr.write({written!r})\nsys.exit(2)"
    process = await world.run(program, env={"PROVIDER_API_KEY": "key-12345678"}, limits=Limits(stderr_lines=4))
    end = await process.wait()
    assert end == End(
        Why.exited, 2, "ended by itself with code 2", ("29", "red and plain", "the key is [secret]", "bell")
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    {
        "\x1b[1;31mred\x1b[m": "red",
        "\x1b]8;;http://host\x1b\\link\x1b]8;;\x1b\\": "link",
        "\x1b(Bset": "set",
        "a\x00b\x08c\x7fd\x9be": "abcde",
        "two\nlines\tand a tab": "two\nlines\tand a tab",
        "\x1b": "",
    }.items(),
)
def test_plain(written: str, expected: str) -> None:
    assert plain(written) == expected


async def test_a_program_that_is_not_there(world: World) -> None:
    with pytest.raises(Unavailable, match=r"^no-such-agent cannot be run: No such file or directory\. Install it\.$"):
        await world.start(["no-such-agent"])


async def test_a_program_that_may_not_be_run(world: World) -> None:
    program = world.file("agent")
    program.write_text("#!/bin/sh\n")
    with pytest.raises(Unavailable, match=r"^agent cannot be run: Permission denied\. Install it\.$"):
        await world.start([str(program)])


async def test_a_program_of_no_known_kind(world: World) -> None:
    program = world.file("agent")
    program.write_text("neither binary nor script")
    program.chmod(0o755)
    with pytest.raises(Unavailable, match=r"^agent cannot be run: Exec format error\. Install it\.$"):
        await world.start([str(program)])


async def test_an_agent_that_ends_at_once(world: World) -> None:
    process = await world.run("import sys; sys.exit('no such option: --stdio')")
    assert await everything(process) == []
    name = Path(sys.executable).name
    expected = f"{name} ended by itself with code 1. Its last words: no such option: --stdio Install it."
    assert str(await process.failure()) == expected


async def test_a_home_that_cannot_be_written(world: World) -> None:
    file = world.file("file")
    file.touch()
    with pytest.raises(Unavailable, match=r"needs .*/file/home for itself: Not a directory\. Make AMUX_HOME writable"):
        await world.run(ECHO, home=file / "home")


async def test_a_lock_that_cannot_be_used(world: World) -> None:
    world.home.with_name("session.lock").mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"session\.lock cannot be used: Is a directory"):
        await world.run(ECHO)


async def test_a_workspace_that_is_not_there(world: World) -> None:
    world.workspace.rmdir()
    with pytest.raises(Refused, match=r"^The workspace .* is no folder here\."):
        await world.run(ECHO)
    world.workspace.mkdir()


async def test_sending_to_the_dead_is_certain(world: World) -> None:
    process = await world.run(ECHO)
    await process.kill()
    with pytest.raises(Unavailable):
        await process.send({"n": 1})


async def test_sending_to_one_that_closed_its_input_is_certain(world: World) -> None:
    process = await world.run("import os, time\nos.close(0)\nprint('{}', flush=True)\n" + THEN_WAITS)
    await first(process)
    with pytest.raises(Unavailable):
        await process.send({"n": 1})


async def test_an_end_in_the_midst_of_sending_is_uncertain(world: World) -> None:
    process = await world.run("import sys\nprint('{}', flush=True)\nsys.stdin.read(1000)")
    await first(process)
    with pytest.raises(Uncertain):
        await process.send({"text": "x" * 2 * MIB})
    with pytest.raises(Unavailable):
        await process.send({"n": 2})


READS_WHEN_ASKED = """
import os, sys, time
while not os.path.exists("read"): time.sleep(0.005)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


async def test_a_cancelled_send_tears_no_line(world: World) -> None:
    process = await world.run(READS_WHEN_ASKED)
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.1):
            await process.send({"n": 1, "text": "x" * MIB})  # begun: all of it will go
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.1):
            await process.send({"n": 2})  # not begun: none of it will
    world.file("read").touch()
    await process.send({"n": 3})
    seen = []
    async for line in process.lines():
        seen.append(line["n"])
        if line["n"] == 3:
            break
    assert seen == [1, 3]


async def test_a_cancelled_start_leaves_nothing(world: World) -> None:
    with anyio.move_on_after(0.02):
        await world.run("open('begun', 'w').close()\nimport time\ntime.sleep(60)")
    lock = world.home.with_name("session.lock")
    await eventually(lambda: not world.started and not carriers(world.home) and not holders(lock))


def holders(lock: Path) -> list[int]:
    """Every Guard that was started for this lock."""
    wanted = str(lock).encode()
    return [pid for pid in processes() if wanted in read(f"/proc/{pid}/cmdline").split(b"\0")]


async def test_what_was_written_before_the_end_is_read(world: World) -> None:
    process = await world.run(SAYS.format(json.dumps({"text": "x" * 60_000}).encode() + b"\n"))
    await process.wait()
    assert await everything(process) == [{"text": "x" * 60_000}]


async def test_many_at_once(world: World) -> None:
    async def one(n: int) -> None:
        process = await world.run(ECHO, home=world.home.with_name(f"session-{n}"))
        await process.send({"n": n})
        assert await first(process) == {"n": n}
        assert (await process.kill()).why is Why.killed

    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(one, n)


def test_the_clock_counts() -> None:
    before = boottime()
    assert before <= boottime() < before + 60
