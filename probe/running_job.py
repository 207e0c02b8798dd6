"""Whether a job trains on this host already: then a check leaves MASTER_PORT and the all_reduce to it.

Only looked at, never asked: a connection to a living store or a probe of a rank's own port could disturb it.
"""

from __future__ import annotations

import os
from typing import Iterator, Optional, Set

from probe.sockets import ESTABLISHED, inodes_of, tcp_sockets

_TORCH = "libtorch"
_WEB_PORTS = (80, 443)  # a notebook's packages and its cloud's API; no rank listens there


def running_job() -> Optional[str]:
    """A process that has torch loaded and talks to another host, in words; None where none is seen.

    Another user's processes are seen by root only. This process's own ancestors (torchrun's agent
    has torch loaded and a store open) are no job beside it.
    """
    own = set(_ancestors(os.getpid()))
    sockets = tuple(tcp_sockets())
    here = {item.local[0] for item in sockets}
    abroad = {
        item.inode
        for item in sockets
        if item.state == ESTABLISHED
        and item.inode
        and not _is_here(item.remote[0], here)
        and item.remote[1] not in _WEB_PORTS
    }
    if not abroad:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) in own or _TORCH not in _text(f"/proc/{pid}/maps"):
            continue
        count = len(abroad & inodes_of(pid))
        if count:
            name = _text(f"/proc/{pid}/comm").strip()
            connections = "1 connection" if count == 1 else f"{count} connections"
            return f"pid {pid} ({name}) has torch loaded and {connections} to other hosts"
    return None


def _is_here(address: str, here: Set[str]) -> bool:
    return address in here or address.startswith("127.") or address == "::1"


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # gone meanwhile, or another user's
        return ""
