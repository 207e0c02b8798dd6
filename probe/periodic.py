"""The periodic check's clock: every member begins at the same moment and names the run by it.

So members need no agreement to meet, and a node that replaces another one finds the others by
waiting for the next check. As a program it prints the run that is due and its time limit, or
nothing in a minute that no check begins in:

    PYTHONPATH=/opt/fullmesh/fullmesh.pyz python3 -m probe.periodic
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple, Optional

from cluster.node_config import NodeConfig
from probe.discover import read_config

MINUTE_S = 60
# A check takes seconds where all is well. It must be over before the next one begins.
TIMEOUT_S = 120
REST_S = 10


class Due(NamedTuple):
    """One check. at_s: when it begins, in seconds since the epoch."""

    run: str
    at_s: int
    timeout_s: int


def due_at(config: NodeConfig, now_s: float) -> Optional[Due]:
    """The check that begins in the minute of `now_s`; None when none does."""
    minute = int(now_s) // MINUTE_S
    return None if minute % config.check_interval_min else _check(config, minute)


def next_after(config: NodeConfig, now_s: float) -> Due:
    """The first check that begins after `now_s`."""
    interval = config.check_interval_min
    return _check(config, (int(now_s) // MINUTE_S // interval + 1) * interval)


def _check(config: NodeConfig, minute: int) -> Due:
    at_s = minute * MINUTE_S
    limit_s = min(TIMEOUT_S, config.check_interval_min * MINUTE_S - REST_S)
    return Due(run=f"{config.run}-check-{at_s}", at_s=at_s, timeout_s=limit_s)


def main() -> None:
    due = due_at(read_config(), time.time())
    if due is not None:
        sys.stdout.write(f"{due.run} {due.timeout_s}\n")


if __name__ == "__main__":
    main()
