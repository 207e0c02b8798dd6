"""What a template's fleet, its launch template and its size break of EC2's and CloudFormation's rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cluster.spec import ClusterSpec, PortProfile
from cluster.template_rules import name_of
from stacks.template_model import TemplateModel, mentions
from stacks.user_data import LIMIT_BYTES

# docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
MAX_RESOURCES = 500
MAX_TEMPLATE_BYTES = 1_048_576
HANDLE_BYTES = 512
"""The handle's pre-signed address, the longest value that only the deploy knows, is about 400 bytes."""
NAME_BYTES = 160
"""Any other value that only the deploy knows is a name: a bucket's, a log group's, a role's id."""


@dataclass(frozen=True)
class Fault:
    """One rule that the template breaks, where, and what to do."""

    rule: str
    resource: str
    location: str
    detail: str
    fix: str


def launch_faults(template: dict[str, Any], model: TemplateModel, spec: ClusterSpec) -> Iterator[Fault]:
    """What EC2 would refuse at the launch, or not give, and what CloudFormation would not take."""
    yield from _sizes(template, model)
    yield from _placement(model)
    yield from _reservation(model)
    yield from _launch_templates(model)
    if spec.port_profile is PortProfile.EFA:
        yield from _efa_interfaces(model)


def _efa_interfaces(model: TemplateModel) -> Iterator[Fault]:
    for logical_id, _, data in model.fleets:
        kinds = [
            interface.get("InterfaceType", "interface") for interface in data.get("NetworkInterfaces", [])
        ]
        if "efa" not in kinds:
            yield Fault(
                "efa-interface",
                logical_id,
                "Properties/LaunchTemplateData/NetworkInterfaces",
                f"the members' interfaces are {kinds or 'not given'}, so they have no fabric",
                "set InterfaceType efa",
            )


def _strategy_of(model: TemplateModel, placement_group: str) -> str:
    group = model.resources.get(placement_group, {}).get("Properties", {})
    return str(group.get("Strategy", ""))


def _reservation(model: TemplateModel) -> Iterator[Fault]:
    """What EC2 would refuse: docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html"""
    for logical_id, _, data in model.fleets:
        target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget")
        placement = name_of((data.get("Placement") or {}).get("GroupName"))
        if not target:
            continue
        strategy = _strategy_of(model, placement)
        if strategy not in ("", "cluster"):
            yield Fault(
                "reservation",
                placement,
                "Properties/Strategy",
                f"a placement group of strategy {strategy} takes no capacity reservation",
                "use placement cluster or none, or no reservation",
            )
        if len(model.subnets) > 1:
            yield Fault(
                "reservation",
                logical_id,
                "Properties/VPCZoneIdentifier",
                f"{len(model.subnets)} subnets, a capacity reservation has one zone",
                "use one subnet, or no reservation",
            )
    for logical_id, reservation in model.of_type("AWS::EC2::CapacityReservation"):
        for placement in mentions(reservation.get("PlacementGroupArn")):
            if _strategy_of(model, placement) not in ("", "cluster"):
                yield Fault(
                    "reservation",
                    logical_id,
                    "Properties/PlacementGroupArn",
                    "EC2 makes a reservation in a cluster placement group only",
                    "leave PlacementGroupArn out",
                )


def _placement(model: TemplateModel) -> Iterator[Fault]:
    for logical_id, _, data in model.fleets:
        placement = name_of((data.get("Placement") or {}).get("GroupName"))
        if _strategy_of(model, placement) != "cluster":
            continue
        instance_type = str(data.get("InstanceType", ""))
        if re.match(r"t\d", instance_type):
            yield Fault(
                "cluster-placement",
                placement,
                "Properties/Strategy",
                f"{instance_type} is a T type, which no cluster placement group takes",
                "choose another type, or placement none",
            )
        zones = {
            json.dumps(model.resources.get(subnet, {}).get("Properties", {}).get("AvailabilityZone", subnet))
            for subnet in model.subnets
        }
        if len(zones) > 1:
            yield Fault(
                "cluster-placement",
                logical_id,
                "Properties/VPCZoneIdentifier",
                f"{len(zones)} zones, a cluster placement group has one",
                "use one subnet, or placement spread or none",
            )


def _launch_templates(model: TemplateModel) -> Iterator[Fault]:
    for logical_id, group, data in model.fleets:
        template = name_of(group.get("LaunchTemplate", {}).get("LaunchTemplateId")) or logical_id
        where = "Properties/LaunchTemplateData"
        interfaces = data.get("NetworkInterfaces") or []
        if interfaces and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
            yield Fault(
                "launch-template",
                template,
                f"{where}/SecurityGroupIds",
                "SecurityGroupIds beside NetworkInterfaces: EC2 refuses every launch",
                "move the groups into the NetworkInterfaces block",
            )
        for interface in interfaces:
            if "SubnetId" in interface:
                yield Fault(
                    "launch-template",
                    template,
                    f"{where}/NetworkInterfaces",
                    "a SubnetId in the launch template contradicts the auto scaling group's subnets",
                    "leave SubnetId out",
                )
            if not interface.get("Groups"):
                yield Fault(
                    "launch-template",
                    template,
                    f"{where}/NetworkInterfaces",
                    "an interface without Groups gets the VPC's default group instead of the members' own",
                    "name the members' group in Groups",
                )


def _sizes(template: dict[str, Any], model: TemplateModel) -> Iterator[Fault]:
    fix = "shrink what the template repeats; its size must not depend on the number of nodes"
    if len(model.resources) > MAX_RESOURCES:
        yield Fault(
            "size-limits", "", "Resources", f"{len(model.resources)} resources, at most {MAX_RESOURCES}", fix
        )
    size = len(json.dumps(template).encode())
    if size > MAX_TEMPLATE_BYTES:
        yield Fault("size-limits", "", "", f"{size} bytes, at most {MAX_TEMPLATE_BYTES}", fix)
    for logical_id, data in ((i, d) for i, _, d in model.fleets):
        length = user_data_bytes(data.get("UserData", ""), model.resources)
        if length > LIMIT_BYTES:
            yield Fault(
                "size-limits",
                logical_id,
                "Properties/LaunchTemplateData/UserData",
                f"user data of about {length} bytes, at most {LIMIT_BYTES}",
                "move it into the archive that nodes fetch",
            )


def user_data_bytes(value: Any, resources: dict[str, Any]) -> int:
    """About how long user data becomes: its literal text, and what references stand for."""
    if not isinstance(value, dict):
        return len(str(value).encode())
    if "Fn::Base64" in value:
        return user_data_bytes(value["Fn::Base64"], resources)
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        joints = len(separator) * (len(parts) - 1)
        return sum(user_data_bytes(part, resources) for part in parts) + joints
    kind = resources.get(name_of(value), {}).get("Type", "")
    return HANDLE_BYTES if kind == "AWS::CloudFormation::WaitConditionHandle" else NAME_BYTES
