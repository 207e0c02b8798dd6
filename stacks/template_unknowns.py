"""What of a template only the deploy knows: conditions, parameters, and functions that are not computed here.

One table says what the judgement reads of each resource type and how. Whatever does not read so is taken
out of the template before it is judged, and told with its place: it counts neither as there nor as absent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.template_rules import name_of
from stacks.template_shapes import Fields, Items, Literal, Reference, Shape

Json = dict[str, Any]

GROUP, SUBNET, VPC = "AWS::EC2::SecurityGroup", "AWS::EC2::Subnet", "AWS::EC2::VPC"
FLEET, LAUNCH, WAIT = (
    "AWS::AutoScaling::AutoScalingGroup",
    "AWS::EC2::LaunchTemplate",
    "AWS::CloudFormation::WaitCondition",
)
ACL, TABLE = "AWS::EC2::NetworkAcl", "AWS::EC2::RouteTable"
BESIDE = (f"{GROUP}Ingress", f"{GROUP}Egress")
ENTRY, ROUTE = "AWS::EC2::NetworkAclEntry", "AWS::EC2::Route"
ACL_LINK, TABLE_LINK = "AWS::EC2::SubnetNetworkAclAssociation", "AWS::EC2::SubnetRouteTableAssociation"


@dataclass(frozen=True)
class Unknown:
    """A value that cannot be told at synthesis: whose, where in the resource, and why."""

    resource: str
    location: str
    reason: str


def _one_of(*words: str) -> Callable[[str], object]:
    return words.index  # raises ValueError for any other


def _subnet_range(text: str) -> None:
    if ipaddress.IPv4Network(text, strict=False).prefixlen > 28:
        raise ValueError


def _protocol(text: str) -> None:
    if not text.lstrip("-").isalnum():
        raise ValueError


NUMBER = Literal("a number", int)
PROTOCOL = Literal("a protocol", _protocol)
RANGE = Literal("an address range", lambda text: ipaddress.ip_network(text, strict=False))
RANGE_V4 = Literal("an IPv4 range of a subnet or VPC", _subnet_range)
ENDS: Mapping[str, Mapping[str, Shape]] = {
    end: {
        "CidrIp": RANGE,
        "CidrIpv6": RANGE,
        f"{end}SecurityGroupId": Reference(GROUP),
        f"{end}PrefixListId": Reference("AWS::EC2::PrefixList"),
    }
    for end in ("Source", "Destination")
}


def _rule(end: str, *, beside: bool) -> Fields:
    """A rule inside its group, or beside it as a resource that names the group."""
    traffic: dict[str, Shape] = {"IpProtocol": PROTOCOL, "FromPort": NUMBER, "ToPort": NUMBER}
    own: dict[str, Shape] = {"GroupId": Reference(GROUP)} if beside else {}
    return Fields(
        {**traffic, **ENDS[end], **own},
        (("IpProtocol",), tuple(ENDS[end]), *((key,) for key in own)),
        unjudged=(f"{end}SecurityGroupName", "GroupName"),
        whole=True,
    )


def _link(key: str, kind: str) -> Fields:
    shapes = {"SubnetId": Reference(SUBNET), key: Reference(kind, by_id=False)}
    return Fields(shapes, (("SubnetId",), (key,)), whole=True)


TEMPLATE_ID = Fields({"LaunchTemplateId": Reference(LAUNCH, by_id=False)}, (("LaunchTemplateId",),))
DATA = Fields(
    {
        "NetworkInterfaces": Items(Fields({"Groups": Items(Reference(GROUP))})),
        "SecurityGroupIds": Items(Reference(GROUP)),
    },
    unjudged=("SecurityGroups",),
)
READ: Mapping[str, Fields] = {
    FLEET: Fields(
        {"LaunchTemplate": TEMPLATE_ID, "VPCZoneIdentifier": Items(Reference(SUBNET))},
        (("LaunchTemplate",), ("VPCZoneIdentifier",)),
    ),
    LAUNCH: Fields({"LaunchTemplateData": DATA}, (("LaunchTemplateData",),)),
    WAIT: Fields({}),
    GROUP: Fields(
        {
            "SecurityGroupIngress": Items(_rule("Source", beside=False)),
            "SecurityGroupEgress": Items(_rule("Destination", beside=False)),
        }
    ),
    BESIDE[0]: _rule("Source", beside=True),
    BESIDE[1]: _rule("Destination", beside=True),
    SUBNET: Fields({"CidrBlock": RANGE_V4, "VpcId": Reference(VPC)}, (("CidrBlock",),)),
    VPC: Fields({"CidrBlock": RANGE_V4}, (("CidrBlock",),)),
    ACL_LINK: _link("NetworkAclId", ACL),
    TABLE_LINK: _link("RouteTableId", TABLE),
    ENTRY: Fields(
        {
            "NetworkAclId": Reference(ACL, by_id=False),
            "RuleNumber": NUMBER,
            "Protocol": PROTOCOL,
            "RuleAction": Literal("allow or deny", _one_of("allow", "deny")),
            "Egress": Literal("true or false", _one_of("true", "false")),
            "CidrBlock": RANGE,
            "Ipv6CidrBlock": RANGE,
            "PortRange": Fields({"From": NUMBER, "To": NUMBER}),
        },
        (("NetworkAclId",), ("RuleNumber",), ("Protocol",), ("RuleAction",), ("CidrBlock", "Ipv6CidrBlock")),
        whole=True,
    ),
    ROUTE: Fields(
        {
            "RouteTableId": Reference(TABLE, by_id=False),
            "DestinationCidrBlock": RANGE,
            "DestinationIpv6CidrBlock": RANGE,
            "DestinationPrefixListId": Reference("AWS::EC2::PrefixList"),
        },
        (
            ("RouteTableId",),
            ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"),
        ),
        whole=True,
    ),
}


def known_part(template: Json) -> tuple[dict[str, Json], tuple[Unknown, ...]]:
    """The resources that surely come to be, with what is known of them, and all that is not known."""
    unknowns: list[Unknown] = []
    if template.get("Transform"):
        unknowns.append(Unknown("", "Transform", "macros rewrite the template at the deploy"))
    resources: Json = template.get("Resources", {})
    types = _types(resources)
    known: dict[str, Json] = {}
    for logical_id, resource in resources.items():

        def tell(where: str, reason: str, owner: str = logical_id) -> None:
            unknowns.append(Unknown(owner, where, reason))

        shape = READ.get(types.get(logical_id, ""))
        if logical_id not in types or logical_id.startswith("Fn::"):
            tell("", "what it makes is known to the deploy only")
        elif shape is None:
            known[logical_id] = resource
        elif "Condition" in resource:
            tell("Condition", f"it is made under the condition {resource['Condition']} only")
        else:
            properties = shape.read(resource.get("Properties", {}), "Properties", types, tell)
            if properties is not None:
                known[logical_id] = {**resource, "Properties": properties}
    return known, tuple(unknowns)


def _types(resources: Json) -> dict[str, str]:
    return {key: str(item.get("Type")) for key, item in resources.items() if isinstance(item, dict)}


def deciding(
    unknowns: Collection[Unknown],
    resources: Json,
    *,
    launch_templates: Collection[str],
    groups: Collection[str],
    subnets: Collection[str],
) -> Iterator[Unknown]:
    """Those on which an answer about these members depends.

    Inside one subnet no packet meets an ACL or a route, so theirs count from the second subnet on.
    """
    crossing = len(subnets) > 1

    def of(resource: Json, key: str) -> str:
        return name_of((resource.get("Properties") or {}).get(key))

    vpcs = {of(resources[subnet], "VpcId") for subnet in subnets if subnet in resources}
    types = _types(resources)
    links = [resources[key] for key, kind in types.items() if kind in (ACL_LINK, TABLE_LINK)]
    tables = {
        of(link, key)
        for link in links
        for key in ("NetworkAclId", "RouteTableId")
        if of(link, "SubnetId") in subnets
    }
    chosen = {GROUP: groups, LAUNCH: launch_templates, SUBNET: subnets, VPC: vpcs if crossing else ()}
    keys = {
        **dict.fromkeys(BESIDE, ("GroupId", groups)),
        **({ACL_LINK: ("SubnetId", subnets), TABLE_LINK: ("SubnetId", subnets)} if crossing else {}),
        **({ENTRY: ("NetworkAclId", tables), ROUTE: ("RouteTableId", tables)} if crossing else {}),
    }
    for unknown in unknowns:
        resource = resources.get(unknown.resource)
        kind = types.get(unknown.resource, "")
        properties = (resource or {}).get("Properties") or {} if kind in READ else {}
        if kind in chosen:
            counts = unknown.resource in chosen[kind] and (crossing or unknown.location != "Properties/VpcId")
        elif kind in keys:
            key, wanted = keys[kind]
            told = READ[kind].shapes[key].read(properties.get(key), "", types, lambda *_: None)
            # One that surely names another group, subnet or table is of no interest.
            counts = told is None or name_of(told) in wanted
        else:
            counts = kind not in READ or kind in (FLEET, WAIT)
        if counts:
            yield unknown
