"""Acts: each Effect is one call to the provider, and each answer comes back as one Signal. Never waits in the loop.

A provider is an edge, plug-ins included: whatever it raises becomes one of the few answers that the machine knows, so
that a fault of an agent ends a Turn and never an owner. What may have happened is told, never repeated (I5)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import assert_never

import structlog

from amux.core import signals as s
from amux.core import step as m
from amux.core.context import handoff
from amux.core.errors import Refused, Stale, Unavailable, Uncertain
from amux.core.events import Event, FailReason, Outcome
from amux.core.ids import SessionRef, TurnId
from amux.core.launch import LaunchSnapshot, Unlaunchable
from amux.core.steering import STEERING
from amux.core.wishes import COMPACTION
from amux.extensions import Conversation, Extend, Opening, Prompt, Provider
from amux.ports import Workspaces
from amux.runtime import failpoints
from amux.runtime.keeper import Tenure

log = structlog.stdlib.get_logger()
OPEN_LIMIT = 120.0  # seconds for an agent to start, its wait for the workspace included
PLACE_LIMIT = 300.0  # seconds for its workspace to be ready: a git worktree of a large repository is many files
DOOR_SECONDS = (
    3.0  # for which an opening keeps others waiting; by then it has forked, and a silent agent may take longer
)
STEER_LIMIT = 900.0  # seconds until an input is shown to be held: a tool may have to end first
COMPACT_LIMIT = 600.0  # seconds for a summary
STOP_LIMIT = 30.0  # seconds for a stop procedure, its own kill included


@asynccontextmanager
async def _through(door: asyncio.Semaphore) -> AsyncIterator[None]:
    """Wait for a place, and keep it for a while at most (H67)."""
    await door.acquire()
    loop = asyncio.get_running_loop()
    leave = loop.call_later(DOOR_SECONDS, door.release)
    try:
        yield
    finally:
        if loop.time() < leave.when():  # else it has left, or is about to
            leave.cancel()
            door.release()


@dataclass(frozen=True, slots=True)
class Agent:
    """What a Session runs on, and how."""

    provider: Provider
    launch: LaunchSnapshot


@dataclass(slots=True)
class Performer:
    """One owner's hands. `tell` takes each answer; `home` is the Session's own folder; `history` reads what a handoff is
    made of, and may raise Unavailable; `wanted` is called when another Session waits for the workspace."""

    session: SessionRef
    agent: Agent | Unlaunchable
    home: str
    workspaces: Workspaces
    tenure: Tenure
    opening: asyncio.Semaphore
    tell: Callable[[s.Signal], None]
    history: Callable[[], Awaitable[Sequence[Event]]]
    wanted: Callable[[], None]
    _conversation: Conversation | None = None
    _generation: int = 0
    _hanging_up: asyncio.Lock = field(default_factory=asyncio.Lock)
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: TurnId | None = None
    _stopping: TurnId | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)  # asyncio alone lets them be collected

    def perform(self, effect: m.Effect) -> None:
        """Begin one act."""
        task = asyncio.create_task(self._act(effect), name=type(effect).__name__)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every act and the agent. What was under way is for the next owner's recovery to tell."""
        self._generation += 1
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.hang_up()

    async def _act(self, effect: m.Effect) -> None:
        match effect:
            case m.OpenConversation(native_id):
                await self._open(native_id)
            case m.StartTurn():
                await self._start(effect)
            case m.SteerTurn():
                await self._steer(effect)
            case m.InterruptTurn():
                await self._interrupt(effect)
            case m.AnswerRequest():
                await self._answer(effect)
            case m.CompactContext(control):
                self.tell(s.Compacted(control, await self._compact()))
            case m.CloseConversation():
                await self.hang_up()
            case m.KillAgent(ended):
                await self._end(ended)
            case _:
                assert_never(effect)

    async def _open(self, native_id: str | None) -> None:
        await self.hang_up()
        async with self._hanging_up:  # by another hand
            self._generation += 1
        if isinstance(self.agent, Unlaunchable):
            self.tell(s.OpenFailed(self.agent.reason, self.agent.detail))
            return
        launch = self.agent.launch
        try:
            launch = await self._placed(launch)
            async with _through(self.opening), asyncio.timeout(OPEN_LIMIT):
                deadline = self.tenure.deadline
                opening = Opening(self.session, launch, self.home, deadline, native_id, self._guarded, self.wanted)
                conversation = await self.agent.provider.open(opening, self._emitter(self._generation))
        except Unavailable as why:
            self.tell(s.OpenFailed(FailReason.engine_unavailable, str(why)))
        except Refused as why:
            gone = why.key == "no_history" and native_id
            self.tell(s.HistoryGone() if gone else s.OpenFailed(FailReason.open_failed, str(why)))
        except Stale:  # no fault of the agent: what waits is the next owner's
            self.tenure.lost()
        except TimeoutError:
            self.tell(s.OpenFailed(FailReason.open_failed, f"{launch.engine} did not start in {OPEN_LIMIT:g} s."))
        except Exception:
            log.exception("provider_fault", act="open")
            self.tell(s.OpenFailed(FailReason.open_failed, f"{launch.engine} failed to start; see the worker's log."))
        else:
            self._conversation = conversation
            parts = {STEERING: conversation.steering, COMPACTION: conversation.compaction}
            can = tuple(name for name, part in parts.items() if part)
            self.tell(s.ConversationReady(conversation.native_id, can))
        finally:
            if self._conversation is None:  # what a provider left running dies with the Lease's deadline
                self.tenure.extend = lambda _deadline: None

    async def _placed(self, launch: LaunchSnapshot) -> LaunchSnapshot:
        """The same with the folder in which it really works. Raises Refused."""
        try:
            async with asyncio.timeout(PLACE_LIMIT):
                return replace(launch, workspace=await self.workspaces.ready(self.session, launch))
        except TimeoutError:
            raise Refused(f"{launch.workspace} was not ready within {PLACE_LIMIT:g} s: is its disk there?") from None

    async def _start(self, effect: m.StartTurn) -> None:
        failpoints.hit("before_start")
        conversation = self._conversation
        if conversation is None:
            self.tell(s.Died("The agent was gone before the Turn began."))
            return
        try:
            async with self._noting:
                note = await self._note(effect)
            if effect.turn == self._stopping:  # before it began: the stop tells its end
                return
            self._begun = effect.turn
            await conversation.start_turn(effect.turn, Prompt(effect.inputs, note))
        except Refused as why:
            self.tell(s.TurnEnded(effect.turn, Outcome.failed, why.key, str(why)))
        except Unavailable as why:
            # it certainly did not start; an agent that takes nothing is opened anew for the next, and not given it first
            ended = s.TurnEnded(effect.turn, Outcome.failed, "unavailable", str(why))
            await self._kill(conversation, why, ended)
        except Exception as why:  # noqa: BLE001 - Uncertain or a fault: it may be running, so its process must end
            await self._kill(conversation, why)
        else:
            failpoints.hit("after_start")

    async def _note(self, effect: m.StartTurn) -> str:
        """All that amux itself says to the agent with this Turn. Raises Unavailable."""
        told = handoff(await self.history(), effect.handoff, before=effect.turn) if effect.handoff else ""
        return "\n\n".join(filter(None, (told, effect.note)))

    async def _steer(self, effect: m.SteerTurn) -> None:
        ids = tuple(i.id for i in effect.inputs)
        steering = self._conversation.steering if self._conversation else None
        answer = s.SteerAnswer.refused
        if steering:
            try:
                async with asyncio.timeout(STEER_LIMIT):
                    await steering.steer(effect.turn, effect.inputs)
                answer = s.SteerAnswer.committed
            except Refused:
                answer = s.SteerAnswer.refused
            except Exception as why:  # noqa: BLE001 - Uncertain, or a fault of the provider: it may hold them (I5)
                log.warning("steer_uncertain", why=type(why).__name__)
                answer = s.SteerAnswer.unknown
        self.tell(s.Steered(effect.turn, ids, answer))

    async def _compact(self) -> str | None:
        """Why it was not, for people; None when it was. An agent of which nobody knows is ended (A6)."""
        conversation = self._conversation
        if conversation is None or conversation.compaction is None:
            return "The agent was gone before it began."
        try:
            async with asyncio.timeout(COMPACT_LIMIT):
                await conversation.compaction.compact()
        except (Refused, Unavailable) as why:
            return str(why)
        except Exception as why:  # noqa: BLE001 - Uncertain, silent, or a fault
            doubt = f"Nobody knows whether it was done: {str(why) or type(why).__name__}"
            await self._kill(conversation, Uncertain(doubt))
            return doubt
        return None

    async def _interrupt(self, effect: m.InterruptTurn) -> None:
        self._stopping = effect.turn
        async with self._noting:  # or it would meet an agent that runs nothing yet
            conversation = self._conversation if self._begun == effect.turn else None
        if conversation:
            try:
                async with asyncio.timeout(STOP_LIMIT):
                    await conversation.interrupt(effect.turn)
            except Exception as why:  # noqa: BLE001 - it did not stop by itself, whatever the reason
                await self._kill(conversation, why)
        async with self._hanging_up:  # by another hand: what tells of its death comes before the stop is quiet
            self.tell(s.Stopped(effect.turn))

    async def _answer(self, effect: m.AnswerRequest) -> None:
        """An agent that cannot hear the answer would wait for ever."""
        if conversation := self._conversation:
            try:
                async with asyncio.timeout(STOP_LIMIT):
                    await conversation.answer(effect.request, effect.verdict)
            except Exception as why:  # noqa: BLE001 - a plug-in's fault, or its silence
                await self._kill(conversation, why)

    async def _end(self, ended: s.TurnEnded) -> None:
        """Its time is over. One that is gone already has told so."""
        if conversation := self._conversation:
            await self._kill(conversation, TimeoutError(ended.reason), ended)
        else:
            self.tell(ended)

    async def _kill(self, conversation: Conversation, why: Exception, ended: s.TurnEnded | None = None) -> None:
        """Nobody knows what that agent is doing: end it, so that its Turn can end. A later one is left alone. How its Turn
        `ended`, where that is known, is told with its death: nothing may be started between the two."""
        log.warning("agent_killed", why=type(why).__name__)
        if self._conversation is conversation:
            await self.hang_up()
            self.tell(s.Died(str(why), ended))
        elif ended:
            self.tell(ended)

    async def hang_up(self) -> None:
        """End the agent; the Session stays, and the next Turn opens it again."""
        conversation, self._conversation = self._conversation, None
        if conversation:
            self._generation += 1
            self.tenure.extend = lambda _deadline: None
            async with self._hanging_up:
                try:
                    async with asyncio.timeout(STOP_LIMIT):
                        await conversation.close()
                except Exception:  # what it left running dies with the Lease's deadline
                    log.exception("provider_fault", act="close")

    def _guarded(self, extend: Extend) -> None:
        """From now on each renewal keeps the agent alive, be it open yet or not (H3)."""
        self.tenure.extend = extend
        extend(self.tenure.deadline)

    def _emitter(self, generation: int) -> Callable[[s.ProviderEvent], None]:
        """What an agent that was hung up still says is nobody's any more."""

        def emit(event: s.ProviderEvent) -> None:
            if generation == self._generation:
                self.tell(event)

        return emit
