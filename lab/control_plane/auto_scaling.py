"""Auto scaling groups with real instances behind them.

A group's record is ministack's; this module keeps its instances equal to its desired
capacity by launching through `instances` like any caller, and remembers every attempt as a
scaling activity, with EC2's own refusal where there was one. It runs on the event loop only.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from lab.control_plane import backend, instances
from lab.control_plane.launch_spec import Data, launch_spec, template_data, version_number
from lab.control_plane.wire import ApiError

Record = dict[str, Any]

FIRST_RETRY_S = 5.0  # doubled with each failure in a row, as AWS waits longer and longer
LAST_RETRY_S = 60.0
ACTIVITIES_KEPT = 200


@dataclass
class GroupState:
    """What the service knows of a group beyond its public record."""

    activities: list[Record] = field(default_factory=list)
    suspended: set[str] = field(default_factory=set)
    retry_at: float = 0.0  # monotonic seconds; no launch is tried before
    failures_in_a_row: int = 0
    held: bool = False  # a rolling update decides what is launched
    replacing: int = 0  # launches that the running batch of it still owes


_states: dict[tuple[str, str, str], GroupState] = {}


def state_of(name: str) -> GroupState:
    return _states.setdefault((backend.account_id(), backend.region(), name), GroupState())


def forget(name: str) -> None:
    _states.pop((backend.account_id(), backend.region(), name), None)


def group(name: str) -> Record:
    """The group's record.

    Raises:
        ApiError: there is none of that name.
    """
    record = backend.auto_scaling_groups.get(name)
    if record is None:
        raise ApiError("ValidationError", "AutoScalingGroup name not found - null")
    return record


def members(name: str) -> list[Record]:
    return [item for item in group(name)["Instances"] if item["LifecycleState"] == "InService"]


def is_settled(name: str) -> bool:
    """Whether the group has what it wants: in a rolling update, the whole running batch."""
    state = state_of(name)
    if state.held:
        return state.replacing == 0
    return len(members(name)) == int(group(name)["DesiredCapacity"])


def reconcile(name: str) -> None:
    """Bring the group to its desired capacity as far as EC2 lets it."""
    record, state = group(name), state_of(name)
    if "ReplaceUnhealthy" not in state.suspended and "HealthCheck" not in state.suspended:
        record["Instances"] = [item for item in record["Instances"] if instances.running(item["InstanceId"])]
    desired = int(record["DesiredCapacity"])
    surplus = len(record["Instances"]) - desired
    if surplus > 0 and not state.held and "Terminate" not in state.suspended:
        cause = "an instance was taken out of service, because there are more than the desired capacity"
        terminate(name, [item["InstanceId"] for item in record["Instances"][-surplus:]], cause)
    if "Launch" in state.suspended or time.monotonic() < state.retry_at:
        return
    while state.replacing if state.held else len(record["Instances"]) < desired:
        if not _launch_one(record, state):
            pause_s = min(LAST_RETRY_S, FIRST_RETRY_S * 2**state.failures_in_a_row)
            state.retry_at = time.monotonic() + pause_s
            state.failures_in_a_row += 1
            return
        state.failures_in_a_row = 0
        state.replacing = max(0, state.replacing - 1)


def terminate(name: str, instance_ids: list[str], cause: str) -> None:
    """End these members, each with an activity and an event of its own."""
    record, state = group(name), state_of(name)
    for instance_id in instance_ids:
        zone = next(
            (i["AvailabilityZone"] for i in record["Instances"] if i["InstanceId"] == instance_id), ""
        )
        record["Instances"] = [i for i in record["Instances"] if i["InstanceId"] != instance_id]
        if instance_id in backend.instances:
            instances.terminate(instance_id)
        activity = _activity(
            record, state, f"Terminating EC2 instance: {instance_id}", cause=cause, zone=zone
        )
        activity["_InstanceId"] = instance_id
        _finish(record, activity, "EC2 Instance Terminate Successful")


def replace_members(name: str, instance_ids: list[str], *, last: bool) -> None:
    """One batch of a rolling update: end these, then launch as many anew.

    last: after this batch the group goes to its desired capacity by itself.
    """
    state = state_of(name)
    terminate(name, instance_ids, "an instance was taken out of service in response to a rolling update")
    state.held, state.retry_at, state.failures_in_a_row = not last, 0.0, 0
    state.replacing = 0 if last else len(instance_ids)
    reconcile(name)


def _launch_one(record: Record, state: GroupState) -> bool:
    """Launch one instance; False when EC2 refused it."""
    subnet_id = _next_subnet(record)
    zone = (backend.subnets.get(subnet_id) or {}).get("AvailabilityZone", "")
    cause = (
        f"an instance was started in response to a difference between desired and actual capacity, "
        f"increasing the capacity from {len(record['Instances'])} to {len(record['Instances']) + 1}."
    )
    activity = _activity(
        record, state, "Launching a new EC2 instance", cause=cause, zone=zone, subnet_id=subnet_id
    )
    try:
        data, template = _launch_data(record)
        spec = launch_spec(data, subnet_id=subnet_id, extra_tags=_instance_tags(record, template))
        made = instances.launch(spec)[0]
    except ApiError as error:
        activity["Description"] = f"Launching a new EC2 instance.  Status Reason: {_reason(error)}"
        activity["StatusMessage"] = _reason(error)
        _finish(record, activity, "EC2 Instance Launch Unsuccessful", failed=True)
        return False
    activity["Description"] = f"Launching a new EC2 instance: {made['InstanceId']}"
    activity["_InstanceId"] = made["InstanceId"]
    record["Instances"].append(
        {
            "InstanceId": made["InstanceId"],
            "InstanceType": made["InstanceType"],
            "AvailabilityZone": made["Placement"]["AvailabilityZone"],
            "LifecycleState": "InService",
            "HealthStatus": "Healthy",
            "LaunchTemplate": template,
            "LaunchConfigurationName": record["LaunchConfigurationName"],
            "ProtectedFromScaleIn": record["NewInstancesProtectedFromScaleIn"],
        }
    )
    _finish(record, activity, "EC2 Instance Launch Successful")
    return True


def _reason(error: ApiError) -> str:
    text = error.message.rstrip(".")
    return f"{text}. Launching EC2 instance failed."


def _launch_data(record: Record) -> tuple[Data, Record]:
    """The launch data of a group and the template version that it came from."""
    override: Record = {}
    if record["LaunchTemplate"]:
        specification: Record = record["LaunchTemplate"]
    else:
        mixed = (record.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
        specification = mixed.get("LaunchTemplateSpecification") or {}
        if not specification:
            raise ApiError(
                "ValidationError", "the lab launches from launch templates only; the group has none"
            )
        override = (mixed.get("Overrides") or [{}])[0]
    data = dict(template_data(specification))
    if override.get("InstanceType"):
        data["InstanceType"] = override["InstanceType"]
    if record.get("PlacementGroup"):
        data["Placement"] = {**(data.get("Placement") or {}), "GroupName": record["PlacementGroup"]}
    template = backend.launch_templates[specification["LaunchTemplateId"]]
    return data, {
        "LaunchTemplateId": template["LaunchTemplateId"],
        "LaunchTemplateName": template["LaunchTemplateName"],
        "Version": str(version_number(template, str(specification.get("Version") or "$Default"))),
    }


def _next_subnet(record: Record) -> str:
    subnets: list[str] = [item for item in record["VPCZoneIdentifier"].split(",") if item]
    if not subnets:
        return ""
    counts = dict.fromkeys(subnets, 0)
    for member in record["Instances"]:
        subnet_id = (backend.instances.get(member["InstanceId"]) or {}).get("SubnetId")
        if subnet_id in counts:
            counts[subnet_id] += 1
    return min(counts, key=lambda item: counts[item])


def _instance_tags(record: Record, template: Record) -> dict[str, str]:
    """The group's tags that propagate (CloudFormation's own do too), and the service's."""
    own = {
        tag["Key"]: tag["Value"]
        for tag in record["Tags"]
        if tag["PropagateAtLaunch"] or tag["Key"].startswith("aws:cloudformation:")
    }
    return {
        **own,
        "aws:autoscaling:groupName": record["AutoScalingGroupName"],
        "aws:ec2launchtemplate:id": template["LaunchTemplateId"],
        "aws:ec2launchtemplate:version": template["Version"],
    }


def _activity(
    record: Record, state: GroupState, description: str, *, cause: str, zone: str, subnet_id: str = ""
) -> Record:
    details = (
        {"Subnet ID": subnet_id, "Availability Zone": zone} if subnet_id else {"Availability Zone": zone}
    )
    activity = {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": record["AutoScalingGroupName"],
        "Description": description,
        "Cause": f"At {backend.now_iso()} {cause}",
        "StartTime": backend.now_iso(),
        "EndTime": None,
        "StatusCode": "InProgress",
        "StatusMessage": None,
        "Progress": 50,
        "Details": json.dumps(details),
        "AutoScalingGroupARN": record["AutoScalingGroupARN"],
    }
    state.activities.insert(0, activity)
    del state.activities[ACTIVITIES_KEPT:]
    return activity


def _finish(record: Record, activity: Record, event: str, *, failed: bool = False) -> None:
    activity["EndTime"] = backend.now_iso()
    activity["StatusCode"] = "Failed" if failed else "Successful"
    activity["Progress"] = 100
    instance_id = activity.pop("_InstanceId", "")
    detail = {
        "StatusCode": activity["StatusCode"],
        "AutoScalingGroupName": record["AutoScalingGroupName"],
        "ActivityId": activity["ActivityId"],
        "RequestId": activity["ActivityId"],
        "Details": json.loads(activity["Details"]),
        "StatusMessage": activity["StatusMessage"] or "",
        "StartTime": activity["StartTime"],
        "EndTime": activity["EndTime"],
        "EC2InstanceId": instance_id,
        "Cause": activity["Cause"],
        "Description": activity["Description"],
        "Origin": "EC2" if "Launching" in activity["Description"] else "AutoScalingGroup",
        "Destination": "AutoScalingGroup" if "Launching" in activity["Description"] else "EC2",
    }
    resources = [record["AutoScalingGroupARN"]]
    if instance_id:
        resources.append(f"arn:aws:ec2:{backend.region()}:{backend.account_id()}:instance/{instance_id}")
    backend.put_event("aws.autoscaling", event, json.dumps(detail), resources)
