"""CloudFormation's behaviour around a fleet: order, updates, failures."""

from __future__ import annotations

import time

from tests.lab.plane import Plane
from tests.lab.stack import Stack, fleet_template


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
