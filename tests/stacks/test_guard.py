"""The guard refuses each template on which the mesh could not form, or that lets others in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from cluster.spec import ClusterSpec
from stacks.guard import Guard, check
from stacks.launch_faults import user_data_bytes
from stacks.user_data import LIMIT_BYTES
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import Json, Synthesis, cdk_json, new_app, synthesise

Mutation = Callable[[Json], None]


def spec_of(shape: str = "public") -> ClusterSpec:
    overrides = {k.replace("cluster__", ""): v for k, v in SHAPES[shape].items()}
    return ClusterSpec.from_context(cdk_json()["cluster"], {**overrides, "ami_id": "ami-0123456789abcdef0"})


def resources_of(template: Json, kind: str) -> list[Json]:
    return [r for r in template["Resources"].values() if r["Type"] == kind]


def remove(kind: str) -> Mutation:
    def mutate(template: Json) -> None:
        for logical_id in [i for i, r in template["Resources"].items() if r["Type"] == kind]:
            del template["Resources"][logical_id]
            for other in template["Resources"].values():
                if logical_id in other.get("DependsOn", []):
                    other["DependsOn"].remove(logical_id)

    return mutate


def narrow_ingress(first: int, last: int) -> Mutation:
    def mutate(template: Json) -> None:
        (rule,) = resources_of(template, "AWS::EC2::SecurityGroupIngress")
        rule["Properties"].update(FromPort=first, ToPort=last)

    return mutate


def admit(**rule: Any) -> Mutation:
    def mutate(template: Json) -> None:
        group = template["Resources"]["MemberGroup"]["Properties"]
        group["SecurityGroupIngress"].append({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **rule})

    return mutate


def admit_separately(template: Json) -> None:
    """A rule of its own, as CDK renders a peer that is another group."""
    template["Resources"]["Other"] = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "other", "VpcId": "vpc"},
    }
    template["Resources"]["OtherIn"] = {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {
            "GroupId": {"Fn::GetAtt": ["MemberGroup", "GroupId"]},
            "SourceSecurityGroupId": {"Fn::GetAtt": ["Other", "GroupId"]},
            "IpProtocol": "-1",
        },
    }


def deny_by_acl(template: Json) -> None:
    """An ACL of its own on both subnets that lets nothing through."""
    subnets = [i for i, r in template["Resources"].items() if r["Type"] == "AWS::EC2::Subnet"]
    template["Resources"]["Acl"] = {"Type": "AWS::EC2::NetworkAcl", "Properties": {"VpcId": "vpc"}}
    for position, subnet in enumerate(subnets):
        template["Resources"][f"AclOf{position}"] = {
            "Type": "AWS::EC2::SubnetNetworkAclAssociation",
            "Properties": {"SubnetId": {"Ref": subnet}, "NetworkAclId": {"Ref": "Acl"}},
        }


def launch_data(template: Json) -> Json:
    (found,) = resources_of(template, "AWS::EC2::LaunchTemplate")
    data: Json = found["Properties"]["LaunchTemplateData"]
    return data


def drop_groups(template: Json) -> None:
    launch_data(template)["NetworkInterfaces"][0]["Groups"] = []


def groups_beside(template: Json) -> None:
    launch_data(template)["SecurityGroupIds"] = [{"Fn::GetAtt": ["MemberGroup", "GroupId"]}]


def subnet_in_interface(template: Json) -> None:
    launch_data(template)["NetworkInterfaces"][0]["SubnetId"] = "subnet-1"


def burstable(template: Json) -> None:
    launch_data(template)["InstanceType"] = "t3.large"


def cluster_over_two_zones(template: Json) -> None:
    (group,) = resources_of(template, "AWS::EC2::PlacementGroup")
    group["Properties"]["Strategy"] = "cluster"


def depend_on_wait(template: Json) -> None:
    (wait,) = (i for i, r in template["Resources"].items() if r["Type"].endswith("::WaitCondition"))
    resources_of(template, "AWS::CloudWatch::Dashboard")[0]["DependsOn"] = [wait]


def wait_behind_group(template: Json) -> None:
    resources_of(template, "AWS::CloudFormation::WaitCondition")[0]["DependsOn"].append("Group")


def long_user_data(template: Json) -> None:
    launch_data(template)["UserData"] = {"Fn::Base64": "#" * 16_385}


def many_resources(template: Json) -> None:
    for number in range(500):
        template["Resources"][f"R{number}"] = {"Type": "AWS::CDK::Metadata", "Properties": {}}


def no_fleet(template: Json) -> None:
    for logical_id, resource in list(template["Resources"].items()):
        if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup":
            del template["Resources"][logical_id]


def plain_interface(template: Json) -> None:
    del launch_data(template)["NetworkInterfaces"][0]["InterfaceType"]


def spread_under_a_reservation(template: Json) -> None:
    (group,) = resources_of(template, "AWS::EC2::PlacementGroup")
    group["Properties"]["Strategy"] = "spread"


def reservation_over_two_zones(template: Json) -> None:
    launch_data(template)["CapacityReservationSpecification"] = {
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"}
    }
    del launch_data(template)["Placement"]


def one_way_efa(template: Json) -> None:
    (rule,) = resources_of(template, "AWS::EC2::SecurityGroupEgress")
    del rule["Properties"]["DestinationSecurityGroupId"]
    rule["Properties"]["CidrIp"] = "0.0.0.0/0"


@pytest.mark.parametrize(
    ("shape", "mutation", "rule"),
    [
        ("public", remove("AWS::EC2::SecurityGroupIngress"), "mesh-impossible"),
        ("public", remove("AWS::EC2::SecurityGroupEgress"), "mesh-impossible"),
        ("public", narrow_ingress(29500, 29500), "mesh-impossible"),
        ("public", narrow_ingress(29500, 50000), "mesh-impossible"),
        ("spread-two-subnets", deny_by_acl, "mesh-impossible"),
        ("public", admit(CidrIp="0.0.0.0/0"), "open-to-others"),
        ("public", admit(CidrIp="10.20.0.0/16"), "open-to-others"),
        ("public", admit(CidrIpv6="::/0"), "open-to-others"),
        ("public", admit(SourcePrefixListId="pl-1"), "open-to-others"),
        ("public", admit(IpProtocol="icmp", FromPort=-1, ToPort=-1, CidrIp="10.20.0.0/16"), "open-to-others"),
        ("public", admit(IpProtocol="icmp", FromPort=3, ToPort=4, CidrIp="0.0.0.0/0"), "open-to-others"),
        ("public", admit_separately, "open-to-others"),
        ("isolated-efa-existing", one_way_efa, "efa-self-rules"),
        ("isolated-efa-existing", plain_interface, "efa-interface"),
        ("public", burstable, "cluster-placement"),
        ("private-pinned-reservation", spread_under_a_reservation, "reservation"),
        ("isolated-efa-existing", spread_under_a_reservation, "reservation"),
        ("spread-two-subnets", reservation_over_two_zones, "reservation"),
        ("public", no_fleet, "fleet-missing"),
        ("spread-two-subnets", cluster_over_two_zones, "cluster-placement"),
        ("public", groups_beside, "launch-template"),
        ("public", subnet_in_interface, "launch-template"),
        ("public", depend_on_wait, "wait-beside-group"),
        ("public", wait_behind_group, "wait-beside-group"),
        ("public", remove("AWS::CloudFormation::WaitCondition"), "wait-beside-group"),
        ("public", long_user_data, "size-limits"),
        ("public", many_resources, "size-limits"),
    ],
)
def test_each_broken_template_is_refused_for_its_own_reason(
    shape: str, mutation: Mutation, rule: str
) -> None:
    """One mutation, one rule, and the template before it has no fault."""
    template = synthesise(**SHAPES[shape]).cluster
    assert check(template, spec_of(shape)) == []
    broken = copy.deepcopy(template)
    mutation(broken)
    assert {fault.rule for fault in check(broken, spec_of(shape))} == {rule}


def test_an_interface_without_groups_is_refused_twice(public: Synthesis) -> None:
    """Members then carry the default group: the launch template is wrong, and no mesh can be proven."""
    broken = copy.deepcopy(public.cluster)
    drop_groups(broken)
    assert {fault.rule for fault in check(broken, spec_of())} == {"mesh-impossible", "launch-template"}


def test_a_fault_names_ports_group_and_fix(public: Synthesis) -> None:
    """What is printed is enough to mend it."""
    broken = copy.deepcopy(public.cluster)
    narrow_ingress(29500, 29500)(broken)
    (fault,) = check(broken, spec_of())
    assert fault.resource == "MemberGroup"
    assert fault.detail.startswith(
        "members cannot reach each other on tcp 32768-60999: ENI_SG_RULES_MISMATCH"
    )
    assert fault.fix == "allow tcp 29500,32768-60999 from the group to itself, in and out"


def test_the_evidence_stack_has_nothing_to_prove(public: Synthesis) -> None:
    """A template without a fleet passes, unless it is the cluster's own."""
    assert check(public.evidence, spec_of(), is_cluster=False) == []
    assert [fault.rule for fault in check(public.evidence, spec_of())] == ["fleet-missing"]


def test_a_synthesis_without_the_clusters_template_is_refused(tmp_path: Path) -> None:
    """A guard that was given another stack's name has proven nothing."""
    application = new_app(tmp_path)
    _fleet_that_opens_master_port_only(cdk.Stack(application, "Bad"))
    guard = Guard(spec_of(), cluster_template="fullmesh.template.json", unsafe_rules="sg-only-master-port")
    cdk.Validations.of(application).add_plugins(guard)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        application.synth()
    text = (tmp_path / "validation-report.json").read_text(encoding="utf-8")
    assert "fullmesh.template.json is not among the templates Bad.template.json" in text


def test_user_data_is_measured_with_what_references_become() -> None:
    """The handle's address is long, every other reference is a name; the limit is EC2's."""
    resources = {"Handle1": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}
    parts = ["#" * 100, {"Ref": "Handle1"}, {"Ref": "AWS::Region"}]
    assert user_data_bytes({"Fn::Base64": {"Fn::Join": ["-", parts]}}, resources) == 100 + 512 + 160 + 2


def test_every_shape_leaves_room_in_the_user_data(shape: Synthesis) -> None:
    """A longer name in another account must not break a deploy that fits here."""
    data = shape.launch_data["UserData"]
    assert user_data_bytes(data, shape.cluster["Resources"]) <= LIMIT_BYTES - 512


@pytest.mark.parametrize(("unsafe_rules", "refused"), [("", True), ("sg-only-master-port", False)])
def test_synthesis_ends_on_a_fault_unless_it_was_asked_for(
    tmp_path: Path, unsafe_rules: str, refused: bool
) -> None:
    """The same faulty stack: an error by itself, a warning when the fault is to be shown."""
    application = new_app(tmp_path)
    stack = cdk.Stack(application, "Bad")
    _fleet_that_opens_master_port_only(stack)
    cdk.Validations.of(application).add_plugins(
        Guard(spec_of(), cluster_template=stack.template_file, unsafe_rules=unsafe_rules)
    )
    if refused:
        with pytest.raises(RuntimeError, match="ValidationFailed"):
            application.synth()
    else:
        application.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))
    text = json.dumps(report)
    assert "mesh-impossible" in text


def test_other_rules_hold_while_a_fault_is_shown(tmp_path: Path) -> None:
    """Asking for a narrow group does not allow an open one."""
    application = new_app(tmp_path)
    stack = cdk.Stack(application, "Bad")
    _fleet_that_opens_master_port_only(stack, admitted="0.0.0.0/0")
    cdk.Validations.of(application).add_plugins(
        Guard(spec_of(), cluster_template=stack.template_file, unsafe_rules="sg-only-master-port")
    )
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        application.synth()


def _fleet_that_opens_master_port_only(stack: cdk.Stack, admitted: str = "") -> None:
    """The part of a cluster that the guard judges, from raw resources."""
    template = copy.deepcopy(synthesise(**{"fullmesh:unsafe-rules": "sg-only-master-port"}).cluster)
    if admitted:
        admit(CidrIp=admitted)(template)
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] == "AWS::CDK::Metadata":
            continue
        made = cdk.CfnResource(
            stack, logical_id, type=resource["Type"], properties=resource.get("Properties", {})
        )
        made.override_logical_id(logical_id)
