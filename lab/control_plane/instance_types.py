"""DescribeInstanceTypes and -Offerings, as far as a type's name tells.

The lab has no table of the real types. What follows from the family's and the size's name
is answered (architecture, processors, which placement strategies), what does not is left
out rather than invented: there are no bandwidths here.
"""

from __future__ import annotations

import re
from typing import Any

from lab.control_plane import backend
from lab.control_plane.refusals import is_burstable, is_graviton
from lab.control_plane.registration import register_ec2_action
from lab.control_plane.wire import ApiError, Parameters, Reply, filters_of, matches, nested, xml

Record = dict[str, Any]

LISTED = (
    "c5n.large",
    "c5n.xlarge",
    "c6i.large",
    "c7i.xlarge",
    "c7g.xlarge",
    "m6i.large",
    "m7g.large",
    "t3.micro",
)
_SMALL_SIZES = {"nano": 1, "micro": 1, "small": 1, "medium": 1, "large": 2, "xlarge": 4}
_SIZE = re.compile(r"^(\d+)xlarge$")


def register() -> None:
    register_ec2_action("DescribeInstanceTypes", describe_types)
    register_ec2_action("DescribeInstanceTypeOfferings", describe_offerings)


def processors(instance_type: str) -> int:
    """vCPUs by the size's name.

    Raises:
        ApiError: the name is not one of a type.
    """
    size = instance_type.partition(".")[2]
    if size in _SMALL_SIZES:
        return 2 if size in ("nano", "micro", "small") and is_burstable(instance_type) else _SMALL_SIZES[size]
    multiple = _SIZE.match(size)
    if multiple is None:
        raise ApiError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{instance_type}]"
        )
    return 4 * int(multiple.group(1))


def describe_types(params: Parameters) -> Reply:
    request = nested(params)
    filters = filters_of(request)
    wanted = request.get("InstanceType") or filters.get("instance-type") or LISTED
    return Reply("DescribeInstanceTypes", xml({"instanceTypeSet": [_answer(item) for item in wanted]}))


def _answer(instance_type: str) -> Record:
    count = processors(instance_type)
    strategies = (
        ["partition", "spread"] if is_burstable(instance_type) else ["cluster", "partition", "spread"]
    )
    return {
        "instanceType": instance_type,
        "currentGeneration": True,
        "supportedUsageClasses": ["on-demand"],
        "supportedRootDeviceTypes": ["ebs"],
        "supportedVirtualizationTypes": ["hvm"],
        "bareMetal": False,
        "processorInfo": {"supportedArchitectures": ["arm64" if is_graviton(instance_type) else "x86_64"]},
        "vCpuInfo": {"defaultVCpus": count},
        "placementGroupInfo": {"supportedStrategies": strategies},
        "burstablePerformanceSupported": is_burstable(instance_type),
    }


def describe_offerings(params: Parameters) -> Reply:
    request = nested(params)
    filters = filters_of(request)
    kind = request.get("LocationType", "region")
    zones = sorted({subnet["AvailabilityZone"] for subnet in backend.subnets.values()})
    locations = [backend.region()] if kind == "region" else zones
    wanted = filters.get("instance-type") or list(LISTED)
    listed = [
        {"instanceType": item, "locationType": kind, "location": location}
        for item in wanted
        for location in locations
        if matches(filters.get("location", ["*"]), [location])
    ]
    return Reply("DescribeInstanceTypeOfferings", xml({"instanceTypeOfferingSet": listed}))
