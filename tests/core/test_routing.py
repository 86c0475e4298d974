"""Which Session a message reaches, by the Bindings as they stood when it was sent."""

import pytest

from amux.core.ids import BindingId, InputId, Principal, SessionKey
from amux.core.routing import Bound, Ended, Launch, Message, Route, ToSession, Unmeant, route

STANDING = Bound(BindingId(1), SessionKey(1), since=100, until=None)
RETIRED = Bound(BindingId(2), SessionKey(2), since=100, until=200)
ANEW = Bound(BindingId(3), SessionKey(3), since=200, until=None)


def message(*, at: int = 150, mentions: bool = True, private: bool = False) -> Message:
    return Message(
        id=InputId("feishu:cli_bot:om_1"),
        app="cli_bot",
        chat="oc_group",
        topics=("omt_topic", "om_root"),
        text="text",
        sender=Principal("feishu:cli_bot:ou_a"),
        sent_at=at,
        private=private,
        mentions_bot=mentions,
    )


CASES: dict[str, tuple[Message, list[Bound], Route]] = {
    "a bound topic": (message(), [STANDING], ToSession(STANDING)),
    "a new topic, by its surest key": (message(), [], Launch("omt_topic")),
    "unmentioned, in a bound topic": (message(mentions=False), [STANDING], Unmeant()),
    "unmentioned, in a new topic": (message(mentions=False), [], Unmeant()),
    "private, so it is meant for the bot": (message(mentions=False, private=True), [], Launch("omt_topic")),
    "private and bound": (message(mentions=False, private=True), [STANDING], ToSession(STANDING)),
    "sent before the topic was bound": (message(at=99), [STANDING], Unmeant()),
    "sent in the instant in which it was bound": (message(at=100), [STANDING], ToSession(STANDING)),
    "sent while the retired one stood": (message(at=199), [RETIRED], ToSession(RETIRED)),
    "sent in the instant in which it ended": (message(at=200), [RETIRED], Ended(RETIRED)),
    "ended, and nothing followed": (message(at=250), [RETIRED], Ended(RETIRED)),
    "ended, and bound anew by hand": (message(at=250), [ANEW, RETIRED], ToSession(ANEW)),
    "a redelivery of what was sent to the retired one": (message(at=150), [ANEW, RETIRED], ToSession(RETIRED)),
    "between two, in exactly one": (message(at=200), [ANEW, RETIRED], ToSession(ANEW)),
}


@pytest.mark.rule("B1", "B5", "B6", "B9")
@pytest.mark.parametrize(("said", "bindings", "expected"), CASES.values(), ids=CASES)
def test_route(said: Message, bindings: list[Bound], expected: Route) -> None:
    assert route(said, bindings) == expected
