"""Two workers that call themselves alike, as containers do that are set up so: names are for people, tokens own."""

import pytest

from amux.core import events as e
from amux.core.ids import InputId
from amux.core.inputs import Interrupt
from tests.sessions.conftest import A, B, opened

pytestmark = [pytest.mark.real, pytest.mark.agent]


@pytest.mark.rule("S4", "T3", "T4", "D2")
async def test_two_workers_of_one_name_own_a_session_one_after_the_other(env: dict[str, str]) -> None:
    env = {**env, "AMUX_SCRIPTED_SECONDS": "0.1"}
    async with opened(env) as second:
        async with opened(env) as first:
            assert first.host.rt.worker == second.host.rt.worker
            session = await first.begin("!say hello\n!hang")
            await first.seen(session, e.Item)
            await second.say(session, "And of me?", by=B)  # its wake finds the Session owned
            assert (await first.seen(session, e.InputQueued)).reason is e.QueueReason.other_sender
            assert list(second.host.owners) == []
            await second.say(session, Interrupt(InputId("cli:user_a:stop"), A, None))
            assert (await first.finished(session)).outcome is e.Outcome.interrupted
            await first.finished(session, 2)
        await second.say(session, "Still there?")
        assert (await second.finished(session, 3)).outcome is e.Outcome.completed
        owners = [x for x in await second.log(session) if isinstance(x, e.OwnerOpened)]
        assert [(x.epoch, x.worker) for x in owners] == [(1, second.host.rt.worker), (2, second.host.rt.worker)]
