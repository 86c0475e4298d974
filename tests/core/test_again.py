"""What may be sent again and what is said then (I5): what did not run and nothing else, once, in the sender's own name."""

import pytest

from amux.core import again as module
from amux.core import events as e
from amux.core.again import Fate, again, named, offered, unrun
from amux.core.errors import Refused
from amux.core.ids import InputId, Principal, TurnId
from amux.core.inputs import Authorization, Input, Material, Origin
from tests.build import TOPIC, rights, said

pytestmark = pytest.mark.rule("I5")
T1 = TurnId(1)
ONE, TWO, OTHER = InputId("feishu:cli_a:om_1"), InputId("feishu:cli_a:om_2"), InputId("cli:user_b:0a1b")
BOTH = (ONE, TWO)
B = Principal("cli:user_b")
QUEUED = e.InputQueued(BOTH, e.QueueReason.other_sender)
STARTED = e.TurnStarted(T1, BOTH, e.Cause.input)
ASKED, STEERED = e.SteerRequested(T1, BOTH), e.InputSteered(T1, BOTH)
REFUSED = e.InputQueued(BOTH, e.QueueReason.refused)
WITHDRAWN = e.InputCancelled((TWO,), e.CancelReason.withdrawn)
ELSE = e.SubmissionFailed((OTHER,), e.FailReason.uncertain)


def failed(reason: e.FailReason, *ids: InputId) -> e.SubmissionFailed:
    return e.SubmissionFailed(ids or BOTH, reason)


def cancelled(reason: e.CancelReason) -> e.InputCancelled:
    return e.InputCancelled(BOTH, reason)


UNCERTAIN = failed(e.FailReason.uncertain)
DID_NOT_RUN: dict[str, tuple[tuple[Fate, ...], tuple[InputId, ...]]] = {
    **{f"failed, {reason}": ((failed(reason),), BOTH) for reason in e.FailReason},
    **{f"cancelled, {reason}": ((QUEUED, cancelled(reason)), BOTH) for reason in e.CancelReason},
    "a steer that nobody knows of": ((ASKED, UNCERTAIN), BOTH),
    "a steer that was cancelled with its Turn": ((ASKED, STEERED, cancelled(e.CancelReason.interrupted)), BOTH),
    "waited, then no agent opened": ((QUEUED, failed(e.FailReason.open_failed)), BOTH),
    "one of two withdrawn, the other has run": ((QUEUED, WITHDRAWN, e.TurnStarted(T1, (ONE,), e.Cause.input)), (TWO,)),
    "another's fate after it": ((UNCERTAIN, ELSE), BOTH),
}
RAN_OR_MAY: dict[str, tuple[tuple[Fate, ...], str]] = {
    "accepted, and nothing more": ((), "again_waits"),
    "only another's fate": ((ELSE,), "again_waits"),
    "waits": ((QUEUED,), "again_waits"),
    "waits, since the agent refused it": ((ASKED, REFUSED), "again_waits"),
    "on its way into a Turn": ((ASKED,), "again_ran"),
    "joined a Turn": ((ASKED, STEERED), "again_ran"),
    "started a Turn": ((STARTED,), "again_ran"),
    "waited, then started a Turn": ((QUEUED, STARTED), "again_ran"),
}


@pytest.mark.parametrize(("fates", "ids"), DID_NOT_RUN.values(), ids=DID_NOT_RUN)
def test_what_did_not_run_is_sent_whole(fates: tuple[Fate, ...], ids: tuple[InputId, ...]) -> None:
    assert unrun(TWO, fates) == ids


@pytest.mark.parametrize(("fates", "key"), RAN_OR_MAY.values(), ids=RAN_OR_MAY)
def test_what_ran_or_still_may_is_refused(fates: tuple[Fate, ...], key: str) -> None:
    with pytest.raises(Refused, match="nothing was sent") as refused:
        unrun(TWO, fates)
    assert refused.value.key == key


def test_every_event_that_tells_a_fate_is_looked_at() -> None:
    """A new one that names inputs would be overlooked, and what it tells of might run twice."""
    naming = {kind for kind in e.Event.__args__ if "inputs" in kind.__struct_fields__}
    assert naming - {e.InputPreferred} == set(module.FATES)


def test_it_is_the_same_message_of_whoever_sends_it() -> None:
    file = Material("file", "notes.txt", "notes.txt")
    old = Input(ONE, "text", Principal("user_a"), rights("user_a"), 5, "User A", Origin.bot, (file,))
    new = again([old], B, "User B", 9)
    place = Authorization(B, TOPIC, old.authorization.permission)
    assert new == Input(InputId(f"again:{ONE}"), "text", B, place, 9, "User B", Origin.person, (file,))


def test_what_was_joined_is_one_message() -> None:
    several = [said("user_a", "one", id=ONE, material=["a"]), said("user_a", "two", id=TWO, material=["b"])]
    new = again(several, B, "User B", 9)
    assert (new.id, new.text, [m.name for m in new.material]) == (f"again:{TWO}", "one\n\ntwo", ["a", "b"])


NEWER = failed(e.FailReason.queue_full, OTHER)
AGAIN = failed(e.FailReason.uncertain, InputId(f"again:{TWO}"))
NAMED: dict[str, tuple[str, tuple[Fate, ...], InputId]] = {
    "the newest": ("", (UNCERTAIN, NEWER), OTHER),
    "not what was withdrawn": ("", (NEWER, WITHDRAWN), OTHER),
    "not what an archived Session refused": ("", (NEWER, failed(e.FailReason.archived)), OTHER),
    "a whole id": (ONE, (UNCERTAIN, NEWER), TWO),
    "the beginning of an id": ("feishu:", (UNCERTAIN, NEWER), TWO),
    "the beginning of its last part": ("om_", (UNCERTAIN, NEWER), TWO),
    "what was withdrawn, by its name": ("om_2", (WITHDRAWN, NEWER), TWO),
    "the newest of what was sent again and failed": ("om_2", (UNCERTAIN, AGAIN), InputId(f"again:{TWO}")),
    "what did not fail": ("om_7", (UNCERTAIN,), InputId("om_7")),
}


@pytest.mark.parametrize(("prefix", "fates", "meant"), NAMED.values(), ids=NAMED)
def test_a_person_names_it_shortly(prefix: str, fates: tuple[Fate, ...], meant: InputId) -> None:
    assert named(prefix, fates) == meant


def test_several_and_none_are_refused_by_name() -> None:
    third = failed(e.FailReason.uncertain, InputId("feishu:cli_a:om_3"))
    with pytest.raises(Refused, match="om_ is the beginning of several that failed: om_2, om_3"):
        named("om_", (UNCERTAIN, third))
    with pytest.raises(Refused, match="Nothing failed here"):
        named("", (STARTED, WITHDRAWN))


def test_it_is_offered_where_it_can_be_done_and_nobody_took_it_back() -> None:
    never = {e.FailReason.archived, e.CancelReason.archived, e.CancelReason.withdrawn}
    assert {reason for reason in (*e.FailReason, *e.CancelReason) if not offered(reason)} == never
