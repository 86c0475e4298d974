"""The house as a whole: who else may live in it, who watches it, and what is left when it goes."""

import os
import signal

import httpx2
import pytest

from ops.drills.stage import stage
from tests.whole import House, program, until

pytestmark = pytest.mark.real

TABLE = {"draw": "1", "start": "0", "length": "50", "order[0][column]": "0", "columns[0][data]": "name"}


async def test_a_second_one_in_the_same_home_is_refused(house: House) -> None:
    said = await program({**house.stage.env, "AMUX_WEB_PORT": "0"}, "up", "worker")
    assert (said.code, said.out) == (1, "")
    pid = house.stage.pids()["supervisor"]
    assert said.err.partition("\n")[2] == (
        f"amux already runs in {house.stage.home} (pid {pid}); use it, stop it with `kill {pid}`, or set AMUX_HOME "
        "for another one.\n"
    )
    assert (await house.cli("run", "!say hello")).code == 0


async def test_flower_answers_and_lists_tasks(house: House) -> None:
    base = f"http://127.0.0.1:{int(house.stage.env['AMUX_WEB_PORT']) + 1}"
    await house.cli("run", "!say hello")
    async with httpx2.AsyncClient(base_url=base, trust_env=False) as http:

        async def listed() -> str | None:
            try:
                answer = await http.get("/tasks/datatable", params=TABLE)
            except httpx2.TransportError:  # it is the last to start
                return None
            named = '"drive"' in answer.text and "local/" in answer.text  # by what it owns
            return answer.text if answer.status_code == 200 and named else None

        await until(listed, lambda: "Flower names no drive by its Session")
        assert (await http.get("/workers")).status_code == 200


@pytest.mark.crash
@pytest.mark.parametrize(
    ("number", "script"),
    [(signal.SIGKILL, "!clock\n!hang"), (signal.SIGINT, "!say hello")],  # an orderly stop lets a Turn end first
    ids=["killed", "interrupted"],
)
async def test_nothing_is_left_of_it(number: signal.Signals, script: str) -> None:
    async with stage(names=("worker",), lease=4.0) as one:
        here = {name: value for name, value in one.env.items() if "FEISHU" not in name}
        begun = await program(here, "run", script, "--detach")
        assert begun.code == 0, begun.err

        async def works() -> bool:
            return any(one.home.glob("sessions/*/*/**/record.jsonl"))

        await until(works, lambda: "no agent began")
        assert len(one.orphans()) >= 5  # supervisor, two servers, worker, agent
        os.kill(one.pids()["supervisor"], number)

        async def gone() -> bool:
            return not one.orphans()

        await until(gone, lambda: f"left behind: {one.orphans()}")
