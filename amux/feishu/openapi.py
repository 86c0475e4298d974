"""One app's side of Feishu's REST platform: its token, its share of the rate limit, and what each error code means.

It knows no endpoint but the token's. A call is made once; what may be repeated without harm is asked through `repeat`.
Nothing of httpx2 leaves it, and neither tokens nor bodies are logged.
"""

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
import structlog

from amux.core.errors import Refused, Unavailable, Uncertain
from amux.feishu import codes

log = structlog.get_logger()

TRIES = 4  # of a call that is harmless to repeat
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
AUTH_PATH = "/open-apis/auth/v3/tenant_access_token/internal"


CALLS_PER_MINUTE = 1_000  # what Feishu grants an app by default


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the platform. `code` is 0 or one that the caller said it expects; `data` is empty where it has none."""

    code: int
    body: Mapping[str, Any] = field(repr=False)

    @property
    def data(self) -> Mapping[str, Any]:
        data = self.body.get("data")
        return data if isinstance(data, dict) else {}

    def made(self, key: str) -> str:
        """The id of what the call made. Raises Uncertain when the answer lacks it."""
        if isinstance(made := self.data.get(key), str) and made:
            return made
        raise Uncertain(f"Feishu says that it is done, without the {key} of what was done.")


def http_client() -> httpx2.AsyncClient:
    """The one client of a process; its connections are shared by all apps. A proxy is never used for loopback."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(10, connect=5),
        limits=httpx2.Limits(max_connections=50, max_keepalive_connections=20),
        mounts={f"all://{f'[{host}]' if ':' in host else host}": None for host in LOOPBACK},
    )


def is_loopback(url: str) -> bool:
    """Whether it points at this machine, where no proxy belongs in between."""
    return urlsplit(url).hostname in LOOPBACK


class Budget:
    """One app's share: so many calls a minute, a twentieth of them in a second, all kinds together. In order, and pure
    but for its memory.

    Feishu counts per kind of call; one budget for all is on the safe side and needs no table (H60)."""

    def __init__(self, calls_per_minute: int = CALLS_PER_MINUTE) -> None:
        self._spans = ((max(1, calls_per_minute // 20), 1.0), (calls_per_minute, 60.0))
        self._times: deque[float] = deque(maxlen=calls_per_minute)
        self._closed_until = 0.0

    def reserve(self, now: float) -> float:
        """Take the next free place and answer how many seconds away it is. `now` is monotonic seconds."""
        at = max(now, self._closed_until)
        for calls, seconds in self._spans:
            if len(self._times) >= calls:
                at = max(at, self._times[-calls] + seconds)
        self._times.append(at)
        return at - now

    def close(self, until: float) -> None:
        """Feishu said that the share is used up: no call before then (monotonic seconds)."""
        self._closed_until = max(self._closed_until, until)


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    until: float


class OpenApi:
    """One app on one platform. Hence its token is cached per (domain, app), as no id is unique over both clouds."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        *,
        domain: str,
        app: str,
        secret: str,
        calls_per_minute: int = CALLS_PER_MINUTE,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.app = app
        self._http = http
        self._domain = domain
        self._secret = secret
        self._pause = pause
        self._budget = Budget(calls_per_minute)
        self._token: _Token | None = None
        self._renewing = asyncio.Lock()
        self._lacking: set[str] = set()  # what was said already

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        expects: Collection[int] = (),
    ) -> Answer:
        """One call, made once. A code among `expects` is an answer, too.

        Raises Refused when a person can mend it, Unavailable when nothing happened, Uncertain when it may have, and
        Broken when Feishu finds the call itself wrong."""
        token = await self._fresh_token()
        answer = await self._send(method, path, body=body, query=query, token=token)
        if answer.code in codes.TOKEN:  # refused before it was looked at, so a second time is the first
            answer = await self._send(method, path, body=body, query=query, token=await self._fresh_token(dead=token))
        if answer.code == 0 or answer.code in expects:
            return answer
        raise codes.error(answer.code, str(answer.body.get("msg", "")), f"{method} {path}")

    async def repeat(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        expects: Collection[int] = (),
    ) -> Answer:
        """As `call`, for what does no harm twice: a reading, or a call that carries a uuid or a sequence.

        Asked up to four times while the outcome is unknown or nothing happened; then it raises what came last."""
        for attempt in range(1, TRIES):
            try:
                return await self.call(method, path, body=body, query=query, expects=expects)
            except (Unavailable, Uncertain) as e:
                wait = random.uniform(0.5, 1) * 2 ** (attempt - 1)
                log.info("feishu_asked_again", app=self.app, attempt=attempt, family=type(e).__name__)
                await self._pause(wait)
        return await self.call(method, path, body=body, query=query, expects=expects)

    async def bot_open_id(self) -> str:
        """The bot's own open_id, by which mentions are told. Raises as `call`, and Refused when the app has no bot."""
        bot = (await self.repeat("GET", "/open-apis/bot/v3/info")).body.get("bot") or {}
        if not bot.get("open_id"):
            raise Refused("The app has no bot: switch on its bot ability in the developer console and publish it.")
        return str(bot["open_id"])

    async def _fresh_token(self, *, dead: str | None = None) -> str:
        """The cached token, unless it is about to end or is the `dead` one. One call renews it for all who wait."""
        async with self._renewing:
            held = self._token
            if held and held.value != dead and time.monotonic() < held.until:
                return held.value
            asked = time.monotonic()
            credentials = {"app_id": self.app, "app_secret": self._secret}
            try:
                answer = await self._send("POST", AUTH_PATH, body=credentials)
            except Uncertain as e:  # a token too many does no harm
                raise Unavailable("Feishu did not answer for a token; nothing was sent. It is tried again.") from e
            if answer.code != 0:
                raise codes.error(answer.code, str(answer.body.get("msg", "")), f"POST {AUTH_PATH}")
            match answer.body:
                case {"tenant_access_token": str(value), "expire": int(lasts)}:
                    self._token = _Token(value, asked + lasts - min(300, lasts / 2))
                    return value
            raise Unavailable("Feishu answered without a token; nothing was sent. It is tried again.")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Answer:
        """One request and its answer, whatever its code. A limit closes the budget for as long as Feishu says."""
        if wait := self._budget.reserve(time.monotonic()):
            await self._pause(wait)
        headers = {"Authorization": f"Bearer {token}"} if token else None
        what = f"{method} {path}"
        try:
            answer = await self._http.request(method, self._domain + path, json=body, params=query, headers=headers)
            parsed = answer.json()
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as e:
            raise Unavailable("Feishu cannot be reached; nothing was sent. See `amux doctor`.") from e
        except (httpx2.HTTPError, ValueError) as e:  # sent, and no readable answer
            raise Uncertain(f"{what} may have reached Feishu: no readable answer came back.") from e
        if answer.status_code == 429 or (isinstance(parsed, dict) and parsed.get("code") == codes.LIMITED):
            self._limited(answer.headers)
            raise Unavailable("Feishu's rate limit for this app is used up; nothing was sent. It is tried again.")
        if not isinstance(parsed, dict) or not isinstance(parsed.get("code"), int):
            raise Uncertain(f"{what} may have reached Feishu: its answer (HTTP {answer.status_code}) has no code.")
        if parsed["code"]:
            log.info("feishu_code", app=self.app, call=what, code=parsed["code"], log_id=_log_id(answer.headers))
        if parsed["code"] in codes.SCOPE:
            self._lacks(what, codes.scopes(str(parsed.get("msg", ""))))
        return Answer(parsed["code"], parsed)

    def _lacks(self, call: str, scopes: str) -> None:
        """Say it once: whoever called may do without it, and then nobody else would learn of it."""
        if scopes not in self._lacking:
            self._lacking.add(scopes)
            log.warning("feishu_missing_scope", app=self.app, call=call, scopes=scopes, remedy=codes.GRANT)

    def _limited(self, headers: httpx2.Headers) -> None:
        reset = headers.get("x-ogw-ratelimit-reset", "")
        seconds = min(float(reset), 60.0) if re.fullmatch(r"\d+(\.\d+)?", reset) else 1.0
        self._budget.close(time.monotonic() + seconds)
        log.warning("feishu_limited", app=self.app, seconds=seconds)


def _log_id(headers: httpx2.Headers) -> str:
    return headers.get("x-tt-logid", "")
