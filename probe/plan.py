"""What to probe: which ports to listen on, and which of a peer's ports to try. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Sequence, Tuple

from cluster.ports import PortRange
from diagnosis.report import EVERY_LISTENER_UP_TO_NODES, PortKind
from probe.members import Member, in_rank_order

# Low end, middle and high end: a rule that covers only a part of the range misses one of them.
EPHEMERAL_LISTENERS = 3


@dataclass(frozen=True)
class ProbeTarget:
    """One probe to make."""

    destination: str
    address: str
    port: int
    kind: PortKind


def spread_ports(ports: PortRange, count: int = EPHEMERAL_LISTENERS) -> Tuple[int, ...]:
    """`count` ports from the low end to the high end of the range, evenly apart; fewer if it is smaller."""
    count = min(count, len(ports))
    if count == 1:
        return (ports.first,)
    step = (ports.last - ports.first) / (count - 1)
    return tuple(ports.first + round(i * step) for i in range(count))


def candidates(ports: PortRange, wanted: int, limit: int = 64) -> Iterator[int]:
    """`wanted`, then its neighbours inside the range: what to try when a port is taken."""
    yield wanted
    found = 1
    for distance in range(1, len(ports)):
        for port in (wanted + distance, wanted - distance):
            if port in ports:
                yield port
                found += 1
                if found >= limit:
                    return


def plan_probes(source: str, members: Sequence[Member]) -> Tuple[ProbeTarget, ...]:
    """Every probe that `source` (a member id) makes.

    Large clusters: the source tries one ephemeral port of each peer, chosen by rotation, so
    that over all sources every port of every destination is tried. Each source begins with
    the member after itself, so that not everyone storms the first member at once.

    Raises:
        ValueError: `source` is not a member.
    """
    ordered = in_rank_order(members)
    places = [i for i, member in enumerate(ordered) if member.member_id == source]
    if not places:
        raise ValueError(f"{source!r} is not among the {len(ordered)} members")
    own = places[0]
    every = len(ordered) <= EVERY_LISTENER_UP_TO_NODES
    plan: List[ProbeTarget] = []
    for distance in range(1, len(ordered)):
        place = (own + distance) % len(ordered)
        peer = ordered[place]
        if peer.master_port:
            plan.append(_target(peer, peer.master_port, PortKind.MASTER))
        ports = peer.ports if every or not peer.ports else (peer.ports[(own + place) % len(peer.ports)],)
        plan.extend(_target(peer, port, PortKind.EPHEMERAL) for port in ports)
    return tuple(plan)


def _target(peer: Member, port: int, kind: PortKind) -> ProbeTarget:
    return ProbeTarget(destination=peer.member_id, address=peer.address, port=port, kind=kind)
