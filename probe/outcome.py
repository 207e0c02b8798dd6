"""One new TCP connection, told exactly: what the kernel said, never what a wall clock guessed."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import Callable, Deque, Dict, Optional, Tuple

from diagnosis.report import ConnectOutcome
from probe.members import address_family

# Larger than a jumbo segment (9,001 bytes of MTU on EC2), so that a path that loses
# full-size packets shows; small echoes come first and tell the two apart.
PAYLOAD = bytes(range(256)) * 48
SMALL = b"fullmesh"
SMALL_ECHOES = 2  # the first one includes the wait for the peer to accept; the best counts

# A connection without an answer after HEDGE_AFTER_S gets a second one beside it, from another
# source port, so that one unlucky port (a flow's hash, a stale conntrack entry) is no verdict.
# The kernel repeats an unanswered SYN after 1 s: at CONNECT_TIMEOUT_S both have sent two, and
# the timer of the second may still be 0.2 s late.
HEDGE_AFTER_S = 0.8
CONNECT_TIMEOUT_S = 2.0
# How long, and how often, the kernel is asked again while it does not confirm a time-out. The
# slowest good connect seen on a machine with four busy loops took 1.95 s.
CONFIRM_EVERY_S = 0.25
CONFIRMATIONS = 20
# No echo is SILENT after this where the kernel confirms that the path eats the data (it is
# unacknowledged and was repeated); a peer that took it but does not answer gets more time,
# because its process may only be starved. 64 busy nodes on 2 cores needed more than 4 s.
ECHO_TIMEOUT_S = 4.0
ECHO_PATIENCE_S = 15.0
_DOUBT_EVERY_S = 1.0
_REPEATED_OFTEN = 2
# Echoes under way at once, so that round trips measure the network and not this process's
# own queue. One that takes longer than this gives up its turn to the next.
CONCURRENT_ECHOES = 32
ECHO_TURN_S = 0.5
PAUSE_BEFORE_RETRY_S = 0.1

TCP_SYN_SENT = 2  # include/net/tcp_states.h

_BY_ERRNO = {
    errno.ECONNREFUSED: ConnectOutcome.REFUSED,
    errno.EHOSTUNREACH: ConnectOutcome.UNREACHABLE,
    errno.ENETUNREACH: ConnectOutcome.UNREACHABLE,
    errno.EHOSTDOWN: ConnectOutcome.UNREACHABLE,
    errno.ETIMEDOUT: ConnectOutcome.TIMED_OUT,
    errno.ECONNRESET: ConnectOutcome.RESET,
    errno.EPIPE: ConnectOutcome.RESET,
}


@dataclass(frozen=True)
class Attempt:
    """What became of one try.

    round_trip_s set beside SILENT: small messages came back, the large one did not.
    unacknowledged, garbled: as in `PairProbe`.
    connections: how many were opened, one or two.
    """

    outcome: ConnectOutcome
    errno: Optional[int] = None
    connect_s: Optional[float] = None
    round_trip_s: Optional[float] = None
    connections: int = 1
    unacknowledged: Optional[bool] = None
    garbled: Optional[bool] = None


def outcome_of_error(number: Optional[int]) -> ConnectOutcome:
    """ConnectOutcome of an errno; one that says nothing about the peer is LOCAL_ERROR."""
    return _BY_ERRNO.get(number or 0, ConnectOutcome.LOCAL_ERROR)


class Turns:
    """Bounds how many echoes begin at once; belongs to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int = CONCURRENT_ECHOES) -> None:
        self._loop = loop
        self._free = count
        self._waiting: Deque[asyncio.Future[None]] = collections.deque()

    async def take(self) -> Callable[[], None]:
        """Wait for a turn; what comes back ends it, as the turn's own time-out does."""
        if self._free == 0:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._free -= 1
        ended = False

        def end() -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            timer.cancel()
            if self._waiting:
                self._waiting.popleft().set_result(None)
            else:
                self._free += 1

        timer = self._loop.call_later(ECHO_TURN_S, end)
        return end


async def attempt(address: str, port: int, turns: Optional[Turns] = None) -> Attempt:
    """Connect, echo small messages and the payload, close."""
    race = _Race(address, port)
    try:
        ended = await race.run()
        if ended.outcome is not ConnectOutcome.CONNECTED:
            return ended
        end_turn = await turns.take() if turns is not None else None
        try:
            conversation = _Conversation(race.winner, asyncio.get_running_loop())
            outcome, number = await conversation.hold()
        finally:
            if end_turn is not None:
                end_turn()
        return Attempt(
            outcome=outcome,
            errno=number,
            connect_s=ended.connect_s,
            round_trip_s=conversation.round_trip_s,
            connections=ended.connections,
            unacknowledged=conversation.unacknowledged,
            garbled=conversation.garbled,
        )
    finally:
        race.close()


class _Race:
    """One or two connections to the same port; the first whose handshake ends, either way, counts."""

    def __init__(self, address: str, port: int) -> None:
        self._to = (address, port)
        self._loop = asyncio.get_running_loop()
        self._open: Dict[socket.socket, float] = {}  # -> when its handshake began
        self._first: asyncio.Future[Optional[socket.socket]] = self._loop.create_future()

    @property
    def winner(self) -> socket.socket:
        """The connection that is left after `run` told CONNECTED."""
        (sock,) = self._open
        return sock

    async def run(self) -> Attempt:
        """CONNECTED with the handshake's time, or what failed.

        A time-out counts only when the kernel confirms it: two connections still in SYN_SENT,
        and it has itself repeated the SYN of both. Everything else (a handshake done while this
        process was not scheduled, a SYN only just sent) gets more time.
        """
        failed = self._begin()
        waits_s = (HEDGE_AFTER_S, CONNECT_TIMEOUT_S - HEDGE_AFTER_S, *[CONFIRM_EVERY_S] * CONFIRMATIONS)
        for wait_s in waits_s:
            if failed is not None:
                return failed
            first = await self._wait(wait_s)
            if first is not None:
                return self._told(first)
            told = [tcp_info(sock) for sock in self._open]
            if any(info.state != TCP_SYN_SENT for info in told):
                continue
            if len(told) == 1:
                failed = self._begin()
            elif all(info.retransmits > 0 for info in told):
                return self._failed(ConnectOutcome.TIMED_OUT, errno.ETIMEDOUT)
        return self._failed(ConnectOutcome.LOCAL_ERROR, errno.ETIMEDOUT)

    def close(self) -> None:
        for sock in tuple(self._open):
            self._forget(sock)

    def _begin(self) -> Optional[Attempt]:
        """One more connection; what failed, where it could not even be begun."""
        try:
            sock = socket.socket(address_family(self._to[0]), socket.SOCK_STREAM)
        except OSError as error:
            return self._failed(ConnectOutcome.LOCAL_ERROR, error.errno)
        self._open[sock] = time.perf_counter()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = sock.connect_ex(self._to)
        if number not in (0, errno.EINPROGRESS):
            return self._failed(outcome_of_error(number), number)
        # The descriptor, not the object: selectors formats its repr at every miss.
        self._loop.add_writer(sock.fileno(), self._settle, sock)
        return None

    async def _wait(self, timeout_s: float) -> Optional[socket.socket]:
        """The first connection whose handshake is over; None on a time-out."""
        self._first = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._settle, None)
        try:
            return await self._first
        finally:
            timer.cancel()

    def _settle(self, sock: Optional[socket.socket]) -> None:
        if not self._first.done():
            self._first.set_result(sock)

    def _told(self, first: socket.socket) -> Attempt:
        connect_s = time.perf_counter() - self._open[first]
        number = first.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            return self._failed(outcome_of_error(number), number)
        told = Attempt(outcome=ConnectOutcome.CONNECTED, connect_s=connect_s, connections=len(self._open))
        for sock in tuple(self._open):
            if sock is not first:
                self._forget(sock)
        self._loop.remove_writer(first.fileno())
        return told

    def _failed(self, outcome: ConnectOutcome, number: Optional[int]) -> Attempt:
        return Attempt(outcome=outcome, errno=number, connections=max(1, len(self._open)))

    def _forget(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock.fileno())
        sock.close()
        del self._open[sock]


@dataclass(frozen=True)
class TcpInfo:
    """The part of TCP_INFO that tells a time-out from a wait (include/uapi/linux/tcp.h)."""

    state: int
    retransmits: int  # of the segment that is waited for; of the SYN while connecting
    unacknowledged: int  # segments


def tcp_info(sock: socket.socket) -> TcpInfo:
    """What the kernel knows about a connection."""
    data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    return TcpInfo(state=data[0], retransmits=data[2], unacknowledged=struct.unpack_from("=I", data, 24)[0])


class _Conversation:
    """Small echoes, then the large one, over one connected socket.

    Callbacks on one registered reader rather than a coroutine per read: with 8,064 probes on
    two cores the tasks and epoll calls of `sock_recv` and `wait_for` were half of the time.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.round_trip_s: Optional[float] = None
        self.unacknowledged: Optional[bool] = None
        self.garbled: Optional[bool] = None
        self._sock = sock
        self._descriptor = sock.fileno()
        self._loop = loop
        self._done: asyncio.Future[Tuple[ConnectOutcome, Optional[int]]] = loop.create_future()
        self._small_left = SMALL_ECHOES
        self._unsent = b""
        self._expected = b""
        self._received = bytearray()
        self._sent_at = 0.0
        self._writing = False

    async def hold(self) -> Tuple[ConnectOutcome, Optional[int]]:
        self._give_up_at = self._loop.time() + ECHO_PATIENCE_S
        self._timer = self._loop.call_later(ECHO_TIMEOUT_S, self._doubt)
        self._loop.add_reader(self._descriptor, self._guarded, self._read)
        try:
            self._guarded(self._say, SMALL)
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
        if not part:
            self._settle(ConnectOutcome.RESET)
            return
        self._received += part
        if len(self._received) < len(self._expected):
            return
        if self._received != self._expected:
            self.garbled = True
            self._settle(ConnectOutcome.SILENT)
        elif self._small_left == 0:
            self._settle(ConnectOutcome.CONNECTED)
        else:
            elapsed = time.perf_counter() - self._sent_at
            self.round_trip_s = elapsed if self.round_trip_s is None else min(self.round_trip_s, elapsed)
            self._small_left -= 1
            self._say(SMALL if self._small_left else os.urandom(16) + PAYLOAD)
