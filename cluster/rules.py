"""Security group rules, network ACL entries and routes, and what each lets through.

Everything answers in exact port sets, and in three values: a rule matches a peer, does
not, or cannot be told (a prefix list whose entries nobody read).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import FrozenSet, Iterable, Optional, Tuple, Union

from cluster.ports import ALL_PORTS, PortRange, PortSet

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

EVERY_PORT = PortSet((ALL_PORTS,))
NO_PORT = PortSet()

PROTOCOL_NUMBERS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmpv6"}
"""IANA numbers that EC2 names; ACLs print numbers, security groups names."""


def protocol_name(text: str) -> str:
    """`tcp` for "6", "tcp" or "TCP"; "-1" is every protocol; other numbers stay numbers."""
    low = text.lower()
    return "-1" if low == "all" else PROTOCOL_NUMBERS.get(low, low)


def contains(network: Network, address: Address) -> bool:
    """Whether the address lies in the network; another address family never does."""
    return network.version == address.version and address in network


@dataclass(frozen=True)
class Peer:
    """The other end of a flow as a rule sees it: an address and the groups it carries.

    groups: None when nobody knows which groups the address carries.
    """

    address: Address
    groups: Optional[FrozenSet[str]] = frozenset()


class SourceKind(str, Enum):
    CIDR = "cidr"
    GROUP = "group"
    PREFIX_LIST = "prefix-list"


def _ports(own: str, asked: str, first: Optional[int], last: Optional[int]) -> PortSet:
    """The ports of the protocol `asked` that a rule of the protocol `own` speaks of."""
    if own == "-1":
        return EVERY_PORT
    if own != asked:
        return NO_PORT
    if asked not in ("tcp", "udp") or first is None or last is None or first < 0:
        return EVERY_PORT
    return PortSet((PortRange(first, last),))


@dataclass(frozen=True)
class SecurityGroupRule:
    """One permission for one source (in) or target (out).

    first, last: ports of tcp and udp; type and code of icmp (-1 = all); None = all.
    source: a CIDR, sg-... or pl-...; network: the CIDR parsed.
    entries: what a prefix list holds; None = nobody read it.
    peering_status: of a reference across a peering connection; only `active` counts.
    account: the other account whose group it names; blank for one of the same account.
    disputed: one of two documents that describe the group has it and the other one has not.
    rule_id: sgr-... where a document named it.
    """

    group_id: str
    egress: bool
    protocol: str
    first: Optional[int]
    last: Optional[int]
    kind: SourceKind
    source: str
    network: Optional[Network] = None
    entries: Optional[Tuple[Network, ...]] = None
    peering_status: str = ""
    description: str = ""
    rule_id: str = ""
    account: str = ""
    disputed: bool = False

    def ports(self, protocol: str) -> PortSet:
        """The ports of `protocol` that this rule speaks of; empty for another protocol."""
        return _ports(self.protocol, protocol, self.first, self.last)

    def matches(self, peer: Peer) -> Optional[bool]:
        """Whether the peer is what the rule names; None = cannot be told.

        A reference to a group matches private addresses of interfaces that carry it.
        """
        found: Optional[bool] = None
        if self.kind is SourceKind.GROUP:
            if self.stale:
                return False
            found = None if peer.groups is None else self.source in peer.groups
        elif self.networks is not None:
            found = any(contains(network, peer.address) for network in self.networks)
        return None if found and self.disputed else found

    @property
    def networks(self) -> Optional[Tuple[Network, ...]]:
        """The ranges the rule names: none for a group, None for a prefix list that nobody read."""
        if self.kind is SourceKind.PREFIX_LIST:
            return self.entries
        return () if self.network is None else (self.network,)

    @property
    def stale(self) -> bool:
        """Whether it refers to a group across a peering connection that is not there (any more)."""
        return self.peering_status not in ("", "active")

    def __str__(self) -> str:
        way = "to" if self.egress else "from"
        stale = f" (matches nobody: its peering connection is {self.peering_status})" if self.stale else ""
        return f"{self.group_id} allows {self.traffic} {way} {self.source}{stale}"

    @property
    def traffic(self) -> str:
        """The rule's protocol and ports in words: "tcp 29500", "all protocols"."""
        if self.protocol == "-1":
            return "all protocols"
        if self.protocol in ("icmp", "icmpv6"):
            return self.protocol if self.first in (None, -1) else f"{self.protocol} type {self.first}"
        ports = self.ports(self.protocol)
        return f"all {self.protocol}" if ports == EVERY_PORT else f"{self.protocol} {ports}"


@dataclass(frozen=True)
class NetworkAclEntry:
    """One numbered entry. first, last: destination ports of tcp and udp; None = all."""

    number: int
    egress: bool
    allow: bool
    protocol: str
    network: Network
    first: Optional[int] = None
    last: Optional[int] = None

    def ports(self, protocol: str) -> PortSet:
        return _ports(self.protocol, protocol, self.first, self.last)

    def __str__(self) -> str:
        ports = self.ports(self.protocol)
        what = "all protocols" if self.protocol == "-1" else f"{self.protocol} {ports}"
        way = "to" if self.egress else "from"
        number = "*" if self.number == ACL_DEFAULT_NUMBER else str(self.number)
        return f"entry {number} {'allows' if self.allow else 'denies'} {what} {way} {self.network}"


ACL_DEFAULT_NUMBER = 32767
"""The entry that every ACL ends with and that nobody can remove: deny all, shown as `*`."""


@dataclass(frozen=True)
class Route:
    """One route. destination: None for a prefix list (prefix_list then names it).

    target: the gateway's id: local, igw-, nat-, pcx-, tgw-, vgw-, eni-, vpce-, ...
    entries: what the prefix list holds; None = nobody read it.
    """

    destination: Optional[Network]
    target: str
    active: bool = True
    prefix_list: str = ""
    entries: Optional[Tuple[Network, ...]] = None

    @property
    def networks(self) -> Tuple[Network, ...]:
        """The destinations that are known."""
        return (self.entries or ()) if self.destination is None else (self.destination,)

    @property
    def unread(self) -> bool:
        """Whether it may lead where nobody knows: a prefix list of which nobody read the entries.

        Not for a gateway endpoint, whose list holds a service's public addresses.
        """
        return self.destination is None and self.entries is None and not self.target.startswith("vpce-")

    @property
    def local(self) -> bool:
        return self.target == "local"

    def __str__(self) -> str:
        state = "" if self.active else " (blackhole)"
        return f"{self.destination or self.prefix_list} -> {self.target}{state}"


def best_route(routes: Iterable[Route], address: Address) -> Optional[Route]:
    """The route with the longest prefix that holds the address; None when none that is known does.

    The longest prefix wins whether it stands in a route or in a list that a route names (VPC user
    guide, "Route priority and prefix lists"); a list that nobody read is left out: see `Route.unread`.
    """
    found: Optional[Route] = None
    longest = -1
    for route in routes:
        for network in route.networks:
            if network.prefixlen > longest and contains(network, address):
                found, longest = route, network.prefixlen
    return found
