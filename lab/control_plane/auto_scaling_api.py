"""Auto Scaling's actions that must act on real instances, or tell of them."""

from __future__ import annotations

from typing import Any

from lab.control_plane import auto_scaling, backend, instances
from lab.control_plane.registration import register_auto_scaling_action
from lab.control_plane.wire import ApiError, Parameters, Reply, is_true, member_xml, nested

Record = dict[str, Any]

PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)
_NUMBERS = {
    "MinSize": "MinSize",
    "MaxSize": "MaxSize",
    "DesiredCapacity": "DesiredCapacity",
    "DefaultCooldown": "DefaultCooldown",
    "HealthCheckGracePeriod": "HealthCheckGracePeriod",
}


def register() -> None:
    """Let this module answer for groups and their activities."""
    for name, handler in {
        "DescribeAutoScalingGroups": describe_groups,
        "DescribeScalingActivities": describe_scaling_activities,
        "SetDesiredCapacity": set_desired_capacity,
        "UpdateAutoScalingGroup": update_group,
        "DeleteAutoScalingGroup": delete_group,
        "SuspendProcesses": suspend_processes,
        "ResumeProcesses": resume_processes,
        "TerminateInstanceInAutoScalingGroup": terminate_member,
    }.items():
        register_auto_scaling_action(name, handler)


def describe_groups(params: Parameters) -> Reply:
    request = nested(params)
    wanted, filters = request.get("AutoScalingGroupNames", []), request.get("Filters", [])
    groups = [
        _group_answer(record)
        for name, record in backend.auto_scaling_groups.items()
        if (not wanted or name in wanted) and all(_tags_match(record, item) for item in filters)
    ]
    return Reply("DescribeAutoScalingGroups", member_xml({"AutoScalingGroups": groups}))


def _tags_match(record: Record, wanted: Record) -> bool:
    """One of Auto Scaling's filters: `tag:KEY`, `tag-key` or `tag-value`."""
    name, values = wanted["Name"], wanted["Values"]
    if name == "tag-key":
        return any(tag["Key"] in values for tag in record["Tags"])
    if name == "tag-value":
        return any(tag["Value"] in values for tag in record["Tags"])
    if name.startswith("tag:"):
        return any(tag["Key"] == name[4:] and tag["Value"] in values for tag in record["Tags"])
    raise ApiError("ValidationError", f"Filter type {name} is not correct. Allowed Filter types are: tag-key")


def describe_scaling_activities(params: Parameters) -> Reply:
    request = nested(params)
    name, wanted = request.get("AutoScalingGroupName", ""), request.get("ActivityIds", [])
    names = [name] if name else list(backend.auto_scaling_groups)
    listed = [
        {**activity, "StatusMessage": activity["StatusMessage"] or None}
        for item in names
        for activity in auto_scaling.state_of(item).activities
        if not wanted or activity["ActivityId"] in wanted
    ]
    limit = int(request.get("MaxRecords", 100))
    return Reply("DescribeScalingActivities", member_xml({"Activities": listed[:limit]}))


def set_desired_capacity(params: Parameters) -> Reply:
    request = nested(params)
    record = auto_scaling.group(request.get("AutoScalingGroupName", ""))
    _set_sizes(record, {"DesiredCapacity": request.get("DesiredCapacity", "")})
    auto_scaling.reconcile(record["AutoScalingGroupName"])
    return Reply("SetDesiredCapacity", "")


def update_group(params: Parameters) -> Reply:
    request = nested(params)
    record = auto_scaling.group(request.get("AutoScalingGroupName", ""))
    _set_sizes(record, request)
    for name in ("HealthCheckType", "VPCZoneIdentifier"):
        if request.get(name):
            record[name] = request[name]
    if request.get("LaunchTemplate"):
        record["LaunchTemplate"] = {
            "LaunchTemplateName": "",
            "Version": "$Default",
            **request["LaunchTemplate"],
        }
    auto_scaling.reconcile(record["AutoScalingGroupName"])
    return Reply("UpdateAutoScalingGroup", "")


def delete_group(params: Parameters) -> Reply:
    request = nested(params)
    name = request.get("AutoScalingGroupName", "")
    record = auto_scaling.group(name)
    if record["Instances"] and not is_true(request.get("ForceDelete", "false")):
        raise ApiError(
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance "
            "request(s) still in the group.",
        )
    drop_group(name)
    return Reply("DeleteAutoScalingGroup", "")


def drop_group(name: str) -> None:
    """End a group and all its instances; a group that is gone is no error."""
    record = backend.auto_scaling_groups.pop(name, None)
    for member in (record or {}).get("Instances", []):
        if member["InstanceId"] in backend.instances:
            instances.terminate(member["InstanceId"])
    auto_scaling.forget(name)


def suspend_processes(params: Parameters) -> Reply:
    name, processes = _processes(params)
    auto_scaling.state_of(name).suspended |= processes
    return Reply("SuspendProcesses", "")


def resume_processes(params: Parameters) -> Reply:
    name, processes = _processes(params)
    auto_scaling.state_of(name).suspended -= processes
    auto_scaling.reconcile(name)
    return Reply("ResumeProcesses", "")


def terminate_member(params: Parameters) -> Reply:
    request = nested(params)
    instance_id = request.get("InstanceId", "")
    for name, record in backend.auto_scaling_groups.items():
        if any(member["InstanceId"] == instance_id for member in record["Instances"]):
            if is_true(request.get("ShouldDecrementDesiredCapacity", "false")):
                _set_sizes(record, {"DesiredCapacity": int(record["DesiredCapacity"]) - 1})
            auto_scaling.terminate(name, [instance_id], "instance was taken out of service by a user request")
            activity = auto_scaling.state_of(name).activities[0]
            auto_scaling.reconcile(name)
            return Reply("TerminateInstanceInAutoScalingGroup", member_xml({"Activity": activity}))
    raise ApiError(
        "ValidationError", f"Instance Id not found - No managed instance found for instance ID {instance_id}"
    )


def _processes(params: Parameters) -> tuple[str, set[str]]:
    request = nested(params)
    name = request.get("AutoScalingGroupName", "")
    auto_scaling.group(name)
    processes = set(request.get("ScalingProcesses") or PROCESSES)
    unknown = processes - set(PROCESSES)
    if unknown:
        raise ApiError("ValidationError", f"{sorted(unknown)[0]} is not a valid process type")
    return name, processes


def _set_sizes(record: Record, request: Record) -> None:
    sizes = {
        field: int(request[name]) for name, field in _NUMBERS.items() if request.get(name) not in (None, "")
    }
    after = {**record, **sizes}
    low, desired, high = int(after["MinSize"]), int(after["DesiredCapacity"]), int(after["MaxSize"])
    if desired > high:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired} is above max value {high} for the AutoScalingGroup.",
        )
    if desired < low:
        raise ApiError(
            "ValidationError",
            f"New SetDesiredCapacity value {desired} is below min value {low} for the AutoScalingGroup.",
        )
    record.update(sizes)


def _group_answer(record: Record) -> Record:
    name = record["AutoScalingGroupName"]
    suspended = sorted(auto_scaling.state_of(name).suspended)
    subnets = [item for item in record["VPCZoneIdentifier"].split(",") if item]
    zones = sorted({backend.subnets[item]["AvailabilityZone"] for item in subnets if item in backend.subnets})
    return {
        "AutoScalingGroupName": name,
        "AutoScalingGroupARN": record["AutoScalingGroupARN"],
        "LaunchTemplate": record["LaunchTemplate"] or None,
        "MinSize": record["MinSize"],
        "MaxSize": record["MaxSize"],
        "DesiredCapacity": record["DesiredCapacity"],
        "DefaultCooldown": record["DefaultCooldown"],
        "AvailabilityZones": zones or record["AvailabilityZones"],
        "HealthCheckType": record["HealthCheckType"],
        "HealthCheckGracePeriod": record["HealthCheckGracePeriod"],
        "Instances": [
            {**member, "LaunchConfigurationName": None, "LaunchTemplate": member["LaunchTemplate"] or None}
            for member in record["Instances"]
        ],
        "CreatedTime": record["CreatedTime"],
        "SuspendedProcesses": [
            {"ProcessName": process, "SuspensionReason": "User suspended"} for process in suspended
        ],
        "PlacementGroup": record.get("PlacementGroup") or None,
        "VPCZoneIdentifier": record["VPCZoneIdentifier"],
        "TerminationPolicies": record["TerminationPolicies"],
        "NewInstancesProtectedFromScaleIn": record["NewInstancesProtectedFromScaleIn"],
        "Tags": record["Tags"],
    }
