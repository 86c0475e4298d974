"""The sandbox's question to amux: what pressing Send will do. The answer comes from the real decisions (fate)."""

import time
from collections.abc import Mapping

from amux.core.ids import InputId
from amux.core.routing import Message
from amux.core.steering import Busy
from amux.feishu.cards import fate
from amux.feishu.ingress import principal
from amux.runtime.fate import Forecaster, Waits
from amux.sandbox import feishu
from amux.sandbox.records import PersonId, open_id
from amux.stores.bindings import PostgresBindings
from amux.stores.postgres import Postgres
from amux.stores.timeline import PostgresTimeline

MENTION = "@Coder "
NAMES = {
    principal(feishu.CODER, open_id(feishu.CODER, p)): n
    for p, n in ((feishu.USER_A, "User A"), (feishu.USER_B, "User B"), (feishu.USER_C, "User C"))
}
_open: dict[str, Postgres] = {}


async def forecast(
    url: str, busy: Busy, person: str, chat: str, topic: str | None, text: str
) -> Mapping[str, str] | None:
    """The line in both languages; None when the message is not meant for the bot."""
    postgres = _open.setdefault(url, Postgres(url, size=1))
    said = Message(
        id=InputId("forecast"),
        app=feishu.CODER,
        chat=chat,
        topics=(topic or "new",),
        text=text,
        sender=principal(feishu.CODER, open_id(feishu.CODER, PersonId(person))),
        sent_at=round(time.time() * 1000),
        thread=topic,
        mentions_bot=text.startswith(MENTION),
        private=not chat.startswith("oc_"),
    )
    timeline = PostgresTimeline(postgres, lambda *_: None)
    found = await Forecaster(PostgresBindings(postgres), timeline, busy).of(said)
    owner = NAMES.get(found.owner, "") if isinstance(found, Waits) else ""
    line = fate(found, owner)
    return {"en": line.en, "zh": line.zh} if line else None
