"""The Bridge's way in: what Feishu pushed is read, journaled, and only then acknowledged. Never does work itself.

What cannot be journaled is not acknowledged, so Feishu sends it again; what can never be taken is told to its sender
and acknowledged. A poison event is a log line, not an error that would bring it back four times."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from amux.core.admission import Access, may_drive
from amux.core.errors import Broken, Refused, Unavailable, Uncertain
from amux.core.ids import InputId, Principal, RequestId, SessionKey
from amux.core.inputs import Answer, Control, Interrupt, Material, Origin, Verdict
from amux.core.routing import Message as Routed
from amux.feishu.normalize import CardAction, ChatType, Ignored, Message, Recalled, SenderKind, normalize
from amux.feishu.openapi import OpenApi
from amux.feishu.phrases import Text, say
from amux.ports import CardRow
from amux.runtime import failpoints
from amux.runtime.deliver import FINAL
from amux.runtime.receive import Receive, Refusal

log = structlog.stdlib.get_logger()
NOT_AGAIN = {  # why it was not sent again: what its presser is told
    "again_waits": "toast_again_waits",
    "again_ran": "toast_again_ran",
    "message_too_long": "notice_message_too_long",
}
NAME_SECONDS = 0.4  # a name is nice to have; the acknowledgement cannot wait for it


class Buttons(Protocol):
    """Which card a button stands on."""

    async def by_nonce(self, nonce: str) -> CardRow | None:
        """The row of that nonce; None when no card of ours has it."""


@dataclass(slots=True)
class Ingress:
    """One bot's ear. `open_id` is its own Feishu user."""

    api: OpenApi
    open_id: str
    receive: Receive
    buttons: Buttons
    access: Access
    _names: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, raw: bytes) -> Mapping[str, Any] | None:
        """One pushed event. Returns what answers a click; raises when it must be pushed again."""
        match normalize(raw, app=self.api.app, bot=self.open_id):
            case Message() as said:
                await self._message(said)
                return None
            case CardAction() as click:
                return toast(await self._click(click))
            case Recalled() as back:
                by = Principal(f"feishu:{back.app}:nobody")  # Feishu does not say who did it, and lets nobody else
                await self.receive.submit.recall(back.target, back.input_id, by)
                return None
            case Ignored() as other:
                log.info("not_taken", kind=type(other).__name__, reason=other.reason)
                return None

    # -- messages -----------------------------------------------------------------------------------------------------

    async def _message(self, said: Message) -> None:
        try:
            received = await self.receive.message(await self._routed(said))
        except Broken as why:  # it can never be journaled, however often it is pushed
            log.error("poison_event", why=str(why))
            return
        except Refused as why:
            if why.key == "recalled":
                return
            self._notice(said, say(f"notice_{why.key}") if why.key == "message_too_long" else Text(str(why), str(why)))
            return
        if isinstance(received, Refusal):
            self._notice(said, say(f"notice_{received}"))
        failpoints.hit("before_ack")

    async def _routed(self, said: Message) -> Routed:
        """Its topic is known by its thread, by its root, or is begun by itself."""
        keys = (said.thread_id, said.root_id if said.thread_id else None, said.message_id)
        person = said.sender_kind is SenderKind.person
        meant = said.mentions_bot or said.chat_type is ChatType.p2p
        return Routed(
            id=said.input_id,
            app=said.app,
            chat=said.chat_id,
            topics=tuple(dict.fromkeys(key for key in keys if key)),
            text=said.text,
            sender=principal(said.app, said.sender),
            sent_at=said.sent_at,
            thread=said.thread_id,
            name=await self._name(said.sender) if meant and person and said.sender else "",
            origin=Origin.person if person else Origin.bot,
            material=tuple(Material(str(m.kind), m.name or m.key, "") for m in said.material),
            private=said.chat_type is ChatType.p2p and person,
            mentions_bot=said.mentions_bot,
        )

    async def _name(self, open_id: str) -> str:
        """A person's name, remembered; "" while Feishu is slow to tell it."""
        if open_id not in self._names:
            try:
                async with asyncio.timeout(NAME_SECONDS):
                    found = await self.api.call("GET", f"/open-apis/contact/v3/users/{open_id}")
                self._names[open_id] = str((found.data.get("user") or {}).get("name") or "")
            except (Refused, Unavailable, Uncertain, Broken, TimeoutError):
                return ""
        return self._names[open_id]

    def _notice(self, said: Message, text: Text) -> None:
        """Tell the sender, beside the acknowledgement: once for that message, whoever pushes it again."""
        uuid = hashlib.sha256(f"notice {said.input_id}".encode()).hexdigest()[:32]
        words = text.en if text.en == text.zh else f"{text.en}\n{text.zh}"
        content = json.dumps({"text": words}, ensure_ascii=False)
        body = {"msg_type": "text", "content": content, "uuid": uuid, "reply_in_thread": bool(said.thread_id)}
        self._aside(self.api.repeat("POST", f"/open-apis/im/v1/messages/{said.message_id}/reply", body=body))

    def _aside(self, work: Awaitable[object]) -> None:
        async def do() -> None:
            try:
                await work
            except (Refused, Unavailable, Uncertain, Broken) as why:
                log.warning("notice_not_sent", why=str(why))

        task = asyncio.get_running_loop().create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- clicks -------------------------------------------------------------------------------------------------------

    async def _click(self, click: CardAction) -> tuple[str, Text]:
        """What a press comes to. A button is believed in nothing but its nonce (H24); who presses is checked anew (B7)."""
        nonce, action = click.value.get("n"), str(click.value.get("a"))
        try:
            row = await self.buttons.by_nonce(nonce) if isinstance(nonce, str) else None
        except Unavailable:
            return "error", say("toast_failed")
        here = row and (row.place.chat, row.message_id) == (click.chat_id, click.message_id)
        if row is None or not here or not (_again(row, action) or _is_open(row)):
            return "error", say("toast_stale")
        who = principal(click.app, click.sender)
        if who is None or not may_drive(who, self.access):
            return "error", say("toast_not_driver")
        name = await self._name(click.sender or "")
        try:
            if failed := _again(row, action):
                return await self._send_again(row.session, failed, who, name, click.clicked_at)
            return await self._do(row, _control(click, row, who, action, name))
        except (Unavailable, Uncertain):
            return "error", say("toast_failed")

    async def _do(self, row: CardRow, control: Control | None) -> tuple[str, Text]:
        if control is None:
            return "error", say("toast_stale")
        await self.receive.submit.to(row.session, control)
        asked = isinstance(control, Interrupt)
        return "success", say("toast_interrupting", turn=f"{row.turn}") if asked else say("toast_answered")

    async def _send_again(
        self, session: SessionKey, failed: InputId, who: Principal, name: str, pressed_at: int
    ) -> tuple[str, Text]:
        """A message of whoever presses, with the text, material and place that the old one had; once (I5)."""
        try:
            sent = await self.receive.submit.again(session, failed, by=who, name=name, sent_at=pressed_at)
        except Refused as why:
            return "error", say(NOT_AGAIN.get(why.key, "toast_stale"), **why.slots)
        return ("success", say("toast_again")) if sent.fresh else ("info", say("toast_again_before"))


def _again(row: CardRow, action: str) -> InputId | None:
    """The message whose receipt is pressed; whether it failed is asked of the Timeline, not of the card."""
    kind, _, rest = row.slot.partition(":")
    return InputId(rest) if (kind, action) == ("receipt", "again") else None


def _is_open(row: CardRow) -> bool:
    """Whether a Turn or a request is still there to be acted on."""
    return row.turn is not None and row.state != FINAL


def _control(click: CardAction, row: CardRow, who: Principal, action: str, name: str) -> Control | None:
    """What the button of that card means: it names its Turn or its request, so that a late press touches no other."""
    kind, _, rest = row.slot.partition(":")
    if kind == "turn" and action == "interrupt":
        return Interrupt(click.input_id, who, row.turn, name)
    if kind == "ask" and action in set(Verdict):
        return Answer(click.input_id, who, RequestId(rest), Verdict(action), name)
    return None


def principal(app: str, open_id: str | None) -> Principal | None:
    """Whom Feishu names; a missing identity stays missing."""
    return Principal(f"feishu:{app}:{open_id}") if open_id else None


def toast(said: tuple[str, Text]) -> Mapping[str, Any]:
    """The answer to a click, in both languages."""
    kind, text = said
    return {"toast": {"type": kind, "content": text.en, "i18n": {"en_us": text.en, "zh_cn": text.zh}}}


def access(app: str, owner: str | None, drivers: frozenset[str] | None) -> Access:
    """Who may drive, from the open ids in the settings."""
    people = None if drivers is None else frozenset(p for d in drivers if (p := principal(app, d)))
    return Access(principal(app, owner), people)
