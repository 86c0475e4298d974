"""A house whose workers the test starts and loses itself; servers, cloud and sweep are the test's own."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from amux import wiring
from amux.core import events as e
from amux.core.audit import Count, fates_of
from amux.core.ids import BindingId, InputId, Principal, Seq, SessionRef
from amux.core.inputs import Authorization, Input, Place
from amux.ports import Draft, NewBinding, Session
from amux.runtime.audit import Audit
from amux.runtime.receive import new_session_id
from amux.sandbox import feishu
from amux.sandbox.env import sandbox_env
from amux.sandbox.ledger import Ledger
from amux.sandbox.pace import UNLIMITED
from amux.sandbox.world import World
from amux.settings import Settings, load
from tests.servers import short_home

SECONDS = 60.0
LEASE = 2.0
QUEUES = "target.local,deliver,sweep"


@dataclass(slots=True)
class Nursery:
    """The process that forks workers. `ended` holds the exit code of each child that is gone."""

    process: subprocess.Popen[bytes]
    ended: dict[int, int] = field(default_factory=dict)

    def order(self, **words: object) -> int:
        """Let a child be born; answers its pid."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        while "born" not in (line := self._line()):
            self._died(line)
        return int(line["born"])

    def wait(self, pid: int) -> int:
        """How that child ended, once it has."""
        while pid not in self.ended:
            self._died(self._line())
        return self.ended[pid]

    def _line(self) -> dict[str, int]:
        assert self.process.stdout
        line: dict[str, int] = json.loads(self.process.stdout.readline())
        return line

    def _died(self, line: Mapping[str, int]) -> None:
        if "died" in line:
            self.ended[line["died"]] = line["code"]


@pytest.fixture(scope="session")
def nursery() -> Any:
    words = [sys.executable, "-m", "tests.crash.nursery"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AMUX_")}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        one = Nursery(process)
        assert "ready" in one._line()
        yield one
        assert process.stdin
        process.stdin.close()


@dataclass(slots=True)
class Ward:
    """One test's house."""

    nursery: Nursery
    home: Path
    env: Mapping[str, str]
    settings: Settings
    parts: wiring.Stores
    world: World
    said: list[InputId] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)

    # -- people

    def speak(self, text: str) -> Input:
        """A message in a topic of its own, as Feishu would bring it."""
        topic = self.world.open_topic(feishu.USER_A, feishu.PAYMENTS, text)
        root = self.world.topics[topic].root
        me = Principal(f"feishu:{feishu.CODER}:user_a")
        rights = Authorization(me, Place(BindingId(0), feishu.CODER, feishu.PAYMENTS))
        return Input(InputId(f"feishu:{feishu.CODER}:{root}"), text, me, rights, round(time.time() * 1000))

    async def begin(self, text: str) -> Session:
        """A Session begun by that message, journaled."""
        said = self.speak(text)
        ref = SessionRef("local", new_session_id())
        place = said.authorization.place
        assert place
        binding = NewBinding(place, said.id.rpartition(":")[2], said.sent_at)
        await self.parts.submit.launch(Draft(ref, wiring.launch_settings(self.settings, ref), text), said, binding)
        self.said.append(said.id)
        return await self.parts.sessions.find(str(ref))

    async def add(self, session: Session, text: str) -> InputId:
        """Something more, from the terminal."""
        me = Principal("cli:user_a")
        said = Input(InputId(f"cli:user_a:{len(self.said)}"), text, me, Authorization(me), round(time.time() * 1000))
        await self.parts.submit.to(session.key, said)
        self.said.append(said.id)
        return said.id

    # -- processes

    def worker(self, failpoint: str = "") -> int:
        """Start a worker; `failpoint` as in `failpoints.arm_from`."""
        env = {**self.env, "AMUX_FAILPOINTS": failpoint}
        name = f"worker-{len(self.alive)}"
        pid = self.nursery.order(do="work", env=env, log=str(self.home / "worker.log"), name=name, queues=QUEUES)
        self.alive.append(pid)
        return pid

    def ear(self, raw: bytes, failpoint: str = "") -> int:
        """Start a process that handles one push of Feishu."""
        env = {**self.env, "AMUX_FAILPOINTS": failpoint}
        coded = base64.b64encode(raw).decode()
        return self.nursery.order(do="hear", env=env, log=str(self.home / "ear.log"), raw=coded)

    async def death(self, pid: int) -> int:
        """Wait for a process to end, sweeping as beat would; answers how."""
        async with self.swept():
            with anyio.fail_after(SECONDS):
                return await to_thread.run_sync(self.nursery.wait, pid)

    @asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """The sweep, round after round, beside what is done here."""

        async def rounds() -> None:
            while True:
                await self.parts.sweep.round()
                await anyio.sleep(0.2)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rounds)
            yield
            tasks.cancel_scope.cancel()

    # -- the record

    async def rested(self) -> None:
        """Wait until everything said has its fate, nothing runs, nobody owns, and all is shown."""
        async with self.swept():
            with anyio.fail_after(SECONDS):
                while not await self._rests():  # noqa: ASYNC110
                    await anyio.sleep(0.05)

    async def _rests(self) -> bool:
        every = await self.parts.sessions.list(label=None, target=None, limit=100)
        fates: dict[InputId, str] = {}
        for session in every:
            fates |= await self.fates(session)
        told = all(fates.get(said, "waiting") != "waiting" for said in self.said)
        return (
            told and not any(s.owner or s.open_turn for s in every) and not await self.parts.cards.owing(older_than=0)
        )

    async def events(self, session: Session) -> list[e.Event]:
        return [r.event for r in await self.parts.timeline.read(session.key, Seq(0), limit=10_000)]

    async def fates(self, session: Session) -> dict[InputId, str]:
        return fates_of(await self.events(session))[0]

    async def outcomes(self, session: Session) -> list[str]:
        """How each Turn ended, in order."""
        return [event.outcome.name for event in await self.events(session) if isinstance(event, e.TurnFinished)]

    async def audit(self) -> Count:
        return await Audit(self.parts.sessions, self.parts.timeline).all()

    def handed(self) -> list[str]:
        """Every input that an agent took, by the agents' own record."""
        rows: list[str] = []
        for record in self.home.glob("sessions/*/*/**/record.jsonl"):
            rows += [json.loads(line)["input"] for line in record.read_text().splitlines()]
        return rows

    def cards(self) -> list[str]:
        """The state words of every Turn's card that people see, in the order in which they were sent."""
        shown = []
        for sent in Ledger(self.world).sent(feishu.CODER):
            card = json.loads(sent.revisions[-1].content)
            if card.get("type") == "card":
                card = self.world.entities[card["data"]["card_id"]].card
            shown += [tag["text"]["content"] for tag in card.get("header", {}).get("text_tag_list", [])]
        return shown


@pytest.fixture
async def ward(nursery: Nursery, fresh_database: str, redis_url: str) -> AsyncIterator[Ward]:
    world = feishu.small_world(limits=UNLIMITED)
    with short_home() as home:
        async with feishu.serving(feishu.platform(world)) as address:
            env = {
                **sandbox_env("scripted", address, 0.0),
                "AMUX_HOME": str(home),
                "AMUX_POSTGRES_URL": fresh_database,
                "AMUX_REDIS_URL": redis_url,
                "AMUX_LEASE": f"{LEASE:g}",
                "AMUX_LINGER": "0",
                "AMUX_BURST_WINDOW": "0",
                "AMUX_SLOTS": "4",
                "AMUX_FEISHU_CALLS_PER_MINUTE": "600000",
            }
            settings = load(env, Path("/nonexistent/amux.toml"))
            async with wiring.stores(settings) as parts:
                one = Ward(nursery, home, env, settings, parts, world)
                yield one
                for pid in one.alive:
                    if pid not in nursery.ended:
                        os.kill(pid, signal.SIGKILL)
                        await to_thread.run_sync(nursery.wait, pid)
