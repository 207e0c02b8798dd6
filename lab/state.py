"""The running lab as others see it: one JSON file, replaced atomically on each change.

The lab's guard holds a lock on the state folder for as long as it lives, so a file that a killed
lab left behind is told from a living one without trusting process ids.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from cluster.serial import decode, encode

FILE_NAME = "lab.json"


@dataclass(frozen=True)
class NodeState:
    """One node, in the order of rank. pid: its init's, on the host; log: of its user data."""

    rank: int
    instance_id: str
    address: str
    name: str
    pid: int
    log: str


@dataclass(frozen=True)
class LabState:
    """A lab.

    pid: its guard; caller_pid: who started it; environment, search_path: of a node's processes.
    network: path of the VPC's network namespace, which routes between nodes and filters.
    firewall_loads: how often the firewall has followed the control plane so far.
    """

    pid: int
    caller_pid: int
    endpoint_url: str
    region: str
    started_at: str
    log_dir: str
    state_dir: str
    rootless: bool
    search_path: str
    environment: dict[str, str]
    nodes: Tuple[NodeState, ...] = ()
    network: str = ""
    firewall_loads: int = 0

    def node(self, rank: int) -> NodeState:
        """The node of that rank.

        Raises:
            LookupError: there is none; names those there are.
        """
        for item in self.nodes:
            if item.rank == rank:
                return item
        there = f"0 to {len(self.nodes) - 1}" if self.nodes else "none: nothing is deployed yet"
        raise LookupError(f"there is no node {rank}; nodes are numbered by rank: {there}")


def write(path: Path, state: LabState) -> None:
    """Replace the state file in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(encode(state), indent=2) + "\n")
    draft.replace(path)


def lock(state_dir: Path) -> Optional[int]:
    """Hold the state folder: a descriptor to keep open, or None when a living lab holds it."""
    fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_held(state_dir: Path) -> bool:
    """Whether a living lab holds the folder. Looks share the lock: none is taken for a lab by another."""
    fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def read(state_dir: Path) -> Optional[LabState]:
    """The lab that runs with this state folder; None when none does (a stale file is not a lab)."""
    try:
        document = json.loads((state_dir / FILE_NAME).read_text())
        return decode(LabState, document) if _is_held(state_dir) else None
    except (OSError, ValueError):  # DecodeError is one, too
        return None
