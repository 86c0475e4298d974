"""How the scripted agent behaves: deterministic, and programmed by what it is told. No clock, no pipe, no file.

A prompt may be a script: lines that begin with `!`. Any other prompt is worked on for about the set number of seconds,
with thinking, text, tools and an answer that quotes it. What is steered is committed when it is taken: between two steps,
or two pieces of a text.

  !say TEXT   !many COUNT x TEXT   !think TEXT   !stream COUNT x SECONDS   !tool NAME ...   !ask TEXT   !sleep SECONDS
  !clock FILE   !hang   !listen   !silent   !garbage [COUNT]   !fail REASON   !die

It imports little, since it starts in a process of its own; the benchmarks run it inside the worker."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

Line = dict[str, Any]
WORDS = (
    "ask",
    "clock",
    "die",
    "fail",
    "garbage",
    "hang",
    "listen",
    "many",
    "say",
    "silent",
    "sleep",
    "stream",
    "think",
    "tool",
)
PIECES = 12  # of each text that a friendly answer streams
BEATS = 2 * PIECES + 1 + 3  # pauses of a friendly answer
TOOLS = ("read README.md", "search the workspace", "run the tests")  # that a friendly answer pretends to use
QUOTED = 200  # characters of a prompt that an answer repeats


class Step(NamedTuple):
    """One line of a script."""

    word: str
    argument: str


class Wait(NamedTuple):
    """Go on after `seconds`; None: when something that matters was heard."""

    seconds: float | None


class Interrupted(Exception):
    """The Turn was interrupted."""


class Failed(Exception):
    """The Turn fails: a reason, and a sentence for people."""


class Memory(Protocol):
    """What the agent keeps."""

    known: int

    def heard(self, said: Line, how: str) -> None:
        """Record that this input was taken, before anybody is told so."""

    def answered(self, text: str) -> None:
        """Keep what was answered."""


def parse(text: str) -> list[Step]:
    """The steps of a prompt. Raises Failed for a script with an unknown word."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any(line.startswith("!") for line in lines):
        return []
    steps = []
    for line in lines:
        word, _, argument = line[1:].partition(" ") if line.startswith("!") else ("say", "", line)
        if word not in WORDS:
            raise Failed("bad_script", f"No such step. There are: {', '.join('!' + each for each in WORDS)}.")
        count, _, repeated = argument.partition(" x ")
        if word == "many":
            steps += [Step("say", repeated.strip())] * int(number(count, 1))
        else:
            steps.append(Step(word, argument.strip()))
    return steps


def quote(text: str) -> str:
    """One line of it, cut when it is long."""
    line = " ".join(text.split())
    return f'"{line[:QUOTED]}…"' if len(line) > QUOTED else f'"{line}"'


def pieces(text: str) -> list[str]:
    """A text in at most PIECES parts, cut between words."""
    words = text.split(" ")
    size = -(-len(words) // PIECES)
    parts = [" ".join(words[at : at + size]) + " " for at in range(0, len(words), size)]
    return [*parts[:-1], parts[-1].rstrip()]


class Turn:
    """One Turn: what it was told, and the script it follows. `run` says when to go on; between, `Agent` tells it more."""

    def __init__(self, agent: "Agent", line: Line) -> None:
        self.id: int = line["turn"]
        self.interrupted = False
        self.asked: str | None = None
        self.listening = False  # what is steered is taken at once
        self.answers: dict[str, str] = {}
        self.waiting: deque[list[Line]] = deque()  # steers that the next boundary takes
        self._agent, self._first, self._note = agent, line["inputs"], line.get("note", "")
        self._added: list[Line] = []  # steered, and not yet spoken of
        self._open: Line | None = None
        self._items = 0
        self._steps: deque[Step] = deque()
        self._said = ""
        self._known = agent.memory.known

    @property
    def urgent(self) -> bool:
        """Whether it must go on before its time."""
        return self.interrupted or self.asked in self.answers or (self.listening and bool(self.waiting))

    def run(self) -> Iterator[Wait]:
        """Work to the end, which is told once."""
        try:
            yield from self._work()
            self._end("completed")
        except Interrupted:
            self._close("failed")
            self._end("interrupted")
        except Failed as e:
            self._close("failed")
            self._end("failed", *e.args)

    def _work(self) -> Iterator[Wait]:
        text = "\n".join(said["text"] for said in self._first)
        steps, error = self._parse(text)
        if steps[:1] == [Step("silent", "")]:
            self._agent.act("silent", "")
        self._take(self._first, "start")
        if error:
            raise error
        self._steps.extend([Step("think", self._note)] if self._note else [])
        self._steps.extend(steps or self._friendly(text))
        while True:
            self._take_steers()
            step = self._steps.popleft() if self._steps else None
            if step and step.word == "say":  # takes no time, and benchmarks say much
                self._say(step.argument)
            elif step:
                yield from self._do(step)
            elif self._added:
                self._say(self._mention())
            else:
                return

    def _parse(self, text: str) -> tuple[list[Step], Failed | None]:
        try:
            return parse(text), None
        except Failed as e:
            return [], e

    def _friendly(self, text: str) -> list[Step]:
        think, stream = (
            Step("think", f"What is asked: {quote(text)}."),
            Step(
                "tell", f"I look at {quote(text)} first, then at what is around it, and run the tests before I answer."
            ),
        )
        return [think, stream, *(Step("tool", name) for name in TOOLS), Step("answer", text)]

    def _take(self, inputs: list[Line], how: str) -> None:
        for said in inputs:
            self._agent.memory.heard(said, how)
        self.tell("committed", inputs=[said["id"] for said in inputs])

    def _take_steers(self) -> None:
        while self.waiting:
            inputs = self.waiting.popleft()
            self._take(inputs, "steer")
            for said in inputs:
                steps, error = self._parse(said["text"])
                self._steps.extend(steps)
                self._added += [] if steps else [said]
                if error:
                    raise error

    def _mention(self) -> str:
        added, self._added = self._added, []
        return f"You added {', '.join(quote(said['text']) for said in added)}."

    def _do(self, step: Step) -> Iterator[Wait]:
        beat = self._agent.beat
        match step:
            case Step("think", text):
                self._begin("reasoning", "", text)
                yield from self._pause(beat)
                self._close("completed")
            case Step("tool", name):
                self._begin("tool", name or "tool", "")
                yield from self._pause(beat)
                self._close("completed", text="done")
            case Step("stream", how):
                count, _, seconds = how.partition("x")
                words = [f"word {n} " for n in range(1, int(number(count, 1)) + 1)]
                yield from self._stream(words, number(seconds, 0))
            case Step("answer", text):
                known = f"I know {self._known} earlier message{'' if self._known == 1 else 's'}."
                added = [self._mention()] if self._added else []
                yield from self._stream(pieces(" ".join([f"You said {quote(text)}.", *added, known])), beat)
            case Step("tell", text):
                yield from self._stream(pieces(text), beat)
            case Step("ask", text):
                yield from self._ask(text)
            case Step("sleep", seconds):
                yield from self._pause(number(seconds, 1))
            case Step("hang"):
                yield from self._pause(None)
            case Step("listen"):
                yield from self._listen()
            case Step("fail", reason):
                raise Failed(reason or "failed", "The script says so.")
            case Step(word, argument):
                self._agent.act(word, argument)

    def _pause(self, seconds: float | None) -> Iterator[Wait]:
        yield Wait(seconds)
        while seconds is None and not self.urgent:
            yield Wait(None)
        if self.interrupted:
            raise Interrupted

    def _listen(self) -> Iterator[Wait]:
        """Take all that is steered, until the interrupt."""
        self.listening = True
        while True:
            yield from self._pause(None)
            self._take_steers()

    def _ask(self, text: str) -> Iterator[Wait]:
        self.asked = f"{self.id}.{self._items + 1}"
        self.tell("asked", request=self.asked, title=text.strip('"'))
        self._items += 1
        yield from self._pause(None)
        verdict, self.asked = self.answers[self.asked], None
        self._say(f"The answer was: {verdict}.")

    def _say(self, text: str) -> None:
        self._items += 1
        self._said += f"{text}\n"
        self._agent.tell(
            {
                "is": "item",
                "turn": self.id,
                "item": f"{self.id}.{self._items}",
                "type": "message",
                "title": "",
                "text": text,
                "status": "completed",
            }
        )

    def _stream(self, parts: list[str], seconds: float) -> Iterator[Wait]:
        item = self._begin("message", "", "")
        for piece in parts:
            if seconds:
                yield from self._pause(seconds)
                self._take_steers()
            self.tell("delta", item=item["item"], offset=len(item["text"]), text=piece)
            item["text"] += piece
        self._close("completed")

    def _begin(self, type_: str, title: str, text: str) -> Line:
        self._items += 1
        self._open = {"item": f"{self.id}.{self._items}", "type": type_, "title": title, "text": text}
        if type_ != "message" or not text:
            self.tell("item", **self._open, status="started")
        return self._open

    def _close(self, status: str, **change: str) -> None:
        item, self._open = self._open, None
        if item is None:
            return
        item.update(change)
        if item["type"] == "message":
            self._said += item["text"] + "\n"
            status = "completed" if status == "completed" else "superseded"
        self.tell("item", **item, status=status)

    def _end(self, outcome: str, reason: str = "", detail: str = "") -> None:
        while self.waiting:
            self._agent.refuse(self.id, self.waiting.popleft())
        self._agent.memory.answered(self._said.strip())
        self._agent.act("rest", "")
        unhandled = [said["id"] for said in self._added]
        spent = {
            "input_tokens": sum(len(said["text"]) for said in self._first) // 4,
            "output_tokens": len(self._said) // 4,
        }
        self.tell("ended", outcome=outcome, reason=reason, detail=detail, unhandled=unhandled, usage=spent)

    def tell(self, what: str, **more: object) -> None:
        self._agent.tell({"is": what, "turn": self.id, **more})


def number(text: str, otherwise: float) -> float:
    """What a step says, or `otherwise` where it says nothing. Raises Failed."""
    try:
        return float(text.strip().removesuffix("s") or otherwise)
    except ValueError:
        raise Failed("bad_script", f"{quote(text)} is no number.") from None


class Agent:
    """The whole agent, fed with lines and with the time. `due` is when it must go on by itself, None for never."""

    def __init__(
        self, *, memory: Memory, seconds: float, tell: Callable[[Line], None], act: Callable[[str, str], None]
    ):
        self.memory, self.tell, self.act = memory, tell, act
        self.beat = round(seconds / BEATS, 4)
        self.due: float | None = None
        self._turn: Turn | None = None
        self._run: Iterator[Wait] = iter(())

    def hear(self, line: Line, now: float) -> None:
        """Take one line of the owner's."""
        turn = self._turn if self._turn and self._turn.id == line.get("turn", self._turn.id) else None
        match line.get("do"):
            case "start" if self._turn is None:
                self._turn = Turn(self, line)
                self._run, self.due = self._turn.run(), now
            case "start":
                self.refuse(line["turn"], line["inputs"])
            case "steer" if turn:
                turn.waiting.append(line["inputs"])
            case "steer":
                self.refuse(line["turn"], line["inputs"])
            case "interrupt" if turn:
                turn.interrupted = True
            case "compact":
                self.tell({"is": "compacted", "done": self._turn is None})
            case "answer" if turn:
                turn.answers.setdefault(line["request"], line["verdict"])
        if self._turn and self._turn.urgent:
            self.due = now
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Work until there is something to wait for."""
        while self._turn and self.due is not None and self.due <= now:
            wait = next(self._run, None)
            if wait is None:
                self._turn = self.due = None
            else:
                self.due = None if wait.seconds is None else now + wait.seconds

    def refuse(self, turn: int, inputs: list[Line]) -> None:
        """These were not taken and never will be."""
        self.tell({"is": "refused", "turn": turn, "inputs": [said["id"] for said in inputs]})
