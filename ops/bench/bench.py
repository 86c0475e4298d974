"""One benchmark from its name to its line."""

from collections.abc import Awaitable, Callable, Sequence

from amux.core.errors import Refused
from ops.bench.ground import load_before
from ops.bench.idle import idle
from ops.bench.report import Report, drawing
from ops.bench.rows import append, attach
from ops.bench.steer import steer
from ops.bench.turns import lone, turns, turns_and_peers

BENCHES: dict[str, Callable[[Report], Awaitable[None]]] = {
    "append": append,
    "attach": attach,
    "idle": idle,
    "lone": lone,
    "steer": steer,
    "turns": turns,
}


__all__ = ["bench", "drawing"]


async def bench(name: str, beside: Sequence[str] = ()) -> Report:
    """Run it; "peers" beside it measures `turns` against other engines too. Raises Refused for what there is not."""
    if name not in BENCHES:
        raise Refused(f"there is no benchmark {name!r}; there are {', '.join(sorted(BENCHES))}.")
    if "peers" in beside and name != "turns":
        raise Refused(f"only `turns` has peers; leave --peers out for {name!r}.")
    report = Report(name, load_before())
    await (turns_and_peers if "peers" in beside else BENCHES[name])(report)
    return report
