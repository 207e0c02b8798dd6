"""The exact commands that mend rules, with real ids."""

from __future__ import annotations

import ipaddress
from typing import Dict, Iterable, List, Sequence, Set, Tuple

from cluster.flows import Obstacle, Place, Reason
from cluster.lookup import Lookup
from cluster.ports import PortSet
from cluster.rules import ACL_DEFAULT_NUMBER, NetworkAclEntry
from cluster.snapshot import NetworkAcl

UNPRIVILEGED = 1024
"""Lowest port that an ACL entry between members opens, unless a needed one is lower."""


def best_group(lookup: Lookup, groups: Iterable[str]) -> str:
    """The group that a rule should name: the one most interfaces carry, the VPC's default last."""

    def order(group_id: str) -> Tuple[bool, int, str]:
        group = lookup.snapshot.security_groups.get(group_id)
        default = group is not None and group.name == "default"
        return (default, -len(lookup.carriers(group_id)), group_id)

    return min(groups, key=order, default="")


def group_named(lookup: Lookup, group_id: str) -> str:
    """The id with the name people know it by."""
    group = lookup.snapshot.security_groups.get(group_id)
    return f"{group_id} ({group.name})" if group is not None and group.name else group_id


def allow_command(group: str, peer: str, egress: bool) -> str:
    """Let all TCP of another group (or the group itself) in, or out to it."""
    if egress:
        permission = f"IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{{GroupId={peer}}}]"
        return f"aws ec2 authorize-security-group-egress --group-id {group} --ip-permissions '{permission}'"
    return (
        f"aws ec2 authorize-security-group-ingress --group-id {group} --protocol tcp --port 0-65535 "
        f"--source-group {peer}"
    )


def acl_commands(
    lookup: Lookup, acl_id: str, peers: Sequence[Tuple[Obstacle, Place]], need: PortSet
) -> Tuple[str, ...]:
    """Allow entries in front of those that deny, one for each direction and far subnet."""
    acl = lookup.snapshot.network_acls.get(acl_id)
    if acl is None:
        return ()
    first = min(UNPRIVILEGED, *(run.first for run in need))
    denying: Dict[Tuple[bool, str], int] = {}
    for obstacle, place in peers:
        egress = obstacle.reason in (Reason.ACL_EGRESS, Reason.ACL_REPLY_EGRESS)
        number = min((e.number for e in obstacle.acl_entries if not e.allow), default=ACL_DEFAULT_NUMBER)
        for cidr in _subnet_cidrs(lookup, place):
            key = (egress, cidr)
            denying[key] = min(number, denying.get(key, number))
    commands: List[str] = []
    taken: Set[Tuple[bool, int]] = {(entry.egress, entry.number) for entry in acl.entries}
    for (egress, cidr), number in denying.items():
        way = "--egress" if egress else "--ingress"
        free = _free_number(acl, egress, number, taken)
        if free == 0:
            commands.append(
                f"aws ec2 delete-network-acl-entry --network-acl-id {acl_id} --rule-number {number} {way}"
            )
            continue
        taken.add((egress, free))
        commands.append(
            f"aws ec2 create-network-acl-entry --network-acl-id {acl_id} --rule-number {free} --protocol tcp "
            f"--port-range From={first},To=65535 --cidr-block {cidr} --rule-action allow {way}"
        )
    return tuple(dict.fromkeys(commands))


def _subnet_cidrs(lookup: Lookup, place: Place) -> Tuple[str, ...]:
    """The far subnet's range in the address's family, else the address alone."""
    subnet = lookup.snapshot.subnets.get(place.subnet_id)
    for cidr in subnet.cidrs if subnet else ():
        if place.address in ipaddress.ip_network(cidr):
            return (cidr,)
    return (f"{place.address}/{place.address.max_prefixlen}",)


def _free_number(acl: NetworkAcl, egress: bool, before: int, taken: Set[Tuple[bool, int]]) -> int:
    """The highest free number in front of a deny, a step of 10 behind the last entry; 0 = none."""
    own: List[NetworkAclEntry] = [entry for entry in acl.entries if entry.egress is egress]
    if before == ACL_DEFAULT_NUMBER:
        last = max((entry.number for entry in own if entry.number < before), default=90)
        numbers = [*range(last + 10, before, 10), *range(before - 1, 0, -1)]
    else:
        numbers = list(range(before - 1, 0, -1))
    return next((number for number in numbers if (egress, number) not in taken), 0)


def route_commands(lookup: Lookup, table_id: str, places: Sequence[Tuple[Place, Place]]) -> Tuple[str, ...]:
    """Routes to the other side, through the peering connection where one shows, else how to find it."""
    table = lookup.snapshot.route_tables.get(table_id)
    if table is None:
        return ()
    commands: List[str] = []
    for source, target in places:
        for own, far in ((source, target), (target, source)):
            own_table = lookup.route_table(own.subnet_id, own.vpc_id)
            if own_table is None or own_table.id != table_id:
                continue
            back = lookup.route_table(far.subnet_id, far.vpc_id)
            peering = [
                r.target for r in (back.routes if back else ()) if r.active and r.target.startswith("pcx-")
            ]
            dead = [
                r for r in table.routes if not r.active and r.destination and far.address in r.destination
            ]
            if own.vpc_id == far.vpc_id:
                delete = f"aws ec2 delete-route --route-table-id {table_id} --destination-cidr-block"
                commands += [f"{delete} {route.destination}" for route in dead]
            elif peering:
                verb = "replace-route" if dead else "create-route"
                cidr = str(dead[0].destination) if dead else _vpc_cidr(lookup, far)
                commands.append(
                    f"aws ec2 {verb} --route-table-id {table_id} --destination-cidr-block {cidr} "
                    f"--vpc-peering-connection-id {peering[0]}"
                )
            else:
                commands.append(
                    "aws ec2 describe-vpc-peering-connections --filters "
                    f"Name=requester-vpc-info.vpc-id,Values={own.vpc_id},{far.vpc_id} "
                    f"Name=accepter-vpc-info.vpc-id,Values={own.vpc_id},{far.vpc_id}"
                )
    return tuple(dict.fromkeys(commands))


def _vpc_cidr(lookup: Lookup, place: Place) -> str:
    vpc = lookup.snapshot.vpcs.get(place.vpc_id)
    for cidr in vpc.cidrs if vpc else ():
        if place.address in ipaddress.ip_network(cidr):
            return cidr
    return _subnet_cidrs(lookup, place)[0]
