"""Answers to "which applies here?" on a snapshot: groups of an interface, the ACL of a
subnet, the route table of a subnet, the addresses behind a group.

What the lab's firewall compiler and the flows share. None (or a gap) means that the
snapshot does not tell; it is never an empty answer.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from cluster.acl_rules import AclRules
from cluster.ports import PortSet
from cluster.rules import Address, SecurityGroupRule
from cluster.snapshot import ClusterSnapshot, Interface, NetworkAcl, RouteTable


@dataclass(frozen=True)
class Gap:
    """Something that was not read and that an answer needs.

    document: a key of `snapshot.DOCUMENTS`, or the kind of thing no document holds.
    resource: what would have to be read, where one thing would do: pl-..., tgw-..., pcx-...
    egress: it matters to what members send, not to what they let in.
    """

    document: str
    detail: str
    resource: str = ""
    egress: bool = False

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True)
class GroupRules:
    """The rules of all groups of one interface, both directions apart.

    gaps: groups whose rules are not known; they may allow anything besides.
    """

    ingress: Tuple[SecurityGroupRule, ...]
    egress: Tuple[SecurityGroupRule, ...]
    gaps: Tuple[Gap, ...] = ()

    def direction(self, egress: bool) -> Tuple[SecurityGroupRule, ...]:
        return self.egress if egress else self.ingress


class Lookup:
    """Indexes over one snapshot, built once."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self._acl_rules: Dict[Tuple[str, bool, str, PortSet], AclRules] = {}
        self._acl_of = {subnet: acl for acl in snapshot.network_acls for subnet in acl.subnet_ids}
        self._default_acl_of = {acl.vpc_id: acl for acl in snapshot.network_acls if acl.default}
        self._routes_of = {subnet: table for table in snapshot.route_tables for subnet in table.subnet_ids}
        self._main_of = {table.vpc_id: table for table in snapshot.route_tables if table.main}
        self._interfaces: Dict[str, List[Interface]] = {}
        self._carriers: Dict[str, List[Interface]] = {}
        for interface in snapshot.interfaces:
            if interface.instance_id:
                self._interfaces.setdefault(interface.instance_id, []).append(interface)
            for group_id in interface.group_ids or ():
                self._carriers.setdefault(group_id, []).append(interface)

    def interfaces(self, instance_id: str) -> Sequence[Interface]:
        """The instance's interfaces that the snapshot holds."""
        return self._interfaces.get(instance_id, [])

    def primary(self, instance_id: str) -> Optional[Interface]:
        """The interface with device index 0; the only one when its index is not told."""
        own = self.interfaces(instance_id)
        first = [item for item in own if item.device_index == 0]
        if first:
            return min(first, key=lambda item: item.network_card_index)
        return own[0] if len(own) == 1 and own[0].device_index is None else None

    def carriers(self, group_id: str) -> Sequence[Interface]:
        """The interfaces that carry the group."""
        return self._carriers.get(group_id, [])

    def vpc_of(self, interface: Interface) -> str:
        """The VPC's id, from the interface or its subnet; blank when neither tells."""
        if interface.vpc_id:
            return interface.vpc_id
        subnet = self.snapshot.subnets.get(interface.subnet_id)
        return subnet.vpc_id if subnet else ""

    def group_rules(self, group_ids: Optional[FrozenSet[str]]) -> GroupRules:
        """The rules of these groups; an unknown group is a gap. None: the groups are unknown."""
        if group_ids is None:
            gap = Gap("network-interfaces", "the groups of an interface are not listed")
            return GroupRules((), (), (gap,))
        ingress: List[SecurityGroupRule] = []
        egress: List[SecurityGroupRule] = []
        gaps: List[Gap] = []
        table = self.snapshot.security_groups
        for group_id in sorted(group_ids):
            group = table.get(group_id)
            if group is None or group.rules is None:
                reason = table.problem or "it is not in the document"
                gaps.append(Gap("security-groups", f"the rules of {group_id} are unknown: {reason}"))
                continue
            for rule in group.rules:
                (egress if rule.egress else ingress).append(rule)
        return GroupRules(tuple(ingress), tuple(egress), tuple(gaps))

    def acl(self, subnet_id: str, vpc_id: str) -> Optional[NetworkAcl]:
        """The subnet's ACL. Every subnet has one: None means that it was not read.

        A subnet that no ACL names has its VPC's default one (VPC user guide, "Network ACL basics"),
        which only counts when all associations were read.
        """
        own = self._acl_of.get(subnet_id)
        if own is not None:
            return own
        return self._default_acl_of.get(vpc_id) if self.snapshot.network_acls.complete else None

    def acl_rules(self, acl: NetworkAcl, egress: bool, protocol: str, universe: PortSet) -> AclRules:
        """One direction of an ACL for a protocol and some ports, made once."""
        key = (acl.id, egress, protocol, universe)
        found = self._acl_rules.get(key)
        if found is None:
            found = self._acl_rules[key] = AclRules(acl.entries, egress, protocol, universe)
        return found

    def acl_gap(self, subnet_id: str) -> Gap:
        """Why `acl` gave None."""
        reason = self.snapshot.network_acls.problem or "it is not in the document"
        return Gap("network-acls", f"the network ACL of {subnet_id or 'a subnet'} is unknown: {reason}")

    def route_table(self, subnet_id: str, vpc_id: str) -> Optional[RouteTable]:
        """The subnet's own table, else the VPC's main one; None = was not read.

        The main table only counts when all associations were read.
        """
        own = self._routes_of.get(subnet_id)
        if own is not None:
            return own
        return self._main_of.get(vpc_id) if self.snapshot.route_tables.complete else None

    def route_gap(self, subnet_id: str) -> Gap:
        """Why `route_table` gave None."""
        reason = self.snapshot.route_tables.problem or "it is not in the document"
        return Gap("route-tables", f"the route table of {subnet_id or 'a subnet'} is unknown: {reason}")


def disputed_gap(rule: SecurityGroupRule) -> Gap:
    """What a rule leaves open that only one of the two documents about its group has."""
    return Gap(
        "security-groups",
        f"whether {rule} is unknown: security-groups and security-group-rules disagree about it, "
        "so they were read at different times",
    )


def parse_address(text: str) -> Address:
    """An address of the snapshot; they were checked when it was read."""
    return ipaddress.ip_address(text)
