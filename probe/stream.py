"""Loss on the way to a peer: data at a gentle pace, in small segments, and what the kernel had to repeat.

A stream at full speed loses packets at its own bottleneck, so it proves nothing of the path. This one
stays below what instances are guaranteed, but for the small T types, which may burst. It keeps few
segments under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from diagnosis.report import EVERY_LISTENER_UP_TO_NODES, PathStream
from probe.conversation import SMALL_SEGMENT_BYTES
from probe.echo import SMALL_BYTES, TAKEN, announcement, is_ready
from probe.members import Member, address_family, in_rank_order
from probe.tcp_info import TcpInfo, tcp_info

# First a look, then, where anything was lost, enough segments to tell 1 % from an accident.
FIRST_BYTES = 200 * SMALL_SEGMENT_BYTES
MORE_BYTES = 800 * SMALL_SEGMENT_BYTES
# 64 Mbit/s a stream, four at once: a third of what c5.large is guaranteed, all that t3.medium is.
PACE_BYTES_PER_S = 8_000_000
AT_ONCE = 4
# In large clusters each node looks at as many peers, one after the other.
PEERS_OF_MANY = 2
SEND_BUFFER_BYTES = 8 * 1024  # the kernel doubles it: some seven segments under way
TIMEOUT_S = 3.0
# Where a handshake loses one packet and the first data another, the kernel waits 1 s and then 3 s
# (RFC 6298, 2.1 and 5.7). A new connection is quicker, and a lossy way must not stay unknown by chance.
BEGIN_S = 1.5
NO_NEW_AFTER_S = 6.0

_SO_MAX_PACING_RATE = 47  # asm-generic/socket.h; TCP paces by itself since Linux 4.13


@dataclass(frozen=True)
class StreamTarget:
    """One stream to make."""

    destination: str
    address: str
    port: int


def plan_streams(source: str, members: Sequence[Member]) -> Tuple[StreamTarget, ...]:
    """To every peer; in a large cluster to the next ones in the ring, so that each is looked at as often."""
    ordered = in_rank_order(members)
    own = next(place for place, member in enumerate(ordered) if member.member_id == source)
    others = [ordered[(own + distance) % len(ordered)] for distance in range(1, len(ordered))]
    others = [peer for peer in others if peer.address != ordered[own].address]  # a host has no way to itself
    if len(ordered) > EVERY_LISTENER_UP_TO_NODES:
        others = others[:PEERS_OF_MANY]
    return tuple(
        StreamTarget(destination=peer.member_id, address=peer.address, port=ports[0])
        for peer in others
        if (ports := (*peer.ports, *([peer.master_port] if peer.master_port else [])))
    )


async def send_all(plan: Sequence[StreamTarget], members: int) -> Tuple[PathStream, ...]:
    """Every planned stream that a peer took part in; keeps the plan's order."""
    slots = asyncio.Semaphore(AT_ONCE if members <= EVERY_LISTENER_UP_TO_NODES else 1)

    async def one(target: StreamTarget) -> Optional[PathStream]:
        async with slots:
            return await send(target)

    found = await asyncio.gather(*(one(target) for target in plan))
    return tuple(stream for stream in found if stream is not None)


async def send(target: StreamTarget) -> Optional[PathStream]:
    """One stream, over a new connection where one stalls; None where none began."""
    started = time.perf_counter()
    parts: List[_Part] = []
    while not (parts and parts[-1].complete) and time.perf_counter() - started < NO_NEW_AFTER_S:
        part = await _one_connection((target.address, target.port))
        if part is None:
            break
        parts.append(part)
    if not any(part.segments for part in parts):
        return None
    return PathStream(
        destination=target.destination,
        segments=sum(part.segments for part in parts),
        lost=None if any(part.lost is None for part in parts) else sum(part.lost or 0 for part in parts),
        complete=parts[-1].complete,
        time_s=round(time.perf_counter() - started, 6),
    )


@dataclass(frozen=True)
class _Part:
    """What one connection told; as in PathStream."""

    segments: int
    lost: Optional[int]
    complete: bool


async def _one_connection(to: Tuple[str, int]) -> Optional[_Part]:
    """None where the peer refuses, or does not know of streams: another one would tell no more."""
    complete = False
    with contextlib.closing(socket.socket(address_family(to[0]), socket.SOCK_STREAM)) as sock:
        stream = _Stream(sock)
        try:
            _prepare(sock)
            if not await asyncio.wait_for(stream.begin(to), BEGIN_S):
                return None
            complete = await asyncio.wait_for(stream.run(), TIMEOUT_S)
        except asyncio.TimeoutError:
            pass  # before OSError, of which it is a kind since Python 3.11
        except OSError:
            return None
        return stream.told(complete)


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, PACE_BYTES_PER_S)


class _Stream:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._before: Optional[TcpInfo] = None  # what came before the data: the handshake may repeat, too

    async def begin(self, to: Tuple[str, int]) -> bool:
        """Whether the peer takes the first part; False where it does not know of streams."""
        await self._loop.sock_connect(self._sock, to)
        if not await self._is_awaited(FIRST_BYTES):
            return False
        self._before = tcp_info(self._sock)
        return True

    async def run(self) -> bool:
        """Whether the peer took all of it."""
        if not await self._push(FIRST_BYTES):
            return False
        if not self.lost():
            return True
        return await self._is_awaited(MORE_BYTES) and await self._push(MORE_BYTES)

    async def _is_awaited(self, count: int) -> bool:
        announced = announcement(count)
        await self._loop.sock_sendall(self._sock, announced)
        return is_ready(announced, await self._receive(SMALL_BYTES))

    async def _push(self, count: int) -> bool:
        await self._loop.sock_sendall(self._sock, bytes(count))
        return await self._receive(len(TAKEN)) == TAKEN

    async def _receive(self, count: int) -> bytes:
        data: List[bytes] = []
        while count > 0:
            part = await self._loop.sock_recv(self._sock, count)
            if not part:
                raise ConnectionResetError("closed by the peer")
            data.append(part)
            count -= len(part)
        return b"".join(data)

    def lost(self) -> Optional[int]:
        """Segments since the data began; None where it did not, or this kernel counts none."""
        before = self._before.lost_segments if self._before else None
        now = tcp_info(self._sock).lost_segments
        return None if now is None or before is None else max(0, now - before)

    def told(self, complete: bool) -> _Part:
        """All that is known since the data began."""
        if self._before is None:
            return _Part(segments=0, lost=0, complete=False)
        sent = (tcp_info(self._sock).data_segments or 0) - (self._before.data_segments or 0)
        return _Part(segments=sent, lost=self.lost(), complete=complete)
