"""The VPC and what stands in it: its flags, subnets, ways out, endpoints and flow logs."""

from __future__ import annotations

import json
from typing import Any

from audit.compare.scene import Scene, declared_tags
from audit.difference import Change, Meaning
from audit.documents import Json
from audit.intrinsics import known
from audit.template import Resource

VPC = "AWS::EC2::VPC"
SUBNET = "AWS::EC2::Subnet"
ENDPOINT = "AWS::EC2::VPCEndpoint"
FLOW_LOG = "AWS::EC2::FlowLog"
GATEWAY = "AWS::EC2::InternetGateway"
ATTACHMENT = "AWS::EC2::VPCGatewayAttachment"
NAT = "AWS::EC2::NatGateway"

FLAGS = {
    "EnableDnsSupport": "names in the VPC do not resolve: nodes find no AWS service, so rows, metrics and "
    "the verdict go nowhere, and a node whose own name is known to DNS alone publishes loopback",
    "EnableDnsHostnames": "instances get no public names, and interface endpoints no private ones",
}


def compare(scene: Scene) -> None:
    """Everything of the network but rules, ACLs and routes."""
    _vpcs(scene)
    _subnets(scene)
    _gateways(scene)
    _endpoints(scene)
    _flow_logs(scene)


def _vpcs(scene: Scene) -> None:
    own = list(scene.stack.of_type(VPC))
    if not own:
        return
    vpcs = scene.table("vpcs", "VpcId", "the VPC")
    flags = scene.table("vpc-attributes", "VpcId", "the VPC's DNS flags")
    for resource in own:
        if vpcs is not None:
            _vpc(scene, resource, vpcs)
        found = (flags or {}).get(resource.id)
        for flag, why in FLAGS.items() if found is not None else ():
            told = resource.get(flag)
            actual = (found or {}).get(flag, {}).get("Value")
            arguments = {"VpcId": resource.id, flag: {"Value": str(told).lower() == "true"}}
            change = Change("ec2", "modify_vpc_attribute", arguments)
            scene.value(resource.id, resource.logical_id, flag, told, actual, why, revert=(change,))


def _vpc(scene: Scene, resource: Resource, vpcs: dict[str, Json]) -> None:
    entry = vpcs.get(resource.id)
    if entry is None:
        scene.missing(resource, "the VPC is gone, and everything in it", Meaning.BREAKS_MESH)
        return
    blocks = sorted(
        item.get("CidrBlock", "")
        for item in entry.get("CidrBlockAssociationSet") or ()
        if (item.get("CidrBlockState") or {}).get("State", "associated") in ("associated", "associating")
    )
    told = resource.get("CidrBlock")
    why = "the VPC has another range of addresses than it was given"
    if isinstance(told, str):
        scene.value(resource.id, resource.logical_id, "CidrBlocks", [told], blocks, why, Meaning.COSMETIC)
    scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())


def _subnets(scene: Scene) -> None:
    own = list(scene.stack.of_type(SUBNET))
    subnets = scene.table("subnets", "SubnetId", "subnets") if own else None
    for resource in own if subnets is not None else ():
        entry = (subnets or {}).get(resource.id)
        if entry is None:
            scene.missing(resource, "the members' subnet is gone", Meaning.BREAKS_MESH)
            continue
        told = resource.get("MapPublicIpOnLaunch")
        change = Change(
            "ec2",
            "modify_subnet_attribute",
            {"SubnetId": resource.id, "MapPublicIpOnLaunch": {"Value": str(told).lower() == "true"}},
        )
        scene.value(
            resource.id,
            resource.logical_id,
            "MapPublicIpOnLaunch",
            told,
            entry.get("MapPublicIpOnLaunch"),
            "what else is launched there gets a public address; members have it from their launch template",
            revert=(change,),
        )
        scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())


def _gateways(scene: Scene) -> None:
    own = list(scene.stack.of_type(GATEWAY))
    entries = scene.table("internet-gateways", "InternetGatewayId", "the internet gateway") if own else None
    vpc_of = {item.get("InternetGatewayId"): item.get("VpcId") for item in scene.stack.of_type(ATTACHMENT)}
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id) or {}
        # Only gateways that are attached are asked for: one that is not in the document is detached or gone.
        attached = [item.get("VpcId") for item in entry.get("Attachments") or ()]
        vpc = vpc_of.get(resource.id)
        change = Change("ec2", "attach_internet_gateway", {"InternetGatewayId": resource.id, "VpcId": vpc})
        scene.value(
            resource.id,
            resource.logical_id,
            "attachment",
            vpc,
            attached[0] if attached else None,
            "nodes have no way to the internet: no metrics, no logs, no package index",
            revert=(change,),
        )
        if attached:
            scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())
    _nat_gateways(scene)


def _nat_gateways(scene: Scene) -> None:
    own = list(scene.stack.of_type(NAT))
    entries = scene.table("nat-gateways", "NatGatewayId", "the NAT gateway") if own else None
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id)
        why = "nodes have no way out through it: no metrics, no logs, no package index"
        if entry is None:
            scene.missing(resource, why)
            continue
        scene.value(resource.id, resource.logical_id, "state", "available", entry.get("State"), why)
        scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())


def _endpoints(scene: Scene) -> None:
    own = list(scene.stack.of_type(ENDPOINT))
    entries = scene.table("vpc-endpoints", "VpcEndpointId", "VPC endpoints") if own else None
    for resource in own if entries is not None else ():
        service = str(resource.get("ServiceName", "")).rpartition(".")[2]
        entry = (entries or {}).get(resource.id)
        if entry is None or str(entry.get("State", "")).lower() in ("deleted", "deleting"):
            scene.missing(resource, f"nodes reach {service} by another way, or not at all")
            continue
        _endpoint(scene, resource, entry, service)


def _endpoint(scene: Scene, resource: Resource, entry: Json, service: str) -> None:
    def value(
        attribute: str, told: Any, actual: Any, why: str, revert: Json | None = None, *, as_list: bool = False
    ) -> None:
        if told is None or not known(told):
            return
        if as_list:
            told, actual = sorted(told), sorted(actual)
        change = Change("ec2", "modify_vpc_endpoint", {"VpcEndpointId": resource.id, **(revert or {})})
        scene.value(
            resource.id,
            resource.logical_id,
            attribute,
            told,
            actual,
            why,
            revert=(change,) if revert else (),
        )

    value("state", "available", str(entry.get("State", "")).lower(), f"nodes cannot reach {service} by it")
    policy, actual = resource.get("PolicyDocument"), parsed(entry.get("PolicyDocument"))
    if known(policy) and canonical(policy) != canonical(actual):
        why = f"requests to {service} pass or fail by other rules than the stack told"
        value("policy", policy, actual, why, {"PolicyDocument": json.dumps(policy)})
    tables = [str(item) for item in entry.get("RouteTableIds") or ()]
    told = resource.get("RouteTableIds")
    revert = _members_changed("RouteTableIds", told, tables)
    value("route tables", told, tables, f"nodes reach {service} another way", revert, as_list=True)
    subnets = [str(item) for item in entry.get("SubnetIds") or ()]
    value(
        "subnets", resource.get("SubnetIds"), subnets, f"nodes reach {service} from elsewhere", as_list=True
    )
    groups = [str(item.get("GroupId")) for item in entry.get("Groups") or ()]
    why = f"other rules decide who reaches {service}"
    value("security groups", resource.get("SecurityGroupIds"), groups, why, as_list=True)
    told = resource.get("PrivateDnsEnabled")
    value(
        "private DNS", told, entry.get("PrivateDnsEnabled"), f"the name of {service} leads past the endpoint"
    )
    scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())


def _members_changed(name: str, told: Any, actual: list[str]) -> Json | None:
    """What ModifyVpcEndpoint is to add to a list, and to remove from it."""
    if not isinstance(told, list) or not known(told):
        return None
    changes = {
        f"Add{name}": [item for item in told if item not in actual],
        f"Remove{name}": [item for item in actual if item not in told],
    }
    return {key: items for key, items in changes.items() if items} or None


def parsed(value: Any) -> Any:
    """A policy as EC2 gives it: text, or an object already."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def canonical(policy: Any) -> Any:
    """A policy in which one action and a list of one are the same, and order does not count."""
    if isinstance(policy, dict):
        found = {key: canonical(value) for key, value in policy.items()}
        return {**found, "Principal": "*"} if found.get("Principal") == {"AWS": "*"} else found
    if isinstance(policy, list):
        items = sorted(
            (canonical(item) for item in policy), key=lambda item: json.dumps(item, sort_keys=True)
        )
        return items[0] if len(items) == 1 else items
    return policy


def _flow_logs(scene: Scene) -> None:
    own = list(scene.stack.of_type(FLOW_LOG))
    entries = scene.table("flow-logs", "FlowLogId", "flow logs") if own else None
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id)
        why = "packets that rules drop are not recorded"
        if entry is None:
            scene.missing(resource, why)
            continue
        actual = {
            "status": entry.get("FlowLogStatus"),
            "traffic": entry.get("TrafficType"),
            "delivery": "FAILED" if entry.get("DeliverLogsStatus") == "FAILED" else "SUCCESS",
        }
        told = {"status": "ACTIVE", "traffic": resource.get("TrafficType"), "delivery": "SUCCESS"}
        for attribute, expected in told.items():
            scene.value(resource.id, resource.logical_id, attribute, expected, actual[attribute], why)
        scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())
