"""The one way in: journal, then post, then wake. The journal's commit is the promise; the rest is a hint.

Who may say it is settled before (`admission`); here nothing is decided and nothing is repeated."""

from dataclasses import dataclass

import structlog

from amux.core import codec
from amux.core.again import again, unrun
from amux.core.errors import Refused, Unavailable
from amux.core.ids import InputId, Principal, SessionKey
from amux.core.inputs import MAX_TEXT, Input, Said, Withdraw
from amux.ports import Draft, Inbox, Inputs, Journaled, NewBinding, Waker
from amux.runtime import failpoints

log = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True)
class Submit:
    """What every entrance uses: Feishu, CLI, and what comes later."""

    inputs: Inputs
    inbox: Inbox
    waker: Waker

    async def to(self, session: SessionKey, said: Said) -> Journaled:
        """Say it to that Session, once for its id. Raises Refused for text over the limit, Unavailable when it was not
        taken, Uncertain when it may have been: the same id may then be submitted again."""
        _check(said)
        return await self._post(await self.inputs.journal(session, said))

    async def launch(self, draft: Draft, said: Input, binding: NewBinding | None = None) -> Journaled:
        """Make a Session, with a topic's Binding where it has one, and say it there (H36)."""
        _check(said)
        return await self._post(await self.inputs.launch(draft, said, binding))

    async def again(
        self, session: SessionKey, original: InputId, *, by: Principal, name: str, sent_at: int
    ) -> Journaled:
        """Send again what did not run: the whole submission of that input, as a new one of whoever sends it; once, however
        often it is asked for (I5). Raises Refused for what is unknown, of another Session, or did not fail; else as `to`."""
        found = await self.inputs.known((original,))
        if not found:
            raise Refused(
                "There is no such message: nothing was sent. Without one named, the newest that failed is.",
                key="again_unknown",
            )
        if found[0].session != session:
            raise Refused("That message was said to another Session: name that one.", key="again_elsewhere")
        fates = await self.inputs.fates(session, found[0].seq) if found[0].seq is not None else ()
        inputs = [one.said for one in await self.inputs.known(unrun(original, fates))]
        return await self.to(session, again(inputs, by, name, sent_at))

    async def recall(self, said: InputId, control: InputId, by: Principal) -> None:
        """Its sender takes it back: it does not run, unless an agent may hold it already; one that has not come yet never
        will (H43). Raises as `to`."""
        session = await self.inputs.recall(said)
        if session is not None:
            await self.to(session, Withdraw(control, by, (said,)))

    async def _post(self, journaled: Journaled) -> Journaled:
        failpoints.hit("after_journal")
        if journaled.fresh:  # a twin was posted by its first; the sweep knocks if that was lost
            try:
                if (await self.inbox.post(journaled.session, journaled.said)).wake:
                    await self.waker.drive(journaled.session, journaled.target)
            except Unavailable as why:
                log.warning("not_posted", session=journaled.session, why=str(why))
        return journaled


def _check(said: Said) -> None:
    if not isinstance(said, Input):
        return
    file = "nothing was sent. Put it into a file in the workspace and name the file."
    if len(said.text) > MAX_TEXT:
        most = f"The message has {len(said.text):,} characters, and {MAX_TEXT:,} is the most"
        raise Refused(f"{most}: {file}", key="message_too_long")
    if not codec.fits(said):
        most = f"The message takes more than {codec.MAX_EVENT // 1024} KB as it is stored"
        raise Refused(f"{most}: {file}", key="message_too_long")
