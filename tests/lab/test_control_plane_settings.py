"""What can be changed after a launch: metadata options, monitoring, placement, descriptions, versions."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.plane import Plane


@pytest.fixture(scope="module")
def ec2(plane: Plane) -> Any:
    return plane.client("ec2")


@pytest.fixture(scope="module")
def instance(ec2: Any) -> str:
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.0.0/20")["Subnet"]["SubnetId"]
    ec2.create_placement_group(GroupName="near", Strategy="cluster")
    made = ec2.run_instances(
        ImageId="ami-0123456789abcdef0",
        InstanceType="c5n.large",
        SubnetId=subnet,
        MinCount=1,
        MaxCount=1,
        Placement={"GroupName": "near"},
    )
    return str(made["Instances"][0]["InstanceId"])


def shown(ec2: Any, instance: str) -> dict[str, Any]:
    (found,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    (entry,) = found["Instances"]
    return dict(entry)


def test_metadata_options_are_changed_one_by_one(ec2: Any, instance: str) -> None:
    """What is not named stays as it was."""
    before = shown(ec2, instance)["MetadataOptions"]
    ec2.modify_instance_metadata_options(InstanceId=instance, HttpTokens="optional")
    ec2.modify_instance_metadata_options(InstanceId=instance, HttpPutResponseHopLimit=5)
    after = shown(ec2, instance)["MetadataOptions"]
    assert after == {**before, "HttpTokens": "optional", "HttpPutResponseHopLimit": 5}


def test_monitoring_is_turned_on_and_off(ec2: Any, instance: str) -> None:
    """Both answers show the new state, and so does the instance."""
    for call, state in ((ec2.monitor_instances, "enabled"), (ec2.unmonitor_instances, "disabled")):
        (told,) = call(InstanceIds=[instance])["InstanceMonitorings"]
        assert told["Monitoring"]["State"] == state == shown(ec2, instance)["Monitoring"]["State"]


def test_placement_changes_only_while_stopped(ec2: Any, instance: str) -> None:
    """A running instance is refused; a blank name takes a stopped one out of its group."""
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.modify_instance_placement(InstanceId=instance, GroupName="")
    ec2.stop_instances(InstanceIds=[instance])
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.Unknown"):
        ec2.modify_instance_placement(InstanceId=instance, GroupName="far")
    ec2.modify_instance_placement(InstanceId=instance, GroupName="")
    assert shown(ec2, instance)["Placement"]["GroupName"] == ""
    ec2.modify_instance_placement(InstanceId=instance, GroupName="near")
    assert shown(ec2, instance)["Placement"]["GroupName"] == "near"
    ec2.start_instances(InstanceIds=[instance])


def test_connection_tracking_of_an_interface_is_changed(ec2: Any, instance: str) -> None:
    """The idle time-out of its established connections."""
    interface = shown(ec2, instance)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.modify_network_interface_attribute(
        NetworkInterfaceId=interface, ConnectionTrackingSpecification={"TcpEstablishedTimeout": 350}
    )
    (found,) = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])["NetworkInterfaces"]
    assert found["ConnectionTrackingConfiguration"] == {"TcpEstablishedTimeout": 350}


@pytest.mark.parametrize("way", ["ingress", "egress"])
def test_a_rule_is_described_anew(ec2: Any, way: str) -> None:
    """Only the description changes, not the id; a rule that is not there is refused."""
    group = ec2.create_security_group(GroupName=f"g-{way}", Description="g")["GroupId"]

    def rule(port: int, **more: str) -> list[dict[str, Any]]:
        ranges = [{"CidrIp": "10.0.0.0/8", **more}]
        return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": ranges}]

    def listed() -> dict[str, str]:
        filters = [{"Name": "group-id", "Values": [group]}]
        found = ec2.describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
        return {r["SecurityGroupRuleId"]: r.get("Description", "") for r in found if r["FromPort"] == 22}

    getattr(ec2, f"authorize_security_group_{way}")(GroupId=group, IpPermissions=rule(22, Description="old"))
    before = listed()
    describe = getattr(ec2, f"update_security_group_rule_descriptions_{way}")
    describe(GroupId=group, IpPermissions=rule(22, Description="new"))
    assert (list(listed()), list(before.values()), list(listed().values())) == (
        list(before),
        ["old"],
        ["new"],
    )
    with pytest.raises(ClientError, match=r"InvalidPermission\.NotFound"):
        describe(GroupId=group, IpPermissions=rule(23, Description="new"))


def test_a_version_of_a_launch_template_is_deleted(ec2: Any) -> None:
    """Any but the default one."""
    data = {"InstanceType": "c5n.large"}
    made = ec2.create_launch_template(LaunchTemplateName="t", LaunchTemplateData=data)["LaunchTemplate"]
    template = made["LaunchTemplateId"]
    ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
    ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=["2"])
    found = ec2.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"]
    assert [item["VersionNumber"] for item in found] == [1]
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=["1"])


def test_a_destination_has_one_route(ec2: Any) -> None:
    """A second one is refused, as EC2 does; replacing it is another call."""
    vpc = ec2.create_vpc(CidrBlock="10.43.0.0/16")["Vpc"]["VpcId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    route = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": gateway}
    ec2.create_route(**route)
    with pytest.raises(ClientError, match="RouteAlreadyExists"):
        ec2.create_route(**route)


def test_calls_that_change_something_are_logged(plane: Plane, ec2: Any) -> None:
    """By the action's name, with what it was called with; calls that read are not."""
    vpc = ec2.create_vpc(CidrBlock="10.44.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsSupport={"Value": False})
    events = plane.client("cloudtrail").lookup_events()["Events"]
    assert events[0]["EventName"] == "ModifyVpcAttribute"
    assert vpc in events[0]["CloudTrailEvent"]
    assert not [event for event in events if event["EventName"].startswith("Describe")]
