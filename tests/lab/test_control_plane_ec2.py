"""EC2 as a client sees it: instances, interfaces, rules, ACLs, and what EC2 refuses."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.plane import Plane

IMAGE = "ami-0123456789abcdef0"


@dataclass(frozen=True)
class Network:
    """A VPC of one subnet with one group that knows itself."""

    vpc: str
    subnet: str
    group: str


@pytest.fixture(scope="module")
def ec2(plane: Plane) -> Any:
    return plane.client("ec2")


@pytest.fixture
def network(ec2: Any, request: pytest.FixtureRequest) -> Network:
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.0.0/20", AvailabilityZone="us-east-1a")
    group = ec2.create_security_group(GroupName=request.node.name, Description="members", VpcId=vpc)
    return Network(vpc=vpc, subnet=subnet["Subnet"]["SubnetId"], group=group["GroupId"])


def self_rule(network: Network, **more: str) -> dict[str, Any]:
    pair = {"GroupId": network.group, **more}
    return {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": [pair]}


def run(ec2: Any, network: Network, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    arguments = {
        "ImageId": IMAGE,
        "InstanceType": "c5n.large",
        "SubnetId": network.subnet,
        "SecurityGroupIds": [network.group],
        "MinCount": count,
        "MaxCount": count,
        **more,
    }
    made: list[dict[str, Any]] = ec2.run_instances(**arguments)["Instances"]
    return made


def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def described(ec2: Any, instance_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0][
        "Instances"
    ][0]
    return answer


def test_addresses_start_at_the_fifth_and_names_follow_them(ec2: Any, network: Network) -> None:
    """Instances get the subnet's first free addresses and EC2's private names for them."""
    made = run(ec2, network, 3)
    assert [(item["PrivateIpAddress"], item["PrivateDnsName"]) for item in made] == [
        ("10.42.0.4", "ip-10-42-0-4.ec2.internal"),
        ("10.42.0.5", "ip-10-42-0-5.ec2.internal"),
        ("10.42.0.6", "ip-10-42-0-6.ec2.internal"),
    ]


def test_an_address_is_free_again_after_termination(ec2: Any, network: Network) -> None:
    """A terminated instance is listed without address, and its address is given again."""
    first = run(ec2, network)[0]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[first])
    ended = described(ec2, first)
    assert (ended["State"]["Name"], ended.get("PrivateIpAddress"), ended["NetworkInterfaces"]) == (
        "terminated",
        None,
        [],
    )
    assert run(ec2, network)[0]["PrivateIpAddress"] == "10.42.0.4"


def test_launch_template_interfaces_carry_groups_and_tracking(ec2: Any, network: Network) -> None:
    """What a template's interface block says is what both describe calls show."""
    ec2.create_placement_group(GroupName="tight", Strategy="cluster")
    user_data = base64.b64encode(b"#!/bin/sh\ntrue\n").decode()
    template = ec2.create_launch_template(
        LaunchTemplateName="members",
        LaunchTemplateData={
            "ImageId": IMAGE,
            "InstanceType": "c5n.large",
            "UserData": user_data,
            "Placement": {"GroupName": "tight"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            "Monitoring": {"Enabled": True},
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "Groups": [network.group],
                    "AssociatePublicIpAddress": False,
                    "SubnetId": network.subnet,
                    "ConnectionTrackingSpecification": {"TcpEstablishedTimeout": 3600},
                }
            ],
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "member"}]}],
        },
    )["LaunchTemplate"]["LaunchTemplateId"]
    made = ec2.run_instances(LaunchTemplate={"LaunchTemplateId": template}, MinCount=1, MaxCount=1)
    instance = described(ec2, made["Instances"][0]["InstanceId"])
    interface = instance["NetworkInterfaces"][0]
    groups = [
        {"GroupId": network.group, "GroupName": "test_launch_template_interfaces_carry_groups_and_tracking"}
    ]
    assert instance["SecurityGroups"] == groups
    assert interface["Groups"] == groups
    assert interface["Attachment"]["DeviceIndex"] == 0
    assert interface["ConnectionTrackingConfiguration"] == {"TcpEstablishedTimeout": 3600}
    assert "PublicIpAddress" not in instance
    assert instance["Placement"]["GroupName"] == "tight"
    assert instance["Monitoring"] == {"State": "enabled"}
    assert (
        instance["MetadataOptions"]["HttpTokens"],
        instance["MetadataOptions"]["HttpPutResponseHopLimit"],
    ) == ("required", 2)
    assert instance["Tags"] == [{"Key": "Name", "Value": "member"}]
    listed = ec2.describe_network_interfaces(
        Filters=[{"Name": "attachment.instance-id", "Values": [instance["InstanceId"]]}]
    )["NetworkInterfaces"]
    assert [(item["NetworkInterfaceId"], item["Groups"]) for item in listed] == [
        (interface["NetworkInterfaceId"], groups)
    ]
    attribute = ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert attribute["UserData"] == {"Value": user_data}
    version = ec2.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"][0]
    assert version["LaunchTemplateData"]["Placement"] == {"GroupName": "tight"}


def test_groups_of_an_interface_can_be_changed(ec2: Any, network: Network) -> None:
    """A change at the interface is seen at the instance, and the other way round."""
    instance = run(ec2, network)[0]
    interface = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    other = ec2.create_security_group(GroupName="other", Description="o", VpcId=network.vpc)["GroupId"]
    ec2.modify_network_interface_attribute(NetworkInterfaceId=interface, Groups=[other])
    assert described(ec2, instance["InstanceId"])["SecurityGroups"] == [
        {"GroupId": other, "GroupName": "other"}
    ]
    ec2.modify_instance_attribute(InstanceId=instance["InstanceId"], Groups=[network.group, other])
    listed = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])["NetworkInterfaces"][0]
    assert [item["GroupId"] for item in listed["Groups"]] == [network.group, other]


def test_groups_beside_an_interface_block_are_refused(ec2: Any, network: Network) -> None:
    """EC2 takes groups either at the instance or at its interfaces."""
    block = [{"DeviceIndex": 0, "Groups": [network.group], "SubnetId": network.subnet}]
    arguments = {"ImageId": IMAGE, "InstanceType": "c5n.large", "MinCount": 1, "MaxCount": 1}
    code, message = refusal(
        lambda: ec2.run_instances(**arguments, NetworkInterfaces=block, SecurityGroupIds=[network.group])
    )
    assert code == "InvalidParameterCombination"
    assert message == (
        "Network interfaces and an instance-level security groups may not be specified on the same request"
    )


def test_a_burstable_type_takes_no_cluster_group(ec2: Any, network: Network) -> None:
    """The type's name alone makes the launch fail, with EC2's words."""
    ec2.create_placement_group(GroupName="no-burst", Strategy="cluster")
    code, message = refusal(
        lambda: run(ec2, network, InstanceType="t3.large", Placement={"GroupName": "no-burst"})
    )
    assert code == "InvalidParameterCombination"
    assert message == (
        "Cluster placement groups are not supported by the 't3.large' instance type. "
        "Specify a supported instance type or change the placement group strategy, and try again."
    )


def test_a_cluster_group_stands_in_one_zone(ec2: Any, network: Network) -> None:
    """A second zone is refused as long as the first one is in use."""
    ec2.create_placement_group(GroupName="one-zone", Strategy="cluster")
    second = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.42.16.0/20", AvailabilityZone="us-east-1b")
    run(ec2, network, Placement={"GroupName": "one-zone"})
    code, _ = refusal(
        lambda: run(ec2, network, SubnetId=second["Subnet"]["SubnetId"], Placement={"GroupName": "one-zone"})
    )
    assert code == "InvalidPlacementGroup.InUse"


def test_a_launch_beyond_capacity_leaves_nothing(plane: Plane, ec2: Any, network: Network) -> None:
    """Either the whole minimum is launched or nothing is, and the message is EC2's."""
    plane.limit_capacity({"m5.large": 2})
    code, message = refusal(lambda: run(ec2, network, 3, InstanceType="m5.large"))
    plane.limit_capacity({})
    assert code == "InsufficientInstanceCapacity"
    assert message == (
        "We currently do not have sufficient m5.large capacity in the Availability Zone you requested "
        "(us-east-1a). Our system will be working on provisioning additional capacity."
    )
    listed = ec2.describe_instances(Filters=[{"Name": "instance-type", "Values": ["m5.large"]}])
    assert listed["Reservations"] == []


def test_a_capacity_reservation_is_atomic(plane: Plane, ec2: Any) -> None:
    """A reservation is made whole or refused with the reason at once."""
    plane.limit_capacity({"c6i.large": 3})
    arguments = {
        "InstanceType": "c6i.large",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-east-1a",
    }
    made = ec2.create_capacity_reservation(**arguments, InstanceCount=3)["CapacityReservation"]
    code, _ = refusal(lambda: ec2.create_capacity_reservation(**arguments, InstanceCount=4))
    plane.limit_capacity({})
    assert (made["State"], made["AvailableInstanceCount"], code) == (
        "active",
        3,
        "InsufficientInstanceCapacity",
    )


RESERVED_TYPE = "c6i.xlarge"


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({}, "ReservationCapacityExceeded", "does not have enough available instance capacity"),
        ({"instance_type": "c6i.2xlarge"}, "InvalidParameterValue", "is of InstanceType c6i.xlarge"),
        (
            {"InstanceMarketOptions": {"MarketType": "capacity-block"}},
            "InvalidParameterValue",
            "is not a Capacity Block",
        ),
        ({"target": "cr-00000000000000000"}, "InvalidCapacityReservationId.NotFound", "does not exist"),
    ],
    ids=["used-up", "another-type", "no-block", "none"],
)
def test_a_launch_into_a_reservation_is_refused_as_by_ec2(
    ec2: Any, network: Network, given: dict[str, Any], code: str, message: str
) -> None:
    """A targeted reservation of one instance takes one, of its own type, and is no capacity block."""
    made = ec2.create_capacity_reservation(
        InstanceType=RESERVED_TYPE,
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=1,
        InstanceMatchCriteria="targeted",
    )["CapacityReservation"]["CapacityReservationId"]

    def launch(instance_type: str = RESERVED_TYPE, target: str = made, **more: Any) -> None:
        ec2.run_instances(
            ImageId="ami-0123456789abcdef0",
            InstanceType=instance_type,
            MinCount=1,
            MaxCount=1,
            SubnetId=network.subnet,
            CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": target}},
            **more,
        )

    launch()
    refused, said = refusal(lambda: launch(**given))
    assert refused == code
    assert message in said


def test_a_rule_is_revoked_whatever_its_description(ec2: Any, network: Network) -> None:
    """A permission without the description takes the described rule away."""
    ec2.authorize_security_group_ingress(
        GroupId=network.group, IpPermissions=[self_rule(network, Description="all TCP from itself")]
    )
    ec2.revoke_security_group_ingress(GroupId=network.group, IpPermissions=[self_rule(network)])
    group = ec2.describe_security_groups(GroupIds=[network.group])["SecurityGroups"][0]
    assert group["IpPermissions"] == []


def test_a_rule_that_is_not_there_cannot_be_revoked(ec2: Any, network: Network) -> None:
    """Revoking nothing is told, not passed over."""
    code, message = refusal(
        lambda: ec2.revoke_security_group_ingress(GroupId=network.group, IpPermissions=[self_rule(network)])
    )
    assert (code, message) == (
        "InvalidPermission.NotFound",
        "The specified rule does not exist in this security group.",
    )


def test_a_second_equal_rule_is_refused(ec2: Any, network: Network) -> None:
    """A rule that differs only in its description is there already."""
    ec2.authorize_security_group_ingress(GroupId=network.group, IpPermissions=[self_rule(network)])
    code, message = refusal(
        lambda: ec2.authorize_security_group_ingress(
            GroupId=network.group, IpPermissions=[self_rule(network, Description="again")]
        )
    )
    rule = f"peer: {network.group}, TCP, from port: 0, to port: 65535, ALLOW"
    assert (code, message) == ("InvalidPermission.Duplicate", f'the specified rule "{rule}" already exists')


def test_every_source_is_a_rule_of_its_own(ec2: Any, network: Network) -> None:
    """One permission with two sources is two rules, listed as one permission."""
    ranges = [{"CidrIp": "10.0.0.0/8"}, {"CidrIp": "192.168.0.0/16", "Description": "office"}]
    ec2.authorize_security_group_ingress(
        GroupId=network.group,
        IpPermissions=[{"IpProtocol": "6", "FromPort": 22, "ToPort": 22, "IpRanges": ranges}],
    )
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [network.group]}])
    ingress = [rule for rule in rules["SecurityGroupRules"] if not rule["IsEgress"]]
    assert [(rule["IpProtocol"], rule["CidrIpv4"], rule.get("Description")) for rule in ingress] == [
        ("tcp", "10.0.0.0/8", None),
        ("tcp", "192.168.0.0/16", "office"),
    ]
    ec2.revoke_security_group_ingress(
        GroupId=network.group, SecurityGroupRuleIds=[ingress[0]["SecurityGroupRuleId"]]
    )
    group = ec2.describe_security_groups(GroupIds=[network.group])["SecurityGroups"][0]
    assert group["IpPermissions"][0]["IpRanges"] == [ranges[1]]


def test_a_subnet_is_in_the_default_acl_until_it_is_moved(ec2: Any, network: Network) -> None:
    """Associations exist from the start, can be replaced, and entries keep their ports."""
    mine = [{"Name": "association.subnet-id", "Values": [network.subnet]}]
    default = ec2.describe_network_acls(Filters=mine)["NetworkAcls"][0]
    assert default["IsDefault"] is True
    acl = ec2.create_network_acl(VpcId=network.vpc)["NetworkAcl"]["NetworkAclId"]
    ec2.create_network_acl_entry(
        NetworkAclId=acl,
        RuleNumber=100,
        Protocol="6",
        RuleAction="allow",
        Egress=False,
        CidrBlock="10.42.0.0/16",
        PortRange={"From": 29500, "To": 29500},
    )
    ec2.replace_network_acl_association(
        AssociationId=default["Associations"][0]["NetworkAclAssociationId"], NetworkAclId=acl
    )
    moved = ec2.describe_network_acls(Filters=mine)["NetworkAcls"]
    assert [item["NetworkAclId"] for item in moved] == [acl]
    assert moved[0]["Entries"][0] == {
        "CidrBlock": "10.42.0.0/16",
        "Egress": False,
        "PortRange": {"From": 29500, "To": 29500},
        "Protocol": "6",
        "RuleAction": "allow",
        "RuleNumber": 100,
    }


def test_types_tell_whether_they_take_a_cluster_group(ec2: Any) -> None:
    """What a preflight asks about a type follows from its name."""
    listed = ec2.describe_instance_types(InstanceTypes=["c7g.2xlarge", "t3.large"])["InstanceTypes"]
    assert [
        (
            item["InstanceType"],
            item["VCpuInfo"]["DefaultVCpus"],
            item["ProcessorInfo"]["SupportedArchitectures"],
            "cluster" in item["PlacementGroupInfo"]["SupportedStrategies"],
        )
        for item in listed
    ] == [("c7g.2xlarge", 8, ["arm64"], True), ("t3.large", 2, ["x86_64"], False)]
    assert all("NetworkInfo" not in item for item in listed)  # no bandwidth is invented


def test_a_listing_pages_and_encodes(plane: Plane) -> None:
    """The direct rendering of a bucket's listing agrees with what was put."""
    s3 = plane.client("s3")
    s3.create_bucket(Bucket="listing")
    keys = [f"rows/run/AROAX:i-{index}/member~10.42.0.{index}~29500~1,2 &<" for index in range(7)]
    for key in [*keys, "other"]:
        s3.put_object(Bucket="listing", Key=key, Body=b"")
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="listing", Prefix="rows/", PaginationConfig={"PageSize": 3}
    )
    listed = [[item["Key"] for item in page["Contents"]] for page in pages]
    assert listed == [keys[:3], keys[3:6], keys[6:]]
    folders = s3.list_objects_v2(Bucket="listing", Delimiter="/")
    assert [item["Prefix"] for item in folders["CommonPrefixes"]] == ["rows/"]
    assert [item["Key"] for item in folders["Contents"]] == ["other"]
