"""What `ethtool -S` prints, asked of the kernel directly: not every image has the program."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Dict, Optional

# include/uapi/linux/sockios.h, include/uapi/linux/ethtool.h
_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_STATISTICS, _GET_SET_INFO = 0x1B, 0x1D, 0x37
_SET_OF_STATISTICS = 1
_STRING_BYTES = 32
_NAME_BYTES = 16


def statistics(interface: str) -> Optional[Dict[str, int]]:
    """Counter -> value of a network card; None where the interface has none, or is none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            return _read(sock, interface)
    except OSError:
        return None


def _read(sock: socket.socket, interface: str) -> Dict[str, int]:
    info = _ask(sock, interface, struct.pack("=IIQI", _GET_SET_INFO, 0, 1 << _SET_OF_STATISTICS, 0))
    count = struct.unpack_from("=I", info, 16)[0] if struct.unpack_from("=Q", info, 8)[0] else 0
    head = struct.pack("=III", _GET_STRINGS, _SET_OF_STATISTICS, count)
    names = _ask(sock, interface, head + bytes(count * _STRING_BYTES))
    values = _ask(sock, interface, struct.pack("=II", _GET_STATISTICS, count) + bytes(8 * count))
    found = {}
    for place in range(count):
        start = len(head) + place * _STRING_BYTES
        name = names[start : start + _STRING_BYTES].partition(b"\0")[0].decode("ascii", "replace")
        found[name] = struct.unpack_from("=Q", values, 8 + 8 * place)[0]
    return found


def _ask(sock: socket.socket, interface: str, request: bytes) -> bytes:
    """The kernel's answer, which it writes over the request."""
    buffer = array.array("B", request)
    name = interface.encode()[: _NAME_BYTES - 1]
    fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack(f"{_NAME_BYTES}sP16x", name, buffer.buffer_info()[0]))
    return buffer.tobytes()
