"""Whom a rule lets in at an interface: the internet, strangers inside, networks behind gateways."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, Iterator, List, Optional, Sequence, Tuple

from cluster.lookup import Gap, Lookup, disputed_gap
from cluster.ports import PortRange, PortSet
from cluster.rules import (
    EVERY_PORT,
    NO_PORT,
    Address,
    Network,
    Route,
    SecurityGroupRule,
    SourceKind,
    best_route,
    contains,
)
from cluster.snapshot import Interface
from cluster.strangers import Strangers

CLIENT_PORTS = PortSet((PortRange(1024, 65535),))
"""Where a stranger's connection may come from; its replies go there."""

NEVER_CONNECTING = frozenset({"vpc_endpoint", "gateway_load_balancer_endpoint", "nat_gateway"})
"""Kinds of interface that answer or translate but never open a connection by themselves."""

ICMP_ERRORS = {"icmp": frozenset({3, 4, 11, 12}), "icmpv6": frozenset({1, 2, 3, 4})}
"""Types that only report on traffic of one's own (fragmentation needed, time exceeded)."""

NOT_INTERNET = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
        "fc00::/7",
        "fe80::/10",
        "ff00::/8",
    )
)
"""Addresses that no packet from the internet comes from."""

INTERNET = "internet"


@dataclass(frozen=True)
class Door:
    """What decides beside its groups who gets in at an interface; many interfaces share one."""

    subnet_id: str
    vpc_id: str
    public: bool
    ipv6: bool


def door_of(lookup: Lookup, item: Interface) -> Door:
    return Door(
        subnet_id=item.subnet_id,
        vpc_id=lookup.vpc_of(item),
        public=bool(item.public_addresses),
        ipv6=any(":" in address for address in item.addresses),
    )


class Admission:
    """Finds who uses a rule; `gaps` collects what could not be told on the way."""

    def __init__(self, lookup: Lookup, own: FrozenSet[str]) -> None:
        self._lookup = lookup
        self._own = own
        self._strangers = Strangers(item for item in lookup.snapshot.interfaces if self._may_connect(item))
        self.gaps: List[Gap] = []

    def rules(self, group: Optional[str]) -> Sequence[SecurityGroupRule]:
        """What a group lets in; None stands for the groups of an interface that nobody listed."""
        groups = self._lookup.group_rules(None if group is None else frozenset([group]))
        self.gaps += groups.gaps
        return groups.ingress

    def admitted(self, door: Door, rule: SecurityGroupRule) -> Dict[str, Tuple[PortSet, List[str]]]:
        """By protocol: the ports that the rule lets anybody in to at the door, and who they are.

        Of icmp the "ports" are its types.
        """
        if rule.protocol in ICMP_ERRORS and rule.first in ICMP_ERRORS[rule.protocol]:
            return {}
        if rule.networks is None:
            detail = f"who is in {rule.source} was not read ({rule})"
            self.gaps.append(Gap("prefix-lists", detail, resource=rule.source))
            return {}
        if rule.disputed:
            self.gaps.append(disputed_gap(rule))
            return {}
        found: Dict[str, Tuple[PortSet, List[str]]] = {}
        for address, via in self._callers(door, rule):
            for protocol, ports in self._through_acl(door, rule, address).items():
                before, who = found.get(protocol, (NO_PORT, []))
                found[protocol] = (before.union(ports), who if via in who else [*who, via])
        return found

    def _callers(self, door: Door, rule: SecurityGroupRule) -> Iterator[Tuple[Optional[Address], str]]:
        """Who is there to use the rule: an address to try the ACL with (None = in the same subnet)."""
        yield from self._inside(door, rule)
        for network in rule.networks or ():
            yield from self._outside(door, network)

    def _inside(self, door: Door, rule: SecurityGroupRule) -> Iterator[Tuple[Optional[Address], str]]:
        table = self._lookup.snapshot.interfaces
        if not table.complete:
            self.gaps.append(
                Gap("network-interfaces", f"who else {rule.source} stands for is unknown: {table.problem}")
            )
        if rule.kind is SourceKind.GROUP:
            unknown = self._lookup.snapshot.security_groups.get(rule.source) is None
            if unknown and (rule.account or rule.peering_status == "active"):
                whose = f"account {rule.account}" if rule.account else "the peer"
                self.gaps.append(Gap("peer-interfaces", f"who carries {rule.source} of {whose} was not read"))
            elif rule.stale:
                return
        for item, address in self._strangers.named_by(rule):
            if item.subnet_id == door.subnet_id:
                yield None, item.id
            elif self._lookup.vpc_of(item) == door.vpc_id or self._routed(door, address):
                yield address, item.id

    def _may_connect(self, item: Interface) -> bool:
        if item.id in self._own or item.kind in NEVER_CONNECTING or not item.addresses:
            return False
        if item.instance_id:
            instance = self._lookup.snapshot.instances.get(item.instance_id)
            return instance is None or instance.state == "running"
        return item.status in ("in-use", "")

    def _routed(self, door: Door, address: Address) -> bool:
        table = self._lookup.route_table(door.subnet_id, door.vpc_id)
        best = best_route(table.routes, address) if table else None
        return best is not None and best.active and not best.local and not _to_internet(best)

    def _outside(self, door: Door, network: Network) -> Iterator[Tuple[Optional[Address], str]]:
        """The internet and networks behind gateways, as far as routes lead there."""
        internet = door.ipv6 if network.version == 6 else door.public
        table = self._lookup.route_table(door.subnet_id, door.vpc_id)
        if table is None:
            if internet and not _private(network):
                self.gaps.append(self._lookup.route_gap(door.subnet_id))
            return
        acl = self._lookup.acl(door.subnet_id, door.vpc_id)
        edges: List[Network] = [entry.network for entry in acl.entries] if acl else []
        edges += [destination for route in table.routes for destination in route.networks]
        for route in table.routes:
            if route.unread:
                detail = f"whether {table.id} leads to {network} through {route.prefix_list} was not read"
                self.gaps.append(Gap("route-prefix-lists", detail, resource=route.prefix_list))
        for address in _samples(network, edges):
            best = best_route(table.routes, address)
            if best is None or not best.active:
                continue
            if best.target.startswith("igw-"):
                if internet and not any(contains(item, address) for item in NOT_INTERNET):
                    yield address, INTERNET
            elif best.target.startswith(("vgw-", "tgw-", "pcx-", "lgw-", "arn:")) and not self._known(
                address
            ):
                yield address, best.target

    def _known(self, address: Address) -> bool:
        """Whether the address lies in a VPC whose interfaces the snapshot holds."""
        return any(
            contains(ipaddress.ip_network(cidr), address)
            for vpc in self._lookup.snapshot.vpcs
            for cidr in vpc.cidrs
        )

    def _through_acl(
        self, door: Door, rule: SecurityGroupRule, address: Optional[Address]
    ) -> Dict[str, PortSet]:
        """What of the rule's traffic the subnet's ACL lets in from the address, by protocol."""
        if address is None:
            return {rule.protocol: _types_or_ports(rule)}
        acl = self._lookup.acl(door.subnet_id, door.vpc_id)
        if acl is None:
            self.gaps.append(self._lookup.acl_gap(door.subnet_id))
            return {}
        protocols = ("tcp", "udp", "-1") if rule.protocol == "-1" else (rule.protocol,)
        passing: Dict[str, PortSet] = {}
        for protocol in protocols:
            into = self._lookup.acl_rules(acl, False, protocol, EVERY_PORT).allowed(address)
            back = self._lookup.acl_rules(acl, True, protocol, EVERY_PORT).allowed(address)
            if protocol != "tcp" or back.intersection(CLIENT_PORTS):
                passing[protocol] = into.intersection(_types_or_ports(rule))
        if rule.protocol == "-1" and all(passing.get(item) == EVERY_PORT for item in protocols):
            return {"-1": EVERY_PORT}
        return {protocol: ports for protocol, ports in passing.items() if ports}


def _to_internet(route: Route) -> bool:
    return route.target.startswith(("igw-", "nat-", "eigw-"))


def _private(network: Network) -> bool:
    return any(network.version == item.version and network.subnet_of(item) for item in NOT_INTERNET)  # type: ignore[arg-type]


def _types_or_ports(rule: SecurityGroupRule) -> PortSet:
    if rule.protocol in ICMP_ERRORS and rule.first is not None and rule.first >= 0:
        return PortSet((PortRange(rule.first, rule.first),))
    return rule.ports(rule.protocol)


def _samples(network: Network, edges: Iterable[Network]) -> Iterator[Address]:
    """One address of every part of the network that the edges cut it into."""
    first, last = int(network.network_address), int(network.broadcast_address)
    cuts = {first}
    for edge in (*edges, *NOT_INTERNET):
        if edge.version == network.version:
            cuts.update((int(edge.network_address), int(edge.broadcast_address) + 1))
    kind = ipaddress.IPv4Address if network.version == 4 else ipaddress.IPv6Address
    for value in sorted(cuts):
        if first <= value <= last:
            yield kind(value)
