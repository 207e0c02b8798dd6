"""EC2's actions on instances and network interfaces, answered from the lab's own records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.control_plane import backend, ec2_answers, instances
from lab.control_plane.filters import Facts, all_match
from lab.control_plane.launch_spec import InterfaceSpec, launch_spec, template_data, with_api_names
from lab.control_plane.registration import register_ec2_action
from lab.control_plane.wire import (
    ApiError,
    Parameters,
    Reply,
    filters_of,
    is_true,
    nested,
    new_id,
    xml,
)

Record = dict[str, Any]


def register() -> None:
    """Let this module answer for instances and interfaces."""
    for name, handler in {
        "RunInstances": run_instances,
        "DescribeInstances": describe_instances,
        "TerminateInstances": terminate_instances,
        "ModifyInstanceAttribute": modify_instance_attribute,
        "DescribeNetworkInterfaces": describe_network_interfaces,
        "CreateNetworkInterface": create_network_interface,
        "ModifyNetworkInterfaceAttribute": modify_network_interface_attribute,
    }.items():
        register_ec2_action(name, handler)
    register_ec2_action("DescribeInstanceAttribute", describe_instance_attribute)


def run_instances(params: Parameters) -> Reply:
    request = with_api_names(nested(params))
    data = {**template_data(request.get("LaunchTemplate") or {}), **request}
    if data.get("NetworkInterfaces") and request.get("SubnetId"):
        raise ApiError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID may not be specified on the same request",
        )
    spec = launch_spec(data, subnet_id=request.get("SubnetId") or _default_subnet())
    minimum, maximum = int(request.get("MinCount", 1)), int(request.get("MaxCount", 1))
    reservation_id = new_id("r")
    made: list[Record] = []
    for index in range(maximum):
        try:
            made += instances.launch(spec, 1, reservation_id)
        except ApiError:
            if index >= minimum:
                break
            for record in made:
                instances.forget(record["InstanceId"])
            raise
        made[-1]["AmiLaunchIndex"] = index
    return Reply("RunInstances", xml(ec2_answers.reservation(reservation_id, made)))


def describe_instances(params: Parameters) -> Reply:
    request = nested(params)
    wanted = request.get("InstanceId", [])
    _must_exist(wanted)
    filters = filters_of(request)
    reservations: dict[str, list[Record]] = {}
    for record in backend.instances.values():
        if (not wanted or record["InstanceId"] in wanted) and _instance_matches(record, filters):
            reservations.setdefault(record["ReservationId"], []).append(record)
    listed = [ec2_answers.reservation(key, records) for key, records in reservations.items()]
    return Reply("DescribeInstances", xml({"reservationSet": listed}))


def terminate_instances(params: Parameters) -> Reply:
    wanted = nested(params).get("InstanceId", [])
    _must_exist(wanted)
    changes = []
    for instance_id in wanted:
        before = dict(backend.instances[instance_id]["State"])
        instances.terminate(instance_id)
        changes.append(
            {
                "instanceId": instance_id,
                "previousState": ec2_answers.state_answer(before),
                "currentState": ec2_answers.state_answer(instances.TERMINATED),
            }
        )
    return Reply("TerminateInstances", xml({"instancesSet": changes}))


def modify_instance_attribute(params: Parameters) -> Reply:
    request = nested(params)
    instance_id = request.get("InstanceId", "")
    _must_exist([instance_id])
    record = backend.instances[instance_id]
    if request.get("GroupId"):
        instances.set_groups(record, list(request["GroupId"]))
    if "SourceDestCheck" in request:
        record["SourceDestCheck"] = is_true(request["SourceDestCheck"]["Value"])
    return Reply("ModifyInstanceAttribute", xml({"return": True}))


def describe_instance_attribute(params: Parameters) -> Reply:
    request = nested(params)
    instance_id, attribute = request.get("InstanceId", ""), request.get("Attribute", "")
    _must_exist([instance_id])
    record = backend.instances[instance_id]
    values: dict[str, Callable[[], Any]] = {
        "userData": lambda: {"value": record["UserData"]} if record["UserData"] else {},
        "groupSet": lambda: ec2_answers.group_list(record["SecurityGroups"]),
        "instanceType": lambda: {"value": record["InstanceType"]},
        "rootDeviceName": lambda: {"value": record["RootDeviceName"]},
        "sourceDestCheck": lambda: {"value": record["SourceDestCheck"]},
        "disableApiTermination": lambda: {"value": False},
        "instanceInitiatedShutdownBehavior": lambda: {"value": "stop"},
        "ebsOptimized": lambda: {"value": True},
        "enaSupport": lambda: {"value": True},
    }
    if attribute not in values:
        raise ApiError(
            "InvalidParameterValue",
            f"Value ({attribute}) for parameter attribute is invalid. The lab knows "
            f"{', '.join(sorted(values))}",
        )
    return Reply(
        "DescribeInstanceAttribute", xml({"instanceId": instance_id, attribute: values[attribute]()})
    )


def describe_network_interfaces(params: Parameters) -> Reply:
    request = nested(params)
    wanted = request.get("NetworkInterfaceId", [])
    for interface_id in wanted:
        _interface(interface_id)
    filters = filters_of(request)
    listed = [
        ec2_answers.interface_answer(record)
        for record in backend.network_interfaces.values()
        if (not wanted or record["NetworkInterfaceId"] in wanted) and _interface_matches(record, filters)
    ]
    return Reply("DescribeNetworkInterfaces", xml({"networkInterfaceSet": listed}))


def create_network_interface(params: Parameters) -> Reply:
    request = nested(params)
    subnet = backend.subnets.get(request.get("SubnetId", ""))
    if subnet is None:
        raise ApiError(
            "InvalidSubnetID.NotFound", f"The subnet ID '{request.get('SubnetId')}' does not exist"
        )
    record = instances.make_interface(
        subnet,
        InterfaceSpec(
            device_index=0,
            groups=tuple(request.get("SecurityGroupId", [])),
            private_address=request.get("PrivateIpAddress", ""),
            description=request.get("Description", ""),
        ),
    )
    return Reply("CreateNetworkInterface", xml({"networkInterface": ec2_answers.interface_answer(record)}))


def modify_network_interface_attribute(params: Parameters) -> Reply:
    request = nested(params)
    record = _interface(request.get("NetworkInterfaceId", ""))
    if request.get("SecurityGroupId"):
        instances.set_interface_groups(record, list(request["SecurityGroupId"]))
    if "SourceDestCheck" in request:
        record["SourceDestCheck"] = is_true(request["SourceDestCheck"]["Value"])
    if "ConnectionTrackingSpecification" in request:
        told = request["ConnectionTrackingSpecification"]
        record["ConnectionTracking"] = {key: int(value) for key, value in told.items()}
    if "Description" in request:
        record["Description"] = request["Description"]["Value"]
    return Reply("ModifyNetworkInterfaceAttribute", xml({"return": True}))


def _must_exist(wanted: list[str]) -> None:
    missing = [item for item in wanted if item not in backend.instances]
    if missing:
        raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{', '.join(missing)}' does not exist")


def _interface(interface_id: str) -> Record:
    record = backend.network_interfaces.get(interface_id)
    if record is None:
        raise ApiError(
            "InvalidNetworkInterfaceID.NotFound", f"The networkInterface ID '{interface_id}' does not exist"
        )
    return record


def _default_subnet() -> str:
    return next((key for key, subnet in backend.subnets.items() if subnet.get("DefaultForAz")), "")


def _instance_matches(record: Record, filters: dict[str, list[str]]) -> bool:
    interfaces = ec2_answers.interfaces_of(record)
    facts: Facts = {
        "instance-id": [record["InstanceId"]],
        "instance-state-name": [record["State"]["Name"]],
        "instance-state-code": [str(record["State"]["Code"])],
        "instance-type": [record["InstanceType"]],
        "image-id": [record["ImageId"]],
        "vpc-id": [record["VpcId"]],
        "subnet-id": [record["SubnetId"]],
        "availability-zone": [record["Placement"]["AvailabilityZone"]],
        "placement-group-name": [record["Placement"].get("GroupName")],
        "private-ip-address": [record["PrivateIpAddress"]],
        "private-dns-name": [record["PrivateDnsName"]],
        "reservation-id": [record["ReservationId"]],
        "instance.group-id": [group["GroupId"] for group in record["SecurityGroups"]],
        "instance.group-name": [group["GroupName"] for group in record["SecurityGroups"]],
        "network-interface.network-interface-id": [item["NetworkInterfaceId"] for item in interfaces],
        "network-interface.group-id": [g["GroupId"] for item in interfaces for g in item["Groups"]],
        "iam-instance-profile.arn": [(record["IamInstanceProfile"] or {}).get("Arn")],
    }
    return all_match(record["InstanceId"], facts, filters)


def _interface_matches(record: Record, filters: dict[str, list[str]]) -> bool:
    attachment = record.get("Attachment") or {}
    facts: Facts = {
        "network-interface-id": [record["NetworkInterfaceId"]],
        "attachment.instance-id": [attachment.get("InstanceId")],
        "attachment.device-index": [str(attachment["DeviceIndex"])] if attachment else [],
        "group-id": [group["GroupId"] for group in record["Groups"]],
        "group-name": [group["GroupName"] for group in record["Groups"]],
        "subnet-id": [record["SubnetId"]],
        "vpc-id": [record["VpcId"]],
        "status": [record["Status"]],
        "availability-zone": [record["AvailabilityZone"]],
        "private-ip-address": [record["PrivateIpAddress"]],
        "addresses.private-ip-address": [record["PrivateIpAddress"]],
        "interface-type": [record["InterfaceType"]],
        "description": [record["Description"]],
    }
    return all_match(record["NetworkInterfaceId"], facts, filters)
