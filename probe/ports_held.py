"""Who holds a TCP port on this host, as far as /proc tells."""

from __future__ import annotations

import os
from typing import Optional, Set

_LISTEN = "0A"


def holder_of(port: int) -> Optional[str]:
    """ "pid 1234 (name)" of a process that listens on `port`; None when this host does not tell.

    Another user's sockets can only be matched to their process by root.
    """
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if _holds(pid, inodes):
            return f"pid {pid} ({_read(f'/proc/{pid}/comm').strip()})"
    return None


def _listening_inodes(port: int) -> Set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(table).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds(pid: str, inodes: Set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # gone meanwhile, or another user's
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in inodes:
                return True
        except OSError:
            continue
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
