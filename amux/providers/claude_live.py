"""What of a Turn's work is shown while it goes on: live text by message and place, tools from start to end, notices.

Text that streams is a preview: the whole block replaces it, and a new message, a broken stream or the Turn's end makes what
is left of it void. Fed with frames of the main conversation; a subagent's are its tool's own business and are passed over."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from amux.extensions import DeltaSeen, ItemId, ItemSeen, ItemStatus, ItemType, Outcome, ProviderEvent, TurnId
from amux.providers import claude_items
from amux.providers.pipes import Line


@dataclass(slots=True, eq=False)
class Live:
    """`failure` is Claude's word for what last went wrong with the model, and a sentence for people."""

    turn: TurnId
    failure: tuple[str, str] = ("", "")
    _message: str = ""
    _open: dict[ItemId, ItemSeen] = field(default_factory=dict)

    def take(self, frame: Line) -> list[ProviderEvent]:
        """What one frame shows, in its order. Raises KeyError, TypeError or AttributeError for one of another shape."""
        if frame.get("parent_tool_use_id"):
            return []
        match frame:
            case {"type": "stream_event", "event": dict(event)}:
                return self._stream(event)
            case {"type": "assistant", "error": str(word)} if word:
                told = claude_items.readable(frame["message"]["content"][0].get("text"))
                self.failure = word, f"{told}{claude_items.REMEDIES.get(word, '')}"
            case {"type": "assistant", "message": {"id": str(message), "content": list(blocks)}}:
                if not frame.get("aborted"):  # half a text is no part of the answer (H16)
                    return [event for block in blocks for event in self._block(frame, message, block)]
            case {"type": "user", "message": {"content": list(blocks)}}:
                return [event for block in blocks for event in self._returned(block)]
            case {"type": "system", "subtype": "api_retry"}:
                return [self._retried(frame)]
            case {"type": "system", "subtype": "compact_boundary"}:
                return [self._notice(str(frame.get("uuid")), "context compacted", "")]
        return []

    def end(self, outcome: Outcome) -> list[ItemSeen]:
        """How the items that are still open end: cut text is no part of the answer (H16), and only after a good end may a
        tool go on."""
        void = self._void()
        if outcome is Outcome.completed:
            return void
        return [*void, *(replace(item, status=ItemStatus.failed) for item in self._open.values())]

    def _stream(self, event: Line) -> list[ProviderEvent]:
        match event:
            case {"type": "message_start", "message": {"id": str(message)}}:
                self._message, self.failure = message, ("", "")
                return [*self._void()]
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": "text"}}:
                item = ItemSeen(self.turn, self._name(index), ItemType.message, ItemStatus.started)
                self._open[item.item] = item
                return [item]
            case {
                "type": "content_block_delta",
                "index": int(index),
                "delta": {"type": "text_delta", "text": str(text)},
            }:
                if before := self._open.get(self._name(index)):
                    self._open[before.item] = replace(before, text=before.text + text)
                    return [DeltaSeen(self.turn, before.item, len(before.text), text)]
        return []

    def _block(self, frame: Line, message: str, block: Line) -> list[ProviderEvent]:
        """A whole block. Its own preview, if there is one, is the one text that is open; others are of a lost stream."""
        name = ItemId(str(frame["uuid"]))
        match block:
            case {"type": "text", "text": str(text)}:
                void: list[ItemSeen] = [] if message == self._message else self._void()
                streaming = next((i.item for i in self._open.values() if i.type is ItemType.message), name)
                self._open.pop(streaming, None)
                return [*void, ItemSeen(self.turn, streaming, ItemType.message, ItemStatus.completed, text=text)]
            case {"type": "thinking", "thinking": str(text)} if text:
                return [ItemSeen(self.turn, name, ItemType.reasoning, ItemStatus.completed, text=text)]
            case {"type": "tool_use", "id": str(call), "name": str(tool), "input": dict(arguments)}:
                kind, title, text = claude_items.tool(tool, arguments)
                item = ItemSeen(self.turn, ItemId(call), kind, ItemStatus.started, title, text)
                self._open[item.item] = item
                return [item]
        return []

    def _returned(self, block: Line) -> list[ProviderEvent]:
        call = self._open.pop(ItemId(str(block.get("tool_use_id"))), None)
        if call is None:
            return []
        status = ItemStatus.failed if block.get("is_error") else ItemStatus.completed
        said = claude_items.result(block.get("content"))
        kept = call.type is ItemType.file and status is ItemStatus.completed  # the change says more than "updated"
        return [replace(call, status=status, text=call.text if kept else said)]

    def _retried(self, frame: Line) -> ItemSeen:
        why = frame.get("error") or frame.get("error_status") or "no answer"
        detail = f"attempt {frame.get('attempt')} of {frame.get('max_retries')}"
        return self._notice("retry", f"The model is asked again: {why}", detail)

    def _notice(self, name: str, title: str, text: str) -> ItemSeen:
        return ItemSeen(self.turn, ItemId(name), ItemType.notice, ItemStatus.completed, title, text)

    def _name(self, index: int) -> ItemId:
        return ItemId(f"{self._message}-{index}")

    def _void(self) -> list[ItemSeen]:
        lost = [item for item in self._open.values() if item.type is ItemType.message]
        for item in lost:
            del self._open[item.item]
        return [replace(item, status=ItemStatus.superseded) for item in lost]
