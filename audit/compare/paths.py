"""What packets meet between subnets: network ACLs and routes, and which of them each subnet has.

The stack tells no ACL of its own: its subnets keep the VPC's default one, which lets all pass
until somebody changes it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from audit import undo
from audit.compare.network import ENDPOINT, SUBNET, VPC
from audit.compare.scene import Scene, declared_tags
from audit.difference import Change, Deviation
from audit.intrinsics import known
from audit.template import Resource
from cluster.rules import ACL_DEFAULT_NUMBER, NetworkAclEntry, Route
from cluster.snapshot import NetworkAcl, RouteTable

TABLE = "AWS::EC2::RouteTable"
ROUTE = "AWS::EC2::Route"
ASSOCIATION = "AWS::EC2::SubnetRouteTableAssociation"

FIRST_ENTRY = 100
"""The number of the default ACL's entry that allows everything; of IPv6 it is the next one."""


def compare(scene: Scene) -> None:
    """ACLs and routes of the stack's own VPC; those of a VPC that was there before are not the stack's."""
    if not list(scene.stack.of_type(VPC)):
        return
    _acls(scene)
    _tables(scene)


# --- network ACLs ----------------------------------------------------------------------------


def _acls(scene: Scene) -> None:
    if scene.table("network-acls", "NetworkAclId", "network ACLs") is None:
        return
    for vpc in scene.stack.of_type(VPC):
        default = next((a for a in scene.snapshot.network_acls if a.default and a.vpc_id == vpc.id), None)
        if default is None:
            scene.note(f"network ACLs cannot be compared: the default one of {vpc.id} is not in the document")
            continue
        _entries(scene, vpc, default)
        for subnet in scene.stack.of_type(SUBNET):
            _subnet_acl(scene, subnet, default)


def _entries(scene: Scene, vpc: Resource, acl: NetworkAcl) -> None:
    told = {(entry.egress, entry.number): entry for entry in _default_entries(scene, vpc)}
    found = {
        (entry.egress, entry.number): entry for entry in acl.entries if entry.number < ACL_DEFAULT_NUMBER
    }
    for key in sorted({*told, *found}):
        expected, actual = told.get(key), found.get(key)
        if expected == actual:
            continue
        egress, number = key
        scene.add(
            Deviation(
                resource=acl.id,
                logical_id=vpc.logical_id,
                attribute=f"{'egress' if egress else 'ingress'} entry {number}",
                expected=None if expected is None else str(expected),
                actual=None if actual is None else str(actual),
                why="what crosses the subnets' edge passes, or is dropped, by another entry than was told",
                undo=undo.acl_entries(
                    acl.id,
                    gone=() if actual is None else (actual,),
                    back=() if expected is None else (expected,),
                ),
                revert=tuple(_entry_changes(acl.id, expected, actual, number, egress)),
            )
        )


def _default_entries(scene: Scene, vpc: Resource) -> Iterable[NetworkAclEntry]:
    """What EC2 puts into a new VPC's default ACL; with IPv6 one more each way."""
    known_vpc = scene.snapshot.vpcs.get(vpc.id)
    ranges = ["0.0.0.0/0"]
    if known_vpc is not None and any(":" in cidr for cidr in known_vpc.cidrs):
        ranges.append("::/0")
    for egress in (False, True):
        for offset, cidr in enumerate(ranges):
            yield NetworkAclEntry(
                number=FIRST_ENTRY + offset,
                egress=egress,
                allow=True,
                protocol="-1",
                network=ipaddress.ip_network(cidr),
            )


def _entry_changes(
    acl_id: str, told: NetworkAclEntry | None, actual: NetworkAclEntry | None, number: int, egress: bool
) -> Iterable[Change]:
    place = {"NetworkAclId": acl_id, "RuleNumber": number, "Egress": egress}
    if told is None:
        yield Change("ec2", "delete_network_acl_entry", place)
        return
    entry = {
        **place,
        "Protocol": told.protocol,
        "RuleAction": "allow" if told.allow else "deny",
        "CidrBlock" if told.network.version == 4 else "Ipv6CidrBlock": str(told.network),
    }
    yield Change("ec2", "create_network_acl_entry" if actual is None else "replace_network_acl_entry", entry)


def _subnet_acl(scene: Scene, subnet: Resource, default: NetworkAcl) -> None:
    actual = next((acl for acl in scene.snapshot.network_acls if subnet.id in acl.subnet_ids), None)
    if actual is None or actual.id == default.id:
        return
    association = next(
        (
            str(item.get("NetworkAclAssociationId"))
            for entry in scene.documents.entries("network-acls")
            for item in entry.get("Associations") or ()
            if item.get("SubnetId") == subnet.id
        ),
        "",
    )
    change = Change(
        "ec2",
        "replace_network_acl_association",
        {"AssociationId": association, "NetworkAclId": default.id},
    )
    scene.add(
        Deviation(
            resource=subnet.id,
            logical_id=subnet.logical_id,
            attribute="network ACL",
            expected=default.id,
            actual=actual.id,
            why=f"another ACL filters what crosses the edge of {subnet.id}",
            undo=undo.subnet_acl(subnet.id, default.id),
            revert=(change,),
        )
    )


# --- routes ----------------------------------------------------------------------------------


def _tables(scene: Scene) -> None:
    entries = scene.table("route-tables", "RouteTableId", "routes")
    if entries is None:
        return
    for resource in scene.stack.of_type(TABLE):
        table = scene.snapshot.route_tables.get(resource.id)
        if table is None:
            scene.missing(resource, "the subnets that had it follow the VPC's main table")
            continue
        _routes(scene, resource, table)
        tags = entries[resource.id].get("Tags") or ()
        scene.tags(resource.id, resource.logical_id, declared_tags(resource), tags)
    for resource in scene.stack.of_type(ASSOCIATION):
        _association(scene, resource)


def _routes(scene: Scene, resource: Resource, table: RouteTable) -> None:
    told = _told_routes(scene, resource)
    found = {_destination(route): route for route in table.routes}
    endpoints = {item.id for item in scene.stack.of_type(ENDPOINT)}
    vpc = scene.snapshot.vpcs.get(table.vpc_id)
    local = vpc.cidrs if vpc is not None else ()
    for destination in sorted({*told, *found}):
        expected, logical_id = told.get(destination, (None, resource.logical_id))
        actual = found.get(destination)
        if actual is not None and (
            actual.local or actual.target in endpoints or (expected is not None and same(expected, actual))
        ):
            continue
        scene.add(
            Deviation(
                resource=table.id,
                logical_id=logical_id,
                attribute=f"route to {destination}",
                expected=None if expected is None else str(expected),
                actual=None if actual is None else str(actual),
                why="packets of the subnet to there take another way, or none"
                if actual is not None
                else f"the subnet has no way to {destination}: no metrics, no logs, no package index",
                undo=undo.routes(
                    table.id,
                    gone=() if actual is None else (actual,),
                    back=() if expected is None else (expected,),
                ),
                revert=tuple(_route_changes(table.id, destination, expected, actual, local)),
            )
        )


def same(told: Route, actual: Route) -> bool:
    """Whether a route leads where it was told, and is in force."""
    return told.target == actual.target and actual.active


def _told_routes(scene: Scene, resource: Resource) -> Mapping[str, tuple[Route, str]]:
    told = {}
    for other in scene.stack.of_type(ROUTE):
        if other.get("RouteTableId") != resource.id:
            continue
        cidr = other.get("DestinationCidrBlock") or other.get("DestinationIpv6CidrBlock")
        target = other.get("GatewayId") or other.get("NatGatewayId") or other.get("VpcPeeringConnectionId")
        if not known([cidr, target]) or not cidr or not target:
            scene.note(
                f"a route of {resource.id} cannot be compared: {other.logical_id} is not known in full"
            )
            continue
        route = Route(destination=ipaddress.ip_network(str(cidr)), target=str(target))
        told[_destination(route)] = (route, other.logical_id)
    return told


def _destination(route: Route) -> str:
    return str(route.destination) if route.destination is not None else route.prefix_list


def _route_changes(
    table_id: str, destination: str, told: Route | None, actual: Route | None, local: Iterable[str]
) -> Iterable[Change]:
    """local: the VPC's own ranges."""
    key = "DestinationCidrBlock"
    if ":" in destination:
        key = "DestinationIpv6CidrBlock"
    elif destination.startswith("pl-"):
        key = "DestinationPrefixListId"
    place = {"RouteTableId": table_id, key: destination}
    if told is None and destination in local:
        # The VPC's own route cannot be deleted, only led back (API_ReplaceRoute, LocalTarget).
        yield Change("ec2", "replace_route", {**place, "LocalTarget": True})
        return
    if told is None:
        yield Change("ec2", "delete_route", place)
        return
    target = {"nat": "NatGatewayId", "pcx": "VpcPeeringConnectionId"}.get(
        told.target.partition("-")[0], "GatewayId"
    )
    yield Change("ec2", "create_route" if actual is None else "replace_route", {**place, target: told.target})


def _association(scene: Scene, resource: Resource) -> None:
    subnet, told = resource.get("SubnetId"), resource.get("RouteTableId")
    if not isinstance(subnet, str) or not isinstance(told, str):
        return
    own = next((table for table in scene.snapshot.route_tables if subnet in table.subnet_ids), None)
    if own is not None and own.id == told:
        return
    association = next(
        (
            str(item.get("RouteTableAssociationId"))
            for entry in scene.documents.entries("route-tables")
            for item in entry.get("Associations") or ()
            if item.get("SubnetId") == subnet
        ),
        "",
    )
    change = (
        Change("ec2", "associate_route_table", {"SubnetId": subnet, "RouteTableId": told})
        if own is None
        else Change(
            "ec2", "replace_route_table_association", {"AssociationId": association, "RouteTableId": told}
        )
    )
    scene.add(
        Deviation(
            resource=subnet,
            logical_id=resource.logical_id,
            attribute="route table",
            expected=told,
            actual=None if own is None else own.id,
            why="the subnet follows "
            + ("the VPC's main route table" if own is None else "another route table")
            + ": nodes may have no way out",
            undo=undo.subnet_routes(subnet, told),
            revert=(change,),
        )
    )
