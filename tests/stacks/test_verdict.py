"""The proof: what it waits for, what makes it new, and who may say what."""

from __future__ import annotations

import json

import pytest

from stacks.template_model import mentions
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import ACCOUNT, REGION, Synthesis, synthesise


def proof(found: Synthesis) -> tuple[str, str]:
    """Logical ids of handle and wait."""
    (handle,) = found.of_type("AWS::CloudFormation::WaitConditionHandle")
    (wait,) = found.of_type("AWS::CloudFormation::WaitCondition")
    return handle, wait


def test_the_wait_stands_beside_the_group(shape: Synthesis) -> None:
    """Both wait for the same things and not for each other, so that a failed launch can be told."""
    _, wait = proof(shape)
    resources = shape.cluster["Resources"]
    before_group = set(resources["Group"]["DependsOn"])
    before_wait = set(resources[wait]["DependsOn"])
    (template,) = shape.of_type("AWS::EC2::LaunchTemplate")
    assert before_wait == before_group | {template}
    assert "Group" not in before_wait
    assert wait not in set(mentions([r for r in resources.values() if r["Type"] != "AWS::CDK::Metadata"]))


def test_only_an_output_reads_the_verdict(public: Synthesis) -> None:
    """The verdict of `cdk deploy` is the Data that the nodes sent."""
    _, wait = proof(public)
    assert public.cluster["Outputs"]["Verdict"]["Value"] == {"Fn::GetAtt": [wait, "Data"]}
    assert wait not in json.dumps([r.get("DependsOn") for r in public.cluster["Resources"].values()])


@pytest.mark.parametrize(
    "change",
    [
        {"cluster__nodes": 6},
        {"cluster__instance_type": "c7i.2xlarge"},
        {"cluster__ami_id": "ami-0fedcba9876543210"},
        {"cluster__port_profile": "pinned"},
        {"cluster__master_port": 29501},
        {"cluster__proof_timeout_s": 3000},
        {"cluster__torch_version": "2.12.0"},
        {"cluster__attempt": 2},
        {"cluster__check_interval_min": 1},
        {"fullmesh:unsafe-rules": "sg-only-master-port"},
    ],
)
def test_whatever_is_proven_makes_a_new_proof(public: Synthesis, change: dict[str, object]) -> None:
    """CloudFormation updates neither handle nor wait: a change under old ids would stand unproven."""
    changed = synthesise(**change)
    assert {*proof(public)} & {*proof(changed)} == set()
    assert public.launch_data["UserData"] != changed.launch_data["UserData"]


@pytest.mark.parametrize(
    "change",
    [{"cluster__alarm_broken_pairs": 3}, {"cluster__retention_days": 14}, {"cluster__flow_logs": "no"}],
)
def test_what_is_not_proven_leaves_the_fleet_alone(public: Synthesis, change: dict[str, object]) -> None:
    """A threshold must not replace every node."""
    changed = synthesise(**change)
    assert proof(public) == proof(changed)
    assert public.launch_data == changed.launch_data


def test_a_newer_image_that_was_looked_up_makes_a_new_proof() -> None:
    """The specification leaves the image blank; what the CLI found is proven all the same."""
    name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
    key = f"ssm:account={ACCOUNT}:parameterName={name}:region={REGION}"
    one, other = (
        synthesise(cluster__ami_id="", **{key: image})
        for image in ("ami-0aaaaaaaaaaaaaaaa", "ami-0bbbbbbbbbbbbbbbb")
    )
    assert one.launch_data["ImageId"] == "ami-0aaaaaaaaaaaaaaaa"
    assert {*proof(one)} & {*proof(other)} == set()


def test_two_syntheses_are_equal(public: Synthesis) -> None:
    """The same sources give the same template: nothing but a change replaces a fleet."""
    again = synthesise.__wrapped__()
    assert (again.cluster, again.evidence) == (public.cluster, public.evidence)


def test_the_referee_stands_outside_the_vpc_and_refers_to_no_group(public: Synthesis) -> None:
    """It reaches S3 when no node does, and a reference to the group would be a cycle."""
    (function,) = (
        f["Properties"]
        for f in public.of_type("AWS::Lambda::Function").values()
        if f["Properties"]["Handler"] == "stacks.runtime.referee.handler"
    )
    assert "VpcConfig" not in function
    assert "Group" not in set(mentions(function))
    assert function["Runtime"] == "python3.13"


def test_the_referee_is_called_by_refused_launches_and_every_minute(public: Synthesis) -> None:
    """Its rules are new with every proof, and their state is nobody's drift."""
    every = [r["Properties"] for r in public.of_type("AWS::Events::Rule").values()]
    rules = [r for r in every if r["Targets"][0]["Id"] == "referee"]
    run = public.cluster["Outputs"]["Run"]["Value"]
    triggers = {r["Name"]: r.get("EventPattern") or r["ScheduleExpression"] for r in rules}
    assert triggers == {
        f"fullmesh-{run}-launch": {
            "source": ["aws.autoscaling"],
            "detail-type": ["EC2 Instance Launch Unsuccessful"],
            "detail": {"AutoScalingGroupName": [{"prefix": "fullmesh-Group-"}]},
        },
        f"fullmesh-{run}-minute": "rate(1 minute)",
    }
    assert all("State" not in rule for rule in rules)


def test_the_referee_may_disable_its_own_rules_only(public: Synthesis) -> None:
    """And write below referee/ only."""
    run = public.cluster["Outputs"]["Run"]["Value"]
    allowed: dict[str, list[str]] = {}
    for statement in public.statements():
        actions = statement["Action"]
        for action in actions if isinstance(actions, list) else [actions]:
            allowed.setdefault(action, []).append(json.dumps(statement["Resource"]))
    (rules,) = allowed["events:DisableRule"]
    assert [part.strip('"[], }') for part in rules.split("rule/")[1:]] != []
    assert all(f"rule/fullmesh-{run}-{kind}" in rules for kind in ("launch", "minute"))
    writes = [resource for resource in allowed["s3:PutObject"] if "referee" in resource]
    assert len(writes) == 1
    assert "/rows/*/referee/*" in writes[0]


def test_every_shape_has_one_proof() -> None:
    """One handle, one wait for one signal, within the time the specification gives."""
    for context in SHAPES.values():
        wait = synthesise(**context).one("AWS::CloudFormation::WaitCondition")
        assert (wait["Count"], wait["Timeout"]) == (1, "2700")
