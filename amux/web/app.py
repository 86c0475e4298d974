"""A thin HTTP face: health for supervisors, what there is, and a Timeline as server-sent events.

Each event's id is its seq, so that `Last-Event-ID` is the position to attach from; `?tail` begins at the head, with the
running Turn's start (T5). It writes nothing."""

from collections.abc import AsyncIterator

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amux.core.errors import Refused, Unavailable
from amux.core.ids import Seq
from amux.ports import Recorded, Session, Sessions
from amux.runtime.attach import Attach
from amux.runtime.rows import event_row, row


def create(sessions: Sessions, attach: Attach) -> Starlette:
    """The app over these ports."""

    async def health(_: Request) -> Response:
        return JSONResponse({"ok": True})

    async def listing(_: Request) -> Response:
        found = await sessions.list(label=None, target=None, limit=200)
        return JSONResponse([row(session) for session in found])

    async def events(request: Request) -> Response:
        session = await sessions.find(request.path_params["session"])
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        if after is None and "tail" in request.query_params:
            return EventSourceResponse(_tail(attach, session))
        return EventSourceResponse(_stream(attach, session, _position(after or "0")))

    async def refused(_: Request, why: Exception) -> Response:
        unknown = isinstance(why, Refused) and why.key in ("no_such_session", "ambiguous_session")
        code = 404 if unknown else 400 if isinstance(why, Refused) else 503
        return JSONResponse({"error": str(why)}, status_code=code)

    return Starlette(
        routes=[
            Route("/healthz", health),
            Route("/api/sessions", listing),
            Route("/api/sessions/{session}/events", events),
        ],
        exception_handlers={Refused: refused, Unavailable: refused},
    )


def _position(text: str) -> Seq:
    if text.isascii() and text.isdecimal() and int(text) < 1 << 63:
        return Seq(int(text))
    raise Refused(f"{text[:40]!r} is no position: give the seq of the last event seen, or 0.")


async def _tail(attach: Attach, session: Session) -> AsyncIterator[ServerSentEvent]:
    """The start counts as seen up to the head that was read with it, so that who comes back misses and repeats nothing."""
    head = await attach.head(session.key)
    if head.started:
        yield _sent(session, head.started, head.seq)
    async for event in _stream(attach, session, head.seq):
        yield event


async def _stream(attach: Attach, session: Session, after: Seq) -> AsyncIterator[ServerSentEvent]:
    async for batch in attach.follow(session.key, after):
        for recorded in batch:
            yield _sent(session, recorded, recorded.seq)


def _sent(session: Session, recorded: Recorded, position: Seq) -> ServerSentEvent:
    return ServerSentEvent(msgspec.json.encode(event_row(session, recorded)).decode(), id=str(position))
