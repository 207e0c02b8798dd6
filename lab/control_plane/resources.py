"""The smaller EC2 and CloudWatch resource types that ministack does not know."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, capacity_reservations, instances
from lab.control_plane.launch_spec import launch_spec, template_data
from lab.control_plane.wire import ApiError, new_id

Record = dict[str, Any]


def register() -> None:
    backend.register_type(
        "AWS::EC2::PlacementGroup",
        create=_create_placement_group,
        delete=_delete_placement_group,
        replacing=("GroupName", "Strategy", "PartitionCount", "SpreadLevel"),
    )
    backend.register_type(
        "AWS::EC2::FlowLog",
        create=_create_flow_log,
        delete=lambda physical_id, _: _drop(backend.flow_logs, physical_id),
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
    backend.register_type(
        "AWS::EC2::Instance",
        create=_create_instance,
        delete=_delete_instance,
        update=_update_instance,
        replacing=("ImageId", "SubnetId", "KeyName", "NetworkInterfaces", "PlacementGroupName", "LaunchTemplate"),
        blocking=True,
    )
    backend.register_drift_reader("AWS::EC2::Instance", _read_instance, frozenset({"InstanceType", "ImageId"}))
    backend.register_type(
        "AWS::EC2::EC2Fleet",
        create=_create_fleet,
        delete=_delete_fleet,
        replacing=("LaunchTemplateConfigs", "OnDemandOptions", "Type", "TagSpecifications"),
    )
    backend.register_type(
        "AWS::EC2::CapacityReservation",
        create=_create_reservation,
        delete=lambda physical_id, _: capacity_reservations.cancel(physical_id),
        update=_update_reservation,
        replacing=(
            "InstanceType",
            "InstancePlatform",
            "AvailabilityZone",
            "PlacementGroupArn",
            "Tenancy",
            "TagSpecifications",
        ),
    )
    backend.register_type(
        "AWS::CloudWatch::CompositeAlarm",
        create=_create_composite_alarm,
        delete=lambda physical_id, _: _drop(backend.composite_alarms, physical_id),
        update=_update_composite_alarm,
        replacing=("AlarmName",),
    )


def _drop(store: backend.Store, key: str) -> None:
    store.pop(key, None)
    backend.ec2_tags.pop(key, None)


def _refused(error: ApiError) -> ValueError:
    """A refusal in the words that CloudFormation gives it."""
    return ValueError(f"{error.message} (Service: Ec2, Status Code: 400, Error Code: {error.code})")


def _stack_tags(stack: str, logical_id: str) -> dict[str, str]:
    return {
        "aws:cloudformation:stack-name": stack,
        "aws:cloudformation:stack-id": backend.stack_id(stack),
        "aws:cloudformation:logical-id": logical_id,
    }


def _keep_tags(physical_id: str, properties: Record) -> None:
    tags = properties.get("Tags") or []
    if tags:
        backend.ec2_tags[physical_id] = [
            {"Key": str(tag["Key"]), "Value": str(tag.get("Value", ""))} for tag in tags
        ]


def _create_placement_group(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    name = properties.get("GroupName") or backend.physical_name(stack, logical_id)
    record = {
        "GroupName": name,
        "GroupId": new_id("pg"),
        "State": "available",
        "Strategy": properties.get("Strategy", "cluster"),
        "GroupArn": f"arn:aws:ec2:{backend.region()}:{backend.account_id()}:placement-group/{name}",
        "PartitionCount": int(properties.get("PartitionCount") or 0),
    }
    backend.placement_groups[name] = record
    _keep_tags(record["GroupId"], properties)
    return name, {"GroupName": name, "GroupId": record["GroupId"]}


def _delete_placement_group(name: str, properties: Record) -> None:
    if any(
        record["Placement"].get("GroupName") == name and instances.running(record["InstanceId"])
        for record in backend.instances.values()
    ):
        raise ValueError(f"The placement group '{name}' is in use and may not be deleted.")
    _drop(backend.placement_groups, name)


def _create_flow_log(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    flow_log_id = new_id("fl")
    backend.flow_logs[flow_log_id] = {
        "FlowLogId": flow_log_id,
        "ResourceId": properties["ResourceId"],
        "ResourceType": properties["ResourceType"],
        "TrafficType": properties.get("TrafficType", "ALL"),
        "LogDestinationType": properties.get("LogDestinationType", "cloud-watch-logs"),
        "LogDestination": properties.get("LogDestination") or properties.get("LogGroupName", ""),
        "FlowLogStatus": "ACTIVE",
        "CreationTime": backend.now_iso(),
    }
    _keep_tags(flow_log_id, properties)
    return flow_log_id, {"Id": flow_log_id}


def _create_instance(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    tags = {str(tag["Key"]): str(tag.get("Value", "")) for tag in properties.get("Tags") or []}

    def launch() -> Record:
        try:
            template = template_data(properties.get("LaunchTemplate") or {})
            data = {**template, **properties}
            profile = properties.get("IamInstanceProfile")
            if isinstance(profile, str):
                data["IamInstanceProfile"] = {"Name": profile}
            if properties.get("PlacementGroupName"):
                data["Placement"] = {"GroupName": properties["PlacementGroupName"]}
            if "Monitoring" in properties:
                data["Monitoring"] = {"Enabled": properties["Monitoring"]}
            interfaces = data.get("NetworkInterfaces") or []
            for item in interfaces:
                item["Groups"] = item.pop("GroupSet", None) or item.get("Groups") or []
            subnet_id = properties.get("SubnetId") or next(
                (item["SubnetId"] for item in interfaces if item.get("SubnetId")), ""
            )
            spec = launch_spec(data, subnet_id=subnet_id, extra_tags={**tags, **_stack_tags(stack, logical_id)})
            return instances.launch(spec)[0]
        except ApiError as error:
            raise _refused(error) from error

    record = backend.on_loop(launch)
    policy = backend.resource_definition(stack, logical_id).get("CreationPolicy") or {}
    if "ResourceSignal" in policy:
        signal = policy["ResourceSignal"] or {}
        try:
            backend.wait_for_resource_signals(stack, logical_id, "AWS::EC2::Instance", signal)
        except (RuntimeError, TimeoutError):
            backend.on_loop(lambda: instances.terminate(record["InstanceId"]))
            raise
    return record["InstanceId"], _instance_attributes(record)


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


def _update_instance(
    physical_id: str, old: Record, new: Record, stack: str, logical_id: str
) -> tuple[str, Record]:
    record = backend.instances[physical_id]
    if new.get("SecurityGroupIds") != old.get("SecurityGroupIds"):
        backend.on_loop(lambda: instances.set_groups(record, list(new.get("SecurityGroupIds") or [])))
    record["InstanceType"] = new.get("InstanceType", record["InstanceType"])
    return physical_id, _instance_attributes(record)


def _delete_instance(physical_id: str, properties: Record) -> None:
    if physical_id in backend.instances:
        backend.on_loop(lambda: instances.terminate(physical_id))


def _read_instance(physical_id: str, properties: Record) -> Record | None:
    if not instances.running(physical_id):
        return None
    record = backend.instances[physical_id]
    return {"InstanceType": record["InstanceType"], "ImageId": record["ImageId"]}


def _create_fleet(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    """An `instant` fleet: all at once; with a minimum target it is all or nothing."""
    if properties.get("Type", "maintain") != "instant":
        raise ValueError("the lab launches fleets of type instant only; set Type: instant")
    fleet_id = new_id("fleet")
    config = properties["LaunchTemplateConfigs"][0]
    override = (config.get("Overrides") or [{}])[0]
    total = int(properties["TargetCapacitySpecification"]["TotalTargetCapacity"])
    minimum = int((properties.get("OnDemandOptions") or {}).get("MinTargetCapacity", 0))
    tags = {**_stack_tags(stack, logical_id), "aws:ec2:fleet-id": fleet_id}
    made: list[Record] = []
    try:
        data = dict(template_data(config["LaunchTemplateSpecification"]))
        if override.get("InstanceType"):
            data["InstanceType"] = override["InstanceType"]
        spec = launch_spec(data, subnet_id=override.get("SubnetId", ""), extra_tags=tags)
        while len(made) < total:
            made += instances.launch(spec)
    except ApiError as error:
        if len(made) < max(minimum, 1):
            for record in made:
                instances.forget(record["InstanceId"])
            raise _refused(error) from error
    return fleet_id, {"FleetId": fleet_id}


def _delete_fleet(fleet_id: str, properties: Record) -> None:
    for instance_id in list(backend.instances):
        tags = backend.ec2_tags.get(instance_id, [])
        if {"Key": "aws:ec2:fleet-id", "Value": fleet_id} in tags:
            instances.terminate(instance_id)


def _create_reservation(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    try:
        record = capacity_reservations.create(properties)
    except ApiError as error:
        raise _refused(error) from error
    return record["CapacityReservationId"], capacity_reservations.attributes(record)


def _update_reservation(
    physical_id: str, old: Record, new: Record, stack: str, logical_id: str
) -> tuple[str, Record]:
    try:
        record = capacity_reservations.resize(physical_id, int(new["InstanceCount"]))
    except ApiError as error:
        raise _refused(error) from error
    return physical_id, capacity_reservations.attributes(record)


def _create_composite_alarm(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
    name = properties.get("AlarmName") or backend.physical_name(stack, logical_id)
    backend.put_composite_alarm(name, properties)
    return name, {"Arn": backend.composite_alarms[name]["AlarmArn"]}


def _update_composite_alarm(
    physical_id: str, old: Record, new: Record, stack: str, logical_id: str
) -> tuple[str, Record]:
    backend.put_composite_alarm(physical_id, new)
    return physical_id, {"Arn": backend.composite_alarms[physical_id]["AlarmArn"]}
