"""What the loopback models say: the parts of a reply, scripts of a test, and the answer when there is no script.

Pure: it opens no socket and waits for nothing; `models` plays what is decided here. A prompt may be a script, in the words
of the built-in agent, one a line; any other prompt gets a paced answer around one harmless shell command.

  !say TEXT   !think TEXT   !stream COUNT x SECONDS   !tool COMMAND   !ask COMMAND   !clock FILE   !sleep SECONDS
  !hang   !silent   !fail REASON   !die, of the agent   !drop, of the connection to the model"""

import re
import shlex
from asyncio import Event
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Say:
    """Text, streamed word by word over `seconds`."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Think:
    """A summary of reasoning, in one piece."""

    text: str


@dataclass(frozen=True, slots=True)
class Shell:
    """A call of the agent's shell tool, by the name that its API gives it."""

    command: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The same, for a command that wants a person's permission, where the agent asks for any."""

    command: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of any other tool. `namespace` is for Codex alone, where tools of an MCP server have one."""

    name: str
    arguments: Mapping[str, object]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence for some seconds, the connection open."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Silence until a test says so."""

    until: Event


@dataclass(frozen=True, slots=True)
class Fail:
    """An error: of HTTP when it is the first part, told inside the stream when it comes later."""

    status: int
    message: str = "the loopback model was told to fail"


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks here."""


@dataclass(frozen=True, slots=True)
class Hang:
    """No more, ever: without headers when it is the first part, a silent open stream later."""


Part = Say | Think | Shell | Ask | Call | Pause | Hold | Fail | Drop | Hang
Reply = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What one request said, whatever its API: `said` is each text of people in the whole conversation, in order, without
    the agent's own additions; the last `fresh` of them were not yet answered, and `results` tools ran since the last one.
    `instructed` is what the agent was told by no person, system prompt and summaries included: one text for all requests
    that repeat it. A request for a summary asks for an answer to nothing."""

    path: str
    model: str
    key: str = field(repr=False)
    conversation: str
    said: tuple[str, ...]
    fresh: int
    results: int
    tools: tuple[str, ...] = ()
    instructed: str = ""

    @property
    def asked(self) -> tuple[str, ...]:
        return self.said[len(self.said) - self.fresh :]


@dataclass(slots=True)
class Script:
    """The replies to every request that carries `marker` in a text or as its API key, one a request, in order."""

    marker: str
    replies: deque[Reply]
    heard: list[Heard] = field(default_factory=list)

    def fits(self, heard: Heard) -> bool:
        return self.marker == heard.key or any(self.marker in text for text in heard.said)

    def then(self, *replies: Reply) -> None:
        """Add replies to the end of the queue."""
        self.replies.extend(replies)


CHUNK = 12  # characters: also text without spaces streams in pieces
WORDS = "say|think|stream|tool|ask|clock|sleep|hang|silent|fail|die|drop"
DIRECTIVE = re.compile(rf"^[ \t]*!({WORDS})\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
CLOCK = (
    "while :; do cut -d' ' -f1 /proc/uptime >> {file}; sleep 0.02; done"  # seconds since the boot, until it is killed
)
QUOTED = 400  # characters of the prompt that an answer repeats


def pieces(text: str) -> list[str]:
    """The text cut as a model streams it: words with their spaces, long ones in chunks."""
    words = re.findall(r"\S+\s*|\s+", text)
    return [word[at : at + CHUNK] for word in words for at in range(0, len(word), CHUNK)]


def plan(heard: Heard, *, seconds: float) -> Reply:
    """The reply to a request without a script: the part of the answer that follows the tools that already ran.
    `seconds` is how long an answer to a plain prompt takes in all."""
    asked = heard.asked or heard.said[-1:]
    last = asked[-1] if asked else ""
    parts = list(_directed(last)) or list(_plain(asked, seconds))
    stages = list(_stages(parts))
    return stages[min(heard.results, len(stages) - 1)]


def _stages(parts: Iterable[Part]) -> Iterator[Reply]:
    """A response ends with a tool call: what follows it belongs to the next request."""
    stage: list[Part] = []
    for part in parts:
        stage.append(part)
        if isinstance(part, Shell | Ask):
            yield tuple(stage)
            stage = []
    yield tuple(stage) or (Say("Done."),)


def _directed(text: str) -> Iterator[Part]:
    for word, rest in DIRECTIVE.findall(text):
        yield _part(word, rest)


def _part(word: str, rest: str) -> Part:  # noqa: PLR0911 - one line a word
    match word:
        case "say":
            return Say(rest)
        case "think":
            return Think(rest)
        case "stream":
            count, _, seconds = rest.partition("x")
            pieces = max(1, int(_number(count, 20)))
            return Say(" ".join(f"word{n}" for n in range(1, pieces + 1)), seconds=pieces * _number(seconds, 0.05))
        case "tool":
            return Shell(rest or "true")
        case "ask":
            return Ask(f"echo {shlex.quote(rest)} > asked.txt")
        case "clock":
            return Shell(CLOCK.format(file=shlex.quote(rest or "clock")))
        case "sleep":
            return Pause(_number(rest, 1.0))
        case "fail":
            return Fail(400, rest or "the prompt told the loopback model to fail")
        case "die":
            return Shell("kill -9 $PPID")
        case "drop":
            return Drop()
        case _:
            return Hang()


def _number(text: str, otherwise: float) -> float:
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return float(found[1]) if found else otherwise


def _plain(asked: tuple[str, ...], seconds: float) -> Iterator[Part]:
    if len(asked) < 2:  # what joined a running turn is answered at once, with what it joined
        yield Say("Let me have a look first.", seconds=seconds * 0.2)
        yield Shell('echo "nothing here needs a change"')
    quotes = "\n\n".join("> " + _shortened(text).replace("\n", "\n> ") for text in asked)
    told = (
        f"You asked:\n\n{quotes}\n\nThis is the loopback model, which ships with amux: it ran one harmless command "
        "and repeats what it was told. Point amux at a real model, and a real answer stands here."
    )
    yield Say(told, seconds=seconds * 0.8)


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTED else text[:QUOTED] + " …"
