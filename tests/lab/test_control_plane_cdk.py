"""The real CDK CLI against the control plane: bootstrap, deploy, diff, drift, update, destroy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import toolchain
from lab.toolchain import CdkResult
from tests.lab.plane import REGION, Plane, running_plane

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

APP = Path(__file__).parent / "fixtures" / "small_stack"


@dataclass
class Deployed:
    """The small stack on a control plane, and the CDK to work on it."""

    plane: Plane
    folder: Path

    def synth(self, nodes: int) -> Path:
        """The cloud assembly for so many nodes: made once, used by every later command."""
        assembly = self.folder / f"assembly-{nodes}"
        if not assembly.exists():
            result = toolchain.cdk(
                ["synth", "--quiet", "--context", f"small={json.dumps({'nodes': nodes})}"],
                self.plane.environment,
                self.folder / "cdk.log",
                assembly,
                working_dir=APP,
            )
            assert result.status == 0, result.output
        return assembly

    def cdk(self, *arguments: str, nodes: int = 4) -> CdkResult:
        assembly = self.synth(nodes)
        return toolchain.cdk(
            [*arguments, "--app", str(assembly)],
            self.plane.environment,
            self.folder / "cdk.log",
            working_dir=self.folder,
        )

    def deploy(self, nodes: int) -> CdkResult:
        """Deploy, and play the nodes' part: signal the handle that their user data names."""
        before = set(self.running())
        thread = threading.Thread(target=self._signal_when_replaced, args=(before, nodes), daemon=True)
        thread.start()
        result = self.cdk("deploy", "--require-approval", "never", nodes=nodes)
        thread.join(1)
        return result

    def running(self) -> dict[str, dict[str, Any]]:
        answer = self.plane.client("ec2").describe_instances(
            Filters=[
                {"Name": "instance-state-name", "Values": ["running"]},
                {"Name": "tag:fullmesh:cluster", "Values": ["small"]},
            ]
        )
        return {
            item["InstanceId"]: item
            for reservation in answer["Reservations"]
            for item in reservation["Instances"]
        }

    def outputs(self) -> dict[str, str]:
        stacks = self.plane.client("cloudformation").describe_stacks(StackName="small")["Stacks"]
        return {item["OutputKey"]: item["OutputValue"] for item in stacks[0]["Outputs"]}

    def _signal_when_replaced(self, before: set[str], nodes: int) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            now = set(self.running())
            if len(now) == nodes and not now & before:
                stack = self.plane.client("cloudformation").describe_stack_resource(
                    StackName="small", LogicalResourceId=f"Handle{nodes}"
                )
                url = stack["StackResourceDetail"]["PhysicalResourceId"]
                self.plane.signal(url, "SUCCESS", "", "PASS")
                return
            time.sleep(0.2)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("cdk")
    with running_plane(folder) as plane:
        stack = Deployed(plane=plane, folder=folder)
        booted = toolchain.bootstrap(plane.environment, REGION, folder / "cdk.log")
        assert booted.status == 0, booted.output
        result = stack.deploy(4)
        assert result.status == 0, result.output
        yield stack


def test_the_stack_stands_with_its_nodes(deployed: Deployed) -> None:
    """Four nodes with group, placement, role and metadata settings; the verdict is an output."""
    outputs = deployed.outputs()
    nodes = deployed.running()
    assert sorted(item["PrivateIpAddress"] for item in nodes.values()) == [
        f"10.42.0.{index}" for index in range(4, 8)
    ]
    assert {item["SecurityGroups"][0]["GroupId"] for item in nodes.values()} == {outputs["GroupId"]}
    assert {item["MetadataOptions"]["HttpTokens"] for item in nodes.values()} == {"required"}
    assert all("-Placement-" in item["Placement"]["GroupName"] for item in nodes.values())
    assert all(
        ":instance-profile/small-Profile" in item["IamInstanceProfile"]["Arn"] for item in nodes.values()
    )
    assert outputs["RoleId"].startswith("AROA")
    assert outputs["HandleUrl"].startswith("http://aws.fullmesh.internal:443/")
    assert outputs["Verdict"] == '{"verdict": "PASS"}'


def test_a_function_runs_when_it_is_invoked(deployed: Deployed) -> None:
    """Its code comes from an asset, its import from a layer, its clients find the control plane."""
    answer = deployed.plane.client("lambda").invoke(
        FunctionName=deployed.outputs()["FunctionName"], Payload=json.dumps({"detail-type": "direct"})
    )
    payload = json.loads(answer["Payload"].read())
    assert (answer.get("FunctionError"), payload["word"]) == (None, "layer")
    stored = deployed.plane.client("s3").get_object(
        Bucket=deployed.outputs()["BucketName"], Key=payload["key"]
    )
    assert json.loads(stored["Body"].read())["event"] == {"detail-type": "direct"}


def test_a_function_on_the_host_can_signal_a_nodes_url(deployed: Deployed) -> None:
    """The handle's name has no address on the host; the function's proxy makes it work."""
    answer = deployed.plane.client("lambda").invoke(
        FunctionName=deployed.outputs()["FunctionName"], Payload=json.dumps({"signal": "late, so ignored"})
    )
    assert answer.get("FunctionError") is None


def test_a_scheduled_rule_calls_its_function(deployed: Deployed) -> None:
    """Once a minute means: a minute after the rule was made, to the second or two."""
    s3, bucket = deployed.plane.client("s3"), deployed.outputs()["BucketName"]
    deadline = time.monotonic() + 75
    while True:
        keys = s3.list_objects_v2(Bucket=bucket, Prefix="calls/Scheduled-Event/").get("Contents", [])
        if keys or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert len(keys) >= 1


def test_diff_of_the_same_template_is_empty(deployed: Deployed) -> None:
    """`cdk diff --fail` ends with 0 for what was deployed, and with 1 for another size."""
    same = deployed.cdk("diff", "--fail")
    other = deployed.cdk("diff", "--fail", nodes=6)
    assert (same.status, other.status) == (0, 1)
    assert "[~] AWS::AutoScaling::AutoScalingGroup Fleet" in other.output


def test_drift_shows_a_rule_that_was_added_by_hand(deployed: Deployed) -> None:
    """`cdk drift --fail` ends with 0 on the fresh stack and with 1 after a change behind its back."""
    fresh = deployed.cdk("drift", "--fail")
    ec2, group = deployed.plane.client("ec2"), deployed.outputs()["GroupId"]
    rule = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rule)
    changed = deployed.cdk("drift", "--fail")
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=rule)
    assert (fresh.status, changed.status) == (0, 1)
    assert '"CidrIp": "0.0.0.0/0"' in changed.output


def test_an_update_replaces_all_and_destroy_leaves_nothing(deployed: Deployed) -> None:
    """Four to six nodes, all of them new; afterwards no instance, group or interface is left."""
    before = set(deployed.running())
    updated = deployed.deploy(6)
    after = set(deployed.running())
    assert (updated.status, len(after), before & after) == (0, 6, set()), updated.output
    bucket = deployed.outputs()["BucketName"]
    s3 = deployed.plane.client("s3")
    for item in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
        s3.delete_object(Bucket=bucket, Key=item["Key"])
    gone = deployed.cdk("destroy", "--force", nodes=6)
    assert gone.status == 0, gone.output
    ec2 = deployed.plane.client("ec2")
    assert deployed.running() == {}
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    assert [item["GroupName"] for item in ec2.describe_security_groups()["SecurityGroups"]] == ["default"]
    assert ec2.describe_vpc_endpoints()["VpcEndpoints"] == []
