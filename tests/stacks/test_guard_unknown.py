"""The guard refuses as not known what only the deploy knows; it neither passes it nor stumbles over it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stacks.guard import check
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import Json, Synthesis, synthesise
from tests.stacks.test_guard import Mutation, admit, launch_data, resources_of, spec_of
from tests.stacks.test_guard_paths import TWO, acl_of_both, add, route

OWN = {"Fn::GetAtt": ["MemberGroup", "GroupId"]}
PARAMETER = {"Ref": "Parameter"}
OPEN = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}
NOTHING = {"Ref": "AWS::NoValue"}
INLINE = "Properties/SecurityGroupIngress"
DATA = "Properties/LaunchTemplateData"
INTERFACES = f"{DATA}/NetworkInterfaces"


def put(kind: str, **properties: Any) -> Mutation:
    """Properties of the first resource of a type."""

    def mutate(template: Json) -> None:
        resources_of(template, kind)[0]["Properties"].update(properties)

    return mutate


def conditional(kind: str) -> Mutation:
    def mutate(template: Json) -> None:
        resources_of(template, kind)[0]["Condition"] = "Sometimes"

    return mutate


def inward(rules: Any) -> Mutation:
    return put("AWS::EC2::SecurityGroup", SecurityGroupIngress=rules)


def member_groups(groups: Any) -> Mutation:
    def mutate(template: Json) -> None:
        launch_data(template)["NetworkInterfaces"][0]["Groups"] = groups

    return mutate


def interfaces_by_condition(template: Json) -> None:
    data = launch_data(template)
    data["NetworkInterfaces"] = {"Fn::If": ["Sometimes", data["NetworkInterfaces"], NOTHING]}


def group_by_name(template: Json) -> None:
    launch_data(template)["SecurityGroups"] = ["default"]


def loop(template: Json) -> None:
    template["Resources"]["Fn::ForEach::Rules"] = ["Port", ["22"], {}]


def macro(template: Json) -> None:
    template["Transform"] = ["SomebodysMacro"]


DENY = {"RuleNumber": 50, "Protocol": 6, "RuleAction": "deny", "CidrBlock": "10.20.64.0/18"}
DEFAULT_ACL = {"Fn::GetAtt": ["NetworkVpcFAC8F4A5", "DefaultNetworkAcl"]}
BESIDE = "AWS::EC2::SecurityGroupIngress"
FLEET = "AWS::AutoScaling::AutoScalingGroup"
SELF, OUT = "MembersIn0To655358FA14591", "MembersOut0To655356D35EAA2"
LAUNCH = "FleetTemplate21A07326"


@pytest.mark.parametrize(
    ("shape", "mutation", "resource", "location"),
    [
        ("public", put(BESIDE, FromPort=PARAMETER), SELF, "Properties/FromPort"),
        ("public", put(BESIDE, ToPort="many"), SELF, "Properties/ToPort"),
        ("public", put(BESIDE, IpProtocol=PARAMETER), SELF, "Properties/IpProtocol"),
        ("public", put(BESIDE, GroupId=PARAMETER), SELF, "Properties/GroupId"),
        ("public", put(BESIDE, GroupId=NOTHING, GroupName="own"), SELF, "Properties/GroupName"),
        ("public", put(BESIDE, SourceSecurityGroupId=NOTHING), SELF, "Properties"),
        ("public", conditional(BESIDE), SELF, "Condition"),
        ("public", admit(CidrIp=PARAMETER), "MemberGroup", f"{INLINE}/1/CidrIp"),
        ("public", admit(CidrIpv6=PARAMETER), "MemberGroup", f"{INLINE}/1/CidrIpv6"),
        ("public", admit(SourcePrefixListId=PARAMETER), "MemberGroup", f"{INLINE}/1/SourcePrefixListId"),
        (
            "public",
            admit(SourceSecurityGroupId={"Fn::ImportValue": "other"}),
            "MemberGroup",
            f"{INLINE}/1/SourceSecurityGroupId",
        ),
        (
            "public",
            admit(SourceSecurityGroupName="default"),
            "MemberGroup",
            f"{INLINE}/1/SourceSecurityGroupName",
        ),
        ("public", inward([{"Fn::If": ["Sometimes", OPEN, NOTHING]}]), "MemberGroup", f"{INLINE}/0"),
        ("public", inward({"Fn::If": ["Sometimes", [OPEN], NOTHING]}), "MemberGroup", INLINE),
        ("public", conditional("AWS::EC2::SecurityGroup"), "MemberGroup", "Condition"),
        ("public", member_groups([OWN, PARAMETER]), LAUNCH, f"{INTERFACES}/0/Groups/1"),
        ("public", member_groups({"Fn::Split": [",", "a"]}), LAUNCH, f"{INTERFACES}/0/Groups"),
        ("public", interfaces_by_condition, LAUNCH, INTERFACES),
        ("public", group_by_name, LAUNCH, f"{DATA}/SecurityGroups"),
        ("public", put("AWS::EC2::LaunchTemplate", LaunchTemplateData=PARAMETER), LAUNCH, DATA),
        ("public", put(FLEET, VPCZoneIdentifier=PARAMETER), "Group", "Properties/VPCZoneIdentifier"),
        ("public", put(FLEET, VPCZoneIdentifier=NOTHING), "Group", "Properties"),
        ("public", put(FLEET, LaunchTemplate=NOTHING), "Group", "Properties"),
        (
            "public",
            put(FLEET, LaunchTemplate={"LaunchTemplateId": PARAMETER}),
            "Group",
            "Properties/LaunchTemplate/LaunchTemplateId",
        ),
        ("public", conditional(FLEET), "Group", "Condition"),
        (
            "public",
            put("AWS::EC2::Subnet", CidrBlock={"Fn::Select": [0, {"Fn::Cidr": ["10.20.0.0/16", 4, 8]}]}),
            "NetworkMembers02D29B6B8",
            "Properties/CidrBlock",
        ),
        (TWO, put("AWS::EC2::Subnet", VpcId=PARAMETER), "NetworkMembers02D29B6B8", "Properties/VpcId"),
        (TWO, put("AWS::EC2::VPC", CidrBlock=PARAMETER), "NetworkVpcFAC8F4A5", "Properties/CidrBlock"),
        (TWO, acl_of_both({**DENY, "CidrBlock": PARAMETER}), "Entry2", "Properties/CidrBlock"),
        (TWO, acl_of_both({**DENY, "NetworkAclId": DEFAULT_ACL}), "Entry2", "Properties/NetworkAclId"),
        (
            TWO,
            put("AWS::EC2::SubnetRouteTableAssociation", RouteTableId="rtb-1"),
            "NetworkMembers0Routes37DD513A",
            "Properties/RouteTableId",
        ),
        (TWO, route(DestinationCidrBlock=PARAMETER), "New", "Properties/DestinationCidrBlock"),
        (TWO, route(DestinationPrefixListId=PARAMETER), "New", "Properties/DestinationPrefixListId"),
        (TWO, route(DestinationIpv6CidrBlock=PARAMETER), "New", "Properties/DestinationIpv6CidrBlock"),
        (TWO, acl_of_both({**DENY, "RuleNumber": PARAMETER}), "Entry2", "Properties/RuleNumber"),
        (TWO, acl_of_both({**DENY, "Protocol": PARAMETER}), "Entry2", "Properties/Protocol"),
        (TWO, acl_of_both({**DENY, "RuleAction": PARAMETER}), "Entry2", "Properties/RuleAction"),
        (TWO, acl_of_both({**DENY, "Egress": PARAMETER}), "Entry2", "Properties/Egress"),
        (TWO, acl_of_both({**DENY, "Ipv6CidrBlock": PARAMETER}), "Entry2", "Properties/Ipv6CidrBlock"),
        (
            TWO,
            acl_of_both({**DENY, "PortRange": {"From": PARAMETER, "To": 1}}),
            "Entry2",
            "Properties/PortRange/From",
        ),
        (
            TWO,
            add(
                "AWS::EC2::SubnetNetworkAclAssociation",
                SubnetId={"Ref": "NetworkMembers02D29B6B8"},
                NetworkAclId="acl-1",
            ),
            "New",
            "Properties/NetworkAclId",
        ),
        ("public", conditional("AWS::EC2::SecurityGroupEgress"), OUT, "Condition"),
        ("public", put("AWS::EC2::SecurityGroupEgress", ToPort=PARAMETER), OUT, "Properties/ToPort"),
        (
            "public",
            put("AWS::EC2::SecurityGroup", SecurityGroupEgress=PARAMETER),
            "MemberGroup",
            "Properties/SecurityGroupEgress",
        ),
        ("public", loop, "Fn::ForEach::Rules", ""),
        ("public", macro, "", "Transform"),
    ],
)
def test_what_only_the_deploy_knows_is_refused_as_not_known(
    shape: str, mutation: Mutation, resource: str, location: str
) -> None:
    """One value that cannot be told is one fault that names its resource and property, and nothing else."""
    template = copy.deepcopy(synthesise(**SHAPES[shape]).cluster)
    mutation(template)
    (fault,) = check(template, spec_of(shape))
    assert (fault.rule, fault.resource, fault.location) == ("not-known", resource, location)


@pytest.mark.parametrize(
    ("shape", "mutation"),
    [
        ("public", put("AWS::EC2::VPC", CidrBlock=PARAMETER)),
        ("public", put("AWS::EC2::Subnet", VpcId=PARAMETER)),
        ("public", add("AWS::EC2::NetworkAclEntry", **{**DENY, "NetworkAclId": DEFAULT_ACL})),
        ("public", put(BESIDE, FromPort="0", ToPort="65535", CidrIpv6=NOTHING)),
        ("public", inward([NOTHING])),
        ("public", add(BESIDE, GroupId="sg-1", IpProtocol="tcp", FromPort=PARAMETER, CidrIp="0.0.0.0/0")),
        ("public", add("AWS::EC2::SecurityGroup", SecurityGroupIngress=PARAMETER)),
        ("public", add("AWS::EC2::Subnet", CidrBlock=PARAMETER)),
    ],
)
def test_what_decides_nothing_about_members_is_not_asked_for(shape: str, mutation: Mutation) -> None:
    """An unknown of another group or subnet, or of a path that no packet takes, refuses nothing."""
    template = copy.deepcopy(synthesise(**SHAPES[shape]).cluster)
    mutation(template)
    assert check(template, spec_of(shape)) == []


def test_a_wait_that_may_not_be_made_is_not_known(public: Synthesis) -> None:
    """With a condition on the wait the stack may complete without proof."""
    template = copy.deepcopy(public.cluster)
    conditional("AWS::CloudFormation::WaitCondition")(template)
    (fault,) = check(template, spec_of())
    assert (fault.rule, fault.location) == ("not-known", "Condition")
    assert template["Resources"][fault.resource]["Type"] == "AWS::CloudFormation::WaitCondition"


def test_a_rule_that_is_surely_open_is_told_beside_what_is_not_known(public: Synthesis) -> None:
    """What stands in the template is true whatever the rest becomes."""
    template = copy.deepcopy(public.cluster)
    inward([{**OPEN, "CidrIp": PARAMETER}, OPEN])(template)
    assert [(fault.rule, fault.location) for fault in check(template, spec_of())] == [
        ("not-known", f"{INLINE}/0/CidrIp"),
        ("open-to-others", INLINE),
    ]


def test_another_stack_may_hold_what_only_the_deploy_knows(public: Synthesis) -> None:
    """A template without a fleet is no matter of the guard's, unless it is the cluster's own."""
    template = copy.deepcopy(public.evidence)
    macro(template)
    assert check(template, spec_of(), is_cluster=False) == []
    assert [fault.rule for fault in check(template, spec_of())] == ["not-known"]
