"""The tour of `amux demo --once`: each promise played on the real house, one line a step with what was promised and what
was seen. It ends with the audit, and answers 0 only when every promise held."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from amux import wiring
from amux.core import events as e
from amux.core.errors import Unavailable
from amux.core.ids import Epoch, InputId, Principal, Seq, SessionRef, TurnId
from amux.core.inputs import Authorization, Input
from amux.local.house import SERVICES
from amux.ports import Draft, Recorded, Session
from amux.runtime.audit import Audit
from amux.runtime.receive import new_session_id
from amux.sandbox import feishu
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import MessageId, ThreadId
from amux.settings import Settings
from ops.drills.count import quiet
from ops.drills.drill import stage_settings
from ops.drills.stage import Stage, stage

STEP_SECONDS = 45.0
LOOK_SECONDS = 0.1
WORK_SECONDS = 8.0  # how long a Turn of the tour works, so that there is time to interfere


E = TypeVar("E", e.InputSteered, e.InputQueued, e.TurnStarted)


@dataclass(slots=True)
class Tour:
    """The house that is toured, and what held so far."""

    house: Stage
    parts: wiring.Stores
    settings: Settings
    held: bool = True
    topic: ThreadId | None = None
    cli: Session | None = None

    async def step(self, promise: str, play: Callable[[], Awaitable[str]]) -> None:
        """Play one step, and say what was promised and what was seen."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                seen = await play()
            mark = "✓"
        except (TimeoutError, AssertionError, Unavailable) as why:
            seen, mark, self.held = f"NOT SEEN: {str(why) or 'in time'}", "✗", False
        print(f"{mark} {promise}: {seen} ({time.monotonic() - began:.1f} s)", flush=True)

    # -- the steps ----------------------------------------------------------------------------------------------------

    async def one_message_one_card(self) -> str:
        self.topic = self.house.world.open_topic(feishu.USER_A, feishu.PAYMENTS, "Why does the upload test fail?")
        await self.until(self.cards, "no card")
        await self.running()
        return "Turn 1 runs, one card in its topic"

    async def the_sender_joins(self) -> str:
        said = self.say(feishu.USER_A, "Look at the last chunk first.")
        steered = await self.event(e.InputSteered, said)
        return f"joined Turn {steered.turn}"

    async def another_waits(self) -> str:
        said = self.say(feishu.USER_B, "Also bump the patch version.")
        queued = await self.event(e.InputQueued, said)
        assert queued.reason is e.QueueReason.other_sender, queued.reason
        await self.until(lambda: len(self.cards()) == 1, "not one card")
        return f"waits, {queued.reason}"

    async def one_ending(self) -> str:
        session = await self.session()
        ended, _ = await self.finished(session, TurnId(1))
        assert ended.outcome is e.Outcome.completed, ended
        await self.until(lambda: any("done" in self.tags(card) for card in self.cards()), "the card does not say done")
        return f"Turn {ended.turn} {ended.outcome}, and its card says so"

    async def a_prompt_from_the_terminal(self) -> str:
        ref = SessionRef(self.settings.target, new_session_id())
        launch = wiring.launch_settings(self.settings, ref)
        me = Principal("cli:tour")
        said = Input(InputId(f"cli:tour:{ref.id}"), "Summarise the changelog.", me, Authorization(me), 0, "tour")
        await self.parts.submit.launch(Draft(ref, launch, "tour"), said)
        self.cli = await self.parts.sessions.find(str(ref))
        ended, _ = await self.finished(self.cli, TurnId(1))
        assert ended.outcome is e.Outcome.completed, ended
        return f"Session {ref.id[:6]}, Turn 1 {ended.outcome}"

    async def a_worker_dies(self) -> str:
        session = await self.session()
        turn = await self.at_work()
        waits = self.say(feishu.USER_B, "And tell me what you found.")
        await self.event(e.InputQueued, waits)
        at = self.house.signal("worker", signal.SIGKILL)
        lost, when = await self.finished(session, turn)
        assert lost.outcome is e.Outcome.lost, lost
        await self.event(e.TurnStarted, waits)
        return f"Turn {turn} lost after {when - at:.1f} s, nothing run again, the queue goes on"

    async def redis_is_emptied(self) -> str:
        session, turn = await self.session(), await self.at_work()
        epoch = await self.epoch(session)
        await self.parts.redis.command("FLUSHALL")
        said = self.say(feishu.USER_A, "One more thing.")
        ended, _ = await self.finished(session, turn)
        assert ended.outcome is e.Outcome.completed, ended
        await self.fate(said)
        assert await self.epoch(session) == epoch, "another owner came"
        return f"Turn {turn} went on to its end, the message is there"

    async def a_late_viewer(self) -> str:
        session = await self.session()
        whole = await self.log(session)
        seen: list[Recorded] = []
        async for batch in self.parts.attach.follow(session.key, Seq(0)):
            seen += batch
            if len(seen) >= len(whole):
                break
        assert [r.seq for r in seen] == list(range(1, len(seen) + 1)), "gaps"
        assert seen[: len(whole)] == list(whole), "another Timeline"
        return f"{len(whole)} events, gap-free and the same"

    async def the_audit(self) -> str:
        promised = [f"feishu:{feishu.CODER}:{m}" for m in Ledger(self.house.world).acknowledged(feishu.CODER)]
        assert await quiet(self.parts, promised), "it did not become quiet"
        count = await Audit(self.parts.sessions, self.parts.timeline).all()
        assert count.broken == 0, count.notes
        assert count.accepted == len(promised) + 1, (count.accepted, len(promised))
        return (
            f"{count.accepted} accepted = {count.dispatched} started + {count.steered} joined + {count.waiting} waiting"
            f" + {count.failed} failed + {count.cancelled} cancelled; lost 0, run twice {count.doubled}"
        )

    # -- looking ------------------------------------------------------------------------------------------------------

    def say(self, person: object, text: str) -> InputId:
        message = self.house.world.say(person, feishu.PAYMENTS, text, topic=self.topic)  # type: ignore[arg-type]
        return InputId(f"feishu:{feishu.CODER}:{message}")

    def cards(self) -> Sequence[MessageId]:
        """Turns' cards in the topic: those with a header."""
        sent = Ledger(self.house.world).sent(feishu.CODER, thread=self.topic)
        return [message.id for message in sent if self.tags(message.id)]

    def tags(self, message: MessageId) -> Sequence[str]:
        """The state words of a card's header."""
        card = self.house.shown(message)
        return [tag["text"]["content"] for tag in card.get("header", {}).get("text_tag_list", [])]

    async def session(self) -> Session:
        """The topic's Session: the one with a Feishu title."""
        found = await self.parts.sessions.list(label=None, target=None, limit=10)
        return next(s for s in found if self.cli is None or s.key != self.cli.key)

    async def log(self, session: Session) -> Sequence[Recorded]:
        return await self.parts.timeline.read(session.key, Seq(0), limit=100_000)

    async def epoch(self, session: Session) -> Epoch:
        return max(
            (r.event.epoch for r in await self.log(session) if isinstance(r.event, e.OwnerOpened)), default=Epoch(0)
        )

    async def at_work(self) -> TurnId:
        """A Turn that has just begun, so that there is time to interfere."""
        session = await self.session()
        while (now := await self.parts.sessions.find(str(session.ref))).open_turn:
            await self.finished(now, now.open_turn)
        said = self.say(feishu.USER_A, "Look again, please.")
        return (await self.event(e.TurnStarted, said)).turn

    async def running(self) -> TurnId:
        """The first Turn, once it has started."""
        started = await self.recorded(lambda event: isinstance(event, e.TurnStarted))
        assert isinstance(started.event, e.TurnStarted)
        return started.event.turn

    async def recorded(self, fits: Callable[[e.Event], bool], session: Session | None = None) -> Recorded:
        """Wait for the first such event, of one Session or of any."""
        while True:
            every = await self.parts.sessions.list(label=None, target=None, limit=10)
            for one in [session] if session else every:
                for recorded in await self.log(one):
                    if fits(recorded.event):
                        return recorded
            await asyncio.sleep(LOOK_SECONDS)

    async def event(self, kind: type[E], said: InputId) -> E:
        """The first event of that kind that names this input."""
        found = await self.recorded(lambda event: isinstance(event, kind) and said in getattr(event, "inputs", ()))
        assert isinstance(found.event, kind)
        return found.event

    async def fate(self, said: InputId) -> None:
        """Wait until it runs, one way or the other."""
        runs = e.TurnStarted | e.InputSteered
        await self.recorded(lambda event: isinstance(event, runs) and said in event.inputs)

    async def finished(self, session: Session, turn: TurnId) -> tuple[e.TurnFinished, float]:
        """The end of that Turn, and when."""
        found = await self.recorded(lambda event: isinstance(event, e.TurnFinished) and event.turn == turn, session)
        assert isinstance(found.event, e.TurnFinished)
        return found.event, found.at

    async def until(self, holds: Callable[[], object], otherwise: str) -> None:
        """Wait for something to be seen in the cloud."""
        for _ in range(round(STEP_SECONDS / 2 / LOOK_SECONDS)):
            if holds():
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError(otherwise)


async def tour(settings: Settings, engine: str) -> int:
    """Play it in a home of its own; answers the exit code."""
    del settings
    print(f"The tour, on {engine}. Starting amux ...", flush=True)
    seconds = float(os.environ.get("AMUX_SCRIPTED_SECONDS") or WORK_SECONDS)
    async with stage(engine=engine, names=SERVICES, seconds=seconds) as house:
        here = stage_settings(house)
        async with wiring.stores(here) as parts:
            t = Tour(house, parts, here)
            await t.step("One message, one card", t.one_message_one_card)
            await t.step("The sender's follow-up joins the running Turn", t.the_sender_joins)
            await t.step("Another member's waits", t.another_waits)
            await t.step("A Turn ends once", t.one_ending)
            await t.step("A prompt from the terminal drives a second Session", t.a_prompt_from_the_terminal)
            await t.step("A worker is killed in mid-Turn", t.a_worker_dies)
            await t.step("Redis is emptied in mid-Turn", t.redis_is_emptied)
            await t.step("A viewer that came late sees the same", t.a_late_viewer)
            await t.step("Every message has one fate", t.the_audit)
        await house.stop()
        left = house.orphans()
        print(f"{'✗' if left else '✓'} Nothing is left running: {len(left)} processes", flush=True)
        held = t.held and not left
    print("Every promise held." if held else "A promise was broken: see ✗ above.", flush=True)
    return 0 if held else 1
