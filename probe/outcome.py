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
from typing import Callable, Deque, Optional, Tuple

from diagnosis.report import ConnectOutcome
from probe.members import address_family

# Larger than a jumbo segment (9,001 bytes of MTU on EC2), so that a path that loses
# full-size packets shows; small echoes come first and tell the two apart.
PAYLOAD = bytes(range(256)) * 48
SMALL = b"fullmesh"
SMALL_ECHOES = 2  # the first one includes the wait for the peer to accept; the best counts

# The kernel repeats an unanswered SYN after 1 s. 2 s hold two SYNs; the second attempt, from
# another source port, holds two more. The slowest good connect seen on a machine with four
# busy loops took 1.95 s.
CONNECT_TIMEOUT_S = (2.0, 1.3)
# How often a time-out is extended while the kernel does not confirm it.
EXTENSIONS = 5
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
    """What became of one connection.

    round_trip_s set beside SILENT: small messages came back, the large one did not.
    """

    outcome: ConnectOutcome
    errno: Optional[int] = None
    connect_s: Optional[float] = None
    round_trip_s: Optional[float] = None


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


async def attempt(address: str, port: int, number: int = 0, turns: Optional[Turns] = None) -> Attempt:
    """Connect, echo small messages and the payload, close. `number` (0, 1) chooses the time-out."""
    started = time.perf_counter()
    try:
        sock = socket.socket(address_family(address), socket.SOCK_STREAM)
    except OSError as error:
        return Attempt(outcome=ConnectOutcome.LOCAL_ERROR, errno=error.errno)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failed = await _connect(sock, address, port, CONNECT_TIMEOUT_S[number])
        if failed is not None:
            return failed
        connect_s = time.perf_counter() - started
        end_turn = await turns.take() if turns is not None else None
        try:
            return await _echo(sock, connect_s)
        finally:
            if end_turn is not None:
                end_turn()
    finally:
        sock.close()


async def _connect(sock: socket.socket, address: str, port: int, timeout_s: float) -> Optional[Attempt]:
    """None once connected.

    A time-out counts only when the kernel confirms it: still in SYN_SENT, and it has itself
    repeated the SYN. Everything else (a handshake done while this process was not scheduled,
    a SYN only just sent) gets more time.
    """
    number = sock.connect_ex((address, port))
    if number not in (0, errno.EINPROGRESS):
        return Attempt(outcome=outcome_of_error(number), errno=number)
    for extension in range(EXTENSIONS + 1):
        if await _writable(sock, timeout_s if extension == 0 else 1.0):
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return Attempt(outcome=outcome_of_error(number), errno=number) if number else None
        info = tcp_info(sock)
        if info.state == TCP_SYN_SENT and info.retransmits > 0:
            return Attempt(outcome=ConnectOutcome.TIMED_OUT, errno=errno.ETIMEDOUT)
    return Attempt(outcome=ConnectOutcome.LOCAL_ERROR, errno=errno.ETIMEDOUT)


async def _writable(sock: socket.socket, timeout_s: float) -> bool:
    """Wait until the handshake is over, either way; False on a time-out."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()

    def settle(answer: bool) -> None:
        if not done.done():
            done.set_result(answer)

    timer = loop.call_later(timeout_s, settle, False)
    descriptor = sock.fileno()  # not the object: selectors formats its repr at every miss
    loop.add_writer(descriptor, settle, True)
    try:
        return await done
    finally:
        loop.remove_writer(descriptor)
        timer.cancel()


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


async def _echo(sock: socket.socket, connect_s: float) -> Attempt:
    conversation = _Conversation(sock, asyncio.get_running_loop())
    outcome, number = await conversation.hold()
    return Attempt(outcome=outcome, errno=number, connect_s=connect_s, round_trip_s=conversation.round_trip_s)


class _Conversation:
    """Small echoes, then the large one, over one connected socket.

    Callbacks on one registered reader rather than a coroutine per read: with 8,064 probes on
    two cores the tasks and epoll calls of `sock_recv` and `wait_for` were half of the time.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.round_trip_s: Optional[float] = None
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
            self._settle(ConnectOutcome.SILENT)
        elif self._small_left == 0:
            self._settle(ConnectOutcome.CONNECTED)
        else:
            elapsed = time.perf_counter() - self._sent_at
            self.round_trip_s = elapsed if self.round_trip_s is None else min(self.round_trip_s, elapsed)
            self._small_left -= 1
            self._say(SMALL if self._small_left else os.urandom(16) + PAYLOAD)
