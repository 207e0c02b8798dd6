"""The members: exactly N, replaced together, with no more rights than they use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template

from audit import readings
from cluster.spec import ClusterSpec, Placement
from stacks.cluster_stack import ClusterStack
from stacks.evidence_stack import Evidence
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import AMI, RESERVATION, Synthesis, new_app, synthesise


def test_the_group_has_exactly_n_members() -> None:
    """Minimum, maximum and desired are one number, so nothing scales the mesh."""
    group = synthesise(cluster__nodes=400).one("AWS::AutoScaling::AutoScalingGroup")
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == ("400", "400", "400")


def test_every_change_replaces_all_members_at_once(public: Synthesis) -> None:
    """User data runs at first boot only; old and new nodes must never meet in one mesh."""
    assert public.cluster["Resources"]["Group"]["UpdatePolicy"] == {
        "AutoScalingRollingUpdate": {
            "MinInstancesInService": 0,
            "MaxBatchSize": 4,
            "WaitOnResourceSignals": False,
            "PauseTime": "PT0S",
            "SuspendProcesses": [
                "HealthCheck",
                "ReplaceUnhealthy",
                "AZRebalance",
                "AlarmNotification",
                "ScheduledActions",
            ],
        }
    }


def test_health_checks_leave_the_proof_alone() -> None:
    """A node under proof must not be replaced: the grace period lasts as long as the proof may."""
    group = synthesise(cluster__proof_timeout_s=3000).one("AWS::AutoScaling::AutoScalingGroup")
    assert (group["HealthCheckType"], group["HealthCheckGracePeriod"]) == ("EC2", 3000)


def test_the_template_is_as_large_for_400_nodes_as_for_4(public: Synthesis) -> None:
    """The same resources, and not a byte more than the longer numbers."""
    large = synthesise(cluster__nodes=400)
    kinds = [sorted(r["Type"] for r in f.cluster["Resources"].values()) for f in (public, large)]
    assert kinds[0] == kinds[1]
    sizes = [(f.folder / "fullmesh.template.json").stat().st_size for f in (public, large)]
    assert abs(sizes[1] - sizes[0]) < 100


def test_instances_are_hardened(shape: Synthesis) -> None:
    """IMDSv2 only, no tags in the metadata, encrypted gp3, detailed monitoring, groups in the interface."""
    data = shape.launch_data
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
        "InstanceMetadataTags": "disabled",
    }
    (disk,) = data["BlockDeviceMappings"]
    assert (disk["Ebs"]["VolumeType"], disk["Ebs"]["Encrypted"]) == ("gp3", True)
    assert data["Monitoring"] == {"Enabled": True}
    (interface,) = data["NetworkInterfaces"]
    assert interface["Groups"] == [{"Fn::GetAtt": ["MemberGroup", "GroupId"]}]
    assert interface["ConnectionTrackingSpecification"] == {"TcpEstablishedTimeout": 432000}
    assert not {"SecurityGroupIds", "SecurityGroups", "KeyName"} & set(data)
    assert "SubnetId" not in interface


def test_what_only_nitro_takes_is_not_asked_of_an_older_type() -> None:
    """EC2 lets the idle time-out of tracked connections be set on Nitro types only."""
    (interface,) = synthesise(cluster__instance_type="p3.16xlarge").launch_data["NetworkInterfaces"]
    assert "ConnectionTrackingSpecification" not in interface


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("public", {"placement": "cluster", "reservation": None, "market": None}),
        (
            "private-pinned-reservation",
            {"placement": "cluster", "reservation": "made here", "market": None},
        ),
        ("isolated-efa-existing", {"placement": "cluster", "reservation": RESERVATION, "market": None}),
        ("block-ubuntu-arm64", {"placement": None, "reservation": RESERVATION, "market": "capacity-block"}),
        ("spread-two-subnets", {"placement": "spread", "reservation": None, "market": None}),
    ],
)
def test_placement_and_capacity(shape: str, expected: dict[str, Any]) -> None:
    """Each capacity mode targets its reservation; only a capacity block goes without a placement group."""
    found = synthesise(**SHAPES[shape])
    data = found.launch_data
    groups = found.of_type("AWS::EC2::PlacementGroup")
    placement = data.get("Placement", {}).get("GroupName")
    assert (placement is None) is (not groups)
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget", {})
    reservation = target.get("CapacityReservationId")
    assert {
        "placement": next((g["Properties"]["Strategy"] for g in groups.values()), None),
        "reservation": "made here" if isinstance(reservation, dict) else reservation,
        "market": (data.get("InstanceMarketOptions") or {}).get("MarketType"),
    } == expected


def test_the_reservation_is_all_or_nothing_in_the_placement_group(private: Synthesis) -> None:
    """N instances of the type, for this fleet only, in its placement group."""
    reservation = private.one("AWS::EC2::CapacityReservation")
    (placement,) = private.of_type("AWS::EC2::PlacementGroup")
    assert (reservation["InstanceCount"], reservation["InstanceMatchCriteria"]) == (4, "targeted")
    assert {"Ref": placement} in reservation["PlacementGroupArn"]["Fn::Join"][1]


def test_a_reservation_is_made_in_a_cluster_group_or_in_none(tmp_path: Path) -> None:
    """EC2 takes the ARN of no other group, whatever specification reaches the stack."""
    checked = ClusterSpec.from_context({"capacity": "reservation", "placement": "none"})
    for placement in Placement:
        stack = ClusterStack(
            new_app(tmp_path / placement.value),
            "fullmesh",
            spec=dataclasses.replace(checked, placement=placement),
            image_id=AMI,
            evidence=Evidence(bucket="b", verdicts="v", flow_logs="l", functions="f"),
            audit_reading=readings.statements,
        )
        resources = Template.from_stack(stack).to_json()["Resources"]
        (reservation,) = (r for r in resources.values() if r["Type"] == "AWS::EC2::CapacityReservation")
        assert ("PlacementGroupArn" in reservation["Properties"]) is (placement is Placement.CLUSTER)


def test_profile_efa_makes_the_interface_an_efa(isolated: Synthesis, public: Synthesis) -> None:
    """Rules for a fabric without the fabric would be open for nothing; other profiles get none."""
    kinds = [f.launch_data["NetworkInterfaces"][0].get("InterfaceType") for f in (isolated, public)]
    assert kinds == ["efa", None]


@pytest.mark.parametrize(("system", "device"), [("al2023", "/dev/xvda"), ("ubuntu", "/dev/sda1")])
def test_the_root_device_is_the_images_own(system: str, device: str) -> None:
    """Another name would add a second, empty disk and leave the root disk unencrypted."""
    (disk,) = synthesise(cluster__operating_system=system).launch_data["BlockDeviceMappings"]
    assert disk["DeviceName"] == device


def test_a_node_may_write_only_its_own_rows(public: Synthesis) -> None:
    """PutObject is bound to aws:userid, listing to the rows, metrics to the namespace, logs to one stream."""
    rights = {s["Sid"]: s for s in public.statements() if "Sid" in s}
    assert sorted(rights) == [
        "AllRows",
        "Assets",
        "ListRows",
        "Metrics",
        "OwnRows",
        "Rules",
        "VerdictEvent",
    ]
    assert rights["OwnRows"]["Action"] == "s3:PutObject"
    assert rights["OwnRows"]["Resource"]["Fn::Join"][1][-1] == "/rows/*/${aws:userid}/*"
    assert rights["ListRows"]["Condition"] == {"StringLike": {"s3:prefix": "rows/*"}}
    assert rights["Metrics"]["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Fullmesh"}}
    assert rights["VerdictEvent"]["Resource"]["Fn::Join"][1][-1] == ":log-stream:verdicts"
    asset = rights["Assets"]["Resource"]
    assert "*" not in str(asset)
    assert all(action.startswith("ec2:Describe") for action in rights["Rules"]["Action"])


def test_no_role_may_make_a_log_group_or_pass_a_role(shape: Synthesis) -> None:
    """A function that makes its log group brings a deleted one back; nobody here needs more than this."""
    actions = {
        action
        for statement in shape.statements()
        for action in (
            statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        )
    }
    assert not {action for action in actions if "*" in action}
    assert not actions & {"logs:CreateLogGroup", "iam:PassRole"}
