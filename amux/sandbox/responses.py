"""The OpenAI Responses API as agents use it: what a request says, and the frames of a streamed answer.

Reads any request that Codex sends, known model or not: what it does not know it passes over, and tools may be missing or ride
in an input item. Pure: `models` owns the connection."""

import json
from collections.abc import Iterator, Mapping
from secrets import token_hex
from sys import intern

import msgspec

from amux.sandbox.replies import Ask, Call, Fail, Heard, Part, Say, Shell, Think, pieces

PATH = "/v1/responses"
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 110,
}
ADDED_BY_CODEX = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<skill", "<codex_internal_context")
SUMMARY = ("You are performing a CONTEXT CHECKPOINT", "Another language model started to solve")  # asked for, and told
ABORTED = "<turn_aborted>"


class Content(msgspec.Struct):
    type: str = ""
    text: str | None = None


class Tool(msgspec.Struct):
    type: str = ""
    name: str | None = None


class Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[Content] | None = None
    tools: list[Tool] = []

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text or "" for part in self.content or ())


class Body(msgspec.Struct):
    model: str = ""
    input: str | list[Item] = ""
    stream: bool = False
    tools: list[Tool] | None = None
    prompt_cache_key: str | None = None


def heard(raw: bytes, headers: Mapping[str, str]) -> Heard:
    """What the request says. Raises `msgspec.DecodeError` (or its child for a wrong type) when it cannot be read."""
    body = msgspec.json.decode(raw, type=Body)
    items = [Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    said: list[str] = []
    added = [item.text for item in items if item.role in ("developer", "system")]
    fresh = results = 0
    before = ""
    for item in items:
        if item.type == "message" and item.role == "user":
            if item.text.startswith(ADDED_BY_CODEX + SUMMARY):
                added.append(item.text)
                fresh = 0 if item.text.startswith(SUMMARY) else fresh
                continue
            if item.text.startswith(ABORTED):
                fresh = 0
                continue
            fresh = 1 if before == "assistant" else fresh + 1
            said.append(item.text)
            results = 0
        elif item.type.endswith("_call_output"):
            results += 1
        before = item.role if item.type == "message" else item.type
    return Heard(
        path=PATH,
        model=body.model,
        key=headers.get("authorization", "").removeprefix("Bearer "),
        conversation=body.prompt_cache_key or "",
        said=tuple(said),
        fresh=fresh,
        results=results,
        tools=tuple(tool.name or tool.type for tool in body.tools or ()),
        instructed=intern("\n".join(added)),
    )


class Voice:
    """Frames of one streamed answer."""

    def __init__(self, model: str) -> None:
        self._response = {"id": f"resp_{token_hex(6)}", "object": "response", "model": model}
        self._output: list[object] = []

    def open(self) -> Iterator[bytes]:
        yield _frame("response.created", response={**self._response, "status": "in_progress", "output": []})

    def part(self, part: Part) -> Iterator[bytes]:
        """The frames of one part; between text deltas `models` waits as long as the part says."""
        match part:
            case Say(text):
                yield from self._say(text)
            case Think(text):
                item = {"type": "reasoning", "id": f"rs_{token_hex(6)}", "summary": []}
                told = {"type": "summary_text", "text": text}
                yield _frame("response.output_item.added", output_index=0, item=item)
                yield _frame("response.reasoning_summary_part.added", item_id=item["id"], summary_index=0, part=told)
                yield _frame("response.reasoning_summary_text.delta", item_id=item["id"], summary_index=0, delta=text)
                yield self._done({**item, "summary": [told]})
            case Shell(command):
                yield self._done(_call("exec_command", {"cmd": command}, ""))
            case Ask(command):
                outside = {"sandbox_permissions": "require_escalated", "justification": "it was asked for"}
                yield self._done(_call("exec_command", {"cmd": command, **outside}, ""))
            case Call(name, arguments, namespace):
                yield self._done(_call(name, arguments, namespace))
            case Fail(_, message):
                error = {"code": "server_error", "message": message}
                yield _frame("response.failed", response={**self._response, "status": "failed", "error": error})
            case _:
                return

    def close(self) -> Iterator[bytes]:
        whole = {**self._response, "status": "completed", "output": self._output, "usage": USAGE}
        yield _frame("response.completed", response=whole)

    def whole(self) -> dict[str, object]:
        """The answer to a request that did not ask for a stream."""
        return {**self._response, "status": "completed", "output": self._output, "usage": USAGE}

    def _say(self, text: str) -> Iterator[bytes]:
        name = f"msg_{token_hex(6)}"
        message = {"type": "message", "id": name, "role": "assistant", "status": "in_progress", "content": []}
        yield _frame("response.output_item.added", output_index=0, item=message)
        for piece in pieces(text):
            yield _frame("response.output_text.delta", item_id=name, output_index=0, content_index=0, delta=piece)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        yield self._done({**message, "status": "completed", "content": content})

    def _done(self, item: dict[str, object]) -> bytes:
        self._output.append(item)
        return _frame("response.output_item.done", output_index=len(self._output) - 1, item=item)


def refusal(status: int, message: str) -> dict[str, object]:
    """The body of an HTTP error."""
    kind = {404: "model_not_found", 429: "rate_limit_exceeded"}.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": kind}}


def _call(name: str, arguments: Mapping[str, object], namespace: str) -> dict[str, object]:
    spelled = {"namespace": namespace} if namespace else {}
    call = {"type": "function_call", "id": f"fc_{token_hex(6)}", "call_id": f"call_{token_hex(6)}", "name": name}
    return {**call, **spelled, "arguments": json.dumps(dict(arguments))}


def _frame(kind: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))
