"""What the describe-* documents say of one instance, in the words of its node and its metadata. Pure."""

from __future__ import annotations

import base64
from typing import Any, List, Mapping, Optional, Tuple

from cluster.snapshot import ClusterSnapshot, Interface
from lab import fabric, observe
from lab.directory import Credentials, Directory, InstanceFacts

Document = Mapping[str, Any]


class FactsError(ValueError):
    """An instance cannot be booted as it is described."""


def primary_interface(instance: Document, snapshot: ClusterSnapshot) -> Interface:
    """The instance's first interface.

    Raises:
        FactsError: it has none with an IPv4 address.
    """
    interface = next(iter(snapshot.interfaces_of(instance["InstanceId"])), None)
    if interface is None or not interface.address:
        raise FactsError("it has no network interface with a private IPv4 address")
    return interface


def link_of(instance: Document, snapshot: ClusterSnapshot) -> fabric.Link:
    """Where the instance hangs in the VPC.

    Raises:
        FactsError: its interface or subnet is not described.
    """
    interface = primary_interface(instance, snapshot)
    subnet = snapshot.subnets.get(interface.subnet_id)
    ranges = ipv4(subnet.cidrs) if subnet else []
    if not ranges:
        raise FactsError(f"its subnet {interface.subnet_id or '(none)'} is not described")
    described = {item["NetworkInterfaceId"]: item for item in instance.get("NetworkInterfaces", ())}
    mac = described.get(interface.id, {}).get("MacAddress")
    if not mac:
        raise FactsError(f"its interface {interface.id} has no MAC address")
    return fabric.Link(
        veth=fabric.veth_name(interface.id), address=interface.address, network=ranges[0], mac=mac
    )


def host_name_of(instance: Document, address: str, region: str) -> Tuple[str, str]:
    """The short host name and its domain: what DescribeInstances says, else EC2's ip-name."""
    default = f"ip-{address.replace('.', '-')}.{Directory(region=region).domain}"
    short, _, domain = (instance.get("PrivateDnsName") or default).partition(".")
    return short, domain


def ipv4(cidrs: Tuple[str, ...]) -> List[str]:
    """The IPv4 ranges among ranges of both kinds."""
    return [cidr for cidr in cidrs if ":" not in cidr]


def resolver_of(vpc_id: str, snapshot: ClusterSnapshot) -> str:
    """The DNS server of a VPC's instances."""
    vpc = snapshot.vpcs.get(vpc_id)
    ranges = ipv4(vpc.cidrs) if vpc else []
    return fabric.vpc_resolver_address(ranges[0]) if ranges else fabric.RESOLVER_ADDRESS


def facts_of(
    instance: Document,
    snapshot: ClusterSnapshot,
    *,
    region: str,
    user_data: bytes,
    profile: Optional[Document],
    credentials: Optional[Credentials],
) -> InstanceFacts:
    """Everything that the instance's metadata service answers from. profile: its instance profile.

    Raises:
        FactsError: the instance is not described well enough to have a node.
    """
    interface = primary_interface(instance, snapshot)
    link = link_of(instance, snapshot)
    vpc, subnet = snapshot.vpcs.get(interface.vpc_id), snapshot.subnets.get(interface.subnet_id)
    options = instance.get("MetadataOptions") or {}
    groups = [snapshot.security_groups.get(group_id) for group_id in interface.group_ids or ()]
    roles = profile["Roles"] if profile else []
    launched = instance.get("LaunchTime")
    described: Document = next(iter(instance.get("NetworkInterfaces") or ()), {})
    tags = instance.get("Tags") or () if options.get("InstanceMetadataTags") == "enabled" else ()
    return InstanceFacts(
        instance_id=instance["InstanceId"],
        image_id=instance.get("ImageId", ""),
        instance_type=instance.get("InstanceType", ""),
        address=link.address,
        host_name=".".join(host_name_of(instance, link.address, region)),
        mac=link.mac,
        interface_id=interface.id,
        subnet_id=interface.subnet_id,
        subnet_cidr=link.network,
        vpc_id=interface.vpc_id,
        vpc_cidrs=tuple(ipv4(vpc.cidrs) if vpc else ()),
        security_groups=interface.group_ids or (),
        security_group_names=tuple(group.name for group in groups if group),
        zone=subnet.availability_zone if subnet else "",
        region=region,
        account_id=described.get("OwnerId", ""),
        architecture=instance.get("Architecture", ""),
        launch_time=observe.utc_text(launched.timestamp()) if launched else "",
        launch_index=int(instance.get("AmiLaunchIndex", 0)),
        reservation_id=instance.get("ReservationId", ""),
        public_address=instance.get("PublicIpAddress") or "",
        placement_group=(instance.get("Placement") or {}).get("GroupName", ""),
        user_data=base64.b64encode(user_data).decode(),
        tags={tag["Key"]: tag["Value"] for tag in tags},
        metadata_enabled=options.get("HttpEndpoint", "enabled") == "enabled",
        token_required=options.get("HttpTokens", "optional") == "required",
        profile_arn=(instance.get("IamInstanceProfile") or {}).get("Arn", "") if profile else "",
        profile_id=profile["InstanceProfileId"] if profile else "",
        role=roles[0]["RoleName"] if roles else "",
        credentials=credentials,
    )
