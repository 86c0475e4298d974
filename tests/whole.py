"""The whole amux for the tests that need all of it: one house, started once, in the world of the sandbox.

It stands for the last tests of a session alone, so that nothing else runs beside its processes."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
import structlog
from anyio import to_thread
from typer.testing import CliRunner

from amux import wiring
from amux.cli import app
from amux.core import events as e
from amux.core.ids import InputId, Seq
from amux.local.house import SERVICES
from amux.ports import Recorded, Session
from amux.sandbox import feishu
from amux.sandbox.ledger import Ledger, Sent
from amux.sandbox.records import MessageId, PersonId, ThreadId
from ops.drills import stage as drills_stage
from ops.drills.drill import stage_settings
from ops.drills.stage import Stage

E = TypeVar("E", bound=e.Event)
T = TypeVar("T")
SECONDS = 60.0  # the longest that anything here may take
LOOK_SECONDS = 0.05
LEASE = 4.0
START_SECONDS = 400.0  # on a machine that does much else; importing the Feishu client alone takes ten of them

# What a Postgres whose disk is full answers to every insert into the journal.
FULL_DISK = """
create or replace function full_disk() returns trigger language plpgsql as
$$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
create trigger full_disk before insert on inputs for each statement execute function full_disk()"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "house" in getattr(item, "fixturenames", ()))


@dataclass(frozen=True, slots=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


async def cli(env: Mapping[str, str], *words: str) -> Said:
    """Run a command in this process, in a thread: the sandbox goes on beside it."""
    kept = structlog.get_config()
    try:
        with anyio.fail_after(SECONDS):
            done = await to_thread.run_sync(lambda: CliRunner().invoke(app, list(words), env=dict(env)))
    finally:
        structlog.configure(**kept)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout, done.stderr)


async def program(env: Mapping[str, str], *words: str) -> Said:
    """Run it as people do, in a process of its own."""
    done = await anyio.run_process([sys.executable, "-m", "amux.cli", *words], env=dict(env), check=False)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


async def until(
    look: Callable[[], Awaitable[T | None]], otherwise: Callable[[], str] = lambda: "not seen in time"
) -> T:
    """The first thing that is seen, for what only another process brings about."""
    with anyio.move_on_after(SECONDS):
        while True:
            if seen := await look():
                return seen
            await anyio.sleep(LOOK_SECONDS)
    raise AssertionError(otherwise())


@dataclass(frozen=True, slots=True)
class House:
    """The running amux, what it wrote, and the cloud that it talks to."""

    stage: Stage
    parts: wiring.Stores

    async def cli(self, *words: str) -> Said:
        return await cli(self.env, *words)

    @property
    def env(self) -> dict[str, str]:
        """Of a person at a terminal of this machine."""
        return {name: value for name, value in self.stage.env.items() if "FEISHU" not in name}

    # -- what was written

    async def session(self, name: str) -> Session:
        return await self.parts.sessions.find(name)

    async def log(self, session: Session) -> Sequence[Recorded]:
        return await self.parts.timeline.read(session.key, Seq(0), limit=10_000)

    async def told(self, session: Session, kind: type[E], fits: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of that kind that fits, now or later."""

        async def look() -> E | None:
            found = (r.event for r in await self.log(session))
            return next((one for one in found if isinstance(one, kind) and fits(one)), None)

        return await until(look, lambda: f"no such {kind.__name__}")

    async def finished(self, session: Session, turn: int) -> e.TurnFinished:
        return await self.told(session, e.TurnFinished, lambda end: end.turn == turn)

    # -- the cloud

    def say(self, person: PersonId, text: str, topic: ThreadId) -> InputId:
        said = self.stage.world.say(person, feishu.PAYMENTS, text, topic=topic)
        return InputId(f"feishu:{feishu.CODER}:{said}")

    async def begun(self, person: PersonId, text: str) -> tuple[ThreadId, Session]:
        """A topic opened with that text, and the Session that it began."""
        topic = self.stage.world.open_topic(person, feishu.PAYMENTS, text)
        root = self.stage.world.topics[topic].root

        async def look() -> Session | None:
            bound = await self.parts.bindings.find(feishu.CODER, feishu.PAYMENTS, [root])
            every = await self.parts.sessions.list(label=None, target=None, limit=1_000)
            return next((s for s in every if bound and s.key == bound[0].session), None)

        return topic, await until(look, lambda: "the message began no Session")

    def sent(self, topic: ThreadId) -> Sequence[Sent]:
        return Ledger(self.stage.world).sent(feishu.CODER, thread=topic)

    def text(self, message: MessageId) -> str:
        """All that a person reads on a message of the bot's."""
        return "\n".join(_words(self.stage.shown(message))) or self.stage.world.messages[message].content

    async def card(self, topic: ThreadId, *words: str) -> MessageId:
        """The first message of the bot in that topic which shows all these words, now or later."""

        async def look() -> MessageId | None:
            return next((m.id for m in self.sent(topic) if all(w in self.text(m.id) for w in words)), None)

        return await until(
            look, lambda: f"no card shows {words}; there are {[self.text(m.id) for m in self.sent(topic)]}"
        )


def _words(part: object) -> list[str]:
    """Every text of a card, in its order."""
    if isinstance(part, dict):
        own = [v for k, v in part.items() if k == "content" and isinstance(v, str)]
        return own + [word for value in part.values() for word in _words(value)]
    return [word for each in part for word in _words(each)] if isinstance(part, list) else []


@pytest.fixture(scope="session")
async def house() -> AsyncIterator[House]:
    """One amux for all who ask, with every service."""
    extra = {"AMUX_BURST_WINDOW": "0.3", "AMUX_SLOTS": "40"}
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(drills_stage, "START_SECONDS", START_SECONDS)
        async with (
            drills_stage.stage(names=SERVICES, lease=LEASE, seconds=0.4, extra=extra) as one,
            wiring.stores(stage_settings(one)) as parts,
        ):
            yield House(one, parts)


@pytest.fixture
def empty_home(tmp_path: Path) -> dict[str, str]:
    """The environment of a person whose home holds nothing, and where nothing runs."""
    return {"AMUX_HOME": str(tmp_path / "home"), "AMUX_POSTGRES_URL": "", "AMUX_REDIS_URL": ""}
