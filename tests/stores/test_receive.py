"""A Feishu message, and Postgres that stands still: ingress answers in time all the same, and it is journaled once."""

import time

import pytest

from amux.core.admission import Access
from amux.core.errors import Uncertain
from amux.core.ids import InputId, Principal
from amux.core.launch import LaunchSnapshot
from amux.core.routing import Message
from amux.ports import Journaled
from amux.runtime.receive import DEADLINE, Receive
from amux.runtime.submit import Submit
from tests.conformance.sides import Side
from tests.stores.conftest import Far

pytestmark = pytest.mark.real
ACKNOWLEDGED = 3.0  # seconds for which Feishu waits
SAID = Message(
    id=InputId("feishu:cli_still:om_1"),
    app="cli_still",
    chat="oc_group",
    topics=("om_1",),
    text="fix the test",
    sender=Principal("feishu:cli_still:ou_a"),
    sent_at=100,
    mentions_bot=True,
)


@pytest.mark.rule("D2")
async def test_a_frozen_postgres_does_not_outlast_feishus_patience(side: Side, far: Far) -> None:
    """H37: frozen under a statement, which nobody can call back; when it goes on, the message is there once."""
    ports = far.process
    submit = Submit(ports.inputs, ports.inbox, ports.waker)
    receive = Receive(submit, ports.bindings, Access(), "local", lambda _: LaunchSnapshot("scripted", "/work"))
    await ports.bindings.find(SAID.app, SAID.chat, SAID.topics)  # a connection is open
    far.postgres.freeze()
    began = time.monotonic()
    with pytest.raises(Uncertain):
        await receive.message(SAID)
    assert DEADLINE <= time.monotonic() - began < ACKNOWLEDGED - 0.5
    far.postgres.thaw()
    again = await receive.message(SAID)
    assert isinstance(again, Journaled)
    assert [one.id for one in await side.a.inputs.unaccepted(again.session)] == [SAID.id]
