"""Is it torch's TCPStore that answers on a port? Asked as a client would, without torch.

The protocol of torch 2.1 and later (torch/csrc/distributed/c10d/TCPStoreBackend.hpp): one byte a
question, numbers as the machine has them. Only the number of keys is asked for, so nothing changes.
"""

from __future__ import annotations

import socket
import struct
from typing import Optional

from probe.members import address_family

_VALIDATE, _GETNUMKEYS = 0, 7
_MAGIC = 0x3C85F7CE
_QUESTION = struct.pack("=BI", _VALIDATE, _MAGIC) + struct.pack("=B", _GETNUMKEYS)
_ANSWER = struct.Struct("=q")
TIMEOUT_S = 1.0
# More than any job writes; another protocol's bytes read as a number are hardly ever below it.
_PLAUSIBLE_KEYS = 1 << 40


def keys_in_store(address: str, port: int) -> Optional[int]:
    """How many keys the TCPStore at that port holds; None where nothing answers as one does."""
    try:
        with socket.socket(address_family(address), socket.SOCK_STREAM) as sock:
            sock.settimeout(TIMEOUT_S)
            sock.connect((address, port))
            sock.sendall(_QUESTION)
            answer = b""
            while len(answer) < _ANSWER.size:
                part = sock.recv(_ANSWER.size - len(answer))
                if not part:
                    return None
                answer += part
    except OSError:
        return None
    count: int = _ANSWER.unpack(answer)[0]
    return count if 0 <= count < _PLAUSIBLE_KEYS else None
