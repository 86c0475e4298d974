"""The sandbox as one process: Feishu's platform, the page on it and, where they are given, the agents' model APIs, all
over one World. It binds nothing and starts nothing by itself."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from amux.sandbox import feishu
from amux.sandbox.models import Models
from amux.sandbox.page.routes import Fate, Site
from amux.sandbox.records import PersonId
from amux.sandbox.world import World


def create(
    world: World,
    models: Models | None = None,
    fate: Fate | None = None,
    *,
    uninvited: Collection[PersonId] = (feishu.USER_C,),
) -> Starlette:
    """The whole sandbox as an ASGI app; the World is closed with it. `models` are mounted
    where they are given; `fate`
    answers what sending a message would do, and its line is left out without it; `uninvited` may not drive the bot, and
    the page says so beside their names (that is told to the page, which enforces nothing)."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await world.close()

    site = Site(world, fate, uninvited=uninvited)
    routes = [Route("/", _home), *site.routes(), *(models.routes() if models else ()), *feishu.routes(world)]
    return Starlette(routes=routes, lifespan=lifespan)


async def _home(_: Request) -> Response:
    return RedirectResponse("/sandbox")
