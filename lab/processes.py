"""Whose child a process is, as /proc tells it; and the end of a whole tree of them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Dict, List


def parents() -> Dict[int, int]:
    """Every process that this one can see -> its parent; zombies among them."""
    found: Dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return found


def children(pid: int) -> List[int]:
    """Processes that `pid` has to collect."""
    return [child for child, parent in parents().items() if parent == pid]


def descendants(pid: int) -> List[int]:
    """All below `pid`, the nearest first."""
    above = parents()
    found = [pid]
    for one in found:  # grows while it is read
        found += [child for child, parent in above.items() if parent == one]
    return found[1:]


def end_below(pid: int) -> None:
    """Kill all below `pid`, parents first, so that whoever could start another is dead by then."""
    ended: List[int] = []
    while new := [one for one in descendants(pid) if one not in ended]:
        for one in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        ended += new
