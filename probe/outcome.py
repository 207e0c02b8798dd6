"""One new TCP connection, told exactly: what the kernel said, never what a wall clock guessed."""

from __future__ import annotations

import asyncio
import collections
import errno
import socket
import time
from dataclasses import dataclass
from typing import Callable, Deque, Dict, Optional

from diagnosis.report import ConnectOutcome
from probe import conversation
from probe.conversation import SMALL_SEGMENT_BYTES, SMALL_SEGMENTS_PATIENCE_S, outcome_of_error
from probe.echo import ClockReading
from probe.members import address_family
from probe.tcp_info import TCP_SYN_SENT, tcp_info

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
# Echoes under way at once, so that round trips measure the network and not this process's
# own queue. One that takes longer than this gives up its turn to the next.
CONCURRENT_ECHOES = 32
ECHO_TURN_S = 0.5
PAUSE_BEFORE_RETRY_S = 0.1


@dataclass(frozen=True)
class Attempt:
    """What became of one try.

    round_trip_s set beside SILENT: small messages came back, the large one did not.
    unacknowledged, garbled: as in `PairProbe`. clock: the peer's.
    connections: how many were opened, one or two.
    """

    outcome: ConnectOutcome
    errno: Optional[int] = None
    connect_s: Optional[float] = None
    round_trip_s: Optional[float] = None
    connections: int = 1
    unacknowledged: Optional[bool] = None
    garbled: Optional[bool] = None
    clock: Optional[ClockReading] = None
    path_mtu_bytes: Optional[int] = None


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


async def attempt(
    address: str, port: int, turns: Optional[Turns] = None, *, small_segments: bool = False
) -> Attempt:
    """Connect, echo small messages and the payload, close.

    small_segments: over a connection on which both ends send no more than SMALL_SEGMENT_BYTES at once.
    """
    race = _Race(address, port, SMALL_SEGMENT_BYTES if small_segments else 0)
    try:
        ended = await race.run()
        if ended.outcome is not ConnectOutcome.CONNECTED:
            return ended
        end_turn = await turns.take() if turns is not None else None
        try:
            patience_s = SMALL_SEGMENTS_PATIENCE_S if small_segments else conversation.ECHO_PATIENCE_S
            talk = conversation.Conversation(race.winner, asyncio.get_running_loop(), patience_s)
            outcome, number = await talk.hold()
        finally:
            if end_turn is not None:
                end_turn()
        return Attempt(
            outcome=outcome,
            errno=number,
            connect_s=ended.connect_s,
            round_trip_s=talk.round_trip_s,
            connections=ended.connections,
            unacknowledged=talk.unacknowledged,
            garbled=talk.garbled,
            clock=talk.clock,
            path_mtu_bytes=tcp_info(race.winner).path_mtu,
        )
    finally:
        race.close()


async def reach(address: str, port: int) -> Attempt:
    """Connect and close: CONNECTED is the handshake alone, for what listens there need not echo."""
    race = _Race(address, port)
    try:
        return await race.run()
    finally:
        race.close()


class _Race:
    """One or two connections to the same port; the first whose handshake ends, either way, counts."""

    def __init__(self, address: str, port: int, segment_bytes: int = 0) -> None:
        """segment_bytes: the largest that both ends may send; 0 = as the path's MTU allows."""
        self._to = (address, port)
        self._segment_bytes = segment_bytes
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
        if self._segment_bytes:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self._segment_bytes)
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
