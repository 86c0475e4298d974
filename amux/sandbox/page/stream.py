"""What the page's stream sends: every fragment that changed since a position, as server-sent events. Reads and renders;
it changes nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence

from amux.sandbox.changes import Change, ChangeKind
from amux.sandbox.page import render, view
from amux.sandbox.page.view import Reader, Spot
from amux.sandbox.world import World

BEAT_SECONDS = 5.0
GATHER_SECONDS = 0.08
"Changes that come this close together are drawn once: a card that streams is drawn some ten times a second."

CONNECTION = {ChangeKind.connected, ChangeKind.disconnected}
WRITTEN = {ChangeKind.message_sent, ChangeKind.message_revised, ChangeKind.message_recalled, ChangeKind.topic_opened}
SEEN = WRITTEN | {ChangeKind.push_acknowledged}


def here(world: World, reader: Reader, spot: Spot) -> render.Here:
    """What all fragments of this page need, as it is now."""
    bot = view.bot_of(world, world.chats[spot.chat])
    return render.Here(reader, spot, render.Bot(bot.name, view.connected(world, spot.chat)))


async def events(world: World, boot: str, position: str, *, reader: Reader, spot: Spot) -> AsyncIterator[str]:
    """Everything behind `position`, then each change as it comes, with a beat at least every 5 s; never ends by itself.
    `boot` names this run of the World: a position of another one is answered with `again`, for a fresh page."""
    run, _, seq = position.rpartition("-")
    if run != boot or not seq.isdecimal():
        yield _event("again", boot, world.log.head, {})
        return
    after = int(seq)
    yield _event("beat", boot, after, {})
    while True:
        if not await _grown(world, after):
            yield _event("beat", boot, after, {})
            continue
        await asyncio.sleep(GATHER_SECONDS)
        news, after = world.log.since(after), world.log.head
        for name, html in patches(world, news, reader=reader, spot=spot):
            yield _event("patch", boot, after, {"id": name, "html": html})


async def _grown(world: World, after: int) -> bool:
    try:
        await world.log.until(lambda: world.log.head > after, seconds=BEAT_SECONDS)
    except TimeoutError:
        return False
    return True


def patches(world: World, news: Sequence[Change], *, reader: Reader, spot: Spot) -> Iterator[tuple[str, str]]:
    """The fragments that these changes touch, by element id; empty where an element is to go."""
    now = here(world, reader, spot)
    if any(change.kind in CONNECTION for change in news):
        yield "bot", render.bot(now)
    if any(change.kind in WRITTEN for change in news):
        yield "chats", render.chats(now, view.rows(world, reader.person))
    touched = set(_touched(world, news, spot))
    if not touched:
        return
    shown = {said.id: said for said in view.messages(world, spot)}
    for name in sorted(touched - set(shown)):
        yield f"m-{name}", ""
    for name, said in shown.items():
        if name in touched:
            yield f"m-{name}", render.message(now, said)


def _touched(world: World, news: Sequence[Change], spot: Spot) -> Iterator[str]:
    for change in news:
        if view.refused_in(change, spot):
            yield f"refused-{change.seq}"
        elif change.kind in CONNECTION:
            yield from (said.id for said in view.messages(world, spot) if not said.card and not said.refused)
        elif change.kind in SEEN and change.message and view.contains(world, spot, change.message):
            yield change.message
            if answered := world.messages[change.message].answers:
                yield answered


def _event(kind: str, boot: str, seq: int, data: dict[str, str]) -> str:
    return f"event: {kind}\nid: {boot}-{seq}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
