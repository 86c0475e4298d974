"""The Anthropic Messages API as agents use it: what a request says, and the frames of a streamed or whole answer.

Reads any request that Claude Code sends (roles, thinking and output settings that it does not know it passes over). What
the program adds to people's words, reminders, summaries, the frame around a message sent in mid-turn, is taken off. Pure:
`models` owns the connection."""

import re
from collections.abc import Iterator, Mapping
from secrets import token_hex
from sys import intern

import msgspec

from amux.sandbox.replies import Ask, Call, Fail, Heard, Part, Say, Shell, Think, pieces

PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
USAGE = {"input_tokens": 80, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "output_tokens": 10}
REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
COMMAND = ("<local-command-", "<command-name>")  # one of Claude's own, and what came of it
SUMMARY = ("CRITICAL: Respond with TEXT ONLY.", "This session is being continued from")  # asked for, and told
ABORTED = "[Request interrupted by user"
SENT_MEANWHILE = re.compile(
    r"The user sent a new message while you were working:\n(.*?)(?:\n\n(?:IMPORTANT:|This is how Claude Code).*)?\Z",
    re.DOTALL,
)
ERRORS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Block(msgspec.Struct):
    type: str = ""
    text: str | None = None


class Message(msgspec.Struct):
    role: str = ""
    content: str | list[Block] | None = None

    @property
    def blocks(self) -> list[Block]:
        if isinstance(self.content, str):
            return [Block(type="text", text=self.content)]
        return self.content or []


class Tool(msgspec.Struct):
    name: str = ""


class Metadata(msgspec.Struct):
    user_id: str | None = None


class Body(msgspec.Struct):
    model: str = ""
    system: str | list[Block] | None = None
    messages: list[Message] = []
    stream: bool = False
    tools: list[Tool] | None = None
    metadata: Metadata | None = None


def heard(raw: bytes, headers: Mapping[str, str]) -> Heard:
    """What the request says. Raises `msgspec.DecodeError` (or its child for a wrong type) when it cannot be read."""
    body = msgspec.json.decode(raw, type=Body)
    said: list[str] = []
    added = [block.text or "" for block in Message(content=body.system).blocks]
    fresh = results = 0
    before = ""
    for message in body.messages:
        for block in message.blocks:
            kind = block.type if message.role == "user" else message.role
            text = _said(kind, block.text or "")
            if text.startswith(ABORTED):
                fresh = 0
            elif text.startswith(COMMAND + SUMMARY):
                added.append(text)
                fresh = 0 if text.startswith(SUMMARY) else fresh
                continue
            elif text:
                fresh = 1 if before == "assistant" else fresh + 1
                said.append(text)
                results = 0
            elif kind == "tool_result":
                results += 1
            if kind in ("assistant", "tool_result") or text:
                before = kind
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return Heard(
        path=PATH,
        model=body.model,
        key=headers.get("x-api-key", bearer),
        conversation=(body.metadata.user_id if body.metadata else "") or "",
        said=tuple(said),
        fresh=fresh,
        results=results,
        tools=tuple(tool.name for tool in body.tools or ()),
        instructed=intern("\n".join(added)),
    )


def _said(kind: str, text: str) -> str:
    """People's own words in a block: without reminders, without the frame around a message sent in mid-turn, which may
    also stand in a system message."""
    framed = SENT_MEANWHILE.search(text) if kind in ("text", "system") else None
    if framed:
        return framed[1].strip()
    return REMINDER.sub("", text).strip() if kind == "text" else ""


class Voice:
    """Frames of one answer; collected as blocks for a request that did not ask for a stream."""

    def __init__(self, model: str) -> None:
        self._message = {"id": f"msg_{token_hex(6)}", "type": "message", "role": "assistant", "model": model}
        self._blocks: list[dict[str, object]] = []
        self._stop = "end_turn"

    def open(self) -> Iterator[bytes]:
        begun = {"stop_reason": None, "stop_sequence": None, "usage": {**USAGE, "output_tokens": 1}}
        start: dict[str, object] = {**self._message, "content": [], **begun}
        yield _frame("message_start", message=start)

    def part(self, part: Part) -> Iterator[bytes]:
        """The frames of one part; between text deltas `models` waits as long as the part says."""
        match part:
            case Say(text):
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
                yield from self._block({"type": "text", "text": ""}, deltas, {"type": "text", "text": text})
            case Think(text):
                deltas = [
                    {"type": "thinking_delta", "thinking": text},
                    {"type": "signature_delta", "signature": "loopback"},
                ]
                empty: dict[str, object] = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._block(empty, deltas, {**empty, "thinking": text, "signature": "loopback"})
            case Shell(command) | Ask(command):
                yield from self._tool("Bash", {"command": command, "description": "Run a command"})
            case Call(name, arguments):
                yield from self._tool(name, arguments)
            case Fail(status, message):
                yield _frame("error", error=refusal(status, message)["error"])
            case _:
                return

    def close(self) -> Iterator[bytes]:
        yield _frame("message_delta", delta={"stop_reason": self._stop, "stop_sequence": None}, usage=USAGE)
        yield _frame("message_stop")

    def whole(self) -> dict[str, object]:
        """The answer to a request that did not ask for a stream."""
        return {
            **self._message,
            "content": self._blocks,
            "stop_reason": self._stop,
            "stop_sequence": None,
            "usage": USAGE,
        }

    def _tool(self, name: str, arguments: Mapping[str, object]) -> Iterator[bytes]:
        self._stop = "tool_use"
        empty: dict[str, object] = {"type": "tool_use", "id": f"toolu_{token_hex(8)}", "name": name, "input": {}}
        spelled = msgspec.json.encode(dict(arguments)).decode()
        deltas = [{"type": "input_json_delta", "partial_json": spelled}]
        yield from self._block(empty, deltas, {**empty, "input": dict(arguments)})

    def _block(
        self, empty: dict[str, object], deltas: list[dict[str, str]], whole: dict[str, object]
    ) -> Iterator[bytes]:
        index = len(self._blocks)
        self._blocks.append(whole)
        yield _frame("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _frame("content_block_delta", index=index, delta=delta)
        yield _frame("content_block_stop", index=index)


def refusal(status: int, message: str) -> dict[str, object]:
    """The body of an HTTP error."""
    return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message}}


def _frame(kind: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))
