"""What is written is read back as it was, by every release; what nobody could hold is mended, and stops nobody."""

import dataclasses
import json
import re

import msgspec
import pytest
from msgspec.structs import replace

from amux.core import codec
from amux.core import events as e
from amux.core.ids import Epoch, InputId, ItemId, Principal, RequestId, TurnId
from amux.core.inputs import (
    MAX_TEXT,
    Action,
    Answer,
    ContextAction,
    ContextWish,
    Interrupt,
    Manage,
    Prefer,
    Said,
    Verdict,
    Withdraw,
)
from amux.core.session import State, fold
from tests.build import running, said

TURN, IDS = TurnId(7), (InputId("om_1"), InputId("om_2"))
A = Principal("feishu:cli_bot:ou_a")
WHOLE = said("user_a", "说 “hello” 👋", id="om_1", at=1_800_000_000_000, material=["a.png"])
EVENTS: list[e.Event] = [
    e.SessionState(e.Label.sleeping),
    e.OwnerOpened(Epoch(3), "w1"),
    e.ConversationOpening("codex", "native"),
    e.ConversationOpened("native", ("steering",)),
    e.InputAccepted(WHOLE),
    e.InputQueued(IDS, e.QueueReason.other_sender),
    e.SteerRequested(TURN, IDS),
    e.InputSteered(TURN, IDS),
    e.InputCancelled(IDS, e.CancelReason.interrupted),
    e.SubmissionFailed(IDS, e.FailReason.uncertain, "no answer"),
    e.TurnStarted(TURN, IDS, e.Cause.input, WHOLE.authorization, (A, None), "codex"),
    e.Item(TURN, ItemId("i1"), e.ItemType.tool, e.ItemStatus.failed, "pytest", "1 failed"),
    e.Delta(TURN, ItemId("m1"), 4, " world"),
    e.PermissionRequested(TURN, RequestId("7-1"), "git push", "to main"),
    e.PermissionResolved(TURN, RequestId("7-1"), e.Resolution.answered, Verdict.always, A, "User A"),
    e.InterruptRequested(TURN, A, "User A"),
    e.ActionRequested(Action.restart, A, "User A"),
    e.ContextQueued(ContextWish(InputId("compact_1"), A, ContextAction.compact, "User A")),
    e.CompactRequested(InputId("compact_1"), A, "User A"),
    e.ContextCompacted(InputId("compact_1")),
    e.ContextFailed(InputId("compact_1"), "no luck"),
    e.ContextCleared(InputId("clear_1"), A, "User A"),
    e.InputPreferred(IDS[:1], A, "User A"),
    e.ConversationFailed(e.FailReason.open_failed, "no luck"),
    e.ControlRefused(InputId("stop_1"), A, e.Refusal.stale),
    e.NativeTurnQuarantined("n1", "goal"),
    e.TurnFinished(TURN, e.Outcome.failed, "usage_limit", "It resets at 14:00.", e.Usage(10, 5, 2)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: e.Event) -> None:
    assert codec.decode(*codec.encode(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_of_one_kind_come_back_together(event: e.Event) -> None:
    kind, version, payload = codec.encode(event)
    assert list(codec.decode_run(kind, version, [payload] * 3)) == [event] * 3


def test_every_kind_is_among_them() -> None:
    assert {type(event) for event in EVENTS} == set(codec.KIND_OF)


@pytest.mark.parametrize("kind", codec.KINDS)
def test_a_kind_is_the_snake_case_of_its_class(kind: str) -> None:
    _, cls = codec.KINDS[kind]
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() == kind


def test_all_events_have_a_kind() -> None:
    assert set(codec.KIND_OF) == set(e.Event.__args__)


def test_a_kind_of_a_newer_release_is_not_taken_for_another() -> None:
    with pytest.raises(KeyError):
        codec.decode("goal_observed", 1, "{}")


def test_a_row_of_an_older_release_is_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.KINDS, "turn_started", (3, e.TurnStarted))
    monkeypatch.setitem(codec.UPGRADES, ("turn_started", 1), lambda old: {**old, "cause": "input"})
    monkeypatch.setitem(codec.UPGRADES, ("turn_started", 2), lambda old: {**old, "engine": "codex"})
    old = codec.decode("turn_started", 1, '{"turn": 7, "inputs": ["om_1"]}')
    assert old == e.TurnStarted(TURN, IDS[:1], e.Cause.input, engine="codex")


SAID: list[Said] = [
    WHOLE,
    said(None, authorization=dataclasses.replace(WHOLE.authorization, place=None)),
    Interrupt(InputId("stop_1"), A, TURN, "User A"),
    Interrupt(InputId("stop_2"), A, None),
    Manage(InputId("act_1"), A, Action.sleep, "User A"),
    ContextWish(InputId("clear_1"), A, ContextAction.clear, "User A"),
    Withdraw(InputId("withdraw_1"), A, IDS[:1], "User A"),
    Prefer(InputId("prefer_1"), A, InputId("om_1"), "User A"),
    Answer(InputId("click_1"), A, RequestId("7-1"), Verdict.deny, "User A"),
]


@pytest.mark.parametrize("one", SAID, ids=lambda one: f"{type(one).__name__} {one.id}")
def test_what_was_said_comes_back_as_it_was(one: Said) -> None:
    assert codec.decode_said(*codec.encode_said(one)) == one


def test_what_no_release_of_ours_wrote_is_refused() -> None:
    with pytest.raises(KeyError):
        codec.decode_said("goal", "{}")
    with pytest.raises(msgspec.ValidationError):
        codec.decode_said("answer", '{"id": "1", "by": "a", "request": "7-1", "verdict": "perhaps"}')


def test_a_checkpoint_comes_back_as_it_was() -> None:
    state = running("user_a", queue=[WHOLE], steering=[said("user_a", "x" * 500)], interrupting=True)
    state = replace(state, requests=(RequestId("7-1"),), cancelled=(WHOLE,), noted=1, native_id="native")
    assert codec.decode_state(codec.encode_state(state)) == state


POISON = {"half an emoji": "a \ud83d b", "NUL": "a \0 b", "both": "\ud83d\0\udfff"}


@pytest.mark.parametrize("text", POISON.values(), ids=POISON)
def test_what_postgres_cannot_hold_is_mended(text: str) -> None:
    """One such event would fail the whole group's append, for ever (H5)."""
    mended = re.sub("[\0\ud800-\udfff]", "\ufffd", text)
    event = e.Item(TURN, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed, text, text)
    assert codec.decode(*codec.encode(event)) == replace(event, title=mended, text=mended)
    accepted = e.InputAccepted(said("user_a", text, id="om_1", material=[text]))
    kind, _, payload = codec.encode(accepted)
    assert "\\u0000" not in payload
    assert codec.decode(kind, 1, payload) == e.InputAccepted(said("user_a", mended, id="om_1", material=[mended]))
    assert codec.decode_said(*codec.encode_said(accepted.input)) == said("user_a", mended, id="om_1", material=[mended])
    assert "\\u0000" not in codec.encode_state(State(native_id=text))


def test_what_only_looks_like_poison_is_left_alone() -> None:
    event = e.Delta(TURN, ItemId("m"), 0, r"in JSON, NUL is \u0000")
    assert codec.decode(*codec.encode(event)) == event


HUGE = {
    "ASCII": ("", "x" * 1_000_000),
    "Chinese": ("", "长" * 300_000),
    "escapes": ("", "\x01" * 300_000),
    "escapes first": ("", "\x01" * 200_000 + "x" * 2_000_000),
    "two long texts": ("长" * 200_000, "x" * 400_000),
}


@pytest.mark.parametrize(("title", "text"), HUGE.values(), ids=HUGE)
def test_an_event_is_cut_to_its_bound_and_says_so(title: str, text: str) -> None:
    event = e.Item(TURN, ItemId("i"), e.ItemType.tool, e.ItemStatus.completed, title, text)
    kind, version, payload = codec.encode(event)
    assert len(payload.encode()) <= codec.MAX_EVENT
    cut = codec.decode(kind, version, payload)
    assert isinstance(cut, e.Item)
    assert text.startswith(cut.text.split("\n[cut here")[0])
    assert re.search(r"\[cut here: \d+ characters more\]$", cut.text)


def test_a_message_that_was_accepted_is_never_cut() -> None:
    """It was journaled whole, perhaps by a release with another bound; cutting it is worse than a large row."""
    accepted = e.InputAccepted(said("user_a", "长" * 200_000))
    assert codec.decode(*codec.encode(accepted)) == accepted


WEIGHTS = {"x" * MAX_TEXT: True, "长" * 80_000: True, "长" * 100_000: False, "\x01" * 50_000: False}


@pytest.mark.parametrize(("text", "fits"), WEIGHTS.items(), ids=["ASCII", "Chinese", "much Chinese", "escapes"])
def test_what_fits_keeps_its_event_within_the_bound(text: str, fits: bool) -> None:
    one = said("user_a", text)
    assert codec.fits(one) is fits
    if fits:
        assert len(codec.encode(e.InputAccepted(one))[2].encode()) <= codec.MAX_EVENT


def test_the_fold_of_what_is_read_is_the_fold_of_what_was_written() -> None:
    rows = [codec.encode(event) for event in EVENTS]
    assert fold(codec.decode(*row) for row in rows) == fold(EVENTS)


HARD = {
    "plain": [],
    "a NUL": [e.PermissionRequested(TurnId(1), RequestId("r"), "a\0b")],
    "too long": [e.PermissionRequested(TurnId(1), RequestId("r"), "title", "x" * 2 * codec.MAX_EVENT)],
    "a lone surrogate": [e.PermissionRequested(TurnId(1), RequestId("r"), "a\ud800b")],
    "a line's end": [e.PermissionRequested(TurnId(1), RequestId("r"), "a\nb\u2028c")],
}


@pytest.mark.parametrize("hard", HARD.values(), ids=HARD)
def test_events_written_together_are_written_as_each_alone(hard: list[e.Event]) -> None:
    events = [*EVENTS, *hard]
    assert list(zip(*codec.encode_run(events), strict=True)) == [codec.encode(event) for event in events]


def test_payloads_are_plain_json() -> None:
    for event in EVENTS:
        assert isinstance(json.loads(codec.encode(event)[2]), dict)
