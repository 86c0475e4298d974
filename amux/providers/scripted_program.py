"""The scripted agent as a program of its own: the behaviour of `scripted_agent` on pipes, with its memory in its home.

Run with SECONDS and, to resume, the name of a CONVERSATION; standard library only. It keeps its conversations and, in
`record.jsonl`, every input that it took: what the drills count doubled inputs by."""

import json
import os
import select
import signal
import sys
import time

from amux.providers.scripted_agent import Agent, Line, number

CLOCK_SECONDS = 0.05


class Files:
    """The agent's memory in its home: one file a conversation, and the record of all inputs."""

    def __init__(self, home: str, conversation: str) -> None:
        self._record = f"{home}/record.jsonl"
        self._folder = f"{home}/conversations"
        os.makedirs(self._folder, exist_ok=True)
        self.name = conversation or f"scripted-{len(os.listdir(self._folder)) + 1}"
        self._path = f"{self._folder}/{self.name}.jsonl"
        if conversation and not os.path.exists(self._path):
            raise FileNotFoundError(conversation)
        with open(self._path, "a+", encoding="utf-8") as file:
            file.seek(0)
            self.known = sum('"who": "user"' in line[:20] for line in file)

    def heard(self, said: Line, how: str) -> None:
        self.known += 1
        _append(self._record, {"input": said["id"], "how": how, "at": time.time()})
        _append(self._path, {"who": "user", "input": said["id"], "text": said["text"]})

    def answered(self, text: str) -> None:
        _append(self._path, {"who": "agent", "text": text})


def _append(path: str, line: Line) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class Program:
    """The agent on its pipes: what only a process of its own can do."""

    def __init__(self, seconds: float, memory: Files) -> None:
        self._agent = Agent(memory=memory, seconds=seconds, tell=tell, act=self._act)
        self._tools: list[int] = []
        self._read = b""

    def serve(self) -> None:
        """Until stdin ends."""
        while True:
            due = self._agent.due
            seconds = None if due is None else max(0.0, due - time.monotonic())
            if select.select([0], [], [], seconds)[0]:
                more = os.read(0, 1 << 20)
                if not more:
                    return
                *lines, self._read = (self._read + more).split(b"\n")
                for line in lines:
                    self._agent.hear(json.loads(line), time.monotonic())
            self._agent.go_on(time.monotonic())

    def _act(self, word: str, argument: str) -> None:
        match word:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "silent":
                while True:
                    signal.pause()
            case "garbage":
                sys.stdout.write("this is no JSON\n" * int(number(argument, 100)))
                sys.stdout.flush()
            case "clock":
                self._tools.append(clock(argument or "clock"))
            case "rest":
                for pid in self._tools:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                self._tools.clear()


def clock(path: str) -> int:
    """A tool in a session of its own that writes the time to a file until it is killed; answers its number."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with open(path, "a", buffering=1, encoding="utf-8") as file:
            while True:
                file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\n")
                time.sleep(CLOCK_SECONDS)
    return pid


def tell(line: Line) -> None:
    """One line to the owner."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    conversation = sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        memory = Files(os.environ["HOME"], conversation)
    except FileNotFoundError:
        tell({"is": "no_history"})
        return
    tell({"is": "ready", "conversation": memory.name})
    Program(float(sys.argv[1]), memory).serve()
