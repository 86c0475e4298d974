"""Several owners in one process over one fake world: the runtime as it is, with time that a test moves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio.lowlevel

from amux.core.events import Event
from amux.core.ids import SessionKey
from amux.core.inputs import Said
from amux.core.launch import DEFAULT_PROFILE, Profile
from amux.runtime.host import Host
from amux.runtime.keeper import Keeper
from amux.runtime.owner import Owner, Pace, Runtime
from amux.runtime.submit import Submit
from amux.runtime.sweep import Sweep
from tests.fakes import FakeProvider, FakeWorkspaces, Worker, World

LEASE, LINGER, WINDOW = 15.0, 30.0, 2.0


async def until(holds: Callable[[], object], turns: int = 2_000) -> None:
    """Let everybody go on until that holds. Time stands still meanwhile."""
    for _ in range(turns):
        if holds():
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError("it never came to hold")


@dataclass
class House:
    """A world, its workers and one engine."""

    world: World = field(default_factory=World)
    agent: FakeProvider = field(default_factory=FakeProvider)
    default: str = "fake"
    workers: dict[str, tuple[Worker, Host]] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def worker(self, name: str = "w1") -> tuple[Worker, Host]:
        ports = Worker(self.world, name)
        keeper = Keeper(ports.leases, ports.timeline, self.world.clock, LEASE)
        rt = Runtime(
            worker=name,
            pace=Pace(LEASE, LINGER, WINDOW),
            timeline=ports.timeline,
            inputs=ports.inputs,
            inbox=ports.inbox,
            leases=ports.leases,
            bells=ports.bells,
            waker=ports.waker,
            clock=self.world.clock,
            keeper=keeper,
            providers={self.agent.engine: self.agent},
            engine=self.default,
            profiles={DEFAULT_PROFILE: Profile(DEFAULT_PROFILE)},
            home=lambda ref: f"/homes/{ref.id}",
            opening=asyncio.Semaphore(4),
            workspaces=FakeWorkspaces(),
        )
        self.workers[name] = ports, Host(rt, "local", slots=40)
        return self.workers[name]

    async def say(self, session: SessionKey, said: Said) -> None:
        """Submit from a process of its own."""
        ports = Worker(self.world, "ingress")
        await Submit(ports.inputs, ports.inbox, ports.waker).to(session, said)

    def drive(self, name: str = "w1") -> None:
        """That worker takes every wake that waits."""
        host = self.workers[name][1]
        for session, _ in self.world.wakes:
            self.spawn(host, session)
        self.world.wakes.clear()

    def spawn(self, host: Host, session: SessionKey) -> None:
        task = asyncio.get_running_loop().create_task(host.drive(session))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def owner(self, session: SessionKey, name: str = "w1") -> Owner:
        """The owner that lives on that worker."""
        return self.workers[name][1].owners[session]

    async def renew(self, name: str) -> None:
        await self.workers[name][1].rt.keeper.renew()

    async def sweep(self) -> None:
        ports = Worker(self.world, "sweep")
        await Sweep(ports.inputs, ports.sessions, ports.cards, ports.leases, ports.waker).round()

    def crash(self, name: str) -> None:
        """SIGKILL; its agents die behind their Guards."""
        self.workers.pop(name)[0].crash()

    def events(self, session: SessionKey) -> list[Event]:
        return [recorded.event for recorded in self.world.timeline[session]]

    def kinds(self, session: SessionKey) -> list[str]:
        return [type(event).__name__ for event in self.events(session)]

    async def close(self) -> None:
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
