"""The Lambda functions' own code against a control plane: real rows, a real wait, real refusals."""

from __future__ import annotations

import dataclasses
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster import serial
from cluster.node_config import NodeConfig
from diagnosis.report import ConnectOutcome, Diagnosis, NodeVerdict, PairVerdict, Verdict
from stacks.runtime import default_group, widget
from stacks.runtime.referee import Referee, Settings
from stacks.runtime.rows import Rows
from tests.diagnosis.builders import healthy
from tests.lab.plane import Plane, running_plane

BUCKET = "rows"
RULES = ("proof-launch", "proof-minute")
PASSED = Diagnosis(
    verdict=Verdict.PASS,
    nodes=tuple(
        NodeVerdict(rank=n, name=f"n{n}", address=f"10.20.0.{n}", verdict=Verdict.PASS) for n in (0, 1)
    ),
    pairs=tuple(
        PairVerdict(source=s, destination=1 - s, outcomes={"29500": ConnectOutcome.CONNECTED}) for s in (0, 1)
    ),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        running.client("s3").create_bucket(Bucket=BUCKET)
        yield running


@dataclasses.dataclass(frozen=True)
class Proof:
    """A stack that waits, and the referee of it."""

    plane: Plane
    settings: Settings

    @property
    def run(self) -> str:
        return self.settings.config.run

    def look(self, event: dict[str, Any] | None = None, *, after_s: float = 0.0) -> dict[str, Any]:
        return Referee(self.settings, self.plane).look(event or {}, time.time() + after_s)

    def put(self, member: str, name: str, document: Any = None) -> None:
        body = json.dumps(serial.encode(document)).encode() if document else b""
        key = f"rows/{self.run}/{member}/{name}"
        self.plane.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body)

    def why_it_ended(self) -> str:
        """The reason in the stack's event, once the wait is over."""
        client = self.plane.client("cloudformation")
        for _ in range(100):
            for event in client.describe_stack_events(StackName=self.settings.stack)["StackEvents"]:
                done = event["ResourceStatus"] in ("CREATE_FAILED", "CREATE_COMPLETE")
                if event["LogicalResourceId"] == self.settings.proof and done:
                    return str(event.get("ResourceStatusReason") or event["ResourceStatus"])
            time.sleep(0.1)
        raise AssertionError("the wait did not end")

    def rules_enabled(self) -> list[str]:
        rules = self.plane.client("events").list_rules(NamePrefix=f"{self.run}-")["Rules"]
        return [rule["Name"] for rule in rules if rule["State"] == "ENABLED"]


@pytest.fixture
def proof(plane: Plane, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proof]:
    """A stack in which a wait is open, named after the test."""
    monkeypatch.setenv("http_proxy", plane.url)  # the handle's name has an address on nodes only
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(urllib.request, "_opener", None)  # one made before this would know no proxy
    run = "run" + str(abs(hash(request.node.name)) % 10**9)
    stack, logical_id = f"stack-{run}", f"MeshProof{run}"
    template = {
        "Resources": {
            "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            logical_id: {
                "Type": "AWS::CloudFormation::WaitCondition",
                "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "600", "Count": 1},
            },
        }
    }
    client = plane.client("cloudformation")
    client.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    config = NodeConfig(
        cluster=run,
        run=run,
        nodes=2,
        master_port=29500,
        region="us-east-1",
        bucket=BUCKET,
        role_id="AROA",
        deadline_s=30,
    )
    rules = tuple(f"{run}-{kind}" for kind in ("launch", "minute"))
    for name in rules:
        plane.client("events").put_rule(Name=name, ScheduleExpression="rate(1 day)")
    for _ in range(100):
        try:
            detail = client.describe_stack_resource(StackName=stack, LogicalResourceId=logical_id)
            handle = client.describe_stack_resource(StackName=stack, LogicalResourceId="Handle")
        except client.exceptions.ClientError:
            time.sleep(0.05)
            continue
        if detail["StackResourceDetail"]["ResourceStatus"] == "CREATE_IN_PROGRESS":
            break
        time.sleep(0.05)
    settings = Settings(
        config=config,
        stack=stack,
        handle="Handle",
        proof=logical_id,
        handle_url=handle["StackResourceDetail"]["PhysicalResourceId"],
        timeout_s=600,
        rules=rules,
    )
    yield Proof(plane, settings)
    events = client.describe_stack_events(StackName=stack)["StackEvents"]
    if all(
        e["ResourceStatus"] == "CREATE_IN_PROGRESS" for e in events if e["LogicalResourceId"] == logical_id
    ):
        # A wait left open would hold the control plane's end.
        plane.signal(settings.handle_url, "SUCCESS", "")
    client.delete_stack(StackName=stack)


@contextmanager
def fleet(proof: Proof, instance_type: str, *, running: int) -> Iterator[None]:
    """An auto scaling group of two that boot nothing; entered when `running` of them do."""
    tag = {"Key": "fullmesh:cluster", "Value": proof.run}
    launch = {
        "ImageId": "ami-0123456789abcdef0",
        "InstanceType": instance_type,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [tag]}],
    }
    resources = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.77.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.77.0.0/20"},
        },
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": launch}},
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "MinSize": "2",
                "MaxSize": "2",
                "DesiredCapacity": "2",
                "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "Template"},
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
                "Tags": [{**tag, "PropagateAtLaunch": True}],
            },
        },
    }
    name = f"fleet-{proof.run}"
    client, ec2 = proof.plane.client("cloudformation"), proof.plane.client("ec2")
    client.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": resources}))
    mine = [{"Name": "tag:fullmesh:cluster", "Values": [proof.run]}]
    try:
        for _ in range(100):
            if len(ec2.describe_instances(Filters=mine)["Reservations"]) >= running:
                break
            time.sleep(0.1)
        yield
    finally:
        proof.plane.limit_capacity({})
        for _ in range(300):  # with room again the group fills up, and only then it can go
            if client.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE":
                break
            time.sleep(0.1)
        client.delete_stack(StackName=name)


def test_a_refused_launch_ends_the_deploy_with_ec2s_words(proof: Proof) -> None:
    """The event of a refusal that will not change: the stack fails at once, and says why."""
    reason = "The image id '[ami-0123456789abcdef0]' does not exist. Launching EC2 instance failed."
    event = {"detail-type": "EC2 Instance Launch Unsuccessful", "detail": {"StatusMessage": reason}}
    assert proof.look(event)["did"] == "signalled"
    assert f"launch-failed: 0 of 2 instances run; EC2 refused a launch: {reason}" in proof.why_it_ended()
    assert proof.rules_enabled() == []


def test_scaling_activities_are_read_when_the_wait_is_about_to_end(proof: Proof) -> None:
    """Capacity may still come, so nobody speaks; before the time-out the activity's reason is told."""
    proof.plane.limit_capacity({"c7i.2xlarge": 1})
    with fleet(proof, "c7i.2xlarge", running=1):
        assert proof.look()["did"] == "nothing"
        assert proof.look(after_s=500)["verdict"] == "FAIL"
    assert "launch-failed: 1 of 2 instances run; EC2 refused a launch: " in proof.why_it_ended()
    assert "sufficient c7i.2xlarge capacity" in proof.why_it_ended()


def test_nodes_that_never_report_are_told_as_undetermined(proof: Proof) -> None:
    """Two instances run, the bucket holds nothing of theirs: both candidates and the command that decides."""
    with fleet(proof, "c7i.xlarge", running=2):
        assert proof.look(after_s=100)["did"] == "nothing"
        assert proof.look(after_s=260)["verdict"] == "UNKNOWN"
    words = proof.why_it_ended()
    assert "undetermined: 2 of 2 instances run but never reported" in words
    assert "bootstrap-failed or storage-unreachable" in words
    assert "aws ec2 get-console-output" in words
    standing = Rows(proof.plane.client("s3"), BUCKET)
    found = standing.latest_verdict(standing.list(proof.run))
    assert found is not None
    assert found.key == f"rows/{proof.run}/referee/verdict-mesh.json"


def test_a_verdict_whose_signal_was_lost_is_signalled_again(proof: Proof) -> None:
    """The judging node died after writing: its words reach the stack, not the referee's own."""
    proof.put("AROA:i-1", "verdict-mesh.json", PASSED)
    proof.put("AROA:i-1", "verdict-collective.json", PASSED)
    assert proof.look() == {"did": "nothing", "why": "a verdict stands, its signal is on the way"}
    answer = proof.look(after_s=90)
    assert answer == {
        "did": "signalled",
        "verdict": "PASS",
        "key": f"rows/{proof.run}/AROA:i-1/verdict-collective.json",
    }
    assert proof.why_it_ended() == "CREATE_COMPLETE"
    assert proof.rules_enabled() == []


def test_a_mesh_that_passed_still_owes_the_collective(proof: Proof) -> None:
    """PASS of the first stage ends nothing; at the last call the missing answer is UNKNOWN."""
    proof.put("AROA:i-1", "verdict-mesh.json", PASSED)
    assert proof.look(after_s=90)["did"] == "nothing"
    answer = proof.look(after_s=590)
    assert (answer["verdict"], answer["key"]) == (
        "UNKNOWN",
        f"rows/{proof.run}/referee/verdict-collective.json",
    )


def test_after_the_end_the_referee_stops_itself(proof: Proof) -> None:
    """The wait is over: its rules are disabled and nothing else is read or written."""
    proof.plane.signal(proof.settings.handle_url, "SUCCESS", "", "{}")
    assert proof.why_it_ended() == "CREATE_COMPLETE"
    assert proof.rules_enabled() == [f"{proof.run}-launch", f"{proof.run}-minute"]
    assert proof.look()["did"] == "disabled"
    assert proof.rules_enabled() == []


def test_before_the_wait_begins_the_referee_does_nothing(plane: Plane, proof: Proof) -> None:
    """Rules may fire before CloudFormation has made the handle."""
    early = dataclasses.replace(proof.settings, stack="no-such-stack")
    answer = Referee(early, plane).look({}, time.time())
    assert answer == {"did": "nothing", "why": "Handle is not there yet"}
    assert len(proof.rules_enabled()) == 2


def test_the_widget_draws_the_latest_verdict_and_says_how_old_it_is(proof: Proof) -> None:
    """Later checks come after the deploy's own run; one without a verdict is said, not hidden."""
    rows = Rows(proof.plane.client("s3"), BUCKET)
    assert "UNKNOWN. No verdict stands" in widget.page(rows, "c", proof.run, time.time())
    proof.put("AROA:i-1", "verdict-collective.json", PASSED)
    broken = dataclasses.replace(PASSED, verdict=Verdict.FAIL)
    for epoch, name, verdict in ((900, "verdict-mesh.json", broken), (1000, "mesh.json", None)):
        check = dataclasses.replace(proof.settings.config, run=f"{proof.run}-check-{epoch}")
        later = Proof(proof.plane, dataclasses.replace(proof.settings, config=check))
        later.put("AROA:i-1", name, verdict)
    assert rows.runs(proof.run) == [proof.run, f"{proof.run}-check-900", f"{proof.run}-check-1000"]
    page = widget.page(rows, "c", proof.run, time.time() + 120)
    assert f"<p>{proof.run}-check-900, mesh stage, 2 min old; 1 later runs without a verdict</p>" in page
    assert ">FAIL</span>" in page
    for stripped in ("<script", "<iframe", "<use"):
        assert stripped not in page


def test_of_two_verdicts_the_one_that_knows_more_members_stands(proof: Proof) -> None:
    """A member that a FAIL left out gave it again, with itself: the later one, as `report` has it."""
    rows = Rows(proof.plane.client("s3"), BUCKET)
    left_out = dataclasses.replace(PASSED, verdict=Verdict.FAIL, nodes=PASSED.nodes[:1])
    proof.put("AROA:i-1", "verdict-mesh.json", left_out)
    proof.put("AROA:i-2", "verdict-mesh.json", dataclasses.replace(PASSED, verdict=Verdict.FAIL))
    standing = rows.latest_verdict(rows.list(proof.run))
    assert standing is not None
    assert (standing.key, standing.diagnosis.nodes) == (
        f"rows/{proof.run}/AROA:i-2/verdict-mesh.json",
        PASSED.nodes,
    )


def test_a_row_that_s3_refuses_is_told_and_hides_no_other(proof: Proof) -> None:
    """One that is gone between the listing and the reading ends no look of the referee."""
    rows = Rows(proof.plane.client("s3"), BUCKET)
    for report in healthy(2):
        proof.put(f"AROA:{report.member_id}", "mesh.json", report)
    listed = rows.list(proof.run)
    gone = next(row for row in listed if row.instance_id == healthy(2)[0].member_id)
    proof.plane.client("s3").delete_object(Bucket=BUCKET, Key=gone.key)
    reports, (problem,) = rows.reports(listed)
    assert [report.member_id for report in reports] == [healthy(2)[1].member_id]
    assert problem.startswith(f"s3://{BUCKET}/{gone.key} cannot be read: ")


def test_the_console_is_told_what_the_widget_is() -> None:
    """`describe` is answered without reading anything."""
    assert widget.handler({"describe": True}, None) == {"markdown": widget.ABOUT}


def test_the_default_group_ends_without_a_rule(plane: Plane) -> None:
    """Every rule is revoked, both ways; a second time there is nothing left to do."""
    ec2 = plane.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.78.0.0/16")["Vpc"]["VpcId"]
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    (group,) = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    assert group["IpPermissionsEgress"] != []
    for _ in range(2):
        default_group.revoke_all(ec2, group["GroupId"])
        (group,) = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
        assert (group["IpPermissions"], group["IpPermissionsEgress"]) == ([], [])


def test_the_inline_function_fits_into_a_template() -> None:
    """CloudFormation takes 4,096 bytes of inline code."""
    assert Path(default_group.__file__).stat().st_size <= 4096
