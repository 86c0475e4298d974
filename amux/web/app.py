"""A thin HTTP face: health for supervisors, what there is, and a Timeline as server-sent events.

Each event's id is its seq, so that `Last-Event-ID` is the position to attach from. It writes nothing."""

from collections.abc import AsyncIterator

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amux.core.errors import Refused, Unavailable
from amux.core.ids import Seq
from amux.ports import Session, Sessions
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
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        if not after.isdecimal():
            raise Refused(f"Last-Event-ID {after!r} is no position: give the seq of the last event seen, or 0.")
        return EventSourceResponse(_stream(attach, session, Seq(int(after))))

    async def refused(_: Request, why: Exception) -> Response:
        return JSONResponse({"error": str(why)}, status_code=404 if isinstance(why, Refused) else 503)

    return Starlette(
        routes=[
            Route("/healthz", health),
            Route("/api/sessions", listing),
            Route("/api/sessions/{session}/events", events),
        ],
        exception_handlers={Refused: refused, Unavailable: refused},
    )


async def _stream(attach: Attach, session: Session, after: Seq) -> AsyncIterator[ServerSentEvent]:
    async for batch in attach.follow(session.key, after):
        for recorded in batch:
            yield ServerSentEvent(msgspec.json.encode(event_row(session, recorded)).decode(), id=str(recorded.seq))
