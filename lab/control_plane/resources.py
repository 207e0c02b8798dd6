"""The smaller EC2 and CloudWatch resource types that ministack does not know."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, capacity_reservations, instances
from lab.control_plane.launch_spec import Data, launch_spec, template_data
from lab.control_plane.loop import on_loop
from lab.control_plane.registration import (
    Made,
    Resource,
    drop,
    keep_tags,
    refused,
    register_drift_reader,
    register_type,
)
from lab.control_plane.wire import ApiError, new_id

Record = dict[str, Any]

INSTANCE = "AWS::EC2::Instance"


def register() -> None:
    register_type(
        "AWS::EC2::PlacementGroup",
        create=_create_placement_group,
        delete=_delete_placement_group,
        replacing=("GroupName", "Strategy", "PartitionCount", "SpreadLevel"),
    )
    register_type(
        "AWS::EC2::FlowLog",
        create=_create_flow_log,
        delete=lambda resource: drop(backend.flow_logs, resource.physical_id),
        replacing=(
            "ResourceId",
            "ResourceType",
            "TrafficType",
            "LogGroupName",
            "LogDestination",
            "LogDestinationType",
            "MaxAggregationInterval",
            "LogFormat",
            "DeliverLogsPermissionArn",
        ),
    )
    register_type(
        INSTANCE,
        create=_create_instance,
        update=_update_instance,
        delete=_delete_instance,
        replacing=(
            "ImageId",
            "SubnetId",
            "KeyName",
            "NetworkInterfaces",
            "PlacementGroupName",
            "LaunchTemplate",
        ),
        blocking=True,
    )
    register_drift_reader(INSTANCE, _read_instance, frozenset({"InstanceType", "ImageId"}))
    register_type(
        "AWS::EC2::EC2Fleet",
        create=_create_fleet,
        delete=_delete_fleet,
        replacing=("LaunchTemplateConfigs", "OnDemandOptions", "Type", "TagSpecifications"),
    )
    register_type(
        "AWS::EC2::CapacityReservation",
        create=_create_reservation,
        update=_update_reservation,
        delete=lambda resource: capacity_reservations.cancel(resource.physical_id),
        replacing=(
            "InstanceType",
            "InstancePlatform",
            "AvailabilityZone",
            "PlacementGroupArn",
            "Tenancy",
            "TagSpecifications",
        ),
    )
    register_type(
        "AWS::CloudWatch::CompositeAlarm",
        create=_create_composite_alarm,
        update=_update_composite_alarm,
        delete=lambda resource: drop(backend.composite_alarms, resource.physical_id),
        replacing=("AlarmName",),
    )


def _stack_tags(resource: Resource) -> dict[str, str]:
    return {
        "aws:cloudformation:stack-name": resource.stack,
        "aws:cloudformation:stack-id": backend.stack_id(resource.stack),
        "aws:cloudformation:logical-id": resource.logical_id,
    }


def _create_placement_group(resource: Resource) -> Made:
    given = resource.properties
    name = given.get("GroupName") or backend.physical_name(resource.stack, resource.logical_id)
    record = {
        "GroupName": name,
        "GroupId": new_id("pg"),
        "State": "available",
        "Strategy": given.get("Strategy", "cluster"),
        "GroupArn": f"arn:aws:ec2:{backend.region()}:{backend.account_id()}:placement-group/{name}",
        "PartitionCount": int(given.get("PartitionCount") or 0),
    }
    backend.placement_groups[name] = record
    keep_tags(record["GroupId"], given)
    return name, {"GroupName": name, "GroupId": record["GroupId"]}


def _delete_placement_group(resource: Resource) -> None:
    name = resource.physical_id
    if any(
        record["Placement"].get("GroupName") == name and instances.running(record["InstanceId"])
        for record in backend.instances.values()
    ):
        raise ValueError(f"The placement group '{name}' is in use and may not be deleted.")
    drop(backend.placement_groups, name)


def _create_flow_log(resource: Resource) -> Made:
    given = resource.properties
    flow_log_id = new_id("fl")
    backend.flow_logs[flow_log_id] = {
        "FlowLogId": flow_log_id,
        "ResourceId": given["ResourceId"],
        "ResourceType": given["ResourceType"],
        "TrafficType": given.get("TrafficType", "ALL"),
        "LogDestinationType": given.get("LogDestinationType", "cloud-watch-logs"),
        "LogDestination": given.get("LogDestination") or given.get("LogGroupName", ""),
        "FlowLogStatus": "ACTIVE",
        "CreationTime": backend.now_iso(),
    }
    keep_tags(flow_log_id, given)
    return flow_log_id, {"Id": flow_log_id}


def _create_instance(resource: Resource) -> Made:
    def launch() -> Record:
        try:
            data = _instance_data(resource.properties)
            own = {str(tag["Key"]): str(tag.get("Value", "")) for tag in data.get("Tags") or []}
            tags = {**own, **_stack_tags(resource)}
            spec = launch_spec(data, subnet_id=data.get("SubnetId", ""), extra_tags=tags)
            return instances.launch(spec)[0]
        except ApiError as error:
            raise refused(error) from error

    record = on_loop(launch)
    try:
        backend.wait_for_resource_signals(resource.stack, resource.logical_id, INSTANCE)
    except (RuntimeError, TimeoutError):
        on_loop(lambda: instances.terminate(record["InstanceId"]))
        raise
    return record["InstanceId"], _instance_attributes(record)


def _instance_data(properties: Record) -> Data:
    """The properties of an Instance, whose names differ a little, as launch data."""
    data = {**template_data(properties.get("LaunchTemplate") or {}), **properties}
    profile = properties.get("IamInstanceProfile")
    if isinstance(profile, str):
        data["IamInstanceProfile"] = {"Name": profile}
    if properties.get("PlacementGroupName"):
        data["Placement"] = {"GroupName": properties["PlacementGroupName"]}
    if "Monitoring" in properties:
        data["Monitoring"] = {"Enabled": properties["Monitoring"]}
    if properties.get("NetworkInterfaces"):
        data["NetworkInterfaces"] = [
            {**item, "Groups": item.get("GroupSet") or []} for item in properties["NetworkInterfaces"]
        ]
    return data


def _instance_attributes(record: Record) -> Record:
    return {
        "InstanceId": record["InstanceId"],
        "PrivateIp": record["PrivateIpAddress"],
        "PublicIp": record["PublicIpAddress"],
        "PrivateDnsName": record["PrivateDnsName"],
        "PublicDnsName": record["PublicDnsName"],
        "AvailabilityZone": record["Placement"]["AvailabilityZone"],
        "VpcId": record["VpcId"],
    }


def _update_instance(resource: Resource) -> Made:
    record = backend.instances[resource.physical_id]
    groups = list(resource.properties.get("SecurityGroupIds") or [])
    if groups != list(resource.old.get("SecurityGroupIds") or []):
        on_loop(lambda: instances.set_groups(record, groups))
    record["InstanceType"] = resource.properties.get("InstanceType", record["InstanceType"])
    return resource.physical_id, _instance_attributes(record)


def _delete_instance(resource: Resource) -> None:
    if resource.physical_id in backend.instances:
        on_loop(lambda: instances.terminate(resource.physical_id))


def _read_instance(resource: Resource) -> Record | None:
    if not instances.running(resource.physical_id):
        return None
    record = backend.instances[resource.physical_id]
    return {"InstanceType": record["InstanceType"], "ImageId": record["ImageId"]}


def _create_fleet(resource: Resource) -> Made:
    """An `instant` fleet: all at once; with a minimum target it is all or nothing."""
    given = resource.properties
    if given.get("Type", "maintain") != "instant":
        raise ValueError("the lab launches fleets of type instant only; set Type: instant")
    fleet_id = new_id("fleet")
    config = given["LaunchTemplateConfigs"][0]
    override = (config.get("Overrides") or [{}])[0]
    total = int(given["TargetCapacitySpecification"]["TotalTargetCapacity"])
    minimum = int((given.get("OnDemandOptions") or {}).get("MinTargetCapacity", 0))
    made: list[Record] = []
    try:
        data = dict(template_data(config["LaunchTemplateSpecification"]))
        if override.get("InstanceType"):
            data["InstanceType"] = override["InstanceType"]
        spec = launch_spec(
            data,
            subnet_id=override.get("SubnetId", ""),
            extra_tags={**_stack_tags(resource), "aws:ec2:fleet-id": fleet_id},
        )
        while len(made) < total:
            made += instances.launch(spec)
    except ApiError as error:
        if len(made) < max(minimum, 1):
            for record in made:
                instances.forget(record["InstanceId"])
            raise refused(error) from error
    return fleet_id, {"FleetId": fleet_id}


def _delete_fleet(resource: Resource) -> None:
    tag = {"Key": "aws:ec2:fleet-id", "Value": resource.physical_id}
    for instance_id in list(backend.instances):
        if tag in backend.ec2_tags.get(instance_id, []):
            instances.terminate(instance_id)


def _create_reservation(resource: Resource) -> Made:
    try:
        record = capacity_reservations.create(resource.properties)
    except ApiError as error:
        raise refused(error) from error
    return record["CapacityReservationId"], capacity_reservations.attributes(record)


def _update_reservation(resource: Resource) -> Made:
    try:
        record = capacity_reservations.resize(resource.physical_id, int(resource.properties["InstanceCount"]))
    except ApiError as error:
        raise refused(error) from error
    return resource.physical_id, capacity_reservations.attributes(record)


def _create_composite_alarm(resource: Resource) -> Made:
    name = resource.properties.get("AlarmName") or backend.physical_name(resource.stack, resource.logical_id)
    backend.put_composite_alarm(name, resource.properties)
    return name, {"Arn": backend.composite_alarms[name]["AlarmArn"]}


def _update_composite_alarm(resource: Resource) -> Made:
    backend.put_composite_alarm(resource.physical_id, resource.properties)
    return resource.physical_id, {"Arn": backend.composite_alarms[resource.physical_id]["AlarmArn"]}
