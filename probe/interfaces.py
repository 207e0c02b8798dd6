"""Interfaces and their addresses in this network namespace, with the standard library alone.

ioctl and /proc/net rather than /sys: /sys shows the namespace it was mounted in.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Dict, List, Mapping, Optional, Tuple

_SIOCGIFCONF = 0x8912
_SIOCGIFMTU = 0x8921
_IFREQ_BYTES = 40  # struct ifreq on 64-bit Linux
_NAME_BYTES = 16


def read_interfaces() -> Dict[str, Tuple[str, ...]]:
    """Interface name -> its addresses, IPv4 first; an interface without any has ()."""
    found: Dict[str, List[str]] = {name: [] for _, name in socket.if_nameindex()}
    for name, address in _ipv4() + _ipv6():
        addresses = found.setdefault(name, [])
        if address not in addresses:
            addresses.append(address)
    return {name: tuple(addresses) for name, addresses in found.items()}


def interface_of(address: str, interfaces: Mapping[str, Tuple[str, ...]]) -> Optional[str]:
    """The interface that holds `address`; None when none does (127.0.0.0/8 belongs to lo as a whole)."""
    for name, addresses in interfaces.items():
        if address in addresses or (address.startswith("127.") and "127.0.0.1" in addresses):
            return name
    return None


def read_mtu(interface: str) -> int:
    """The interface's MTU in bytes.

    Raises:
        OSError: no such interface.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16si20x", interface.encode()[: _NAME_BYTES - 1], 0)
        return int(struct.unpack("16si20x", fcntl.ioctl(sock, _SIOCGIFMTU, request))[1])


def _ipv4() -> List[Tuple[str, str]]:
    room = 64
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        while True:
            buffer = array.array("B", bytes(room * _IFREQ_BYTES))
            address, _ = buffer.buffer_info()
            answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iL", len(buffer), address))
            used = struct.unpack("iL", answer)[0]
            if used < len(buffer):  # a full buffer may have been cut
                break
            room *= 2
    data = buffer.tobytes()[:used]
    found = []
    for offset in range(0, used, _IFREQ_BYTES):
        name = data[offset : offset + _NAME_BYTES].partition(b"\0")[0].decode()
        ip = socket.inet_ntoa(data[offset + 20 : offset + 24])
        found.append((name.partition(":")[0], ip))  # "eth0:1" is a label of eth0
    return found


def _ipv6() -> List[Tuple[str, str]]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:  # IPv6 is not in this kernel
        return []
    return [(row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))) for row in rows]
