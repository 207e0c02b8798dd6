"""CloudFormation's behaviour around a fleet: order, updates, failures, drift."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab.plane import Plane, running_plane

Template = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


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


@pytest.fixture
def stack(plane: Plane, request: pytest.FixtureRequest) -> Iterator[Stack]:
    made = Stack(plane, re.sub("[^a-z]+", "-", request.node.name).strip("-"))
    yield made
    plane.limit_capacity({})
    made.delete()


def running(plane: Plane) -> dict[str, str]:
    """instance id -> private address of the running members."""
    listed = plane.client("ec2").describe_instances(
        Filters=[
            {"Name": "instance-state-name", "Values": ["running"]},
            {"Name": "tag:fleet", "Values": ["test"]},
        ]
    )
    return {
        item["InstanceId"]: item["PrivateIpAddress"]
        for reservation in listed["Reservations"]
        for item in reservation["Instances"]
    }


def proven(plane: Plane, stack: Stack, nodes: int) -> None:
    """Create the fleet's stack and signal its success."""
    stack.create(fleet_template(nodes))
    stack.wait_for("AwaitedA", "CREATE_IN_PROGRESS")
    waiting = len(running(plane))
    stack.signal("A", "SUCCESS", data="PASS")
    assert stack.settle() == "CREATE_COMPLETE"
    assert (waiting, len(running(plane))) == (nodes, nodes)


def test_the_fleet_stands_before_the_wait_ends(plane: Plane, stack: Stack) -> None:
    """A wait condition that sorts first does not keep its fleet from being launched."""
    proven(plane, stack, 3)
    assert stack.outputs()["Verdict"] == '{"verdict": "PASS"}'
    by_tag = plane.client("autoscaling").describe_auto_scaling_groups(
        Filters=[{"Name": "tag:fleet", "Values": ["test"]}]
    )
    members = {item["InstanceId"] for item in by_tag["AutoScalingGroups"][0]["Instances"]}
    assert members == set(running(plane))
    assert sorted(running(plane).values()) == ["10.42.0.4", "10.42.0.5", "10.42.0.6"]


def test_a_waiting_condition_is_described_as_such(plane: Plane, stack: Stack) -> None:
    """Who watches from outside sees that the condition waits, and since when."""
    stack.create(fleet_template(1))
    stack.wait_for("AwaitedA", "CREATE_IN_PROGRESS")
    first = stack.resource("AwaitedA")
    stack.signal("A", "SUCCESS")
    stack.settle()
    assert (first["ResourceStatus"], first["ResourceType"]) == (
        "CREATE_IN_PROGRESS",
        "AWS::CloudFormation::WaitCondition",
    )
    assert stack.resource("AwaitedA")["ResourceStatus"] == "CREATE_COMPLETE"


def test_a_failure_signal_is_the_reason_and_ends_every_node(plane: Plane, stack: Stack) -> None:
    """The signal's reason stands in the event, and the rollback leaves no instance."""
    stack.create(fleet_template(2))
    stack.wait_for("AwaitedA", "CREATE_IN_PROGRESS")
    stack.signal("A", "FAILURE", "sg-only-master-port: 2 of 2 pairs")
    assert stack.settle() == "ROLLBACK_COMPLETE"
    assert stack.events("AwaitedA")[-1] == (
        "CREATE_FAILED",
        "WaitCondition received failed message: 'sg-only-master-port: 2 of 2 pairs' for uniqueId: verdict",
    )
    assert running(plane) == {}


def test_a_launch_that_fails_leaves_the_wait_able_to_say_why(plane: Plane, stack: Stack) -> None:
    """With too little capacity the group waits, and a signal meanwhile ends the stack."""
    plane.limit_capacity({"c5n.large": 1})
    stack.create(fleet_template(2))
    stack.wait_for("AwaitedA", "CREATE_IN_PROGRESS")
    waiting = stack.resource("AwaitedA")
    activities = plane.client("autoscaling").describe_scaling_activities()["Activities"]
    stack.signal("A", "FAILURE", "no capacity")
    assert stack.settle() == "ROLLBACK_COMPLETE"
    assert waiting["ResourceStatus"] == "CREATE_IN_PROGRESS"
    assert (activities[0]["StatusCode"], activities[0]["StatusMessage"]) == (
        "Failed",
        "We currently do not have sufficient c5n.large capacity in the Availability Zone you requested "
        "(us-east-1a). Our system will be working on provisioning additional capacity. "
        "Launching EC2 instance failed.",
    )
    assert stack.events("AwaitedA")[-1] == (
        "CREATE_FAILED",
        "WaitCondition received failed message: 'no capacity' for uniqueId: verdict",
    )
    assert stack.events("Members")[-1] == ("CREATE_FAILED", "Resource creation cancelled")
    assert running(plane) == {}


def test_capacity_that_comes_back_completes_the_group(plane: Plane, stack: Stack) -> None:
    """A group tries again until it stands at its desired capacity."""
    plane.limit_capacity({"c5n.large": 1})
    stack.create(fleet_template(2))
    stack.wait_for("AwaitedA", "CREATE_IN_PROGRESS")
    plane.limit_capacity({})
    stack.wait_for("Members", "CREATE_COMPLETE")
    stack.signal("A", "SUCCESS")
    assert stack.settle() == "CREATE_COMPLETE"
    assert len(running(plane)) == 2


def test_an_update_replaces_every_node(plane: Plane, stack: Stack) -> None:
    """Four to six: no old node is left, and the new wait is waited for."""
    proven(plane, stack, 4)
    before = running(plane)
    stack.update(fleet_template(6, run="B"))
    stack.wait_for("AwaitedB", "CREATE_IN_PROGRESS")
    stack.signal("B", "SUCCESS", data="PASS again")
    assert stack.settle() == "UPDATE_COMPLETE"
    after = running(plane)
    assert len(after) == 6
    assert set(before) & set(after) == set()
    assert sorted(after.values(), key=lambda item: int(item.rpartition(".")[2])) == [
        f"10.42.0.{index}" for index in range(4, 10)
    ]
    assert stack.outputs()["Verdict"] == '{"verdict": "PASS again"}'


def test_a_failed_update_goes_back_to_the_old_fleet(plane: Plane, stack: Stack) -> None:
    """The old size and the old launch data are back, on new nodes."""
    proven(plane, stack, 2)
    stack.update(fleet_template(3, run="B"))
    stack.wait_for("AwaitedB", "CREATE_IN_PROGRESS")
    failed = running(plane)
    stack.signal("B", "FAILURE", "broken")
    assert stack.settle() == "UPDATE_ROLLBACK_COMPLETE"
    after = running(plane)
    assert (len(failed), len(after)) == (3, 2)
    assert set(failed) & set(after) == set()


def test_a_change_of_size_alone_keeps_the_nodes(plane: Plane, stack: Stack) -> None:
    """Without a change of launch data nothing is replaced."""
    proven(plane, stack, 2)
    before = running(plane)
    template = fleet_template(2)
    template["Resources"]["Members"]["Properties"] |= {"MaxSize": "3", "DesiredCapacity": "3"}
    stack.update(template)
    assert stack.settle() == "UPDATE_COMPLETE"
    after = running(plane)
    assert (len(after), set(before) - set(after)) == (3, set())


def test_a_member_that_is_terminated_is_replaced_unless_suspended(plane: Plane, stack: Stack) -> None:
    """The group heals itself, and does not while its health check is suspended."""
    proven(plane, stack, 2)
    client, name = plane.client("autoscaling"), stack.outputs()["Members"]
    client.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["ReplaceUnhealthy"])
    victim = next(iter(running(plane)))
    plane.client("ec2").terminate_instances(InstanceIds=[victim])
    time.sleep(2.5)
    while_suspended = len(running(plane))
    client.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["ReplaceUnhealthy"])
    assert (while_suspended, len(running(plane))) == (1, 2)


def hand_added_rule(plane: Plane, group: str) -> None:
    plane.client("ec2").authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ],
    )


def group_template(ingress: list[dict[str, Any]] | None) -> Template:
    full = copy.deepcopy(fleet_template(1))
    resources = {name: full["Resources"][name] for name in ("Vpc", "Group", "SelfIn")}
    if ingress is not None:
        resources["Group"]["Properties"]["SecurityGroupIngress"] = ingress
    return {"Resources": resources, "Outputs": {"Group": {"Value": {"Ref": "Group"}}}}


INLINE = {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, "CidrIp": "10.42.0.0/16", "Description": "mtu"}


@pytest.mark.parametrize(
    ("ingress", "drifted"),
    [(None, {}), ([INLINE], {"Group": "MODIFIED"})],
    ids=["no-inline-rule", "one-inline-rule"],
)
def test_a_hand_added_rule_is_seen_only_beside_an_inline_one(
    plane: Plane, stack: Stack, ingress: list[dict[str, Any]] | None, drifted: dict[str, str]
) -> None:
    """Drift detection is exactly as blind as CloudFormation's own."""
    stack.create(group_template(ingress))
    assert stack.settle() == "CREATE_COMPLETE"
    assert stack.drifted() == {}
    hand_added_rule(plane, stack.outputs()["Group"])
    assert stack.drifted() == drifted


def test_a_separate_rule_that_was_revoked_is_seen(plane: Plane, stack: Stack) -> None:
    """The self rule is a resource of its own: without it the stack has drifted."""
    stack.create(group_template(None))
    assert stack.settle() == "CREATE_COMPLETE"
    group = stack.outputs()["Group"]
    pair = {"GroupId": group}
    plane.client("ec2").revoke_security_group_ingress(
        GroupId=group,
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": [pair]}],
    )
    assert stack.drifted() == {"SelfIn": "DELETED"}
