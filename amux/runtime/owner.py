"""The one owner of a Session: signals, step, append, perform. Recovery is the first step, not another path.

It holds the right to try (Lease), to write (Fence) and to act (Guard), and stops quietly when it has lost any. Its
memory may go at any instant: what counts is in the journal and in the Timeline."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from amux.core import machine
from amux.core import signals as s
from amux.core.context import HANDOFF_EVENTS
from amux.core.errors import Stale, Unavailable
from amux.core.events import ConversationOpening, Event, InputAccepted, Label, Outcome, TurnFinished, TurnStarted
from amux.core.ids import InputId, Seq, SessionKey, SessionRef
from amux.core.inputs import Input, Said, Withdraw
from amux.core.launch import Extra, Installed, Profile, Record, Unlaunchable, resolve
from amux.core.session import State
from amux.core.steering import Busy
from amux.core.step import Phase, Scratch, Step
from amux.core.watchdog import UNLIMITED, Limits
from amux.extensions import Provider
from amux.ports import (
    Append,
    Bells,
    Clock,
    Fence,
    Inbox,
    Inputs,
    Leases,
    OpenedTimeline,
    Posted,
    Timeline,
    Waker,
    Workspaces,
)
from amux.runtime import failpoints
from amux.runtime.keeper import Keeper, Tenure
from amux.runtime.mailbox import Mailbox
from amux.runtime.perform import Agent, Performer

log = structlog.stdlib.get_logger()
TRIM_ENTRIES = 512
LATE_MS = 500  # below the sweep's patience: nobody else runs an input from the journal before
LOOK_SECONDS = 1.0  # between two looks in the journal that nobody asked for


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of an owner, in seconds."""

    lease: float
    linger: float  # how long it keeps an idle agent
    window: float  # of a burst
    limits: Limits = UNLIMITED
    busy: Busy = Busy.steer


@dataclass(frozen=True, slots=True)
class Runtime:
    """What an owner works with: every port, and the providers by engine name."""

    worker: str
    pace: Pace
    timeline: Timeline
    inputs: Inputs
    inbox: Inbox
    leases: Leases
    bells: Bells
    waker: Waker
    clock: Clock
    keeper: Keeper
    providers: Mapping[str, Provider]
    engine: str  # the distribution's default launch runtime (S6)
    profiles: Mapping[str, Profile]
    home: Callable[[SessionRef], str]
    workspaces: Workspaces
    opening: asyncio.Semaphore  # few agents start at once: a start is a fork, and renewals must not wait behind fifty

    @property
    def installed(self) -> Installed:
        """What there is today."""
        # a plug-in of before there were extras has none
        none: frozenset[Extra] = frozenset()
        extras = {name: getattr(one, "extras", none) for name, one in self.providers.items()}
        return Installed(frozenset(self.providers), self.engine, self.profiles, extras)


async def own(session: SessionKey, rt: Runtime, register: Callable[["Owner"], None]) -> None:
    """Own this Session until it rests. Returns at once when it has an owner, or one may still live."""
    failpoints.hit("before_take")
    token = f"{rt.worker}|{secrets.token_hex(8)}"
    since = (rt.clock.monotonic(), rt.clock.boottime())
    taken = await rt.leases.take(session, token, seconds=rt.pace.lease)
    if taken is None:
        return
    failpoints.hit("after_take")
    tenure = rt.keeper.tenure(session, token, since=since)
    try:
        opened = await rt.timeline.open(session, token, worker=rt.worker, young=taken.young)
        if opened is None:
            await _give_back(tenure, rt)
            return
        failpoints.hit("after_open")
        if not rt.keeper.keeps(tenure):
            raise Stale("the Lease was lost while the Session was opened")
        log.info("owner_opened", session=str(opened.session.ref), epoch=opened.fence.epoch)
        owner = Owner(rt, opened, tenure, cursor=taken.tail)
        register(owner)
        await owner.run()
    except Stale as why:
        log.info("owner_stale", session=session, why=str(why))
    except (Unavailable, asyncio.CancelledError):
        await _give_back(tenure, rt)
        raise
    finally:
        rt.keeper.drop(tenure)  # what fails for another reason would fail again: its Lease runs out first


async def _give_back(tenure: Tenure, rt: Runtime) -> None:
    """At once, whatever ended it: nobody hears a bell that rings for it."""
    await rt.keeper.leave(tenure)
    with contextlib.suppress(Unavailable):
        await rt.leases.release(tenure.session, tenure.token)


@dataclass(slots=True)
class Owner:
    """One tenure of one Session."""

    rt: Runtime
    opened: OpenedTimeline
    tenure: Tenure
    cursor: str  # the stream's entry after which to read
    idle_since: float | None = None
    hurried: bool = False  # others wait for this slot or for this workspace, or the worker drains
    worked: bool = False  # it has begun a Turn
    left: bool = False  # the Lease is given up; a post from now on wakes somebody
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _mailbox: Mailbox = field(default_factory=Mailbox)
    _heard: set[InputId] = field(default_factory=set)
    _look: bool = False
    _stays: float = 0.0  # until then it does not try to let go
    _unread: int = 0  # entries since the stream was trimmed
    _looked: float = field(init=False)
    since: float = field(init=False)  # when it was opened, in monotonic seconds
    state: State = field(init=False)
    scratch: Scratch = field(init=False)
    fence: Fence = field(init=False)
    _hands: Performer = field(init=False)
    _record: Record | None = field(init=False)  # an identity that is not in the row yet

    def __post_init__(self) -> None:
        opened, rt = self.opened, self.rt
        session, home = opened.session, rt.home(opened.session.ref)
        runs = resolve(session.record, session.saved, rt.installed)
        self.state, self.fence = opened.state, opened.fence
        self.since = self._looked = rt.clock.monotonic()  # the journal came with the opening
        agent: Agent | Unlaunchable
        if isinstance(runs, Unlaunchable):
            agent, fresh, record = runs, None, session.record
        else:
            agent, fresh, record = Agent(rt.providers[runs.engine], runs.launch), runs.fresh, runs.record
        self._record = record if record != session.record else None
        self.scratch = Scratch(runs.engine, rt.pace.window, rt.pace.limits, rt.pace.busy, fresh)
        self._hands = Performer(
            session=session.ref,
            agent=agent,
            home=home,
            workspaces=rt.workspaces,
            tenure=self.tenure,
            opening=rt.opening,
            tell=self._mailbox.put,
            history=self._history,
            wanted=self.give_way,
        )
        self.tenure.lost = lambda: self._mailbox.fail(Stale("the Lease is lost"))
        self.tenure.look = self._look_again

    @property
    def session(self) -> SessionKey:
        """The Session that is owned."""
        return self.opened.session.key

    async def run(self) -> None:
        """Until it rests or is Stale. Leaves no agent behind."""
        self.rt.bells.register(self.session, self._mailbox.ring)
        try:
            self._mailbox.put(s.Opened(self.fence.epoch, self.rt.worker, self._fresh(self.opened.journal)))
            self._mailbox.ring()
            while not await self._rested():
                signals = await self._signals()
                await self._step(signals)
        finally:
            self.rt.bells.unregister(self.session)
            await self._hands.close()
            self.gone.set()

    async def _step(self, signals: list[s.Signal]) -> None:
        step = machine.run(self.state, self.scratch, signals, now=self.rt.clock.monotonic())
        if step.events:
            failpoints.hit("before_append")
            shown = any(_in_feishu(event) for event in step.events if isinstance(event, InputAccepted | TurnStarted))
            # with the opening and not before it: what is recorded without it would resume what it must not (S8)
            opens = self._record and any(isinstance(event, ConversationOpening) for event in step.events)
            record = self._record if opens else None
            append = Append(step.events, step.state, step.accepts, shown, record)
            self.fence = await self.rt.timeline.append(self.session, self.fence, append)
            self._record = None if record else self._record
            await self._after_append(step, shown)
        self.state, self.scratch = step.state, step.scratch
        if step.effects:
            await self._may_act()
        for effect in step.effects:
            self._hands.perform(effect)

    async def _history(self) -> Sequence[Event]:
        """The newest part of the Timeline. Raises Unavailable."""
        after = Seq(max(0, self.fence.head - HANDOFF_EVENTS))
        return [r.event for r in await self.rt.timeline.read(self.session, after, limit=HANDOFF_EVENTS)]

    async def _may_act(self) -> None:
        """Act under a Lease that is confirmed now; on a busy machine the last renewal may be just too old."""
        if self.rt.clock.monotonic() >= self.tenure.until:
            await self.rt.keeper.renew()
        if self.rt.clock.monotonic() >= self.tenure.until:
            raise Stale("the Lease ran out before its act")

    async def _after_append(self, step: Step, shown: bool) -> None:  # noqa: FBT001
        if step.accepts:
            failpoints.hit("after_accept")
        for event in step.events:
            if isinstance(event, TurnStarted):
                self.worked = True
            elif isinstance(event, TurnFinished):
                failpoints.hit("after_finish")
                # the ordinary end stands in the Timeline, and a line is dear
                if event.outcome is not Outcome.completed:
                    log.info("turn_ended", session=str(self.opened.session.ref), turn=event.turn, outcome=event.outcome)
        if shown:
            with contextlib.suppress(Unavailable):  # the sweep finds what is owed
                await self.rt.waker.deliver(self.session)

    # -- what reaches it ----------------------------------------------------------------------------------------------

    async def _signals(self) -> list[s.Signal]:
        """All that is ready; a Tick when time alone has passed."""
        signals, rang = await self._mailbox.take(self._patience())
        if rang or (self._look and self._may_look()):
            signals += [s.Heard(said) for said in await self._said()]
        return signals or [s.Tick()]

    def _patience(self) -> float:
        now = self.rt.clock.monotonic()
        waits = [self.scratch.due(self.state), self._looked + LOOK_SECONDS if self._look else None]
        if self.idle_since is not None:
            waits.append(max(self.idle_since + self.rt.pace.linger, self._stays))
        return max(0.0, min((w for w in waits if w is not None), default=now + self.rt.pace.lease) - now)

    async def _said(self) -> tuple[Said, ...]:
        """New entries of the stream; and the journal, when posts may have been lost: after an outage, when the bell rings
        and nothing lies there, or when somebody takes back what was not heard of, since whoever journaled may have died
        before it posted. Never one input twice."""
        posted = await self._posted()
        if not (self._look or self._overtaken(posted) or (not posted and self._may_look())):
            return self._fresh(posted)
        journal = await self._journal()
        # what was posted is in the journal too, and is heard in its order when that can be read
        return () if journal is None else self._fresh([*journal, *posted])

    async def _journal(self) -> Sequence[Said] | None:
        """What lies there; None while Postgres is away, which must not cost the running Turn: it is looked at again."""
        try:
            lies = await self.rt.inputs.unaccepted(self.session)
        except Unavailable:
            lies = None
        self._look, self._looked = lies is None, self.rt.clock.monotonic()
        return lies

    async def _posted(self) -> list[Said]:
        said: list[Said] = []
        with contextlib.suppress(Unavailable):  # the renewal that reaches Postgres instead makes us look in the journal
            for entry in await self.rt.inbox.read(self.session, self.cursor):
                self.cursor = entry.entry
                self._unread += 1
                # an earlier owner may have run it from the journal: accepting it again would cost the running Turn
                if _posted_late(entry):
                    self._look = True
                else:
                    said.append(entry.said)
            if self._unread >= TRIM_ENTRIES:  # what was heard is in the journal, and a stream must not grow for ever
                await self.rt.inbox.trim(self.session, self.cursor)
                self._unread = 0
        return said

    def _overtaken(self, posted: list[Said]) -> bool:
        """Whether one of them takes back what this tenure has not heard of: its message may lie in the journal (H43)."""
        taken_back = {id for one in posted if isinstance(one, Withdraw) for id in one.inputs}
        return bool(taken_back - self._heard - {one.id for one in posted})

    def _may_look(self) -> bool:
        """A bell may ring for what was read already, so an empty stream is worth a look now and then only."""
        return self.rt.clock.monotonic() >= self._looked + LOOK_SECONDS

    def _fresh(self, said: Iterable[Said]) -> tuple[Said, ...]:
        """Those that this tenure has not heard: journal and stream may both hold one."""
        new: list[Said] = []
        for one in said:
            if one.id not in self._heard:
                self._heard.add(one.id)
                new.append(one)
        return tuple(new)

    def _look_again(self, cursor: str | None) -> None:
        self.cursor = cursor or self.cursor
        self._look = True
        self._mailbox.ring()

    # -- letting go ---------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Rest as soon as no Turn runs, without lingering; what waits is another's to begin (D2, H46)."""
        self.hurried = True
        self._mailbox.put(s.Leaving())

    def give_way(self) -> None:
        """Another Session waits for the workspace. One that has not had its Turn yet does not leave: the two would only open
        and close their agents, in turns, for ever."""
        if self.worked or self.idle_since is not None:
            self.hurry()

    async def _rested(self) -> bool:
        """Whether it has let go: nothing is left to do, it has lingered, and the Inbox is drained."""
        now = self.rt.clock.monotonic()
        if not self.scratch.at_rest(self.state):
            self.idle_since = None
            return False
        self.idle_since = self.idle_since if self.idle_since is not None else now
        lingers = now < self.idle_since + self.rt.pace.linger and not self.hurried
        if lingers or now < self._stays or self._mailbox.waiting():
            return False
        return await self._let_go()

    async def _let_go(self) -> bool:
        await self._hands.hang_up()
        if self.state.label is not Label.sleeping or self.scratch.phase is Phase.idle:
            await self._step([s.Rested()])
        failpoints.hit("before_sign_off")
        if not await self._released():
            return False
        self.left = True
        if not self.scratch.waits(self.state):  # else the row still names an owner, and the sweep knocks for the next
            await self.rt.timeline.sign_off(self.session, self.fence)
        return True

    async def _released(self) -> bool:
        """Not kept while it is released, or a renewal could bring the Lease back for nobody (H68)."""
        await self.rt.keeper.leave(self.tenure)
        try:
            if await self.rt.leases.release_if_drained(self.session, self.tenure.token, last_read=self.cursor):
                return True
            self._mailbox.ring()
        except Unavailable:  # whoever might post now cannot reach it either; keep it until it answers
            self._stays = self.rt.clock.monotonic() + self.rt.pace.lease / 5
        self.rt.keeper.keep(self.tenure)
        self.idle_since = None
        return False


def _posted_late(entry: Posted) -> bool:
    """Whether whoever journaled it stood still before it posted; a Control does not say when it was made."""
    made = entry.said.sent_at if isinstance(entry.said, Input) else 0
    return int(entry.entry.partition("-")[0]) - made > LATE_MS


def _in_feishu(event: InputAccepted | TurnStarted) -> bool:
    """Whether the deliverer has to do with it: input or a Turn of a place (H11)."""
    rights = event.input.authorization if isinstance(event, InputAccepted) else event.authorization
    return rights is not None and rights.place is not None
