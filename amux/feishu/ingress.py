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
from amux.core.ids import Principal, RequestId
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
        nonce, action = click.value.get("n"), click.value.get("a")
        try:
            row = await self.buttons.by_nonce(nonce) if isinstance(nonce, str) else None
        except Unavailable:
            return "error", say("toast_failed")
        here = row and (row.place.chat, row.message_id) == (click.chat_id, click.message_id)
        if row is None or row.turn is None or not here or row.state == FINAL:
            return "error", say("toast_stale")
        who = principal(click.app, click.sender)
        if who is None or not may_drive(who, self.access):
            return "error", say("toast_not_driver")
        control = _control(click, row, who, str(action), await self._name(click.sender or ""))
        if control is None:
            return "error", say("toast_stale")
        try:
            await self.receive.submit.to(row.session, control)
        except (Unavailable, Uncertain):
            return "error", say("toast_failed")
        return "success", say("toast_interrupting", turn=row.turn) if isinstance(control, Interrupt) else say(
            "toast_answered"
        )


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
