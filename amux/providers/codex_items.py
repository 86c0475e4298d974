"""What Codex says in our words, and ours in its: pure, one answer for one native item, nothing remembered.

Kinds of items that nobody here knows are passed over, and so are unknown fields: they come with every release."""

import re
import shlex
from dataclasses import dataclass

from amux.extensions import Input, ItemId, ItemSeen, ItemStatus, ItemType, TurnId, Usage
from amux.providers.pipes import Line
from amux.providers.texts import as_text, bounded

REMEDIES = {
    401: " Check OPENAI_API_KEY.",
    404: " Start a Session with a model that OPENAI_BASE_URL serves.",
}
URL = re.compile(r",? ?url: \S+")


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens of a whole thread so far; a Turn's usage is a difference of two of them."""

    input: int = 0
    cached: int = 0
    output: int = 0

    def __sub__(self, before: "Totals") -> "Totals":
        return Totals(self.input - before.input, self.cached - before.cached, self.output - before.output)

    def usage(self) -> Usage:
        return Usage(self.input, self.cached, self.output)


def totals(counted: Line) -> Totals:
    return Totals(*(int(counted.get(name) or 0) for name in ("inputTokens", "cachedInputTokens", "outputTokens")))


def begun(turn: TurnId, item: Line) -> ItemSeen | None:
    """The item as it starts; None for a kind that is shown only when it is done, or never."""
    seen = _seen(turn, item, ItemStatus.started)
    return None if seen is None or seen.type is ItemType.reasoning else seen


def done(turn: TurnId, item: Line) -> ItemSeen | None:
    """The item as it ended; None for a kind that is not shown."""
    failed = item.get("status") in ("failed", "declined")
    seen = _seen(turn, item, ItemStatus.failed if failed else ItemStatus.completed)
    return None if seen is None or (seen.type is ItemType.reasoning and not seen.text) else seen


def _seen(turn: TurnId, item: Line, status: ItemStatus) -> ItemSeen | None:
    kind, title, text = _described(item)
    return ItemSeen(turn, ItemId(str(item["id"])), kind, status, title, text) if kind else None


def _described(item: Line) -> tuple[ItemType | None, str, str]:
    """The canonical type, title and text of a native item; no type for a kind that is not shown."""
    kind, title, text = None, "", ""
    match item.get("type"):
        case "agentMessage" | "plan":
            kind, text = ItemType.message, as_text(item.get("text"))
        case "reasoning":
            kind, text = ItemType.reasoning, "\n\n".join(map(as_text, item.get("summary") or ()))
        case "commandExecution":
            kind, title = ItemType.tool, command(as_text(item.get("command")))
            text = bounded(as_text(item.get("aggregatedOutput")))
        case "fileChange":
            kind, title, text = ItemType.file, paths(item), bounded(diff(item))
        case "mcpToolCall" | "dynamicToolCall":
            kind, text = ItemType.tool, bounded(_result(item))
            title = ".".join(as_text(item[part]) for part in ("server", "namespace", "tool") if item.get(part))
        case "webSearch":
            kind, title = ItemType.tool, f"search: {as_text(item.get('query'))}"
        case "imageView":
            kind, title = ItemType.tool, f"view {as_text(item.get('path'))}"
        case "contextCompaction":
            kind, title = ItemType.notice, "context compacted"
    return kind, title, text


def retried(turn: TurnId, error: Line) -> ItemSeen:
    """The request to the model failed and is made again."""
    detail = _readable(error.get("additionalDetails"))
    return ItemSeen(
        turn, ItemId("retry"), ItemType.notice, ItemStatus.completed, _readable(error.get("message")), detail
    )


def failure(error: object) -> tuple[str, str]:
    """Why a turn failed: a word of Codex's own, and a sentence for people. Two empty texts when it did not."""
    if not isinstance(error, dict):
        return "", ""
    info = error.get("codexErrorInfo")
    reason, about = next(iter(info.items())) if isinstance(info, dict) and info else (info, None)
    status = about.get("httpStatusCode") if isinstance(about, dict) else None
    remedy = REMEDIES.get(status, "") if isinstance(status, int) else ""
    return as_text(reason) or "other", f"{_readable(error.get('message'))}{remedy}"


def question(params: Line, item: ItemSeen | None) -> tuple[str, str]:
    """What a permission request is about, in one line, and the rest: Codex's reason, or the change itself."""
    asked = command(as_text(params.get("command"))) or (item.title if item else "") or as_text(params.get("message"))
    return asked or "change files", as_text(params.get("reason")) or (item.text if item else "")


def message(inputs: tuple[Input, ...], note: str) -> dict[str, object]:
    """One native message: amux's note, then what people wrote, word for word. It goes by the first input's id."""
    texts = [note] if note else []
    images = []
    for said in inputs:
        texts.append(said.text)
        images += [material.path for material in said.material if material.kind == "image"]
        texts += [f"[{m.kind} {m.name}: {m.path}]" for m in said.material if m.kind != "image"]
    text = {"type": "text", "text": "\n\n".join(filter(None, texts)), "text_elements": []}
    shown = [{"type": "localImage", "path": path} for path in images]
    return {"input": [text, *shown], "clientUserMessageId": inputs[0].id}


def command(line: str) -> str:
    """The command itself, without the login shell that Codex wraps around it."""
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    return words[2] if len(words) == 3 and words[1] == "-lc" else line


def paths(item: Line) -> str:
    """What a file change touches: `add a.py, update b.py`."""
    return ", ".join(f"{_kind(change)} {as_text(change.get('path'))}" for change in item.get("changes") or ())


def diff(item: Line) -> str:
    return "\n".join(as_text(change.get("diff")) for change in item.get("changes") or ())


def _kind(change: Line) -> str:
    kind = change.get("kind")
    return as_text(kind.get("type") if isinstance(kind, dict) else kind) or "change"


def _result(item: Line) -> str:
    result, error = item.get("result"), item.get("error")
    if isinstance(error, dict):
        return as_text(error.get("message"))
    parts = (result.get("content") if isinstance(result, dict) else item.get("contentItems")) or ()
    return "\n".join(as_text(part.get("text")) for part in parts if isinstance(part, dict) and part.get("text"))


def _readable(value: object) -> str:
    """A message without the address of the model server, which may hold more than people should see."""
    return URL.sub("", as_text(value))
