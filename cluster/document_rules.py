"""Reads groups, ACLs and route tables as `aws ec2 describe-*` prints them."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from cluster.rules import NetworkAclEntry, Route, SecurityGroupRule, SourceKind, protocol_name
from cluster.snapshot import NetworkAcl, RouteTable, SecurityGroup

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


class ShapeError(ValueError):
    """An entry lacks a value or holds one of another kind."""


def need(entry: Json, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise ShapeError(f"{key} is {value!r}")
    return value


def tags_of(entry: Json, key: str = "Tags") -> Dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in entry.get(key) or () if "Key" in tag}


def read_group(entry: Json) -> Tuple[str, SecurityGroup]:
    group_id = need(entry, "GroupId")
    rules: List[SecurityGroupRule] = []
    for key, egress in (("IpPermissions", False), ("IpPermissionsEgress", True)):
        if not isinstance(entry.get(key), list):
            raise ShapeError(f"{group_id} has no list {key}")
        for permission in entry[key]:
            rules += _permission(group_id, egress, permission, entry.get("OwnerId", ""))
    return group_id, SecurityGroup(
        id=group_id,
        name=entry.get("GroupName", ""),
        vpc_id=entry.get("VpcId", ""),
        description=entry.get("Description", ""),
        rules=tuple(rules),
        tags=tags_of(entry),
    )


def _permission(group_id: str, egress: bool, entry: Json, owner: str) -> Iterator[SecurityGroupRule]:
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
            cidr = need(item, field)
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
            source=need(pair, "GroupId"),
            account=_other_account(pair, owner),
            peering_status=pair.get("PeeringStatus", ""),
            description=pair.get("Description", ""),
        )
    for item in entry.get("PrefixListIds") or ():
        yield dataclasses.replace(
            base,
            kind=SourceKind.PREFIX_LIST,
            source=need(item, "PrefixListId"),
            description=item.get("Description", ""),
        )


def _other_account(reference: Json, owner: str) -> str:
    """The account of a referenced group; blank where it is the owner's, or either is not told."""
    account = reference.get("UserId") or ""
    return account if owner and account != owner else ""


def _traffic(entry: Json) -> Tuple[str, Optional[int], Optional[int]]:
    protocol = protocol_name(need(entry, "IpProtocol"))
    first, last = entry.get("FromPort"), entry.get("ToPort")
    if protocol == "-1":
        return protocol, None, None
    if protocol in ("tcp", "udp") and (first in (None, -1) or last in (None, -1)):
        return protocol, None, None
    return protocol, None if first is None else int(first), None if last is None else int(last)


def read_listed_rule(entry: Json) -> Tuple[str, SecurityGroupRule]:
    """A rule as describe-security-group-rules prints it: one source each."""
    rule_id = need(entry, "SecurityGroupRuleId")
    protocol, first, last = _traffic(entry)
    reference = entry.get("ReferencedGroupInfo") or {}
    cidr = entry.get("CidrIpv4") or entry.get("CidrIpv6")
    if cidr:
        kind, source = SourceKind.CIDR, cidr
    elif entry.get("PrefixListId"):
        kind, source = SourceKind.PREFIX_LIST, entry["PrefixListId"]
    else:
        kind, source = SourceKind.GROUP, need(reference, "GroupId")
    return rule_id, SecurityGroupRule(
        group_id=need(entry, "GroupId"),
        egress=bool(entry.get("IsEgress")),
        protocol=protocol,
        first=first,
        last=last,
        kind=kind,
        source=source,
        network=ipaddress.ip_network(cidr, strict=False) if cidr else None,
        peering_status=reference.get("PeeringStatus", ""),
        account=_other_account(reference, entry.get("GroupOwnerId", "")),
        description=entry.get("Description", ""),
        rule_id=rule_id,
    )


def read_acl(entry: Json) -> Tuple[str, NetworkAcl]:
    acl_id = need(entry, "NetworkAclId")
    if not isinstance(entry.get("Entries"), list):
        raise ShapeError(f"{acl_id} has no list Entries")
    return acl_id, NetworkAcl(
        id=acl_id,
        vpc_id=entry.get("VpcId", ""),
        subnet_ids=tuple(need(item, "SubnetId") for item in entry.get("Associations") or ()),
        entries=tuple(_acl_entry(item) for item in entry["Entries"]),
        default=bool(entry.get("IsDefault")),
    )


def _acl_entry(entry: Json) -> NetworkAclEntry:
    cidr = entry.get("CidrBlock") or need(entry, "Ipv6CidrBlock")
    ports = entry.get("PortRange") or {}
    action = need(entry, "RuleAction").lower()
    if action not in ("allow", "deny"):
        raise ShapeError(f"RuleAction is {action!r}")
    return NetworkAclEntry(
        number=int(entry["RuleNumber"]),
        egress=bool(entry["Egress"]),
        allow=action == "allow",
        protocol=protocol_name(str(entry["Protocol"])),
        network=ipaddress.ip_network(cidr, strict=False),
        first=ports.get("From"),
        last=ports.get("To"),
    )


def read_route_table(entry: Json) -> Tuple[str, RouteTable]:
    table_id = need(entry, "RouteTableId")
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
