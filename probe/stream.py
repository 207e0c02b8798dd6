"""Loss on the way to a peer: data at a gentle pace, in small segments, and what the kernel had to repeat.

A stream at full speed loses packets at its own bottleneck, so it proves nothing of the path. This one
stays far below what any instance is guaranteed, and keeps few segments under way.
"""

from __future__ import annotations

import asyncio
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
# 64 Mbit/s a stream, four at once: a third of the baseline of the smallest current generation types.
PACE_BYTES_PER_S = 8_000_000
AT_ONCE = 4
# In large clusters each node looks at as many peers, one after the other.
PEERS_OF_MANY = 2
SEND_BUFFER_BYTES = 8 * 1024  # the kernel doubles it: some seven segments under way
TIMEOUT_S = 3.0

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
    """One stream; None where it could not begin, or the peer is of another release."""
    sock = socket.socket(address_family(target.address), socket.SOCK_STREAM)
    stream = _Stream(sock)
    started = time.perf_counter()
    try:
        _prepare(sock)
        complete = await asyncio.wait_for(stream.run((target.address, target.port)), TIMEOUT_S)
    except asyncio.TimeoutError:
        complete = False
    except OSError:
        return None
    finally:
        told = stream.told()
        sock.close()
    if told is None:
        return None
    segments, lost = told
    time_s = round(time.perf_counter() - started, 6)
    return PathStream(
        destination=target.destination, segments=segments, lost=lost, complete=complete, time_s=time_s
    )


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

    async def run(self, to: Tuple[str, int]) -> bool:
        """Whether the peer took all of it; False also where it does not know of streams."""
        await self._loop.sock_connect(self._sock, to)
        if not await self._push(FIRST_BYTES):
            return False
        told = self.told()
        if told is not None and told[1]:
            return await self._push(MORE_BYTES)
        return True

    async def _push(self, count: int) -> bool:
        announced = announcement(count)
        await self._loop.sock_sendall(self._sock, announced)
        if not is_ready(announced, await self._receive(SMALL_BYTES)):
            return False
        self._before = self._before or tcp_info(self._sock)
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

    def told(self) -> Optional[Tuple[int, Optional[int]]]:
        """(segments, lost) since the data began; None where it did not, or this kernel counts none."""
        if self._before is None or self._before.data_segments is None:
            return None
        now = tcp_info(self._sock)
        segments = (now.data_segments or 0) - self._before.data_segments
        if now.lost_segments is None or self._before.lost_segments is None:
            return segments, None
        return segments, max(0, now.lost_segments - self._before.lost_segments)
