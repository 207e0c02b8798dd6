"""A client of torch's TCPStore, without torch: is it one, and what does it hold?

The protocol of torch 2.1 and later (torch/csrc/distributed/c10d/TCPStoreBackend.hpp): one byte a
question, numbers as the machine has them, texts with their length before them.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Optional, Type

_VALIDATE, _SET, _GET, _CHECK, _GETNUMKEYS, _APPEND = 0, 1, 3, 5, 7, 9
_READY = 0  # CheckResponseType
_MAGIC = 0x3C85F7CE
_COUNT = struct.Struct("=q")
_LENGTH = struct.Struct("=Q")
TIMEOUT_S = 1.0
# A store that serves a thousand ranks is slower than one that is only looked at.
CONVERSATION_TIMEOUT_S = 5.0
MAX_VALUE_BYTES = 8 * 1024 * 1024  # TCPStoreBackend's own limit of a value
# More than any job writes; another protocol's bytes read as a number are hardly ever below it.
_PLAUSIBLE_KEYS = 1 << 40


class Conversation:
    """One connection to a store; a context manager. Its methods raise OSError or ValueError."""

    def __init__(self, host: str, port: int, timeout_s: float = CONVERSATION_TIMEOUT_S) -> None:
        self._sock = socket.create_connection((host, port), timeout=timeout_s)

    def __enter__(self) -> Conversation:
        self._sock.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._sock.close()

    def count(self) -> int:
        """How many keys there are."""
        self._sock.sendall(struct.pack("=B", _GETNUMKEYS))
        count: int = _COUNT.unpack(self._exactly(_COUNT.size))[0]
        if not 0 <= count < _PLAUSIBLE_KEYS:
            raise ValueError("what answers there is not torch's store")
        return count

    def set(self, key: str, value: bytes) -> None:
        """Write or replace; the store answers nothing."""
        self._sock.sendall(struct.pack("=B", _SET) + _text(key.encode()) + _text(value))

    def append(self, key: str, value: bytes) -> None:
        """Lengthen a value, or make it; the store answers nothing."""
        self._sock.sendall(struct.pack("=B", _APPEND) + _text(key.encode()) + _text(value))

    def get(self, key: str) -> Optional[bytes]:
        """The value; None where there is none (the store would never answer a question for it)."""
        self._sock.sendall(struct.pack("=BQ", _CHECK, 1) + _text(key.encode()))
        if self._exactly(1)[0] != _READY:
            return None
        self._sock.sendall(struct.pack("=B", _GET) + _text(key.encode()))
        length: int = _LENGTH.unpack(self._exactly(_LENGTH.size))[0]
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._sock.recv(min(65536, count - len(data)))
            if not part:
                raise ValueError(f"closed after {len(data)} of {count} bytes")
            data += part
        return bytes(data)


def _text(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def keys_in_store(address: str, port: int, timeout_s: float = TIMEOUT_S) -> Optional[int]:
    """How many keys the TCPStore at that port holds; None where nothing answers as one does."""
    try:
        with Conversation(address, port, timeout_s) as store:
            return store.count()
    except (OSError, ValueError):
        return None
