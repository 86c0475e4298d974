"""Loopback models: one HTTP application that speaks the Responses API and the Messages API, scripted per test.

For demo, drills, benchmarks and tests: nothing leaves the machine and nothing is thought about. Many Sessions may talk to it
at once; a script belongs to the requests that carry its marker. It keeps a record of what each request said, in memory, so
that a test can ask how often a model was told something. It checks no key and keeps nothing on disk."""

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from typing import Protocol

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amux.sandbox import messages, responses
from amux.sandbox.replies import Drop, Fail, Hang, Heard, Hold, Part, Pause, Reply, Say, Script, plan

SERVED = ("loopback*", "gpt-*", "claude-*")  # names of models, as patterns
KEPT = 5_000  # requests remembered


class Voice(Protocol):
    """An API's way to spell one answer."""

    def open(self) -> Iterator[bytes]: ...
    def part(self, part: Part) -> Iterator[bytes]: ...
    def close(self) -> Iterator[bytes]: ...
    def whole(self) -> dict[str, object]: ...


Refusal = Callable[[int, str], dict[str, object]]


class Models:
    """The models of one sandbox. `seconds`: how long an answer to a plain prompt takes."""

    def __init__(self, *, seconds: float = 3.0) -> None:
        self.heard: deque[Heard] = deque(maxlen=KEPT)
        self._seconds = seconds
        self._scripts: list[Script] = []
        self._grew = asyncio.Condition()
        self.app = Starlette(routes=self.routes())

    def routes(self) -> list[BaseRoute]:
        """To be mounted where other parts of a sandbox live too."""
        return [
            Route(responses.PATH, self._responses, methods=["POST"]),
            Route(messages.PATH, self._messages, methods=["POST"]),
            Route(messages.COUNT_PATH, _count, methods=["POST"]),
            Route("/v1/heard", self._told, methods=["GET"]),
        ]

    def script(self, marker: str, *replies: Reply) -> Script:
        """Answer each request that carries `marker`, in a text or as its API key, with the next of `replies`; after the
        last one as without a script. A later script for the same request goes first."""
        script = Script(marker, deque(replies))
        self._scripts.insert(0, script)
        return script

    def times_said(self, text: str) -> int:
        """How many messages of people held `text`, over all conversations: 1 means that models were told exactly once."""
        most: dict[str, int] = {}
        for heard in self.heard:
            held = sum(text in one for one in heard.said)
            most[heard.conversation] = max(held, most.get(heard.conversation, 0))
        return sum(most.values())

    def requests(self, text: str) -> list[Heard]:
        """The requests that asked for an answer to `text`, oldest first: those in which it was not yet answered."""
        return [heard for heard in self.heard if any(text in one for one in heard.asked)]

    async def until_heard(self, text: str, *, times: int = 1) -> list[Heard]:
        """Wait for as many requests that ask for an answer to `text`; the caller sets the deadline."""
        async with self._grew:
            await self._grew.wait_for(lambda: len(self.requests(text)) >= times)
        return self.requests(text)

    async def _responses(self, request: Request) -> Response:
        return await self._answer(request, responses.heard, responses.Voice, responses.refusal)

    async def _messages(self, request: Request) -> Response:
        return await self._answer(request, messages.heard, messages.Voice, messages.refusal)

    async def _answer(
        self,
        request: Request,
        read: Callable[[bytes, Mapping[str, str]], Heard],
        voice: Callable[[str], Voice],
        refusal: Refusal,
    ) -> Response:
        raw = await request.body()
        try:
            heard = read(raw, request.headers)
        except msgspec.DecodeError as error:
            return JSONResponse(refusal(400, f"unreadable request: {error}"), 400)
        if not any(fnmatch(heard.model, served) for served in SERVED):
            return JSONResponse(refusal(404, f"The model `{heard.model}` does not exist."), 404)
        reply = await self._reply(heard)
        if reply and isinstance(reply[0], Fail):
            return JSONResponse(refusal(reply[0].status, reply[0].message), reply[0].status)
        streamed = bool(json.loads(raw).get("stream"))
        return _Played(reply, voice(heard.model)) if streamed else await _whole(reply, voice(heard.model))

    async def _reply(self, heard: Heard) -> Reply:
        async with self._grew:
            self.heard.append(heard)
            self._grew.notify_all()
        fitting = [script for script in self._scripts if script.fits(heard)]
        if fitting:
            fitting[0].heard.append(heard)
        if fitting and fitting[0].replies:
            return fitting[0].replies.popleft()
        return plan(heard, seconds=self._seconds)

    async def _told(self, request: Request) -> Response:
        """The record for another process: `GET /v1/heard?text=...`."""
        text = request.query_params.get("text", "")
        return JSONResponse({"times_said": self.times_said(text), "requests": len(self.requests(text))})


class _Played(Response):
    """One reply as server-sent events, at its own pace, until it ends, breaks, or the client leaves."""

    def __init__(self, reply: Reply, voice: Voice) -> None:
        super().__init__(headers={"content-type": "text/event-stream", "cache-control": "no-store"})
        del self.headers["content-length"]
        self._reply, self._voice = reply, voice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        play = asyncio.ensure_future(self._play(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((play, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            play.cancel()
            gone.cancel()
            await asyncio.gather(play, gone, return_exceptions=True)
        if not play.cancelled():
            play.result()

    async def _play(self, send: Send) -> None:
        if self._reply and isinstance(self._reply[0], Hang):
            await asyncio.Event().wait()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for frame in spell(self._reply, self._voice):
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        if not any(isinstance(part, Drop) for part in self._reply):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def spell(reply: Reply, voice: Voice) -> AsyncIterator[bytes]:
    """The frames of a reply, each when its time has come."""
    for frame in voice.open():
        yield frame
    for part in reply:
        await _silence(part)
        frames = list(voice.part(part))
        gap = part.seconds / len(frames) if isinstance(part, Say) else 0.0
        for place, frame in enumerate(frames):
            await asyncio.sleep(gap if place > 1 else 0)  # the first piece comes at once
            yield frame
        if isinstance(part, Drop | Fail):
            return
    for frame in voice.close():
        yield frame


async def _silence(part: Part) -> None:
    match part:
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case Hold(until):
            await until.wait()
        case Hang():
            await asyncio.Event().wait()
        case _:
            return


async def _whole(reply: Reply, voice: Voice) -> Response:
    async for _ in spell(reply, voice):
        pass
    return JSONResponse(voice.whole())


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _count(request: Request) -> Response:
    return JSONResponse({"input_tokens": len(await request.body()) // 4})


class _Server(uvicorn.Server):
    """Says when it listens, and leaves the signals of the process alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serving(models: Models, *, port: int = 0) -> AsyncIterator[str]:
    """Serve on the loopback address and yield the base address, without `/v1`; port 0 takes a free one."""
    config = uvicorn.Config(
        models.app, "127.0.0.1", port, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
    )
    server, bound = _Server(config), config.bind_socket()
    running = asyncio.ensure_future(server.serve([bound]))
    await server.listening.wait()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await running
