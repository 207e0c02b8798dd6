"""The full mesh of one node: own proven listeners, and a probe of every peer's.

One event loop in a thread of its own echoes and probes at once, so that the caller may
block (list the meeting place, publish) while slow peers still find this node's listeners.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
import time
from types import TracebackType
from typing import Any, Coroutine, Dict, List, Optional, Sequence, Set, Tuple, Type, TypeVar

from cluster.ports import PortRange
from diagnosis.report import ConnectOutcome, IdleConnection, Listener, PairProbe, PathStream, PortKind
from probe import outcome
from probe.echo import Echo
from probe.idle import keep_idle
from probe.limits import raise_descriptor_limit
from probe.members import Member, address_family
from probe.plan import ProbeTarget, candidates, spread_ports
from probe.ports_held import holder_of
from probe.relay import Relay
from probe.routes import link_silent
from probe.stream import StreamTarget, send_all
from probe.torch_store import keys_in_store

T = TypeVar("T")

BACKLOG = 512
# Probes under way at once. Bounds file descriptors and memory; 64 nodes need 126.
CONCURRENT_PROBES = 512
# Descriptors a node of 64 needs at once: 126 probes out, up to 126 in, and its own files.
_SPARE_DESCRIPTORS = 4 * CONCURRENT_PROBES


class Mesh:
    """This node's listeners and probes; a context manager.

    `listeners` tells, once entered, every port tried: opened and proven by an echo over the
    node's own address, or the errno and (where the host tells) who holds the port.
    """

    def __init__(
        self,
        address: str,
        ports: PortRange,
        master_port: Optional[int],
        preferred: Sequence[int] = (),
        avoided: Sequence[int] = (),
        *,
        relay: Optional[Relay] = None,
    ) -> None:
        """
        Args:
            address: the member address; listeners bind to it and to nothing else.
            ports: the node's ephemeral range.
            master_port: None = no listener there (torchrun's own store holds it).
            preferred: ephemeral ports to try first, of an earlier registration of this node.
            avoided: ports to leave alone, also where they lie in the range.
            relay: the way to the meeting place, for those who ask a listener for it.
        """
        self.address = address
        self.listeners: Tuple[Listener, ...] = ()
        self._ports = ports
        self._master_port = master_port
        self._preferred = tuple(preferred)
        self._avoided = frozenset(avoided)
        self._relay = relay
        self._servers: List[asyncio.AbstractServer] = []
        self._transports: Set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mesh", daemon=True)

    def __enter__(self) -> Mesh:
        raise_descriptor_limit(_SPARE_DESCRIPTORS)
        self._thread.start()
        try:
            self.listeners = self._run(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._stop()

    def member(self, member_id: str) -> Member:
        """This node's registration: its listeners, also those that this host does not reach itself.

        A host's firewall that stops loopback may stop peers or let them in: they are to find out.
        """
        bound = [listener for listener in self.listeners if listener.bound]
        masters = [listener.port for listener in bound if listener.kind is PortKind.MASTER]
        return Member(
            member_id=member_id,
            address=self.address,
            master_port=masters[0] if masters else 0,
            ports=tuple(item.port for item in bound if item.kind is PortKind.EPHEMERAL),
        )

    def probe(self, plan: Sequence[ProbeTarget]) -> Tuple[PairProbe, ...]:
        """Make every planned probe; blocks until each has an outcome. Keeps the plan's order."""
        return self._run(self._probe_all(plan))

    def stream(self, plan: Sequence[StreamTarget], members: int) -> Tuple[PathStream, ...]:
        """Make every planned stream; blocks until each has ended."""
        return self._run(send_all(plan, members))

    def idle(self, plan: Sequence[StreamTarget], idle_s: float) -> Tuple[IdleConnection, ...]:
        """Keep a connection to each target idle, and use it again; blocks for that long and a little more."""
        return self._run(keep_idle(plan, idle_s))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for transport in tuple(self._transports):
            transport.abort()
        await asyncio.sleep(0)  # lets the aborted transports run their connection_lost

    async def _open(self) -> Tuple[Listener, ...]:
        opened = []
        if self._master_port is not None:
            opened.append(await self._listen(self._master_port, PortKind.MASTER))
        taken: Set[int] = {self._master_port or 0, *self._avoided}
        for port in self._preferred or spread_ports(self._ports):
            listener = await self._listen_near(port, taken)
            taken.add(listener.port)
            opened.append(listener)
        proofs = await asyncio.gather(*(self._prove(listener) for listener in opened))
        return tuple(proofs)

    async def _listen_near(self, wanted: int, taken: Set[int]) -> Listener:
        """A listener on `wanted` or the next free port of the range; the first failure if none is free."""
        first: Optional[Listener] = None
        for port in candidates(self._ports, wanted):
            if port in taken:
                continue
            listener = await self._listen(port, PortKind.EPHEMERAL)
            if listener.errno != errno.EADDRINUSE:  # opened, or a neighbour would fare no better
                return listener
            first = first or listener
        return first or Listener(port=wanted, kind=PortKind.EPHEMERAL, opened=False)

    async def _listen(self, port: int, kind: PortKind) -> Listener:
        try:
            server = await self._loop.create_server(
                lambda: Echo(self._transports, self._relay),
                self.address,
                port,
                family=address_family(self.address),
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            return _not_opened(self.address, port, kind, error)
        self._servers.append(server)
        return Listener(port=port, kind=kind, opened=True, bound=True)

    async def _prove(self, listener: Listener) -> Listener:
        """The listener as it is after an echo over this node's own address."""
        if not listener.opened:
            return listener
        proof = await outcome.attempt(self.address, listener.port)
        if proof.outcome is ConnectOutcome.CONNECTED:
            return listener
        return dataclasses.replace(listener, opened=False, errno=proof.errno)

    async def _probe_all(self, plan: Sequence[ProbeTarget]) -> Tuple[PairProbe, ...]:
        slots = asyncio.Semaphore(CONCURRENT_PROBES)
        turns = outcome.Turns(self._loop)

        async def one(target: ProbeTarget) -> PairProbe:
            async with slots:
                return await probe(target, turns)

        return tuple(await asyncio.gather(*(one(target) for target in plan)))


def _not_opened(address: str, port: int, kind: PortKind, error: OSError) -> Listener:
    """A listener that could not be; of MASTER_PORT, which is not ours to choose, also who holds it."""
    listener = Listener(port=port, kind=kind, opened=False, errno=error.errno)
    if kind is not PortKind.MASTER or error.errno != errno.EADDRINUSE:
        return listener
    return dataclasses.replace(listener, holder=holder_of(port), store_keys=keys_in_store(address, port))


# Outcomes that another try may correct. SILENT was waited for long enough, and a repeat would
# only add to the load that may have caused it; TIMED_OUT is told of two connections already.
_REPEATED = frozenset(ConnectOutcome) - {
    ConnectOutcome.CONNECTED,
    ConnectOutcome.SILENT,
    ConnectOutcome.TIMED_OUT,
}


_DEAD = (ConnectOutcome.TIMED_OUT, ConnectOutcome.UNREACHABLE)


async def probe(target: ProbeTarget, turns: outcome.Turns) -> PairProbe:
    """One probe of up to two tries; the second one's outcome counts."""
    started_at = time.time()
    seen = await outcome.attempt(target.address, target.port, turns)
    connections = seen.connections
    if seen.outcome in _REPEATED:
        await asyncio.sleep(outcome.PAUSE_BEFORE_RETRY_S)
        seen = await outcome.attempt(target.address, target.port, turns)
        connections += seen.connections
    small: Optional[outcome.Attempt] = None
    if seen.outcome is ConnectOutcome.SILENT and seen.round_trip_s is not None and not seen.garbled:
        small = await outcome.attempt(target.address, target.port, turns, small_segments=True)
    return PairProbe(
        destination=target.destination,
        address=target.address,
        port=target.port,
        kind=target.kind,
        outcome=seen.outcome,
        errno=seen.errno,
        attempts=connections,
        connect_s=seen.connect_s,
        round_trip_s=seen.round_trip_s,
        started_at=started_at,
        unacknowledged=seen.unacknowledged,
        garbled=seen.garbled,
        small_segments=small.outcome if small is not None else None,
        path_mtu_bytes=seen.path_mtu_bytes,
        link_silent=link_silent(target.address) if seen.outcome in _DEAD else None,
        clock_offset_s=_rounded(seen.clock.offset_s) if seen.clock else None,
        clock_error_s=_rounded(seen.clock.error_s) if seen.clock else None,
    )


def _rounded(seconds: float) -> float:
    """To a microsecond: more digits would only make the row longer."""
    return round(seconds, 6)


def peak_memory_bytes() -> Optional[int]:
    """Peak resident memory of this process; None where /proc does not tell.

    VmHWM, not getrusage: ru_maxrss survives exec and would count the parent's image.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            fields: Dict[str, str] = dict(line.split(":", 1) for line in file if ":" in line)
        return int(fields["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
