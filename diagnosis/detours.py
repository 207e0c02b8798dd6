"""Packets that leave a node by another interface than the one that holds its member address.

Such a detour alone is no fault: some clusters mean it. It explains a flow that dies: what a node
answers from its member address by another interface is dropped on EC2 (the source/destination
check), and what goes into a bridge of containers never leaves the host.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import Dict, List, Optional, Tuple, Union

from diagnosis.matrix import Flow
from diagnosis.membership import Member, Roster
from diagnosis.published import only_here, parse_address
from diagnosis.report import HostFacts

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

# What netlink calls an interface that leads nowhere by itself, or to another network than the host's.
_VIRTUAL_KINDS = frozenset(
    ("bridge", "tun", "wireguard", "vxlan", "ipip", "gre", "sit", "ip6tnl", "dummy", "openvswitch", "ipvlan")
)


class Detour(str, Enum):
    """Values are the causes' ids."""

    OVERLAP = "address-overlap"  # a local network covers the peer's address
    SECOND_INTERFACE = "asymmetric-interfaces"  # another interface in the member's own subnet
    ELSEWHERE = "route-missing"  # a route that leads elsewhere


@dataclass(frozen=True)
class Found:
    """place: whose route it is. interface: by which the packets leave. answering: replies, not openings."""

    kind: Detour
    place: int
    interface: str
    answering: bool


class Detours:
    """The routes of all members; a member that did not look has none."""

    def __init__(self, roster: Roster) -> None:
        self._members = roster.members
        self._known: Dict[Tuple[int, int, bool], Optional[Found]] = {}

    def of(self, flow: Flow) -> Optional[Found]:
        """The detour that new connections of this flow, or the answers to them, take."""
        return self._at(flow.source, flow.destination, answering=False) or self._at(
            flow.destination, flow.source, answering=True
        )

    def _at(self, place: int, peer: int, *, answering: bool) -> Optional[Found]:
        key = (place, peer, answering)
        if key not in self._known:
            self._known[key] = _found(self._members, place, peer, answering)
        return self._known[key]


def _found(members: Tuple[Member, ...], place: int, peer: int, answering: bool) -> Optional[Found]:
    report = members[place].report
    host = report.host if report else None
    route = (report.routes or {}).get(members[peer].address) if report else None
    if host is None or host.interface is None or route is None:
        return None
    taken = route.answering if answering else route.opening
    if not taken or taken in (host.interface, "lo"):
        return None
    kind = _kind(host, taken, members[peer].address)
    return Found(kind=kind, place=place, interface=taken, answering=answering)


def _kind(host: HostFacts, taken: str, peer: str) -> Detour:
    virtual = (host.kinds or {}).get(taken) in _VIRTUAL_KINDS or only_here("", taken)
    address = parse_address(peer)
    local = _networks(host, taken)
    covers = address is not None and any(address in network for network in local)
    if virtual:
        return Detour.OVERLAP if covers else Detour.ELSEWHERE
    if set(local) & set(_networks(host, host.interface or "")):
        return Detour.SECOND_INTERFACE
    return Detour.OVERLAP if covers else Detour.ELSEWHERE


def _networks(host: HostFacts, interface: str) -> List[Network]:
    return [ipaddress.ip_interface(text).network for text in (host.networks or {}).get(interface, ())]
