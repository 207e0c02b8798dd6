"""Instances and network interfaces as EC2's answers show them."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, instances
from lab.control_plane.wire import tag_list

Record = dict[str, Any]


def interfaces_of(record: Record) -> list[Record]:
    return [
        backend.network_interfaces[item]
        for item in record["NetworkInterfaceIds"]
        if item in backend.network_interfaces
    ]


def reservation(reservation_id: str, records: list[Record]) -> Record:
    return {
        "reservationId": reservation_id,
        "ownerId": backend.account_id(),
        "groupSet": [],
        "instancesSet": [instance_answer(record) for record in records],
    }


def state_answer(state: Record) -> Record:
    return {"code": state["Code"], "name": state["Name"]}


def group_list(groups: list[Record]) -> list[Record]:
    return [{"groupId": group["GroupId"], "groupName": group["GroupName"]} for group in groups]


def _camel(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: _camel(item) for key, item in value.items()}
    return value


def instance_answer(record: Record) -> Record:
    placement = record["Placement"]
    return {
        "instanceId": record["InstanceId"],
        "imageId": record["ImageId"],
        "instanceState": state_answer(record["State"]),
        "stateReason": _camel(record.get("StateReason")),
        "instanceType": record["InstanceType"],
        "keyName": record["KeyName"] or None,
        "launchTime": record["LaunchTime"],
        "amiLaunchIndex": record["AmiLaunchIndex"],
        "placement": {
            "availabilityZone": placement["AvailabilityZone"],
            "groupName": placement.get("GroupName", ""),
            "groupId": placement.get("GroupId") or None,
            "tenancy": placement["Tenancy"],
        },
        "privateDnsName": record["PrivateDnsName"],
        "privateIpAddress": record["PrivateIpAddress"] or None,
        "dnsName": record["PublicDnsName"],
        "ipAddress": record["PublicIpAddress"] or None,
        "sourceDestCheck": record["SourceDestCheck"],
        "subnetId": record["SubnetId"] or None,
        "vpcId": record["VpcId"] or None,
        "architecture": record["Architecture"],
        "rootDeviceType": record["RootDeviceType"],
        "rootDeviceName": record["RootDeviceName"],
        "blockDeviceMapping": _camel(record["BlockDeviceMappings"]),
        "iamInstanceProfile": _camel(record["IamInstanceProfile"]),
        "virtualizationType": record["Virtualization"],
        "hypervisor": record["Hypervisor"],
        "enaSupport": True,
        "ebsOptimized": True,
        "monitoring": {"state": record["Monitoring"]["State"]},
        "metadataOptions": _camel(record["MetadataOptions"]),
        "capacityReservationId": record["CapacityReservationId"] or None,
        "groupSet": group_list(record["SecurityGroups"]),
        "networkInterfaceSet": [_attached_interface_answer(item) for item in interfaces_of(record)],
        "tagSet": tag_list(backend.ec2_tags.get(record["InstanceId"], [])),
    }


def _attached_interface_answer(record: Record) -> Record:
    answer = interface_answer(record)
    # DescribeInstances leaves out what only DescribeNetworkInterfaces shows.
    for field in ("availabilityZone", "tagSet"):
        answer.pop(field)
    return answer


def interface_answer(record: Record) -> Record:
    association = record.get("Association")
    public = {"publicIp": association["PublicIp"], "ipOwnerId": "amazon"} if association else None
    private = {
        "privateIpAddress": record["PrivateIpAddress"],
        "privateDnsName": instances.private_dns_name(record["PrivateIpAddress"]),
    }
    return {
        "networkInterfaceId": record["NetworkInterfaceId"],
        "subnetId": record["SubnetId"],
        "vpcId": record["VpcId"],
        "availabilityZone": record["AvailabilityZone"],
        "description": record["Description"],
        "ownerId": record["OwnerId"],
        "status": record["Status"],
        "macAddress": record["MacAddress"],
        **private,
        "sourceDestCheck": record["SourceDestCheck"],
        "interfaceType": record["InterfaceType"],
        "groupSet": group_list(record["Groups"]),
        "attachment": _camel(record["Attachment"]),
        "association": public,
        "connectionTrackingConfiguration": _camel(record.get("ConnectionTracking")) or None,
        "privateIpAddressesSet": [{**private, "primary": True, "association": public}],
        "tagSet": tag_list(backend.ec2_tags.get(record["NetworkInterfaceId"], [])),
    }
