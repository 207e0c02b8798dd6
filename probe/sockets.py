"""TCP sockets of this network namespace, and whose they are, as /proc tells it."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from typing import FrozenSet, Iterator, Set, Tuple

# include/net/tcp_states.h, as /proc/net/tcp prints them
ESTABLISHED, LISTEN = "01", "0A"


@dataclass(frozen=True)
class TcpSocket:
    """One line of /proc/net/tcp or tcp6. Queues in bytes; inode "" is nobody's any more."""

    local: Tuple[str, int]
    remote: Tuple[str, int]
    state: str
    send_queue: int
    receive_queue: int
    inode: str


def tcp_sockets(folder: str = "/proc/net") -> Iterator[TcpSocket]:
    """Every TCP socket; of another process's namespace with its /proc/PID/net."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{folder}/{table}", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()[1:]
        except OSError:  # IPv6 is not in this kernel
            continue
        for line in lines:
            fields = line.split()
            if len(fields) < 10:
                continue
            send, _, receive = fields[4].partition(":")
            yield TcpSocket(
                local=_endpoint(fields[1]),
                remote=_endpoint(fields[2]),
                state=fields[3],
                send_queue=int(send, 16),
                receive_queue=int(receive, 16),
                inode=fields[9] if fields[9] != "0" else "",
            )


def inodes_of(pid: str) -> FrozenSet[str]:
    """Inodes of the sockets that a process holds; empty for another user's, which only root may see."""
    found: Set[str] = set()
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return frozenset()
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return frozenset(found)


def _endpoint(text: str) -> Tuple[str, int]:
    """An address as text (IPv4 also where it is mapped into IPv6) and a port.

    The kernel prints each 32-bit word of the address in its own byte order.
    """
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 16 and packed[:12] == b"\0" * 10 + b"\xff\xff":
        packed = packed[12:]
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)
