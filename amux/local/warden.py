"""Outlives a supervisor that is killed, for as long as it takes to end what it leaves: `-m amux.local.warden HOME PID STARTED`.

It waits for the end of its input, which comes with the supervisor's, however that ends. What the kernel does not end
by itself (what a service forked; on macOS the services too) it kills by `<home>/run.json`. It starts nothing."""

import json
import signal
import sys
from pathlib import Path

from amux.local.pids import ProcessId, end

PATIENCE_SECONDS = 15.0  # a database writes down what it holds


def main(home: Path, supervisor: ProcessId) -> None:
    """Wait for `supervisor` to be gone, then end its processes, unless another one has taken the home over."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    try:
        run = json.loads((home / "run.json").read_bytes())
    except (OSError, ValueError):
        return
    if ProcessId(**run["supervisor"]) == supervisor:
        end([ProcessId(**process) for process in run["processes"].values()], seconds=PATIENCE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), ProcessId(int(sys.argv[2]), sys.argv[3]))
