"""The smaller resource types: made by a template, seen through the API, gone afterwards."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.lab.plane import Plane

LAUNCH = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "c6i.large"}


def network() -> dict[str, Any]:
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.42.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                "VpcId": {"Ref": "Vpc"},
                "CidrBlock": "10.42.0.0/20",
                "AvailabilityZone": "us-east-1a",
            },
        },
    }


def status(plane: Plane, name: str) -> str:
    listed = plane.client("cloudformation").list_stacks()["StackSummaries"]
    return next(str(item["StackStatus"]) for item in listed if item["StackName"] == name)


def settled(plane: Plane, name: str) -> str:
    deadline = time.monotonic() + 60
    while status(plane, name).endswith("IN_PROGRESS"):
        assert time.monotonic() < deadline, "the stack did not get there within 60 s"
        time.sleep(0.05)
    return status(plane, name)


def create(plane: Plane, name: str, resources: dict[str, Any]) -> str:
    template = json.dumps({"Resources": {**network(), **resources}})
    plane.client("cloudformation").create_stack(StackName=name, TemplateBody=template)
    return settled(plane, name)


def delete(plane: Plane, name: str) -> str:
    plane.client("cloudformation").delete_stack(StackName=name)
    return settled(plane, name)


def physical_id(plane: Plane, stack: str, logical_id: str) -> str:
    answer = plane.client("cloudformation").describe_stack_resource(
        StackName=stack, LogicalResourceId=logical_id
    )
    return str(answer["StackResourceDetail"]["PhysicalResourceId"])


def states(plane: Plane, name: str) -> list[str]:
    """The states of a stack's instances."""
    listed = plane.client("ec2").describe_instances(
        Filters=[{"Name": "tag:aws:cloudformation:stack-name", "Values": [name]}]
    )
    return [item["State"]["Name"] for group in listed["Reservations"] for item in group["Instances"]]


def test_an_instance_waits_for_its_creation_policy(plane: Plane) -> None:
    """The resource is complete when its own signal has come."""
    resources = {
        "Node": {
            "Type": "AWS::EC2::Instance",
            "CreationPolicy": {"ResourceSignal": {"Count": 1, "Timeout": "PT1M"}},
            "Properties": {**LAUNCH, "SubnetId": {"Ref": "Subnet"}},
        }
    }
    template = json.dumps({"Resources": {**network(), **resources}})
    client = plane.client("cloudformation")
    client.create_stack(StackName="signalled", TemplateBody=template)
    deadline = time.monotonic() + 30
    while not states(plane, "signalled"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = status(plane, "signalled")
    time.sleep(0.3)  # the signal must find the resource waiting
    client.signal_resource(StackName="signalled", LogicalResourceId="Node", UniqueId="node", Status="SUCCESS")
    assert (before, settled(plane, "signalled")) == ("CREATE_IN_PROGRESS", "CREATE_COMPLETE")
    assert delete(plane, "signalled") == "DELETE_COMPLETE"
    assert states(plane, "signalled") == ["terminated"]


def fleet(minimum: int) -> dict[str, Any]:
    return {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": LAUNCH}},
        "Fleet": {
            "Type": "AWS::EC2::EC2Fleet",
            "Properties": {
                "Type": "instant",
                "TargetCapacitySpecification": {
                    "TotalTargetCapacity": 3,
                    "DefaultTargetCapacityType": "on-demand",
                },
                "OnDemandOptions": {"MinTargetCapacity": minimum},
                "LaunchTemplateConfigs": [
                    {
                        "LaunchTemplateSpecification": {
                            "LaunchTemplateId": {"Ref": "Template"},
                            "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                        },
                        "Overrides": [{"SubnetId": {"Ref": "Subnet"}}],
                    }
                ],
            },
        },
    }


def test_an_instant_fleet_is_launched_and_ended(plane: Plane) -> None:
    """All of it is there when the stack is complete, and none of it after the stack is gone."""
    assert create(plane, "fleet", fleet(3)) == "CREATE_COMPLETE"
    assert states(plane, "fleet") == ["running"] * 3
    assert delete(plane, "fleet") == "DELETE_COMPLETE"
    assert states(plane, "fleet") == ["terminated"] * 3


def test_a_fleet_below_its_minimum_is_none_at_all(plane: Plane) -> None:
    """With a minimum of all, too little capacity launches nothing."""
    plane.limit_capacity({"c6i.large": 2})
    ended = create(plane, "starved", fleet(3))
    plane.limit_capacity({})
    assert (ended, states(plane, "starved")) == ("ROLLBACK_COMPLETE", [])


def test_a_private_network_with_its_ways_out(plane: Plane) -> None:
    """A NAT gateway with its address, an ACL over the subnet, endpoints in routes and subnets."""
    endpoint = {"VpcId": {"Ref": "Vpc"}}
    resources = {
        "Address": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {
                "SubnetId": {"Ref": "Subnet"},
                "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]},
            },
        },
        "Routes": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
        "Out": {
            "Type": "AWS::EC2::Route",
            "Properties": {
                "RouteTableId": {"Ref": "Routes"},
                "DestinationCidrBlock": "0.0.0.0/0",
                "NatGatewayId": {"Ref": "Nat"},
            },
        },
        "Acl": {"Type": "AWS::EC2::NetworkAcl", "Properties": {"VpcId": {"Ref": "Vpc"}}},
        "Entry": {
            "Type": "AWS::EC2::NetworkAclEntry",
            "Properties": {
                "NetworkAclId": {"Ref": "Acl"},
                "RuleNumber": 100,
                "Protocol": 6,
                "RuleAction": "allow",
                "Egress": True,
                "CidrBlock": "10.42.0.0/16",
                "PortRange": {"From": 32768, "To": 60999},
            },
        },
        "Placed": {
            "Type": "AWS::EC2::SubnetNetworkAclAssociation",
            "Properties": {"SubnetId": {"Ref": "Subnet"}, "NetworkAclId": {"Ref": "Acl"}},
        },
        "S3": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                **endpoint,
                "ServiceName": "com.amazonaws.us-east-1.s3",
                "RouteTableIds": [{"Ref": "Routes"}],
            },
        },
        "Logs": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                **endpoint,
                "ServiceName": "com.amazonaws.us-east-1.logs",
                "VpcEndpointType": "Interface",
                "SubnetIds": [{"Ref": "Subnet"}],
            },
        },
    }
    assert create(plane, "private", resources) == "CREATE_COMPLETE"
    ec2 = plane.client("ec2")
    table = physical_id(plane, "private", "Routes")
    routes = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert {route.get("NatGatewayId") or route["GatewayId"] for route in routes} == {
        "local",
        physical_id(plane, "private", "Nat"),
        physical_id(plane, "private", "S3"),
    }
    acl = ec2.describe_network_acls(NetworkAclIds=[physical_id(plane, "private", "Acl")])["NetworkAcls"][0]
    assert [item["SubnetId"] for item in acl["Associations"]] == [physical_id(plane, "private", "Subnet")]
    assert [item["PortRange"] for item in acl["Entries"] if item["RuleNumber"] == 100] == [
        {"From": 32768, "To": 60999}
    ]
    interfaces = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert [(item["InterfaceType"], item["PrivateIpAddress"]) for item in interfaces] == [
        ("vpc_endpoint", "10.42.0.4")
    ]
    assert delete(plane, "private") == "DELETE_COMPLETE"
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    assert ec2.describe_addresses()["Addresses"] == []


def test_a_reservation_that_cannot_be_had_fails_with_the_reason(plane: Plane) -> None:
    """CloudFormation's event names what EC2 refused."""
    reservation = {
        "Reserved": {
            "Type": "AWS::EC2::CapacityReservation",
            "Properties": {
                "InstanceType": "c6i.large",
                "InstancePlatform": "Linux/UNIX",
                "AvailabilityZone": "us-east-1a",
                "InstanceCount": 4,
            },
        }
    }
    plane.limit_capacity({"c6i.large": 3})
    ended = create(plane, "reserved", reservation)
    plane.limit_capacity({})
    events = plane.client("cloudformation").describe_stack_events(StackName="reserved")["StackEvents"]
    reason = next(
        item["ResourceStatusReason"] for item in events if item["ResourceStatus"] == "CREATE_FAILED"
    )
    assert ended == "ROLLBACK_COMPLETE"
    assert reason == (
        "We currently do not have sufficient c6i.large capacity in the Availability Zone you requested "
        "(us-east-1a). Our system will be working on provisioning additional capacity. "
        "(Service: Ec2, Status Code: 400, Error Code: InsufficientInstanceCapacity)"
    )
