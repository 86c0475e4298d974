"""The parts of the real lark-oapi client that the long connection is built from, and a safe way to call them.

The client is imported when it is first needed, off the loop, and without the event models that it carries: with them
that takes ten seconds of a core and 175 MB. What it does wrong is mended here: it asks for its endpoint blocking, without a deadline, and through
a proxy even on loopback.
"""

# ruff: noqa: SLF001 (the client keeps its useful parts private; this is the one module that reaches for them)

import asyncio
import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from amux.feishu.codes import Trouble, link_refused
from amux.feishu.openapi import is_loopback

T = TypeVar("T")
CONTROL = 0
CLIENT, DISPATCHER = "lark_oapi.ws.client", "lark_oapi.event.dispatcher_handler"


@dataclass(frozen=True, slots=True)
class Part:
    """One frame as it came. `payload` is None while other parts of the same push are missing."""

    frame: Any
    pong: bool
    payload: bytes | None


class Wire:
    """What one app's connections share: credentials, the timings that Feishu asks for, and half-arrived pushes."""

    def __init__(self, module: ModuleType, *, app: str, secret: str, domain: str) -> None:
        self._module = module
        self._client: Any = module.Client(app, secret, domain=domain)

    async def endpoint(self) -> str:
        """Where to connect, asked anew for each connection: the address holds a ticket for one."""
        url: str = await aside(self._client._get_conn_url)
        return url

    def ping(self, service: int) -> bytes:
        """The frame that keeps a connection alive."""
        frame: bytes = self._module._new_ping_frame(service).SerializeToString()
        return frame

    @property
    def ping_seconds(self) -> float | None:
        """How often Feishu wants to be pinged; None when it did not say."""
        asked = self._client._ping_interval
        return float(asked) if isinstance(asked, int | float) and asked > 0 else None

    def read(self, message: bytes) -> Part:
        """One frame; a pong's timings are taken over. Raises whatever a broken frame provokes."""
        frame = self._module.Frame()
        frame.ParseFromString(message)
        headers = {header.key: header.value for header in frame.headers}
        if frame.method == CONTROL:
            if frame.payload and headers.get("type") == "pong":
                self._client._configure(self._module.JSON.unmarshal(frame.payload.decode(), self._module.ClientConfig))
            return Part(frame, headers.get("type") == "pong", None)
        total = int(headers.get("sum", "1"))
        if total <= 1:
            return Part(frame, False, frame.payload)
        joined = self._client._combine(headers["message_id"], total, int(headers["seq"]), frame.payload)
        return Part(frame, False, joined)

    def acknowledgement(self, part: Part, verdict: Mapping[str, Any], *, took_ms: int | None) -> bytes:
        """The same frame back, with the verdict as its payload; `took_ms` only where the handler succeeded."""
        frame = part.frame
        if took_ms is not None:
            header = frame.headers.add()
            header.key, header.value = "biz_rt", str(took_ms)
        frame.payload = json.dumps(verdict).encode()
        acknowledged: bytes = frame.SerializeToString()
        return acknowledged

    def refusal(self, error: Exception) -> Trouble | None:
        """Why the endpoint said no; None for any other error."""
        if isinstance(error, (self._module.ClientException, self._module.ServerException)):
            return link_refused(error.code, str(error.args[0])[:100])
        return None

    def close(self) -> None:
        """End the task that the client started for its cache of half-arrived pushes."""
        self._client._cache._cron.cancel()


async def load() -> ModuleType:
    """The client's module, for `Wire`. The first call in a process takes seconds."""
    return await aside(_load)


async def aside(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread of its own and wait for it. Who stops waiting leaves it behind.

    `asyncio.to_thread` would not do: its threads are joined at exit, so one call that hangs would hold the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: object) -> None:
        if not answer.done():
            how(value)

    def work() -> None:
        how: Callable[[Any], None] = answer.set_result
        value: object
        try:
            value = call()
        except BaseException as e:  # noqa: BLE001 (raised again where the call was made)
            how, value = answer.set_exception, e
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, how, value)

    threading.Thread(target=work, name="feishu-aside", daemon=True).start()
    return await answer


@cache
def _load() -> ModuleType:
    """The module alone: its package, and the event models that the client names as a type, are ten thousand modules and
    ten seconds that nothing here uses. What is imported so leaves `sys.modules` again, for whoever wants all of it."""
    try:
        with _alone():
            module = importlib.import_module(CLIENT)
            module.Frame.FromString(module._new_ping_frame(0).SerializeToString())  # it imports more at its first use
    except (ImportError, AttributeError):  # laid out otherwise in another release: then all of it
        module = importlib.import_module(CLIENT)
    module.requests = _Requests()  # type: ignore[attr-defined]
    return module


@contextmanager
def _alone() -> Iterator[None]:
    """`lark_oapi` without its own contents, and its dispatcher without event models, while the body imports."""
    spec = importlib.util.find_spec("lark_oapi")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("lark_oapi is not installed")
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_lark(name)}
    package, dispatcher = ModuleType("lark_oapi"), ModuleType(DISPATCHER)
    package.__path__ = [*spec.submodule_search_locations]
    dispatcher.EventDispatcherHandler = type("EventDispatcherHandler", (), {})  # type: ignore[attr-defined]
    sys.modules |= {"lark_oapi": package, DISPATCHER: dispatcher}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_lark(name)]:
            del sys.modules[name]
        sys.modules |= before


def _is_lark(name: str) -> bool:
    return name == "lark_oapi" or name.startswith("lark_oapi.")


class _Requests:
    """`requests` as that module sees it: the one call that it makes, with a deadline."""

    seconds = 10.0  # to connect, and between two pieces of the answer

    def post(self, url: str, **how: Any) -> Any:
        with importlib.import_module("requests").Session() as session:
            session.trust_env = not is_loopback(url)
            return session.post(url, timeout=self.seconds, **how)
