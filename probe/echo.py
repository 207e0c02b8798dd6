"""What a listener of the probe says: the same bytes back, its clock, or that it took what came.

A small message is a question for the time: who answers writes when it came and when the answer
left into its last bytes. With the asker's own two times that is NTP's exchange (RFC 5905,
section 8), without one more round trip. What merely echoes (another release's listener, a
proxy) leaves those bytes empty, and no clock is known then.

Another small message announces data that is to be taken and not sent back (`probe/stream.py`).
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from dataclasses import dataclass
from typing import Optional, Set, cast

from probe.relay import ASK, Relay

# No payload begins like this: it begins with random bytes.
_QUESTION = b"fullmesh: time?\n"
_NONCE_BYTES = 8
_TIMES = struct.Struct("!dd")  # received, sent: seconds since the epoch by the listener's clock
_ASKED_BYTES = len(_QUESTION) + _NONCE_BYTES
SMALL_BYTES = _ASKED_BYTES + _TIMES.size
_NO_TIMES = bytes(_TIMES.size)
_ANNOUNCEMENT = b"fullmesh: take!\n"
_COUNT = struct.Struct("!Q")
_READY = b"fullmesh: ready\n"
TAKEN = b"fullmesh: taken\n"


@dataclass(frozen=True)
class ClockReading:
    """offset_s: the peer's clock minus this host's; it is right to within error_s, either way."""

    offset_s: float
    error_s: float


def question() -> bytes:
    """A small message, unlike every other."""
    return _QUESTION + os.urandom(_NONCE_BYTES) + _NO_TIMES


def answer(message: bytes, received_at: float) -> bytes:
    """What a listener sends back for what it received."""
    if len(message) != SMALL_BYTES or not message.startswith(_QUESTION):
        return message
    return message[:_ASKED_BYTES] + _TIMES.pack(received_at, time.time())


def is_answer(asked: bytes, received: bytes) -> bool:
    """Whether this is what a listener sends back for `asked`, with its times or as a mere echo."""
    if len(asked) != SMALL_BYTES or not asked.startswith(_QUESTION):
        return received == asked
    return len(received) == SMALL_BYTES and received[:_ASKED_BYTES] == asked[:_ASKED_BYTES]


def clock_reading(received: bytes, sent_at: float, received_at: float) -> Optional[ClockReading]:
    """The peer's clock from its answer to a small message; times by this host's clock.

    None where the answer holds no times, or where a clock was set meanwhile.
    """
    times = received[_ASKED_BYTES:]
    if len(received) != SMALL_BYTES or times == _NO_TIMES:
        return None
    came_at, left_at = _TIMES.unpack(times)
    delay_s = (received_at - sent_at) - (left_at - came_at)
    if not delay_s >= 0 or left_at < came_at:
        return None
    return ClockReading(
        offset_s=((came_at - sent_at) + (left_at - received_at)) / 2,
        error_s=delay_s / 2,
    )


def announcement(count: int) -> bytes:
    """Says that so many bytes follow, which are to be taken in silence and answered by `TAKEN`."""
    return _ANNOUNCEMENT + _COUNT.pack(count) + bytes(len(_READY))


def is_ready(announced: bytes, received: bytes) -> bool:
    """Whether the peer is one that takes them; another release's echoes them."""
    return received == announced[: -len(_READY)] + _READY


class Echo(asyncio.Protocol):
    """One accepted connection; `open_transports` lets the owner close what is left.

    relay: where those are handed on who ask for the meeting place; None = nowhere.
    """

    def __init__(self, open_transports: Set[asyncio.Transport], relay: Optional[Relay] = None) -> None:
        self._open = open_transports
        self._relay = relay
        self._carrying: Optional[asyncio.Task[None]] = None
        self._transport: Optional[asyncio.Transport] = None
        self._to_take = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what create_server makes
        self._open.add(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._to_take:
            self._to_take -= min(len(data), self._to_take)
            if not self._to_take:
                self._transport.write(TAKEN)
        elif data == ASK and self._relay is not None:
            transport = self._transport
            carried = self._relay.carry(transport, lambda: self._open.discard(transport))
            self._carrying = asyncio.ensure_future(carried)
        elif len(data) == SMALL_BYTES and data.startswith(_ANNOUNCEMENT):
            self._to_take = _COUNT.unpack_from(data, len(_ANNOUNCEMENT))[0]
            self._transport.write(data[: -len(_READY)] + _READY)
        else:
            self._transport.write(answer(data, time.time()))

    def connection_lost(self, _exc: Optional[Exception]) -> None:
        if self._transport is not None:
            self._open.discard(self._transport)
