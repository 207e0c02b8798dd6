"""Instances and their network interfaces: made, refused and ended as EC2 does.

An instance here is a record that DescribeInstances lists; the lab boots what is listed.
Records live in ministack's own stores, in its shape plus the fields it lacks, so that its
other actions (tags, status, instance profiles, volumes) keep working on them.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from typing import Any

from lab.control_plane import backend, capacity, capacity_reservations, refusals
from lab.control_plane.launch_spec import InterfaceSpec, LaunchSpec
from lab.control_plane.wire import ApiError, new_id

Record = dict[str, Any]

FIRST_HOST = 4  # AWS keeps the first four addresses of every subnet, and the last
TERMINATED_FOR_S = 300.0  # how long an ended instance stays listed; EC2 lists it for about an hour
RUNNING = {"Code": 16, "Name": "running"}
TERMINATED = {"Code": 48, "Name": "terminated"}


def launch(spec: LaunchSpec, count: int = 1, reservation_id: str = "") -> list[Record]:
    """Make `count` instances, all or none.

    Raises:
        ApiError: EC2's refusal; nothing is left of the instances made before it.
    """
    refusals.check(spec)
    reservation_id = reservation_id or new_id("r")
    made: list[Record] = []
    try:
        for index in range(count):
            made.append(_launch_one(spec, index, reservation_id))
    except ApiError:
        for record in made:
            forget(record["InstanceId"])
        raise
    return made


def _launch_one(spec: LaunchSpec, index: int, reservation_id: str) -> Record:
    subnet = _subnet(spec.subnet_id)
    zone = subnet["AvailabilityZone"]
    capacity_reservations.claim(spec, zone)
    capacity.claim(spec.instance_type, zone)
    instance_id = new_id("i")
    now = backend.now_iso()
    interfaces = [
        _make_interface(instance_id, item, subnet, now)
        for item in sorted(spec.interfaces, key=lambda item: item.device_index)
    ]
    primary = interfaces[0]
    address = primary["PrivateIpAddress"]
    public_address = primary["Association"]["PublicIp"] if primary.get("Association") else ""
    record = {
        "InstanceId": instance_id,
        "ReservationId": reservation_id,
        "ImageId": spec.image_id,
        "InstanceType": spec.instance_type,
        "KeyName": spec.key_name,
        "State": dict(RUNNING),
        "SubnetId": subnet["SubnetId"],
        "VpcId": subnet["VpcId"],
        "PrivateIpAddress": address,
        "PrivateDnsName": private_dns_name(address),
        "PublicIpAddress": public_address,
        "PublicDnsName": f"ec2-{public_address.replace('.', '-')}.compute-1.amazonaws.com"
        if public_address
        else "",
        "SourceDestCheck": True,
        "SecurityGroups": primary["Groups"],
        "Architecture": "arm64" if refusals.is_graviton(spec.instance_type) else "x86_64",
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda",
        "Hypervisor": "xen",
        "Virtualization": "hvm",
        "Placement": {
            "AvailabilityZone": zone,
            "Tenancy": spec.tenancy,
            "GroupName": spec.placement_group,
            "GroupId": (backend.placement_groups.get(spec.placement_group) or {}).get("GroupId", ""),
        },
        "Monitoring": {"State": "enabled" if spec.detailed_monitoring else "disabled"},
        "MetadataOptions": _metadata_options(spec),
        "CapacityReservationId": spec.capacity_reservation_id,
        "AmiLaunchIndex": index,
        "UserData": spec.user_data,
        "LaunchTime": now,
        "BlockDeviceMappings": _make_volumes(instance_id, spec, zone, now),
        "NetworkInterfaceIds": [item["NetworkInterfaceId"] for item in interfaces],
        "IamInstanceProfile": None,
    }
    backend.instances[instance_id] = record
    profile = refusals.instance_profile(spec)
    if profile:
        backend.associate_instance_profile(instance_id, profile)
    if spec.tags:
        backend.ec2_tags[instance_id] = [{"Key": key, "Value": value} for key, value in spec.tags]
    return record


def terminate(instance_id: str) -> None:
    """End an instance; its record stays for a while, as terminated, without interfaces."""
    record = backend.instances[instance_id]
    if record["State"]["Name"] == "terminated":
        return
    backend.disassociate_instance_profile(instance_id)
    _drop_attachments(record)
    record["State"] = dict(TERMINATED)
    record["StateReason"] = {
        "Code": "Client.UserInitiatedShutdown",
        "Message": "Client.UserInitiatedShutdown: User initiated shutdown",
    }
    record["_terminated_at"] = time.time()
    record["SecurityGroups"] = []
    record["NetworkInterfaceIds"] = []
    for field in (
        "PrivateIpAddress",
        "PrivateDnsName",
        "PublicIpAddress",
        "PublicDnsName",
        "SubnetId",
        "VpcId",
    ):
        record[field] = ""


def forget(instance_id: str) -> None:
    """Remove an instance as if it had never been launched."""
    record = backend.instances.get(instance_id)
    if record is None:
        return
    backend.disassociate_instance_profile(instance_id)
    _drop_attachments(record)
    del backend.instances[instance_id]
    backend.ec2_tags.pop(instance_id, None)


def purge() -> None:
    """Drop the records of instances that ended a while ago."""
    for instance_id, record in list(backend.instances.items()):
        ended = record.get("_terminated_at")
        if ended is not None and time.time() - ended > TERMINATED_FOR_S:
            del backend.instances[instance_id]
            backend.ec2_tags.pop(instance_id, None)


def running(instance_id: str) -> bool:
    record = backend.instances.get(instance_id)
    return record is not None and record["State"]["Name"] in ("pending", "running")


def set_groups(instance: Record, groups: list[str]) -> None:
    """Replace the groups of an instance's first interface (and so of the instance)."""
    set_interface_groups(backend.network_interfaces[instance["NetworkInterfaceIds"][0]], groups)


def set_interface_groups(interface: Record, groups: list[str]) -> None:
    """Replace the groups of an interface; the instance shows those of its first one."""
    interface["Groups"] = group_references(groups)
    attachment = interface.get("Attachment") or {}
    if attachment.get("DeviceIndex") == 0:
        backend.instances[attachment["InstanceId"]]["SecurityGroups"] = interface["Groups"]


def group_references(groups: list[str]) -> list[dict[str, str]]:
    """Group ids as the pairs of id and name that EC2 shows.

    Raises:
        ApiError: a group does not exist.
    """
    found = []
    for group_id in groups:
        group = backend.security_groups.get(group_id)
        if group is None:
            raise ApiError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        found.append({"GroupId": group_id, "GroupName": group["GroupName"]})
    return found


def _subnet(subnet_id: str) -> Record:
    subnet = backend.subnets.get(subnet_id)
    if subnet is None:
        raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    return subnet


def private_dns_name(address: str) -> str:
    """The private host name EC2 gives in the lab's default region's form."""
    return f"ip-{address.replace('.', '-')}.ec2.internal"


def make_interface(subnet: Record, item: InterfaceSpec) -> Record:
    """A network interface that belongs to no instance yet."""
    return _make_interface("", item, subnet, backend.now_iso())


def _make_interface(instance_id: str, item: InterfaceSpec, subnet: Record, now: str) -> Record:
    groups = list(item.groups) or [_default_group(subnet["VpcId"])]
    public = (
        subnet.get("MapPublicIpOnLaunch", False) if item.associate_public is None else item.associate_public
    )
    interface_id = new_id("eni")
    record = {
        "NetworkInterfaceId": interface_id,
        "SubnetId": subnet["SubnetId"],
        "VpcId": subnet["VpcId"],
        "AvailabilityZone": subnet["AvailabilityZone"],
        "Description": item.description,
        "OwnerId": backend.account_id(),
        "Status": "in-use" if instance_id else "available",
        "PrivateIpAddress": item.private_address or _free_address(subnet),
        "InterfaceType": item.interface_type,
        "SourceDestCheck": True,
        "MacAddress": "0a:" + ":".join(f"{byte:02x}" for byte in secrets.token_bytes(5)),
        "Groups": group_references(groups),
        "ConnectionTracking": dict(item.connection_tracking),
        "Association": {"PublicIp": public_address()} if public and instance_id else None,
        "Attachment": None,
    }
    if instance_id:
        record["Attachment"] = {
            "AttachmentId": new_id("eni-attach"),
            "InstanceId": instance_id,
            "InstanceOwnerId": backend.account_id(),
            "DeviceIndex": item.device_index,
            "NetworkCardIndex": item.network_card_index,
            "Status": "attached",
            "AttachTime": now,
            "DeleteOnTermination": True,
        }
    backend.network_interfaces[interface_id] = record
    return record


def _free_address(subnet: Record) -> str:
    network = ipaddress.ip_network(subnet["CidrBlock"])
    used = {
        item["PrivateIpAddress"]
        for item in backend.network_interfaces.values()
        if item["SubnetId"] == subnet["SubnetId"]
    }
    base = int(network.network_address)
    for offset in range(FIRST_HOST, network.num_addresses - 1):
        address = str(ipaddress.ip_address(base + offset))
        if address not in used:
            return address
    raise ApiError(
        "InsufficientFreeAddressesInSubnet",
        f"There are not enough free addresses in subnet '{subnet['SubnetId']}' to satisfy the requested "
        "number of instances.",
    )


def public_address() -> str:
    """An address of the block that documentation may use, never one of the real internet."""
    return f"203.0.113.{secrets.randbelow(254) + 1}"


def _default_group(vpc_id: str) -> str:
    return next(
        str(group["GroupId"])
        for group in backend.security_groups.values()
        if group["VpcId"] == vpc_id and group["GroupName"] == "default"
    )


def _metadata_options(spec: LaunchSpec) -> Record:
    given = spec.metadata_options
    return {
        "State": "applied",
        "HttpTokens": given.get("HttpTokens", "optional"),
        "HttpPutResponseHopLimit": int(given.get("HttpPutResponseHopLimit", 1)),
        "HttpEndpoint": given.get("HttpEndpoint", "enabled"),
        "HttpProtocolIpv6": given.get("HttpProtocolIpv6", "disabled"),
        "InstanceMetadataTags": given.get("InstanceMetadataTags", "disabled"),
    }


def _make_volumes(instance_id: str, spec: LaunchSpec, zone: str, now: str) -> list[Record]:
    root: Record = {"DeviceName": "/dev/xvda", "Ebs": {}}
    devices = spec.block_devices or (root,)
    mappings = []
    for device in devices:
        ebs = device.get("Ebs") or {}
        volume_id = new_id("vol")
        attachment = {"Status": "attached", "AttachTime": now, "DeleteOnTermination": True}
        mappings.append({"DeviceName": device["DeviceName"], "Ebs": {"VolumeId": volume_id, **attachment}})
        backend.volumes[volume_id] = {
            "VolumeId": volume_id,
            "Size": int(ebs.get("VolumeSize", 8)),
            "AvailabilityZone": zone,
            "State": "in-use",
            "VolumeType": ebs.get("VolumeType", "gp3"),
            "SnapshotId": ebs.get("SnapshotId", ""),
            "Iops": int(ebs.get("Iops", 3000)),
            "Encrypted": str(ebs.get("Encrypted", False)).lower() == "true",
            "CreateTime": now,
            "Attachments": [
                {
                    "VolumeId": volume_id,
                    "InstanceId": instance_id,
                    "Device": device["DeviceName"],
                    "State": "attached",
                    "AttachTime": now,
                    "DeleteOnTermination": True,
                }
            ],
            "MultiAttachEnabled": False,
            "Throughput": int(ebs.get("Throughput", 125)),
        }
        if spec.volume_tags:
            backend.ec2_tags[volume_id] = [{"Key": key, "Value": value} for key, value in spec.volume_tags]
    return mappings


def _drop_attachments(record: Record) -> None:
    for interface_id in record.get("NetworkInterfaceIds", []):
        backend.network_interfaces.pop(interface_id, None)
        backend.ec2_tags.pop(interface_id, None)
    for mapping in record["BlockDeviceMappings"]:
        backend.volumes.pop(mapping["Ebs"]["VolumeId"], None)
        backend.ec2_tags.pop(mapping["Ebs"]["VolumeId"], None)
