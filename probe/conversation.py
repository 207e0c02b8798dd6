"""Messages over one connected socket: small ones, then one that is larger than any segment."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from typing import Callable, Optional, Tuple

from diagnosis.report import ConnectOutcome
from probe.echo import ClockReading, clock_reading, is_answer, question
from probe.tcp_info import tcp_info

# Larger than a jumbo segment (9,001 bytes of MTU on EC2), so that a path that loses
# full-size packets shows; small echoes come first and tell the two apart.
PAYLOAD = bytes(range(256)) * 48
SMALL_ECHOES = 2  # the first one includes the wait for the peer to accept; the best counts

# No echo is SILENT after this where the kernel confirms that the path eats the data (it is
# unacknowledged and was repeated); a peer that took it but does not answer gets more time,
# because its process may only be starved. 64 busy nodes on 2 cores needed more than 4 s.
ECHO_TIMEOUT_S = 4.0
ECHO_PATIENCE_S = 15.0
_DOUBT_EVERY_S = 1.0
_REPEATED_OFTEN = 2
# A path that takes less than this breaks IPv6, too (1,280 bytes with headers): no real one does.
SMALL_SEGMENT_BYTES = 1200
# Of the second look at a path that seems to eat large segments: its peer has just answered.
SMALL_SEGMENTS_PATIENCE_S = 5.0

_BY_ERRNO = {
    errno.ECONNREFUSED: ConnectOutcome.REFUSED,
    errno.EHOSTUNREACH: ConnectOutcome.UNREACHABLE,
    errno.ENETUNREACH: ConnectOutcome.UNREACHABLE,
    errno.EHOSTDOWN: ConnectOutcome.UNREACHABLE,
    errno.ETIMEDOUT: ConnectOutcome.TIMED_OUT,
    errno.ECONNRESET: ConnectOutcome.RESET,
    errno.EPIPE: ConnectOutcome.RESET,
}


def outcome_of_error(number: Optional[int]) -> ConnectOutcome:
    """ConnectOutcome of an errno; one that says nothing about the peer is LOCAL_ERROR."""
    return _BY_ERRNO.get(number or 0, ConnectOutcome.LOCAL_ERROR)


class Conversation:
    """Small echoes, then the large one, over one connected socket.

    Callbacks on one registered reader rather than a coroutine per read: with 8,064 probes on
    two cores the tasks and epoll calls of `sock_recv` and `wait_for` were half of the time.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, patience_s: float) -> None:
        self._patience_s = patience_s
        self.round_trip_s: Optional[float] = None
        self.unacknowledged: Optional[bool] = None
        self.garbled: Optional[bool] = None
        self.clock: Optional[ClockReading] = None  # of the small echo that was under way shortest
        self._sock = sock
        self._descriptor = sock.fileno()
        self._loop = loop
        self._done: asyncio.Future[Tuple[ConnectOutcome, Optional[int]]] = loop.create_future()
        self._small_left = SMALL_ECHOES
        self._unsent = b""
        self._expected = b""
        self._received = bytearray()
        self._sent_at = self._sent_wall_at = 0.0
        self._writing = False

    async def hold(self) -> Tuple[ConnectOutcome, Optional[int]]:
        self._give_up_at = self._loop.time() + self._patience_s
        self._timer = self._loop.call_later(ECHO_TIMEOUT_S, self._doubt)
        self._loop.add_reader(self._descriptor, self._guarded, self._read)
        try:
            self._guarded(self._say, question())
            return await self._done
        finally:
            self._timer.cancel()
            self._loop.remove_reader(self._descriptor)
            if self._writing:
                self._loop.remove_writer(self._descriptor)

    def _settle(self, outcome: ConnectOutcome, number: Optional[int] = None) -> None:
        if not self._done.done():
            self._done.set_result((outcome, number))

    def _doubt(self) -> None:
        info = tcp_info(self._sock)
        eaten = info.unacknowledged > 0 and info.retransmits >= _REPEATED_OFTEN
        if eaten or self._loop.time() >= self._give_up_at:
            self.unacknowledged, self.garbled = eaten, False
            self._settle(ConnectOutcome.SILENT)
        else:
            self._timer = self._loop.call_later(_DOUBT_EVERY_S, self._doubt)

    def _guarded(self, step: Callable[..., None], *arguments: bytes) -> None:
        try:
            step(*arguments)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._settle(outcome_of_error(error.errno), error.errno)

    def _say(self, message: bytes) -> None:
        self._expected = self._unsent = message
        self._received.clear()
        self._sent_at = time.perf_counter()
        self._sent_wall_at = time.time()
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if self._unsent:
            self._loop.add_writer(self._descriptor, self._guarded, self._write)
        elif self._writing:
            self._loop.remove_writer(self._descriptor)
        self._writing = bool(self._unsent)

    def _read(self) -> None:
        part = self._sock.recv(65536)
        received_at = time.time()
        if not part:
            self._settle(ConnectOutcome.RESET)
            return
        self._received += part
        if len(self._received) < len(self._expected):
            return
        received = bytes(self._received)
        if not is_answer(self._expected, received):
            self.garbled = True
            self._settle(ConnectOutcome.SILENT)
        elif self._small_left == 0:
            self._settle(ConnectOutcome.CONNECTED)
        else:
            elapsed = time.perf_counter() - self._sent_at
            self.round_trip_s = elapsed if self.round_trip_s is None else min(self.round_trip_s, elapsed)
            read = clock_reading(received, self._sent_wall_at, received_at)
            if read is not None and (self.clock is None or read.error_s < self.clock.error_s):
                self.clock = read
            self._small_left -= 1
            self._say(question() if self._small_left else os.urandom(16) + PAYLOAD)
