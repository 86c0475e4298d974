"""The page's addresses: what a browser asks for and what a person does. Every act is a form that works without script;
with it, the same address answers JSON. Judges nothing: who may drive the bot is the bot's to say."""

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Route

from amux.sandbox.clicks import ClickAnswer
from amux.sandbox.page import cards, render, stream, view
from amux.sandbox.page.view import Reader, Spot
from amux.sandbox.records import ChatMode, MessageId, PersonId, WorldError
from amux.sandbox.world import World

Fate = Callable[[str, str, str | None, str], Awaitable[Mapping[str, str] | None]]
"""`fate(person, chat, topic, text)`: what sending would do, in en and zh, or None while nobody can say. A `text` that
mentions the bot begins with its name, as in "@Coder do it"; `topic` None means one that this message opens."""

Form = Mapping[str, str]
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]|testserver)(:\d+)?")
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
REMEMBERED = 1000
FATE_SECONDS = 1.0


class Site:
    """The page over one World. `boot` names this run of it, since a restart forgets all messages."""

    def __init__(self, world: World, fate: Fate | None, *, uninvited: Collection[PersonId]) -> None:
        self._world, self._fate, self._uninvited = world, fate, uninvited
        self._boot = secrets.token_hex(4)
        self._sent: OrderedDict[str, MessageId] = OrderedDict()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/sandbox", _guarded(self.page)),
            Route("/sandbox/static/{name}", _guarded(static)),
            Route("/sandbox/stream", _guarded(self.stream)),
            Route("/sandbox/fate", _guarded(self.fate)),
            Route("/sandbox/say", _guarded(self.say), methods=["POST"]),
            Route("/sandbox/click", _guarded(self.click), methods=["POST"]),
            Route("/sandbox/topic", _guarded(self.topic), methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        reader, spot = self._place(request, request.query_params)
        in_group = self._world.chats[spot.chat].mode is not ChatMode.private
        fate = await self._told(reader, spot, {"mention": "1" if in_group else ""})
        response = HTMLResponse(render.page(self._shown(reader, spot, fate)))
        if "lang" in request.query_params:
            response.set_cookie("lang", reader.lang, max_age=31_536_000, samesite="lax")
        return response

    async def stream(self, request: Request) -> Response:
        reader, spot = self._place(request, request.query_params)
        position = request.query_params.get("from", "")
        events = stream.events(self._world, self._boot, position, reader=reader, spot=spot)
        return StreamingResponse(events, media_type="text/event-stream")

    async def fate(self, request: Request) -> Response:
        """The line above the composer, for what is written in it now."""
        reader, spot = self._place(request, request.query_params)
        fate = await self._told(reader, spot, request.query_params)
        return HTMLResponse(render.fate(stream.here(self._world, reader, spot), fate))

    async def say(self, request: Request) -> Response:
        """A message from the composer. `key` is the browser's own name for it: sent again, it is the same message."""
        form = await _form(request)
        reader, spot = self._place(request, form)
        text, key = form.get("text", "").strip(), form.get("key", "")
        if not text:
            return JSONResponse({"error": render.word(reader.lang, "refused_text")}, 400)
        if key not in self._sent:
            mentions = None if form.get("mention") else ()
            message = self._world.say(reader.person, spot.chat, text, topic=spot.topic, mentions=mentions)
            self._sent[key or message] = message
            if len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)
        else:
            message = self._sent[key]
        return self._answer(request, reader, self._spot_of(message), {"message": message})

    async def topic(self, request: Request) -> Response:
        """A topic opened by its first message; a chat without topics has none to open."""
        form = await _form(request)
        reader, spot = self._place(request, form)
        topic = self._world.open_topic(reader.person, spot.chat, form.get("text", ""))
        return self._answer(request, reader, Spot(spot.chat, topic), {"topic": topic})

    async def click(self, request: Request) -> Response:
        """A button pressed, by its place on the card as this page showed it: what it says comes from the record."""
        form = await _form(request)
        reader, spot = self._place(request, form)
        button = self._button(form)
        answer = await self._world.click(reader.person, MessageId(form["message"]), value=button.value)
        return self._answer(request, reader, spot, {"toast": _toast(answer, reader.lang)})

    async def _told(self, reader: Reader, spot: Spot, asked: Form) -> str | None:
        """What amux says sending would do; None while it says nothing, or not in time."""
        bot = stream.here(self._world, reader, spot).bot
        if self._fate is None or not bot.connected:
            return None
        text = f"@{bot.name} {asked.get('text', '')}" if asked.get("mention") else asked.get("text", "")
        try:
            async with asyncio.timeout(FATE_SECONDS):
                told = await self._fate(reader.person, spot.chat, spot.topic, text)
        except TimeoutError:
            return None
        return told[reader.lang] if told else None

    def _button(self, form: Form) -> cards.Button:
        revisions = self._world.message(MessageId(form.get("message", ""))).revisions
        number = form.get("revision", "")
        card = (
            cards.read(revisions[int(number)].content) if number.isdecimal() and int(number) < len(revisions) else None
        )
        button = cards.button(card, form.get("button", "")) if isinstance(card, cards.Card) else None
        if button is None or button.value is None:
            raise WorldError("this card has no such button: reload the page")
        return button

    def _place(self, request: Request, asked: Form) -> tuple[Reader, Spot]:
        person, spot = view.settle(self._world, asked.get("as", ""), asked.get("chat", ""), asked.get("topic", ""))
        accepts = request.headers.get("accept-language", "en")
        lang = asked.get("lang") or request.cookies.get("lang") or ("zh" if accepts.startswith("zh") else "en")
        theme = request.cookies.get("theme", "auto")
        known = theme if theme in ("light", "dark") else "auto"
        return Reader(person, "zh" if lang == "zh" else "en", known), spot

    def _shown(self, reader: Reader, spot: Spot, fate: str | None) -> render.Page:
        world, chat = self._world, self._world.chats[spot.chat]
        word, new = render.word, chat.mode is ChatMode.topics and spot.topic is None
        names = [world.people[p].name for p in sorted(chat.members)] + [world.bots[b].name for b in sorted(chat.bots)]
        about = [chat.name, word(reader.lang, "topic")] if new or spot.topic else []
        messages = view.messages(world, spot)
        return render.Page(
            here=stream.here(world, reader, spot),
            people=view.people(world, self._uninvited),
            rows=view.rows(world, reader.person),
            messages=messages,
            title=word(reader.lang, "new_topic") if new else view.title(world, spot),
            note=" · ".join([*about, ", ".join(names)]),
            start=not messages,
            fate=fate,
            mention=chat.mode is not ChatMode.private,
            position=f"{self._boot}-{world.log.head}",
        )

    def _spot_of(self, message: MessageId) -> Spot:
        said = self._world.message(message)
        return Spot(said.chat, said.thread)

    def _answer(self, request: Request, reader: Reader, spot: Spot, said: dict[str, str]) -> Response:
        here = stream.here(self._world, reader, spot)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"url": here.url(), "place": here.place, **said})
        return RedirectResponse(here.url(), 303)


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in render.STATIC:
        return PlainTextResponse("not found", 404)
    return Response(render.STATIC[name], media_type=TYPES[name.rpartition(".")[2]])


async def _form(request: Request) -> Form:
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))


def _toast(answer: ClickAnswer, lang: str) -> str:
    if answer.code:
        return render.word(lang, "click_failed", code=answer.code)
    toast = answer.toast or {}
    return str(toast.get("i18n", {}).get(render.LOCALES[lang]) or toast.get("content", ""))


def _guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Strict headers on every answer; nothing for a foreign site, since a message here moves an agent on this machine."""

    async def guarded(request: Request) -> Response:
        if _foreign(request):
            return JSONResponse({"error": render.word("en", "foreign")}, 403)
        try:
            response = await handler(request)
        except WorldError as e:
            response = JSONResponse({"error": str(e)}, 400)
        response.headers.update(HEADERS)
        return response

    return guarded


def _foreign(request: Request) -> bool:
    """Whether another site's script or form asks, or a name that only pretends to be this machine."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    return not LOCAL.fullmatch(host) or origin not in (None, f"http://{host}")
