"""Who holds a TCP port on this host, as far as /proc tells."""

from __future__ import annotations

import os
from typing import Optional

from probe.sockets import LISTEN, inodes_of, tcp_sockets


def holder_of(port: int) -> Optional[str]:
    """ "pid 1234 (name)" of a process that listens on `port`; None when this host does not tell.

    Another user's sockets can only be matched to their process by root.
    """
    inodes = {item.inode for item in tcp_sockets() if item.state == LISTEN and item.local[1] == port}
    if not inodes:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if inodes & inodes_of(pid):
            return f"pid {pid} ({_name(pid)})"
    return None


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
