"""Ways to change a deployed cluster: each holds its change inside a context, which takes it back.

Here: rules, groups, ACLs and routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.changes.hands import Hands, Json

WORLD = "0.0.0.0/0"
Make = Callable[[Hands], AbstractContextManager[None]]


def permission(first: int, last: int, *, cidr: str = "", group: str = "", protocol: str = "tcp") -> Json:
    """One rule as the API takes it."""
    source = {"IpRanges": [{"CidrIp": cidr}]} if cidr else {"UserIdGroupPairs": [{"GroupId": group}]}
    ports = {} if protocol == "-1" else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports, **source}


def _rule(hands: Hands, verb: str, way: str, rule: Json, group: str = "") -> None:
    call = getattr(hands.ec2, f"{verb}_security_group_{way}")
    call(GroupId=group or hands.group, IpPermissions=[rule])


def added(way: str, rule: Callable[[Hands], Json], group: Callable[[Hands], str] = lambda h: h.group) -> Make:
    """A rule more."""

    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        _rule(hands, "authorize", way, rule(hands), group(hands))
        try:
            yield
        finally:
            _rule(hands, "revoke", way, rule(hands), group(hands))

    return make


def _stored(hands: Hands, way: str, *, own: bool, protocol: str = "tcp") -> Json:
    """The member group's rule that names the group itself, or the one that names a range."""
    (group,) = hands.ec2.describe_security_groups(GroupIds=[hands.group])["SecurityGroups"]
    rules = group["IpPermissions" if way == "ingress" else "IpPermissionsEgress"]
    kind = "UserIdGroupPairs" if own else "IpRanges"
    (found,) = (rule for rule in rules if rule[kind] and rule["IpProtocol"] == protocol)
    return {key: value for key, value in found.items() if value not in ([], None)}


def replaced(
    way: str, ports: tuple[tuple[int, int], ...], *, own: bool = True, protocol: str = "tcp"
) -> Make:
    """A rule of the stack revoked; with ports, narrower ones of the same group in its place."""

    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        told = _stored(hands, way, own=own, protocol=protocol)
        narrow = [permission(first, last, group=hands.group) for first, last in ports]
        _rule(hands, "revoke", way, told)
        for rule in narrow:
            _rule(hands, "authorize", way, rule)
        try:
            yield
        finally:
            for rule in narrow:
                _rule(hands, "revoke", way, rule)
            _rule(hands, "authorize", way, told)

    return make


@contextmanager
def _group(hands: Hands, name: str, *rules: Json) -> Iterator[str]:
    """A security group beside the stack's."""
    made = hands.ec2.create_security_group(
        GroupName=f"{hands.cluster}-{name}", Description="made by hand", VpcId=hands.vpc
    )["GroupId"]
    if rules:
        hands.ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=list(rules))
    try:
        yield made
    finally:
        hands.ec2.delete_security_group(GroupId=made)


def groups_of(rank: int, name: str, *rules: Json, beside: bool) -> Make:
    """Another group on one member's interface: beside the stack's, or in its place."""

    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        interface = hands.interface(rank)

        def carry(groups: list[str]) -> None:
            hands.ec2.modify_network_interface_attribute(NetworkInterfaceId=interface, Groups=groups)

        with _group(hands, name, *rules) as other:
            carry([hands.group, other] if beside else [other])
            try:
                yield
            finally:
                carry([hands.group])

    return make


def entry(number: int, *, egress: bool, ports: tuple[int, int], cidr: str = "10.20.0.0/16") -> Make:
    """A denying entry in front of the ACL's own."""

    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        acl = hands.acl["NetworkAclId"]
        hands.ec2.create_network_acl_entry(
            NetworkAclId=acl,
            RuleNumber=number,
            Protocol="6",
            RuleAction="deny",
            Egress=egress,
            CidrBlock=cidr,
            PortRange={"From": ports[0], "To": ports[1]},
        )
        try:
            yield
        finally:
            hands.ec2.delete_network_acl_entry(NetworkAclId=acl, RuleNumber=number, Egress=egress)

    return make


def _association(hands: Hands, subnet: str) -> str:
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    (acl,) = hands.ec2.describe_network_acls(Filters=filters)["NetworkAcls"]
    (found,) = (item for item in acl["Associations"] if item["SubnetId"] == subnet)
    return str(found["NetworkAclAssociationId"])


@contextmanager
def other_acl(hands: Hands) -> Iterator[None]:
    """A new ACL, which denies everything, on the first subnet."""
    subnet, told = hands.resource("subnet 0"), hands.acl["NetworkAclId"]
    made = hands.ec2.create_network_acl(VpcId=hands.vpc)["NetworkAcl"]["NetworkAclId"]

    def associate(acl: str) -> None:
        hands.ec2.replace_network_acl_association(AssociationId=_association(hands, subnet), NetworkAclId=acl)

    associate(made)
    try:
        yield
    finally:
        associate(told)
        hands.ec2.delete_network_acl(NetworkAclId=made)


def _table_association(hands: Hands, subnet: str) -> str:
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    (table,) = hands.ec2.describe_route_tables(Filters=filters)["RouteTables"]
    (found,) = (item for item in table["Associations"] if item.get("SubnetId") == subnet)
    return str(found["RouteTableAssociationId"])


@contextmanager
def other_table(hands: Hands) -> Iterator[None]:
    """A new route table, which knows the VPC alone, on the first subnet."""
    subnet, told = hands.resource("subnet 0"), hands.table["RouteTableId"]
    made = hands.ec2.create_route_table(VpcId=hands.vpc)["RouteTable"]["RouteTableId"]

    def associate(table: str) -> None:
        hands.ec2.replace_route_table_association(
            AssociationId=_table_association(hands, subnet), RouteTableId=table
        )

    associate(made)
    try:
        yield
    finally:
        associate(told)
        hands.ec2.delete_route_table(RouteTableId=made)


@contextmanager
def no_way_out(hands: Hands) -> Iterator[None]:
    table = hands.table["RouteTableId"]
    (route,) = (item for item in hands.table["Routes"] if item.get("DestinationCidrBlock") == WORLD)
    hands.ec2.delete_route(RouteTableId=table, DestinationCidrBlock=WORLD)
    try:
        yield
    finally:
        hands.ec2.create_route(RouteTableId=table, DestinationCidrBlock=WORLD, GatewayId=route["GatewayId"])


@contextmanager
def route_more(hands: Hands) -> Iterator[None]:
    table, cidr = hands.table["RouteTableId"], "192.0.2.0/24"
    (route,) = (item for item in hands.table["Routes"] if item.get("DestinationCidrBlock") == WORLD)
    hands.ec2.create_route(RouteTableId=table, DestinationCidrBlock=cidr, GatewayId=route["GatewayId"])
    try:
        yield
    finally:
        hands.ec2.delete_route(RouteTableId=table, DestinationCidrBlock=cidr)


@contextmanager
def described(hands: Hands) -> Iterator[None]:
    told = _stored(hands, "ingress", own=True)

    def say(text: str) -> None:
        pairs = [{"GroupId": hands.group, "Description": text}]
        rule = {**{key: told[key] for key in ("IpProtocol", "FromPort", "ToPort")}, "UserIdGroupPairs": pairs}
        hands.ec2.update_security_group_rule_descriptions_ingress(GroupId=hands.group, IpPermissions=[rule])

    say("somebody was here")
    try:
        yield
    finally:
        say(told["UserIdGroupPairs"][0]["Description"])
