"""A synthesised template, read as the account it would make.

The template becomes the same documents that `aws ec2 describe-*` would print after the
deploy, with logical ids in place of ids and a few instances to stand for the fleet, so
that `cluster.flows` judges a template exactly as it judges an account. What only the deploy
knows is left out of the documents and stands in `unknowns`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cluster.document_rules import ROUTE_TARGETS
from cluster.snapshot import ClusterSnapshot
from cluster.template_rules import ALLOW_ALL, name_of, permission
from stacks.template_unknowns import Unknown, deciding, known_part

Json = dict[str, Any]

SAMPLES_PER_SUBNET = 2
"""Members that no rule tells apart are judged once, so two in each subnet stand for any number."""

FIRST_MEMBER_OFFSET = 16
"""Well past the addresses that EC2 keeps in every subnet."""

ROUTE_ENDS = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")


@dataclass(frozen=True)
class TemplateModel:
    """What the checks ask of a template.

    groups: logical ids (or ids) of the groups on the members' interfaces.
    members: ids of the instances that stand for the fleet in `snapshot`.
    unknowns: what decides about the members and cannot be told; while there is any, what the model
    lacks may still be there.
    """

    resources: dict[str, Json]
    fleets: tuple[tuple[str, Json, Json], ...]  # logical id, group's properties, launch template data
    groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    snapshot: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    unknowns: tuple[Unknown, ...] = ()

    def of_type(self, kind: str) -> Iterator[tuple[str, Json]]:
        """Logical id and properties of every resource of a type."""
        return _of_type(self.resources, kind)


def read_template(template: Json, *, outside_cidr: str) -> TemplateModel:
    """Read a template.

    outside_cidr: the range of subnets that the template only names (an existing VPC's).
    """
    resources, unknowns = known_part(template)
    fleets = []
    launch_templates: list[str] = []
    for logical_id, group in _of_type(resources, "AWS::AutoScaling::AutoScalingGroup"):
        launch = group.get("LaunchTemplate", {})
        template_id = name_of(launch.get("LaunchTemplateId"))
        launch_templates.append(template_id)
        data = resources.get(template_id, {}).get("Properties", {}).get("LaunchTemplateData", {})
        fleets.append((logical_id, group, data))
    groups: list[str] = []
    subnets: list[str] = []
    for _, group, data in fleets:
        groups += [name_of(item) for item in data.get("SecurityGroupIds", [])]
        for interface in data.get("NetworkInterfaces", []):
            groups += [name_of(item) for item in interface.get("Groups", [])]
        subnets += [name_of(item) for item in group.get("VPCZoneIdentifier", [])]
    subnets = list(dict.fromkeys(subnets))
    groups = list(dict.fromkeys(groups))
    documents = _Documents(resources, outside_cidr)
    members = documents.add_members(subnets, groups)
    return TemplateModel(
        resources=resources,
        fleets=tuple(fleets),
        groups=tuple(groups),
        subnets=tuple(subnets),
        members=tuple(members),
        snapshot=ClusterSnapshot.from_documents(documents.build(subnets)),
        unknowns=tuple(
            deciding(
                unknowns,
                template.get("Resources", {}),
                launch_templates=launch_templates,
                groups=groups,
                subnets=subnets,
            )
        ),
    )


def mentions(value: Any) -> Iterator[str]:
    """Every logical id that a value refers to, at any depth."""
    if isinstance(value, dict):
        if set(value) & {"Ref", "Fn::GetAtt"}:
            yield name_of(value)
        if "Fn::Sub" in value:
            text = value["Fn::Sub"][0] if isinstance(value["Fn::Sub"], list) else value["Fn::Sub"]
            yield from (part.split("}")[0].split(".")[0] for part in str(text).split("${")[1:])
        for item in value.values():
            yield from mentions(item)
    elif isinstance(value, list):
        for item in value:
            yield from mentions(item)


def _of_type(resources: dict[str, Json], kind: str) -> Iterator[tuple[str, Json]]:
    for logical_id, resource in resources.items():
        if resource.get("Type") == kind:
            yield logical_id, resource.get("Properties", {})


class _Documents:
    """Builds what describe-* would print."""

    def __init__(self, resources: dict[str, Json], outside_cidr: str) -> None:
        self._resources = resources
        self._outside = str(ipaddress.ip_network(outside_cidr, strict=False))
        self._instances: list[Json] = []

    def add_members(self, subnets: list[str], groups: list[str]) -> list[str]:
        for position, subnet in enumerate(subnets):
            network = ipaddress.ip_network(self._subnet_cidr(subnet), strict=False)
            for sample in range(SAMPLES_PER_SUBNET):
                offset = min(FIRST_MEMBER_OFFSET, network.num_addresses // 2) + sample
                if subnet not in self._resources:
                    offset += position * SAMPLES_PER_SUBNET  # subnets outside share one stand-in range
                self._instances.append(self._instance(subnet, str(network[offset]), groups))
        return [instance["InstanceId"] for instance in self._instances]

    def build(self, subnets: list[str]) -> Json:
        return {
            "security-groups": {"SecurityGroups": list(self._groups())},
            "security-group-rules": None,
            "network-acls": {"NetworkAcls": list(self._acls(subnets))},
            "route-tables": {"RouteTables": list(self._route_tables(subnets))},
            "subnets": {
                "Subnets": [
                    {"SubnetId": s, "VpcId": self._vpc_of(s), "CidrBlock": self._subnet_cidr(s)}
                    for s in subnets
                ]
            },
            "network-interfaces": {
                "NetworkInterfaces": [
                    {
                        **i["NetworkInterfaces"][0],
                        "Attachment": {"DeviceIndex": 0, "InstanceId": i["InstanceId"]},
                    }
                    for i in self._instances
                ]
            },
            "instances": {"Reservations": [{"Instances": self._instances}]},
            "vpcs": {"Vpcs": [{"VpcId": v, "CidrBlock": self._vpc_cidr(v)} for v in self._vpcs(subnets)]},
        }

    def _instance(self, subnet: str, address: str, groups: list[str]) -> Json:
        number = len(self._instances)
        return {
            "InstanceId": f"member-{number}",
            "State": {"Name": "running"},
            "SubnetId": subnet,
            "VpcId": self._vpc_of(subnet),
            "NetworkInterfaces": [
                {
                    "NetworkInterfaceId": f"interface-{number}",
                    "SubnetId": subnet,
                    "VpcId": self._vpc_of(subnet),
                    "Status": "in-use",
                    "Groups": [{"GroupId": group} for group in groups],
                    "PrivateIpAddress": address,
                    "PrivateIpAddresses": [{"PrivateIpAddress": address, "Primary": True}],
                    "Attachment": {"DeviceIndex": 0},
                }
            ],
        }

    def _groups(self) -> Iterator[Json]:
        rules: dict[tuple[str, bool], list[Json]] = {}
        for kind, egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
            for _, rule in _of_type(self._resources, f"AWS::EC2::{kind}"):
                rules.setdefault((name_of(rule.get("GroupId")), egress), []).append(rule)
        for logical_id, group in _of_type(self._resources, "AWS::EC2::SecurityGroup"):
            inward = [*group.get("SecurityGroupIngress", []), *rules.get((logical_id, False), [])]
            outward = [*group.get("SecurityGroupEgress", []), *rules.get((logical_id, True), [])]
            yield {
                "GroupId": logical_id,
                "GroupName": logical_id,
                "VpcId": name_of(group.get("VpcId")),
                "IpPermissions": [permission(rule, egress=False) for rule in inward],
                # A group without any outbound rule gets one from EC2 that allows everything.
                "IpPermissionsEgress": [permission(rule, egress=True) for rule in outward or [ALLOW_ALL]],
            }

    def _acls(self, subnets: list[str]) -> Iterator[Json]:
        entries: dict[str, list[Json]] = {}
        for _, entry in _of_type(self._resources, "AWS::EC2::NetworkAclEntry"):
            entries.setdefault(name_of(entry.get("NetworkAclId")), []).append(
                {
                    "RuleNumber": int(entry["RuleNumber"]),
                    "Protocol": str(entry["Protocol"]),
                    "RuleAction": entry["RuleAction"],
                    "Egress": str(entry.get("Egress", False)).lower() == "true",
                    "PortRange": {
                        key: int(port)
                        for key, port in entry.get("PortRange", {}).items()
                        if key in ("From", "To")
                    },
                    **{key: entry[key] for key in ("CidrBlock", "Ipv6CidrBlock") if key in entry},
                }
            )
        served: dict[str, list[str]] = {}
        for _, link in _of_type(self._resources, "AWS::EC2::SubnetNetworkAclAssociation"):
            served.setdefault(name_of(link["NetworkAclId"]), []).append(name_of(link["SubnetId"]))
        for acl, own in served.items():
            yield _acl(acl, self._vpc_of(own[0]), own, entries.get(acl, []))
        everything = [
            {
                "RuleNumber": 100,
                "Protocol": "-1",
                "RuleAction": "allow",
                "Egress": egress,
                "CidrBlock": "0.0.0.0/0",
            }
            for egress in (False, True)
        ]
        # Every other subnet has its VPC's default ACL, which allows all until somebody changes it.
        left = [subnet for subnet in subnets if not any(subnet in own for own in served.values())]
        yield _acl("default", self._vpc_of(left[0]) if left else "", left, everything)

    def _route_tables(self, subnets: list[str]) -> Iterator[Json]:
        table_of = {
            name_of(link["SubnetId"]): name_of(link["RouteTableId"])
            for _, link in _of_type(self._resources, "AWS::EC2::SubnetRouteTableAssociation")
        }
        for subnet in subnets:
            vpc = self._vpc_of(subnet)
            routes = [{"DestinationCidrBlock": self._vpc_cidr(vpc), "GatewayId": "local", "State": "active"}]
            for _, route in _of_type(self._resources, "AWS::EC2::Route"):
                if name_of(route.get("RouteTableId")) == table_of.get(subnet, "none"):
                    target = next((route[key] for key in ROUTE_TARGETS if key in route), None)
                    ends = {key: name_of(route[key]) for key in ROUTE_ENDS if key in route}
                    routes.append({**ends, "GatewayId": name_of(target), "State": "active"})
            yield {
                "RouteTableId": f"{table_of.get(subnet, 'main')}-{subnet}",
                "VpcId": vpc,
                "Associations": [{"SubnetId": subnet}],
                "Routes": routes,
            }

    def _vpcs(self, subnets: list[str]) -> list[str]:
        return list(dict.fromkeys(self._vpc_of(subnet) for subnet in subnets))

    def _vpc_of(self, subnet: str) -> str:
        return name_of(self._resources.get(subnet, {}).get("Properties", {}).get("VpcId", "vpc-outside"))

    def _vpc_cidr(self, vpc: str) -> str:
        return str(self._resources.get(vpc, {}).get("Properties", {}).get("CidrBlock", self._outside))

    def _subnet_cidr(self, subnet: str) -> str:
        return str(self._resources.get(subnet, {}).get("Properties", {}).get("CidrBlock", self._outside))


def _acl(acl_id: str, vpc: str, subnets: list[str], entries: list[Json]) -> Json:
    return {
        "NetworkAclId": acl_id,
        "VpcId": vpc,
        "IsDefault": acl_id == "default",
        "Associations": [{"SubnetId": subnet} for subnet in subnets],
        "Entries": entries,
    }
