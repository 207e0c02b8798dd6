"""Ways to change a deployed cluster: the network's settings, tags, instances and the fleet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.changes.hands import Hands
from bench.changes.make_rules import Make


def call(change: Callable[[Hands], Any], back: Callable[[Hands], Any]) -> Make:
    """One call, and the call that takes it back."""

    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        change(hands)
        try:
            yield
        finally:
            back(hands)

    return make


def flag(name: str) -> Make:
    def to(value: bool) -> Callable[[Hands], Any]:
        return lambda hands: hands.ec2.modify_vpc_attribute(VpcId=hands.vpc, **{name: {"Value": value}})

    return call(to(False), to(True))


def tagged(name: str, key: str, value: str) -> Make:
    return call(
        lambda h: h.ec2.create_tags(Resources=[h.resource(name)], Tags=[{"Key": key, "Value": value}]),
        lambda h: h.ec2.delete_tags(Resources=[h.resource(name)], Tags=[{"Key": key}]),
    )


def untagged(name: str, key: str) -> Make:
    @contextmanager
    def make(hands: Hands) -> Iterator[None]:
        resource = hands.resource(name)  # before its tag is gone: it is found by it
        hands.ec2.delete_tags(Resources=[resource], Tags=[{"Key": key}])
        try:
            yield
        finally:
            tags = [{"Key": key, "Value": hands.cluster}]
            hands.ec2.create_tags(Resources=[resource], Tags=tags)

    return make


@contextmanager
def endpoint_policy(hands: Hands) -> Iterator[None]:
    def set_to(policy: str) -> None:
        endpoint = hands.endpoint["VpcEndpointId"]
        hands.ec2.modify_vpc_endpoint(VpcEndpointId=endpoint, PolicyDocument=policy)

    everything = {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}
    set_to(json.dumps({"Version": "2012-10-17", "Statement": [everything]}))
    try:
        yield
    finally:
        set_to(hands.endpoint["PolicyDocument"])


def endpoint_tables(key: str) -> Callable[[Hands], Any]:
    def change(hands: Hands) -> None:
        tables = {key: hands.endpoint["RouteTableIds"]}
        hands.ec2.modify_vpc_endpoint(VpcEndpointId=hands.endpoint["VpcEndpointId"], **tables)

    return change


unrouted = call(endpoint_tables("RemoveRouteTableIds"), endpoint_tables("AddRouteTableIds"))


@contextmanager
def template_version(hands: Hands) -> Iterator[None]:
    """A newer version of the launch template that nothing uses."""
    template = hands.resource("template")
    made = hands.ec2.create_launch_template_version(
        LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"InstanceType": "m5.large"}
    )["LaunchTemplateVersion"]["VersionNumber"]
    try:
        yield
    finally:
        hands.ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=[str(made)])


@contextmanager
def launches_other(hands: Hands) -> Iterator[None]:
    """The fleet launches from a version of another type."""
    fleet, template = hands.resource("fleet"), hands.resource("template")

    def use(version: str) -> None:
        hands.scaling.update_auto_scaling_group(
            AutoScalingGroupName=fleet, LaunchTemplate={"LaunchTemplateId": template, "Version": version}
        )

    made = hands.ec2.create_launch_template_version(
        LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"InstanceType": "m5.large"}
    )["LaunchTemplateVersion"]["VersionNumber"]
    use(str(made))
    try:
        yield
    finally:
        use("1")
        hands.ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=[str(made)])


@contextmanager
def second_interface(hands: Hands) -> Iterator[None]:
    subnet, member = hands.resource("subnet 1"), hands.resource("member 1")
    made = hands.ec2.create_network_interface(SubnetId=subnet, Groups=[hands.group])["NetworkInterface"]
    attached = hands.ec2.attach_network_interface(
        NetworkInterfaceId=made["NetworkInterfaceId"], InstanceId=member, DeviceIndex=1
    )
    try:
        yield
    finally:
        hands.ec2.detach_network_interface(AttachmentId=attached["AttachmentId"])
        hands.ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterfaceId"])


@contextmanager
def out_of_placement(hands: Hands) -> Iterator[None]:
    """Stopped, moved out of the placement group, started: the fleet is kept from replacing it."""
    fleet, member = hands.resource("fleet"), hands.resource("member 1")
    group = hands.members[1]["Placement"]["GroupName"]
    processes = ["HealthCheck", "ReplaceUnhealthy"]

    def place(name: str) -> None:
        hands.scaling.suspend_processes(AutoScalingGroupName=fleet, ScalingProcesses=processes)
        hands.ec2.stop_instances(InstanceIds=[member])
        hands.ec2.modify_instance_placement(InstanceId=member, GroupName=name)
        hands.ec2.start_instances(InstanceIds=[member])
        hands.scaling.resume_processes(AutoScalingGroupName=fleet, ScalingProcesses=processes)

    place("")
    try:
        yield
    finally:
        place(group)


def conntrack_of(rank: int, timeout_s: int) -> Callable[[Hands], Any]:
    return lambda hands: hands.ec2.modify_network_interface_attribute(
        NetworkInterfaceId=hands.interface(rank),
        ConnectionTrackingSpecification={"TcpEstablishedTimeout": timeout_s},
    )


conntrack = call(conntrack_of(2, 350), conntrack_of(2, 432_000))


def metadata(tokens: str) -> Callable[[Hands], Any]:
    return lambda hands: hands.ec2.modify_instance_metadata_options(
        InstanceId=hands.resource("member 1"), HttpTokens=tokens
    )


def sized(largest: int) -> Callable[[Hands], Any]:
    return lambda hands: hands.scaling.update_auto_scaling_group(
        AutoScalingGroupName=hands.resource("fleet"), MaxSize=largest
    )


@contextmanager
def retagged(hands: Hands) -> Iterator[None]:
    def name(value: str) -> None:
        hands.ec2.create_tags(Resources=[hands.vpc], Tags=[{"Key": "Name", "Value": value}])

    (vpc,) = hands.ec2.describe_vpcs(VpcIds=[hands.vpc])["Vpcs"]
    (told,) = (tag["Value"] for tag in vpc["Tags"] if tag["Key"] == "Name")
    name("ours")
    try:
        yield
    finally:
        name(told)


@contextmanager
def stranger(hands: Hands) -> Iterator[None]:
    """An instance of somebody else's with the members' group and tag."""
    tags = [{"Key": "fullmesh:cluster", "Value": hands.cluster}]
    hands.strangers = hands.ec2.run_instances(
        ImageId=hands.members[0]["ImageId"],
        InstanceType=hands.members[0]["InstanceType"],
        MinCount=1,
        MaxCount=1,
        SubnetId=hands.resource("subnet 0"),
        SecurityGroupIds=[hands.group],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    try:
        yield
    finally:
        hands.ec2.terminate_instances(InstanceIds=[item["InstanceId"] for item in hands.strangers])


def lasting(change: Callable[[Hands], Any]) -> Make:
    return call(change, lambda _: None)
