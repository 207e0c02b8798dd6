"""A stack of a test's own: a fleet with a group that knows itself and a wait condition."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.lab.plane import Plane

Template = dict[str, Any]


def fleet_template(nodes: int, *, run: str = "A", instance_type: str = "c5n.large") -> Template:
    """A VPC, a group that knows itself, a fleet and a wait condition beside it."""
    ref = {"Ref": "Vpc"}
    self_rule = {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "GroupId": {"Ref": "Group"}}
    resources: Template = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.42.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": ref, "CidrBlock": "10.42.0.0/20", "AvailabilityZone": "us-east-1a"},
        },
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "members", "VpcId": ref},
        },
        "SelfIn": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**self_rule, "SourceSecurityGroupId": {"Ref": "Group"}},
        },
        "Placement": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}},
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {
                    "ImageId": "ami-0123456789abcdef0",
                    "InstanceType": instance_type,
                    "Placement": {"GroupName": {"Ref": "Placement"}},
                    "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [{"Ref": "Group"}]}],
                    "UserData": {"Fn::Base64": {"Ref": f"Handle{run}"}},
                }
            },
        },
        "Members": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "UpdatePolicy": {"AutoScalingRollingUpdate": {"MinInstancesInService": 0, "MaxBatchSize": nodes}},
            "Properties": {
                "MinSize": str(nodes),
                "MaxSize": str(nodes),
                "DesiredCapacity": str(nodes),
                "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "Template"},
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
                "Tags": [{"Key": "fleet", "Value": "test", "PropagateAtLaunch": True}],
            },
        },
        f"Handle{run}": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
        # Its name sorts before all others: made in that order it would block the whole stack.
        f"Awaited{run}": {
            "Type": "AWS::CloudFormation::WaitCondition",
            "Properties": {"Handle": {"Ref": f"Handle{run}"}, "Timeout": "60", "Count": 1},
        },
    }
    outputs = {
        "Group": {"Value": {"Ref": "Group"}},
        "Members": {"Value": {"Ref": "Members"}},
        "Verdict": {"Value": {"Fn::GetAtt": [f"Awaited{run}", "Data"]}},
    }
    return {"Resources": resources, "Outputs": outputs}


class Stack:
    """One stack of a test."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.name = name
        self._plane = plane
        self._client = plane.client("cloudformation")

    def create(self, template: Template) -> None:
        self._client.create_stack(StackName=self.name, TemplateBody=json.dumps(template))

    def update(self, template: Template) -> None:
        self._client.update_stack(StackName=self.name, TemplateBody=json.dumps(template))

    def delete(self) -> None:
        self._client.delete_stack(StackName=self.name)
        self._wait_until(lambda: self.status() == "DELETE_COMPLETE")

    def status(self) -> str:
        answer = self._client.list_stacks()["StackSummaries"]
        return next(str(item["StackStatus"]) for item in answer if item["StackName"] == self.name)

    def settle(self) -> str:
        """The final status of the running operation."""
        self._wait_until(lambda: not self.status().endswith("IN_PROGRESS"))
        return self.status()

    def outputs(self) -> dict[str, str]:
        listed = self._client.describe_stacks(StackName=self.name)["Stacks"][0]["Outputs"]
        return {item["OutputKey"]: item["OutputValue"] for item in listed}

    def events(self, logical_id: str) -> list[tuple[str, str]]:
        """(status, reason) of a resource's events, oldest first."""
        listed = self._client.describe_stack_events(StackName=self.name)["StackEvents"]
        return [
            (item["ResourceStatus"], item.get("ResourceStatusReason", ""))
            for item in reversed(listed)
            if item["LogicalResourceId"] == logical_id
        ]

    def resource(self, logical_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.describe_stack_resource(
            StackName=self.name, LogicalResourceId=logical_id
        )["StackResourceDetail"]
        return answer

    def wait_for(self, logical_id: str, status: str) -> None:
        """Until a resource has this status."""
        self._wait_until(lambda: (status, "") in [(item, "") for item, _ in self.events(logical_id)])

    def signal(self, run: str, status: str, reason: str = "", data: str = "") -> None:
        self._plane.signal(self.resource(f"Handle{run}")["PhysicalResourceId"], status, reason, data)

    def drifted(self) -> dict[str, str]:
        """logical id -> drift status of what is not in sync."""
        self._client.detect_stack_drift(StackName=self.name)
        listed = self._client.describe_stack_resource_drifts(StackName=self.name)["StackResourceDrifts"]
        return {
            item["LogicalResourceId"]: item["StackResourceDriftStatus"]
            for item in listed
            if item["StackResourceDriftStatus"] not in ("IN_SYNC", "NOT_CHECKED")
        }

    @staticmethod
    def _wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "the stack did not get there within 60 s"
            time.sleep(0.05)
