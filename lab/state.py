"""The running lab as others see it: one JSON file, replaced atomically on each change.

The lab's guard holds a lock on the state folder for as long as it lives, so a file that a killed
lab left behind is told from a living one without trusting process ids.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from cluster.serial import decode, encode
from lab import CHECKOUT

FILE_NAME = "lab.json"
WORK = "work"  # an empty folder for the lab's own mounts, which only the lab sees
DEFAULT_STATE_DIR = CHECKOUT / ".fullmesh"


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


def state_option(state_dir: Path) -> str:
    """What the commands of another terminal need to find the lab with this folder."""
    return "" if state_dir.resolve() == DEFAULT_STATE_DIR else f" --state-dir {shlex.quote(str(state_dir))}"


def no_space(error: OSError, state_dir: Path) -> str:
    """What to say where an error means a full disk below the folder; "" where it means something else."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    return (
        f"no space is left for the lab's state and logs ({error.strerror}: {state_dir}); "
        "free some, or choose another folder with --state-dir"
    )


def write(path: Path, state: LabState) -> None:
    """Replace the state file in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(encode(state), indent=2) + "\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)  # of a full disk


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


def holder(state_dir: Path) -> Optional[int]:
    """The guard of the lab that holds the folder, also where its state file is damaged; None: no lab.

    Source: /proc/locks, proc_locks(5).
    """
    try:
        where = state_dir.stat()
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    wanted = f"{os.major(where.st_dev):02x}:{os.minor(where.st_dev):02x}:{where.st_ino}"
    for words in map(str.split, locks):
        if words[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and words[5] == wanted and _is_guard(words[4]):
            return int(words[4])
    return None


def _is_guard(pid: str) -> bool:
    try:
        return b"lab.guard" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def tidy(state_dir: Path) -> None:
    """Remove what a lab keeps in its folder while it runs. Call while holding it."""
    with contextlib.suppress(OSError):
        (state_dir / FILE_NAME).unlink()
    with contextlib.suppress(OSError):  # not empty: somebody else's
        (state_dir / WORK).rmdir()


def tidy_after(state_dir: Path) -> None:
    """The same for a lab that was killed; nothing where another one has begun meanwhile."""
    with contextlib.suppress(OSError):
        held = lock(state_dir)
        if held is not None:
            tidy(state_dir)
            os.close(held)


def read(state_dir: Path) -> Optional[LabState]:
    """The lab that runs with this state folder; None when none does (a stale file is not a lab)."""
    try:
        document = json.loads((state_dir / FILE_NAME).read_text())
        return decode(LabState, document) if _is_held(state_dir) else None
    except (OSError, ValueError, RecursionError):  # DecodeError is one, too
        return None
