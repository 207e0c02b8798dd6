"""A deployed cluster, and clients to change it with beside its stack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


class Hands:
    """A deployed cluster of four in two subnets, and clients to change it with.

    client: gives a boto3 client of a service.
    """

    def __init__(self, client: Callable[[str], Any], cluster: str = "fullmesh") -> None:
        self.ec2, self.scaling = client("ec2"), client("autoscaling")
        cloudformation = client("cloudformation")
        (stack,) = cloudformation.describe_stacks(StackName=cluster)["Stacks"]
        self.outputs = {item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}
        self.cluster = cluster
        self.strangers: list[Json] = []  # instances that a change has started
        listed = cloudformation.get_paginator("list_stack_resources").paginate(StackName=cluster)
        self._resources = [item for page in listed for item in page["StackResourceSummaries"]]

    def id_of(self, kind: str) -> str:
        """The physical id of the stack's first resource of a type; blank = it has none."""
        found = [r["PhysicalResourceId"] for r in self._resources if r["ResourceType"] == kind]
        return str(found[0]) if found else ""

    @property
    def group(self) -> str:
        return str(self.outputs["MemberGroupId"])

    @property
    def vpc(self) -> str:
        return str(self.outputs["VpcId"])

    @functools.cached_property
    def members(self) -> list[Json]:
        """Running instances by rank: sorted by address."""
        filters = [
            {"Name": "tag:fullmesh:cluster", "Values": [self.cluster]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        found = self.ec2.describe_instances(Filters=filters)["Reservations"]
        instances = [item for reservation in found for item in reservation["Instances"]]
        return sorted(instances, key=lambda item: tuple(map(int, item["PrivateIpAddress"].split("."))))

    def interface(self, rank: int) -> str:
        return str(self.members[rank]["NetworkInterfaces"][0]["NetworkInterfaceId"])

    def _of_vpc(self, call: str, key: str, *filters: tuple[str, str]) -> Json:
        wanted = [{"Name": name, "Values": [value]} for name, value in (("vpc-id", self.vpc), *filters)]
        found: Json = getattr(self.ec2, call)(Filters=wanted)[key][0]
        return found

    @functools.cached_property
    def acl(self) -> Json:
        return self._of_vpc("describe_network_acls", "NetworkAcls", ("default", "true"))

    @functools.cached_property
    def table(self) -> Json:
        subnet = self.members[0]["SubnetId"]
        return self._of_vpc("describe_route_tables", "RouteTables", ("association.subnet-id", subnet))

    @functools.cached_property
    def endpoint(self) -> Json:
        return self._of_vpc("describe_vpc_endpoints", "VpcEndpoints")

    @functools.cached_property
    def default_group(self) -> str:
        found = self._of_vpc("describe_security_groups", "SecurityGroups", ("group-name", "default"))
        return str(found["GroupId"])

    def resource(self, name: str) -> str:
        """The id behind a name of the table; `interface 3`, `member 1` and `subnet 2` are those of a rank."""
        if name == "member of nobody":
            return str(self.strangers[0]["InstanceId"])
        word, _, rank = name.partition(" ")
        ways: dict[str, Callable[[], Any]] = {
            "interface": lambda: self.interface(int(rank)),
            "member": lambda: self.members[int(rank)]["InstanceId"],
            "subnet": lambda: self.members[int(rank)]["SubnetId"],
            "group": lambda: self.group,
            "vpc": lambda: self.vpc,
            "acl": lambda: self.acl["NetworkAclId"],
            "table": lambda: self.table["RouteTableId"],
            "endpoint": lambda: self.endpoint["VpcEndpointId"],
            "default-group": lambda: self.default_group,
            "fleet": lambda: self.outputs["GroupName"],
            "template": lambda: self.id_of("AWS::EC2::LaunchTemplate"),
            "flow-log": lambda: self.id_of("AWS::EC2::FlowLog"),
            "reservation": lambda: self.id_of("AWS::EC2::CapacityReservation"),
        }
        return str(ways[word]())
