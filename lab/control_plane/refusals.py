"""What EC2 refuses before it launches anything: AWS's own rules, codes and wording.

The lab is worth little if it lets a cluster through that an account would not, so the rules
that matter to a cluster of this kind are kept here. Which types a cluster group takes is
not known offline in full: the burstable families are refused, as they are on AWS.
"""

from __future__ import annotations

import re
from typing import Any

from lab.control_plane import backend
from lab.control_plane.launch_spec import LaunchSpec
from lab.control_plane.wire import ApiError

Record = dict[str, Any]

_TYPE = re.compile(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")
_METADATA_TAG_KEY = re.compile(r"^[A-Za-z0-9+\-=.,_:@]+$")


def is_burstable(instance_type: str) -> bool:
    """t2, t3, t3a, t4g: the families that bank CPU credits and take no cluster group."""
    return re.match(r"^t\d", instance_type) is not None


def is_graviton(instance_type: str) -> bool:
    family = instance_type.partition(".")[0]
    return re.match(r"^(a1|[a-z]+\d+g)", family) is not None


def check(spec: LaunchSpec) -> None:
    """Raise EC2's refusal of a launch.

    Raises:
        ApiError: with EC2's code and message.
    """
    if not _TYPE.match(spec.instance_type):
        raise ApiError("InvalidParameterValue", f"Invalid value '{spec.instance_type}' for InstanceType.")
    if not spec.image_id:
        raise ApiError("MissingParameter", "The request must contain the parameter ImageId")
    _check_placement_group(spec)
    _check_groups(spec)
    instance_profile(spec)
    if spec.metadata_options.get("InstanceMetadataTags") == "enabled":
        for key, _ in spec.tags:
            if not _METADATA_TAG_KEY.match(key):
                raise ApiError(
                    "InvalidParameterValue",
                    f"'{key}' is not a valid tag key. Tag keys must match pattern "
                    "([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')",
                )


def instance_profile(spec: LaunchSpec) -> Record | None:
    """The instance profile that the launch names, as the pair of ARN and id that EC2 shows.

    Raises:
        ApiError: there is no such profile.
    """
    arn, name = spec.instance_profile.get("Arn", ""), spec.instance_profile.get("Name", "")
    if not arn and not name:
        return None
    profile = backend.instance_profile(arn=arn, name=name)
    if profile is None:
        part = (
            f"Value ({name}) for parameter iamInstanceProfile.name"
            if name
            else (f"Value ({arn}) for parameter iamInstanceProfile.arn")
        )
        raise ApiError("InvalidParameterValue", f"{part} is invalid. Invalid IAM Instance Profile")
    return {"Arn": profile["Arn"], "Id": profile["InstanceProfileId"]}


def _check_placement_group(spec: LaunchSpec) -> None:
    if not spec.placement_group:
        return
    group = backend.placement_groups.get(spec.placement_group)
    if group is None:
        raise ApiError(
            "InvalidPlacementGroup.Unknown", f"The Placement Group '{spec.placement_group}' is unknown."
        )
    if group["Strategy"] != "cluster":
        return
    if is_burstable(spec.instance_type):
        raise ApiError(
            "InvalidParameterCombination",
            f"Cluster placement groups are not supported by the '{spec.instance_type}' instance type. "
            "Specify a supported instance type or change the placement group strategy, and try again.",
        )
    zone = (backend.subnets.get(spec.subnet_id) or {}).get("AvailabilityZone")
    taken = {
        record["Placement"]["AvailabilityZone"]
        for record in backend.instances.values()
        if record["Placement"].get("GroupName") == spec.placement_group
        and record["State"]["Name"] in ("pending", "running", "stopped")
    }
    if zone and taken - {zone}:
        raise ApiError(
            "InvalidPlacementGroup.InUse",
            f"The placement group '{spec.placement_group}' is in use in a different Availability Zone: "
            f"{sorted(taken)[0]}",
        )


def _check_groups(spec: LaunchSpec) -> None:
    vpc_id = (backend.subnets.get(spec.subnet_id) or {}).get("VpcId")
    for interface in spec.interfaces:
        for group_id in interface.groups:
            group = backend.security_groups.get(group_id)
            if group is None:
                raise ApiError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
            if vpc_id and group["VpcId"] != vpc_id:
                raise ApiError(
                    "InvalidParameter",
                    f"Security group {group_id} and subnet {spec.subnet_id} belong to different networks.",
                )
