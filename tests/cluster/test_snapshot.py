"""Documents into a snapshot: what is there is true, what is not is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from cluster.rules import SourceKind
from cluster.snapshot import ClusterSnapshot
from tests.cluster.world import cluster, from_group


def test_every_source_of_a_permission_is_a_rule_of_its_own() -> None:
    """All pairs, ranges, IPv6 ranges and prefix lists count, not the first of them."""
    permission = {
        "IpProtocol": "6",
        "FromPort": 1,
        "ToPort": 2,
        "UserIdGroupPairs": [{"GroupId": "sg-1"}, {"GroupId": "sg-2", "PeeringStatus": "deleted"}],
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "office"}, {"CidrIp": "10.1.1.1/32"}],
        "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
        "PrefixListIds": [{"PrefixListId": "pl-1"}],
    }
    group = cluster([permission]).snapshot().security_groups.get("sg-mesh")
    assert group is not None
    assert group.rules is not None
    assert [(r.kind.value, r.source, r.protocol, r.first, r.last) for r in group.rules if not r.egress] == [
        ("cidr", "10.0.0.0/8", "tcp", 1, 2),
        ("cidr", "10.1.1.1/32", "tcp", 1, 2),
        ("cidr", "::/0", "tcp", 1, 2),
        ("group", "sg-1", "tcp", 1, 2),
        ("group", "sg-2", "tcp", 1, 2),
        ("prefix-list", "pl-1", "tcp", 1, 2),
    ]
    assert group.rules[0].description == "office"
    assert group.rules[4].peering_status == "deleted"


def test_an_absent_document_is_a_problem_and_not_an_empty_table() -> None:
    """None of the documents gives tables that say so."""
    snapshot = ClusterSnapshot.from_documents({}, {"network-acls": "access denied"})
    assert (snapshot.network_acls.complete, snapshot.network_acls.problem) == (False, "access denied")
    assert snapshot.instances.problem == "instances was not read"
    assert snapshot.security_groups.problem == "security-groups was not read"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"Subnets": [], "NextToken": "x"}, "subnets ends with a NextToken: there is more that was not read"),
        ({"Subnets": [], "NextToken": None}, ""),
        ({"Subnets": []}, ""),
        ({"Vpcs": []}, "subnets has no list 'Subnets'"),
        ([], "subnets has no list 'Subnets'"),
        ({"Subnets": ["x"]}, "subnets: entry 0 cannot be read (expected an object, got 'x')"),
        ({"Subnets": [{"SubnetId": "subnet-1"}]}, "subnets: entry 0 cannot be read (VpcId is None)"),
    ],
)
def test_a_document_that_does_not_tell_all_says_why(document: Any, problem: str) -> None:
    """A page, a wrong shape and an unreadable entry are problems; an empty list is not."""
    assert ClusterSnapshot.from_documents({"subnets": document}).subnets.problem == problem


@pytest.mark.parametrize(
    "change",
    [
        {"RuleNumber": None},
        {"CidrBlock": "10.0.0.0/33"},
        {"CidrBlock": None},
        {"RuleAction": "maybe"},
        {"Protocol": None},
    ],
)
def test_an_acl_with_one_unreadable_entry_is_left_out(change: Dict[str, Any]) -> None:
    """Half an ACL would decide wrongly, so it is unknown, and the others stay."""
    entry = {
        "RuleNumber": 1,
        "Egress": True,
        "RuleAction": "deny",
        "Protocol": "6",
        "CidrBlock": "10.0.0.0/8",
    }
    good = {"NetworkAclId": "acl-good", "Associations": [], "Entries": [entry]}
    changed = {key: value for key, value in {**entry, **change}.items() if value is not None}
    bad = {"NetworkAclId": "acl-bad", "Associations": [], "Entries": [changed]}
    table = ClusterSnapshot.from_documents({"network-acls": {"NetworkAcls": [bad, good]}}).network_acls
    assert set(table.items) == {"acl-good"}
    assert table.problem.startswith("network-acls: entry 0 cannot be read")


def test_rules_take_their_ids_from_the_rules_document() -> None:
    """describe-security-groups has no sgr- ids; they are joined by what the rule says."""
    documents = cluster([from_group("sg-mesh", 29500, 29500)]).documents()
    documents["security-group-rules"] = {
        "SecurityGroupRules": [
            {
                "SecurityGroupRuleId": "sgr-1",
                "GroupId": "sg-mesh",
                "IsEgress": False,
                "IpProtocol": "tcp",
                "FromPort": 29500,
                "ToPort": 29500,
                "ReferencedGroupInfo": {"GroupId": "sg-mesh"},
            }
        ]
    }
    group = ClusterSnapshot.from_documents(documents).security_groups.get("sg-mesh")
    assert group is not None
    assert [rule.rule_id for rule in group.rules or ()] == ["sgr-1", ""]


def test_the_rules_document_alone_tells_the_groups_it_names() -> None:
    """Without describe-security-groups the rules are still known; a group it does not name is not."""
    sources: List[Tuple[bool, Dict[str, Any]]] = [
        (False, {"ReferencedGroupInfo": {"GroupId": "sg-mesh"}}),
        (True, {"CidrIpv4": "0.0.0.0/0"}),
        (True, {"CidrIpv6": "::/0"}),
        (False, {"PrefixListId": "pl-1"}),
    ]
    rules = [
        {
            "SecurityGroupRuleId": f"sgr-{number}",
            "GroupId": "sg-mesh",
            "IsEgress": egress,
            "IpProtocol": "-1",
            "FromPort": -1,
            "ToPort": -1,
            **source,
        }
        for number, (egress, source) in enumerate(sources)
    ]
    table = ClusterSnapshot.from_documents(
        {"security-group-rules": {"SecurityGroupRules": rules}}
    ).security_groups
    group = table.get("sg-mesh")
    assert group is not None
    assert [(rule.kind, rule.source, rule.egress) for rule in group.rules or ()] == [
        (SourceKind.GROUP, "sg-mesh", False),
        (SourceKind.CIDR, "0.0.0.0/0", True),
        (SourceKind.CIDR, "::/0", True),
        (SourceKind.PREFIX_LIST, "pl-1", False),
    ]
    assert not table.complete


def test_an_instances_own_interfaces_stand_in_for_an_absent_document() -> None:
    """describe-instances repeats them; who else there is stays unknown."""
    world = cluster([])
    for instance, interface in zip(world.instances, world.interfaces):
        attachment = {"DeviceIndex": 0, "Status": "attached"}
        instance["NetworkInterfaces"] = [{**interface, "Attachment": attachment}]
    snapshot = world.snapshot("network-interfaces")
    assert [item.address for item in snapshot.interfaces_of("i-2")] == ["10.20.1.12"]
    assert snapshot.interfaces.problem == "network-interfaces was not read"


def test_a_running_instance_with_the_tag_is_a_member() -> None:
    """Neither another state nor another tag will do."""
    world = cluster([], count=2)
    world.node("stopped", "10.20.1.80", ["sg-mesh"], state="stopped")
    world.node("stranger", "10.20.1.81", ["sg-mesh"], member=False)
    assert world.snapshot().running_with_tag("fullmesh:cluster", "demo") == ("i-0", "i-1")


def test_a_folder_is_read_and_each_file_that_fails_says_why(tmp_path: Path) -> None:
    """Absent, cut off and unreadable files make their tables incomplete, the rest stands."""
    for name, document in cluster([]).documents().items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    whole = (tmp_path / "instances.json").read_text(encoding="utf-8")
    (tmp_path / "instances.json").write_text(whole[: len(whole) // 2], encoding="utf-8")
    (tmp_path / "network-acls.json").unlink()
    (tmp_path / "vpcs.json").unlink()
    (tmp_path / "vpcs.json").mkdir()
    snapshot = ClusterSnapshot.from_directory(tmp_path)
    assert snapshot.instances.problem.startswith("instances.json is cut off or not JSON (")
    assert snapshot.network_acls.problem == "network-acls.json is absent"
    assert snapshot.vpcs.problem == "vpcs.json could not be read (Is a directory)"
    assert (snapshot.interfaces.complete, len(snapshot.interfaces)) == (True, 4)


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    """A wrong path is the caller's mistake, not an empty account."""
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        ClusterSnapshot.from_directory(tmp_path / "nowhere")


def test_every_block_of_a_vpc_counts_and_one_that_is_gone_does_not() -> None:
    """Secondary blocks and IPv6 are there, a disassociated one is not."""
    vpc = {
        "VpcId": "vpc-1",
        "CidrBlock": "10.0.0.0/16",
        "CidrBlockAssociationSet": [
            {"CidrBlock": "10.0.0.0/16", "CidrBlockState": {"State": "associated"}},
            {"CidrBlock": "10.1.0.0/16", "CidrBlockState": {"State": "associated"}},
            {"CidrBlock": "10.2.0.0/16", "CidrBlockState": {"State": "disassociated"}},
        ],
        "Ipv6CidrBlockAssociationSet": [
            {"Ipv6CidrBlock": "2001:db8::/56", "Ipv6CidrBlockState": {"State": "associated"}}
        ],
    }
    found = ClusterSnapshot.from_documents({"vpcs": {"Vpcs": [vpc]}}).vpcs.get("vpc-1")
    assert found is not None
    assert found.cidrs == ("10.0.0.0/16", "10.1.0.0/16", "2001:db8::/56")
