"""What became of it all: counted from the crowd's record, Postgres, the cloud's messages and the agents' own record."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from amux.core import events as e
from amux.core.audit import Count, Projection, examine, fates_of
from amux.core.errors import Unavailable, Uncertain
from amux.core.ids import InputId, Seq, SessionKey, TurnId
from amux.ports import CardRow, Recorded, Session
from amux.sandbox import feishu
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import MessageId
from amux.sandbox.world import World
from amux.wiring import Stores
from ops.drills.stage import Stage

QUIET_SECONDS = 180.0
MANY = 100_000
LOST = "select count(*) from timeline where kind = 'turn_finished' and payload::json->>'outcome' = 'lost'"
TAGS = {"completed": "done", "interrupted": "interrupted", "failed": "failed", "lost": "cut off"}


@dataclass(frozen=True, slots=True)
class Broken:
    """A Turn that some harm broke, and since when its recovery counts (seconds since 1970)."""

    session: SessionKey
    turn: TurnId
    since: float


@dataclass(slots=True)
class Report:
    """The drill's line. Every count in ZERO must be 0."""

    drill: str
    rounds: int
    sessions: int
    lease_s: float
    accepted: int = 0
    dispatched: int = 0
    steered: int = 0
    waiting: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    doubled: int = 0
    open_turns: int = 0
    double_finish: int = 0
    misrouted: int = 0
    duplicate_cards: int = 0
    missing_cards: int = 0
    gaps: int = 0
    orphans: int = 0
    lost_turns: int = 0
    recover_p50_s: float | None = None
    recover_max_s: float | None = None
    notes: list[str] = field(default_factory=list)


ZERO = (
    "lost",
    "doubled",
    "open_turns",
    "double_finish",
    "misrouted",
    "duplicate_cards",
    "missing_cards",
    "gaps",
    "orphans",
)


@dataclass(frozen=True, slots=True)
class Whole:
    """One Session with all its events."""

    session: Session
    log: Sequence[Recorded]


async def everything(parts: Stores) -> list[Whole]:
    """Every Session, read to the head that its row named: what came after the row was read does not count."""
    rows = await parts.sessions.list(label=None, target=None, limit=MANY)
    return [Whole(row, [r for r in await _log(parts, row) if r.seq <= row.head]) for row in rows]


async def _log(parts: Stores, session: Session) -> list[Recorded]:
    log: list[Recorded] = []
    while page := await parts.timeline.read(session.key, log[-1].seq if log else Seq(0), limit=2_000):
        log += page
    return log


async def open_turns(parts: Stores) -> list[tuple[Session, TurnId]]:
    """What runs now."""
    found = await parts.sessions.list(label=None, target=None, limit=MANY)
    return [(session, session.open_turn) for session in found if session.open_turn]


async def quiet(parts: Stores, accepted: Iterable[str]) -> bool:
    """Wait until everything acknowledged has its fate, nothing runs and everything is shown; False after a limit."""
    end = time.monotonic() + QUIET_SECONDS
    promised = set(accepted)
    while time.monotonic() < end:
        with suppress(Unavailable, Uncertain):
            if await _rests(parts, promised):
                return True
        await asyncio.sleep(0.5)
    return False


async def _rests(parts: Stores, promised: set[str]) -> bool:
    if await open_turns(parts) or await parts.cards.owing(older_than=0) or await parts.inputs.lying(older_than=0):
        return False
    wholes = await everything(parts)
    fates: dict[InputId, str] = {}
    for whole in wholes:
        fates |= fates_of(r.event for r in whole.log)[0]
    return promised <= set(fates) and "waiting" not in fates.values()


async def count(report: Report, parts: Stores, accepted: frozenset[str], stage: Stage) -> None:
    """Fill in the report from what can be seen."""
    wholes = await everything(parts)
    total, fates = Count(), dict[InputId, str]()
    for whole in wholes:
        log = [(r.seq, r.event) for r in whole.log]
        row = Projection(whole.session.label, whole.session.head, whole.session.open_turn)
        total.add(examine(str(whole.session.ref), log, row, owned=None))
        fates |= fates_of(event for _, event in log)[0]
    told = Counter(fates[InputId(i)] for i in accepted if InputId(i) in fates)
    report.accepted = len(accepted)
    for fate, number in told.items():
        setattr(report, fate, number)
    report.lost = len([i for i in accepted if InputId(i) not in fates])
    report.doubled = sum(n - 1 for n in Counter(stage.given()).values() if n > 1) + total.doubled
    report.open_turns, report.double_finish = total.open_turns, total.double_finish
    report.gaps, report.lost_turns = total.gaps + total.drifted, total.lost_turns
    report.notes += total.notes
    await _cards(report, parts, wholes, stage)


async def _cards(report: Report, parts: Stores, wholes: Sequence[Whole], stage: Stage) -> None:
    """Each slot has one message, in the topic of what it answers, and a Turn's card says how the Turn ended."""
    claimed: set[str] = set()
    for whole in wholes:
        rows = {row.slot: row for row in await parts.cards.rows(whole.session.key)}
        claimed |= {row.message_id for row in rows.values() if row.message_id}
        for recorded in whole.log:
            match recorded.event:
                case e.TurnStarted(turn, authorization=rights) if rights and rights.place:
                    report.missing_cards += not _ended_well(rows.get(f"turn:{turn}"), _outcome(whole, turn), stage)
        report.misrouted += sum(_elsewhere(row, stage.world) for row in rows.values())
    sent = {message.id for message in Ledger(stage.world).sent(feishu.CODER) if message.msg_type == "interactive"}
    report.duplicate_cards = len(sent - claimed)


def _outcome(whole: Whole, turn: TurnId) -> str:
    ends = (r.event.outcome for r in whole.log if isinstance(r.event, e.TurnFinished) and r.event.turn == turn)
    return str(next(ends, ""))


def _ended_well(row: CardRow | None, outcome: str, stage: Stage) -> bool:
    if row is None or row.message_id not in stage.world.messages:
        return False
    header = stage.shown(MessageId(row.message_id)).get("header", {})
    return TAGS.get(outcome) in [tag["text"]["content"] for tag in header.get("text_tag_list", [])]


def _elsewhere(row: CardRow, world: World) -> bool:
    """Whether it stands in another topic than the message that it answers."""
    message = world.messages.get(MessageId(row.message_id)) if row.message_id else None
    asked = world.messages.get(MessageId(row.reply_to))
    return message is not None and asked is not None and message.thread != asked.thread


@dataclass(frozen=True, slots=True)
class End:
    """How a Turn ended, and when (seconds since 1970)."""

    outcome: e.Outcome
    at: float


async def ends(parts: Stores, broken: Sequence[Broken]) -> list[End | None]:
    """The end of each of these Turns; None where it has none."""
    wanted = {one.session for one in broken}
    found: dict[tuple[SessionKey, TurnId], End] = {}
    for session in await parts.sessions.list(label=None, target=None, limit=MANY):
        for recorded in await _log(parts, session) if session.key in wanted else ():
            if isinstance(recorded.event, e.TurnFinished):
                found[session.key, recorded.event.turn] = End(recorded.event.outcome, recorded.at)
    return [found.get((one.session, one.turn)) for one in broken]


async def lost_so_far(parts: Stores) -> int:
    """How many Turns have ended lost."""
    rows = await parts.postgres.ask(LOST)
    return int(rows[0][0])


async def recovered(parts: Stores, broken: Sequence[Broken]) -> list[float]:
    """How long each broken Turn took to its end, in seconds; infinite where it has none."""
    found = zip(await ends(parts, broken), broken, strict=True)
    return [max(0.0, end.at - one.since) if end else float("inf") for end, one in found]
