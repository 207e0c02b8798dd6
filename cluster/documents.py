"""Reads `aws ec2 describe-*` documents into a ClusterSnapshot.

Only what the judgements need is read, and every entry is read on its own: one that does
not have the known shape is left out and makes its table incomplete.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from cluster.document_rules import (
    Json,
    ShapeError,
    need,
    read_acl,
    read_group,
    read_listed_rule,
    read_route_table,
    tags_of,
)
from cluster.rules import SecurityGroupRule
from cluster.snapshot import (
    ClusterSnapshot,
    Instance,
    Interface,
    SecurityGroup,
    Subnet,
    Table,
    Vpc,
)

T = TypeVar("T")


def read_documents(documents: Mapping[str, Any], problems: Mapping[str, str]) -> ClusterSnapshot:
    """Build the snapshot; see `ClusterSnapshot.from_documents`."""
    read = _Reader(documents, problems)
    instances = read.table("instances", "Instances", _instance, entries=read.instances())
    return ClusterSnapshot(
        security_groups=_groups(read),
        network_acls=read.table("network-acls", "NetworkAcls", read_acl),
        route_tables=read.table("route-tables", "RouteTables", read_route_table),
        subnets=read.table("subnets", "Subnets", _subnet),
        interfaces=_interfaces(read),
        instances=instances,
        vpcs=read.table("vpcs", "Vpcs", _vpc),
    )


class _Reader:
    """Finds the entries of each document and says why some are missing."""

    def __init__(self, documents: Mapping[str, Any], problems: Mapping[str, str]) -> None:
        self._documents = documents
        self._problems = problems

    def problem(self, name: str, key: str) -> str:
        """Why the document does not hold everything; blank = it does."""
        document = self._documents.get(name)
        if document is None:
            return self._problems.get(name) or f"{name} was not read"
        if not isinstance(document, Mapping) or not isinstance(document.get(key), list):
            return f"{name} has no list {key!r}"
        if document.get("NextToken"):
            return f"{name} ends with a NextToken: there is more that was not read"
        return self._problems.get(name, "")

    def entries(self, name: str, key: str) -> List[Any]:
        document = self._documents.get(name)
        found = document.get(key) if isinstance(document, Mapping) else None
        return found if isinstance(found, list) else []

    def instances(self) -> Tuple[List[Any], str]:
        """The instances of all reservations; a reservation of another shape is a problem."""
        problem = self.problem("instances", "Reservations")
        found: List[Any] = []
        for position, reservation in enumerate(self.entries("instances", "Reservations")):
            inner = reservation.get("Instances") if isinstance(reservation, Mapping) else None
            if isinstance(inner, list):
                found += inner
            else:
                problem = problem or f"instances: reservation {position} has no list 'Instances'"
        return found, problem

    def table(
        self,
        name: str,
        key: str,
        build: Callable[[Json], Tuple[str, T]],
        entries: Optional[Tuple[List[Any], str]] = None,
    ) -> Table[T]:
        items: Dict[str, T] = {}
        found, problem = entries or (self.entries(name, key), self.problem(name, key))
        for position, entry in enumerate(found):
            try:
                if not isinstance(entry, Mapping):
                    raise ShapeError(f"expected an object, got {entry!r}")
                item_id, item = build(entry)
                items[item_id] = item
            except (ValueError, TypeError, AttributeError, LookupError) as error:
                problem = problem or f"{name}: entry {position} cannot be read ({error})"
        return Table(items=items, problem=problem)


def _groups(read: _Reader) -> Table[SecurityGroup]:
    """Groups with their rules; the rules' own ids are added where their document is there.

    Without the groups' document, the rules' document alone tells a group that it names.
    """
    groups = read.table("security-groups", "SecurityGroups", read_group)
    rules = read.table("security-group-rules", "SecurityGroupRules", read_listed_rule)
    if groups.items or groups.complete or not rules.complete:
        named = {_rule_key(rule): rule.rule_id for rule in rules}
        return Table(items={g.id: _with_rule_ids(g, named) for g in groups}, problem=groups.problem)
    by_group: Dict[str, List[SecurityGroupRule]] = {}
    for rule in rules:
        by_group.setdefault(rule.group_id, []).append(rule)
    items = {group_id: SecurityGroup(id=group_id, rules=tuple(own)) for group_id, own in by_group.items()}
    return Table(items=items, problem=groups.problem)


def _rule_key(rule: SecurityGroupRule) -> Tuple[Any, ...]:
    return (rule.group_id, rule.egress, rule.protocol, rule.first, rule.last, rule.source)


def _with_rule_ids(group: SecurityGroup, named: Mapping[Tuple[Any, ...], str]) -> SecurityGroup:
    rules = tuple(dataclasses.replace(r, rule_id=named.get(_rule_key(r), "")) for r in group.rules or ())
    return dataclasses.replace(group, rules=rules)


def _cidrs(entry: Json, key: str, *extra: Optional[str]) -> Tuple[str, ...]:
    """Every associated block, once; a block that is going or gone does not count."""
    found = [cidr for cidr in extra if cidr]
    for four, state_key in (("CidrBlock", "CidrBlockState"), ("Ipv6CidrBlock", "Ipv6CidrBlockState")):
        for item in entry.get(("Ipv6" if four.startswith("Ipv6") else "") + key) or ():
            state = (item.get(state_key) or {}).get("State", "associated")
            if item.get(four) and state == "associated":
                found.append(item[four])
    return tuple(dict.fromkeys(found))


def _subnet(entry: Json) -> Tuple[str, Subnet]:
    subnet_id = need(entry, "SubnetId")
    return subnet_id, Subnet(
        id=subnet_id,
        vpc_id=need(entry, "VpcId"),
        cidrs=_cidrs(entry, "CidrBlockAssociationSet", entry.get("CidrBlock")),
        availability_zone=entry.get("AvailabilityZone", ""),
        tags=tags_of(entry),
    )


def _vpc(entry: Json) -> Tuple[str, Vpc]:
    vpc_id = need(entry, "VpcId")
    return vpc_id, Vpc(
        id=vpc_id,
        cidrs=_cidrs(entry, "CidrBlockAssociationSet", entry.get("CidrBlock")),
        tags=tags_of(entry),
    )


def _instance(entry: Json) -> Tuple[str, Instance]:
    instance_id = need(entry, "InstanceId")
    placement = entry.get("Placement") or {}
    options = entry.get("MetadataOptions") or {}
    return instance_id, Instance(
        id=instance_id,
        state=need(entry.get("State") or {}, "Name"),
        instance_type=entry.get("InstanceType", ""),
        image_id=entry.get("ImageId", ""),
        availability_zone=placement.get("AvailabilityZone", ""),
        placement_group=placement.get("GroupName", ""),
        subnet_id=entry.get("SubnetId", ""),
        vpc_id=entry.get("VpcId", ""),
        tags=tags_of(entry),
        metadata_options={str(key): str(value) for key, value in options.items()},
    )


def _interfaces(read: _Reader) -> Table[Interface]:
    """Interfaces, with those that only describe-instances shows.

    An instance lists its own interfaces; only describe-network-interfaces shows those of
    load balancers, functions and the like, so its problem stays the table's problem.
    """
    table = read.table("network-interfaces", "NetworkInterfaces", _interface)
    items = dict(table.items)
    for instance in read.instances()[0]:
        if not isinstance(instance, Mapping):
            continue
        for entry in instance.get("NetworkInterfaces") or ():
            try:
                item_id, item = _interface({**entry, "Status": entry.get("Status", "in-use")})
            except (ValueError, TypeError, AttributeError, LookupError):
                continue  # describe-instances repeats them: its own document decides what is complete
            items.setdefault(item_id, dataclasses.replace(item, instance_id=instance.get("InstanceId", "")))
    return Table(items=items, problem=table.problem)


def _interface(entry: Json) -> Tuple[str, Interface]:
    interface_id = need(entry, "NetworkInterfaceId")
    attachment = entry.get("Attachment") or {}
    private = entry.get("PrivateIpAddresses") or ()
    addresses = [entry.get("PrivateIpAddress")] + [item.get("PrivateIpAddress") for item in private]
    addresses += [item.get("Ipv6Address") for item in entry.get("Ipv6Addresses") or ()]
    public = [(entry.get("Association") or {}).get("PublicIp")]
    public += [(item.get("Association") or {}).get("PublicIp") for item in private]
    groups = entry.get("Groups")
    for address in filter(None, addresses):
        ipaddress.ip_address(address)
    return interface_id, Interface(
        id=interface_id,
        subnet_id=entry.get("SubnetId", ""),
        vpc_id=entry.get("VpcId", ""),
        group_ids=tuple(need(item, "GroupId") for item in groups) if isinstance(groups, list) else None,
        addresses=tuple(dict.fromkeys(a for a in addresses if a)),
        public_addresses=tuple(dict.fromkeys(a for a in public if a)),
        instance_id=attachment.get("InstanceId", ""),
        device_index=attachment.get("DeviceIndex"),
        network_card_index=attachment.get("NetworkCardIndex") or 0,
        status=entry.get("Status", ""),
        kind=entry.get("InterfaceType", "interface"),
        description=entry.get("Description", ""),
    )
