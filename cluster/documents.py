"""Reads `aws ec2 describe-*` documents into a ClusterSnapshot.

Only what the judgements need is read, and every entry is read on its own: one that does
not have the known shape is left out and makes its table incomplete.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from cluster.document_groups import joined
from cluster.document_lists import read_prefix_lists, with_group_entries, with_route_entries
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
from cluster.snapshot import (
    PREFIX_LIST_ENTRIES,
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
    lists = read_prefix_lists(documents.get(PREFIX_LIST_ENTRIES))
    return ClusterSnapshot(
        security_groups=with_group_entries(_groups(read), lists),
        network_acls=read.table("network-acls", "NetworkAcls", read_acl),
        route_tables=with_route_entries(read.table("route-tables", "RouteTables", read_route_table), lists),
        subnets=read.table("subnets", "Subnets", _subnet),
        interfaces=_interfaces(read),
        instances=instances,
        vpcs=read.table("vpcs", "Vpcs", _vpc),
        prefix_lists=lists,
    )


def _groups(read: _Reader) -> Table[SecurityGroup]:
    groups = read.table("security-groups", "SecurityGroups", read_group)
    return joined(groups, read.table("security-group-rules", "SecurityGroupRules", read_listed_rule))


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
            item = dataclasses.replace(item, instance_id=instance.get("InstanceId", ""))
            items[item_id] = _merged(items[item_id], item) if item_id in items else item
    return Table(items=items, problem=table.problem)


def _merged(item: Interface, shown: Interface) -> Interface:
    """An interface with what only its instance's own list of interfaces tells of it."""
    public = dict.fromkeys((*item.public_addresses, *shown.public_addresses))
    groups = shown.group_ids if item.group_ids is None else item.group_ids
    return dataclasses.replace(item, public_addresses=tuple(public), group_ids=groups)


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
