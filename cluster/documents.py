"""Reads `aws ec2 describe-*` documents into a ClusterSnapshot.

Only what the judgements need is read, and every entry is read on its own: one that does
not have the known shape is left out and makes its table incomplete.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

from cluster.rules import NetworkAclEntry, Route, SecurityGroupRule, SourceKind, protocol_name
from cluster.snapshot import (
    ClusterSnapshot,
    Instance,
    Interface,
    NetworkAcl,
    RouteTable,
    SecurityGroup,
    Subnet,
    Table,
    Vpc,
)

T = TypeVar("T")
Json = Mapping[str, Any]

ROUTE_TARGETS = (
    "GatewayId",
    "NatGatewayId",
    "TransitGatewayId",
    "VpcPeeringConnectionId",
    "EgressOnlyInternetGatewayId",
    "NetworkInterfaceId",
    "InstanceId",
    "LocalGatewayId",
    "CarrierGatewayId",
    "CoreNetworkArn",
    "OdbNetworkArn",
)
"""InstanceId stands after NetworkInterfaceId: a route to an instance names both."""


class _ShapeError(ValueError):
    """An entry lacks a value or holds one of another kind."""


def read_documents(documents: Mapping[str, Any], problems: Mapping[str, str]) -> ClusterSnapshot:
    """Build the snapshot; see `ClusterSnapshot.from_documents`."""
    read = _Reader(documents, problems)
    instances = read.table("instances", "Instances", _instance, entries=read.instances())
    return ClusterSnapshot(
        security_groups=_groups(read),
        network_acls=read.table("network-acls", "NetworkAcls", _acl),
        route_tables=read.table("route-tables", "RouteTables", _route_table),
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
                    raise _ShapeError(f"expected an object, got {entry!r}")
                item_id, item = build(entry)
                items[item_id] = item
            except (ValueError, TypeError, AttributeError, LookupError) as error:
                problem = problem or f"{name}: entry {position} cannot be read ({error})"
        return Table(items=items, problem=problem)


def _need(entry: Json, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise _ShapeError(f"{key} is {value!r}")
    return value


def _tags(entry: Json, key: str = "Tags") -> Dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in entry.get(key) or () if "Key" in tag}


def _groups(read: _Reader) -> Table[SecurityGroup]:
    """Groups with their rules; the rules' own ids are added where their document is there.

    Without the groups' document, the rules' document alone tells a group that it names.
    """
    groups = read.table("security-groups", "SecurityGroups", _group)
    rules = read.table("security-group-rules", "SecurityGroupRules", _listed_rule)
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


def _group(entry: Json) -> Tuple[str, SecurityGroup]:
    group_id = _need(entry, "GroupId")
    rules: List[SecurityGroupRule] = []
    for key, egress in (("IpPermissions", False), ("IpPermissionsEgress", True)):
        if not isinstance(entry.get(key), list):
            raise _ShapeError(f"{group_id} has no list {key}")
        for permission in entry[key]:
            rules += _permission(group_id, egress, permission)
    return group_id, SecurityGroup(
        id=group_id,
        name=entry.get("GroupName", ""),
        vpc_id=entry.get("VpcId", ""),
        description=entry.get("Description", ""),
        rules=tuple(rules),
        tags=_tags(entry),
    )


def _permission(group_id: str, egress: bool, entry: Json) -> Iterator[SecurityGroupRule]:
    """One rule for each of the permission's sources: every entry of all four lists counts."""
    protocol, first, last = _traffic(entry)
    base = SecurityGroupRule(
        group_id=group_id,
        egress=egress,
        protocol=protocol,
        first=first,
        last=last,
        kind=SourceKind.CIDR,
        source="",
    )
    for key, field in (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6")):
        for item in entry.get(key) or ():
            cidr = _need(item, field)
            yield dataclasses.replace(
                base,
                source=cidr,
                network=ipaddress.ip_network(cidr, strict=False),
                description=item.get("Description", ""),
            )
    for pair in entry.get("UserIdGroupPairs") or ():
        yield dataclasses.replace(
            base,
            kind=SourceKind.GROUP,
            source=_need(pair, "GroupId"),
            peering_status=pair.get("PeeringStatus", ""),
            description=pair.get("Description", ""),
        )
    for item in entry.get("PrefixListIds") or ():
        yield dataclasses.replace(
            base,
            kind=SourceKind.PREFIX_LIST,
            source=_need(item, "PrefixListId"),
            description=item.get("Description", ""),
        )


def _traffic(entry: Json) -> Tuple[str, Optional[int], Optional[int]]:
    protocol = protocol_name(_need(entry, "IpProtocol"))
    first, last = entry.get("FromPort"), entry.get("ToPort")
    if protocol == "-1":
        return protocol, None, None
    if protocol in ("tcp", "udp") and (first in (None, -1) or last in (None, -1)):
        return protocol, None, None
    return protocol, None if first is None else int(first), None if last is None else int(last)


def _listed_rule(entry: Json) -> Tuple[str, SecurityGroupRule]:
    """A rule as describe-security-group-rules prints it: one source each."""
    rule_id = _need(entry, "SecurityGroupRuleId")
    protocol, first, last = _traffic(entry)
    reference = entry.get("ReferencedGroupInfo") or {}
    cidr = entry.get("CidrIpv4") or entry.get("CidrIpv6")
    if cidr:
        kind, source = SourceKind.CIDR, cidr
    elif entry.get("PrefixListId"):
        kind, source = SourceKind.PREFIX_LIST, entry["PrefixListId"]
    else:
        kind, source = SourceKind.GROUP, _need(reference, "GroupId")
    return rule_id, SecurityGroupRule(
        group_id=_need(entry, "GroupId"),
        egress=bool(entry.get("IsEgress")),
        protocol=protocol,
        first=first,
        last=last,
        kind=kind,
        source=source,
        network=ipaddress.ip_network(cidr, strict=False) if cidr else None,
        peering_status=reference.get("PeeringStatus", ""),
        description=entry.get("Description", ""),
        rule_id=rule_id,
    )


def _acl(entry: Json) -> Tuple[str, NetworkAcl]:
    acl_id = _need(entry, "NetworkAclId")
    if not isinstance(entry.get("Entries"), list):
        raise _ShapeError(f"{acl_id} has no list Entries")
    return acl_id, NetworkAcl(
        id=acl_id,
        vpc_id=entry.get("VpcId", ""),
        subnet_ids=tuple(_need(item, "SubnetId") for item in entry.get("Associations") or ()),
        entries=tuple(_acl_entry(item) for item in entry["Entries"]),
        default=bool(entry.get("IsDefault")),
    )


def _acl_entry(entry: Json) -> NetworkAclEntry:
    cidr = entry.get("CidrBlock") or _need(entry, "Ipv6CidrBlock")
    ports = entry.get("PortRange") or {}
    action = _need(entry, "RuleAction").lower()
    if action not in ("allow", "deny"):
        raise _ShapeError(f"RuleAction is {action!r}")
    return NetworkAclEntry(
        number=int(entry["RuleNumber"]),
        egress=bool(entry["Egress"]),
        allow=action == "allow",
        protocol=protocol_name(str(entry["Protocol"])),
        network=ipaddress.ip_network(cidr, strict=False),
        first=ports.get("From"),
        last=ports.get("To"),
    )


def _route_table(entry: Json) -> Tuple[str, RouteTable]:
    table_id = _need(entry, "RouteTableId")
    associations = [
        item
        for item in entry.get("Associations") or ()
        if (item.get("AssociationState") or {}).get("State", "associated") != "disassociated"
    ]
    return table_id, RouteTable(
        id=table_id,
        vpc_id=entry.get("VpcId", ""),
        main=any(item.get("Main") for item in associations),
        subnet_ids=tuple(item["SubnetId"] for item in associations if item.get("SubnetId")),
        routes=tuple(_route(item) for item in entry.get("Routes") or ()),
    )


def _route(entry: Json) -> Route:
    cidr = entry.get("DestinationCidrBlock") or entry.get("DestinationIpv6CidrBlock")
    target = next((entry[key] for key in ROUTE_TARGETS if entry.get(key)), "")
    return Route(
        destination=ipaddress.ip_network(cidr, strict=False) if cidr else None,
        target=target,
        active=entry.get("State", "active") == "active",
        prefix_list=entry.get("DestinationPrefixListId", ""),
    )


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
    subnet_id = _need(entry, "SubnetId")
    return subnet_id, Subnet(
        id=subnet_id,
        vpc_id=_need(entry, "VpcId"),
        cidrs=_cidrs(entry, "CidrBlockAssociationSet", entry.get("CidrBlock")),
        availability_zone=entry.get("AvailabilityZone", ""),
        tags=_tags(entry),
    )


def _vpc(entry: Json) -> Tuple[str, Vpc]:
    vpc_id = _need(entry, "VpcId")
    return vpc_id, Vpc(
        id=vpc_id,
        cidrs=_cidrs(entry, "CidrBlockAssociationSet", entry.get("CidrBlock")),
        tags=_tags(entry),
    )


def _instance(entry: Json) -> Tuple[str, Instance]:
    instance_id = _need(entry, "InstanceId")
    placement = entry.get("Placement") or {}
    options = entry.get("MetadataOptions") or {}
    return instance_id, Instance(
        id=instance_id,
        state=_need(entry.get("State") or {}, "Name"),
        instance_type=entry.get("InstanceType", ""),
        image_id=entry.get("ImageId", ""),
        availability_zone=placement.get("AvailabilityZone", ""),
        placement_group=placement.get("GroupName", ""),
        subnet_id=entry.get("SubnetId", ""),
        vpc_id=entry.get("VpcId", ""),
        tags=_tags(entry),
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
    interface_id = _need(entry, "NetworkInterfaceId")
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
        group_ids=tuple(_need(item, "GroupId") for item in groups) if isinstance(groups, list) else None,
        addresses=tuple(dict.fromkeys(a for a in addresses if a)),
        public_addresses=tuple(dict.fromkeys(a for a in public if a)),
        instance_id=attachment.get("InstanceId", ""),
        device_index=attachment.get("DeviceIndex"),
        network_card_index=attachment.get("NetworkCardIndex") or 0,
        status=entry.get("Status", ""),
        kind=entry.get("InterfaceType", "interface"),
        description=entry.get("Description", ""),
    )
