"""What rules alone say: the shared cases, and the meaning of each kind of rule."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from cluster.ports import PortRange
from cluster.snapshot import ClusterSnapshot
from diagnosis.report import Verdict
from diagnosis.static import StaticFindings, judge_rules, judge_tagged
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group, two_subnets

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "audit"
EPHEMERAL = PortRange(32768, 60999)
SELF = from_group("sg-mesh")
MASTER = from_group("sg-mesh", 29500, 29500)


def judge(world: World, *without: str) -> StaticFindings:
    return judge_tagged(world.snapshot(*without), "fullmesh:cluster", "demo", 29500, EPHEMERAL)


def causes(found: StaticFindings) -> List[Tuple[str, str]]:
    return [(item.id, item.subject) for item in found.causes]


def case_names() -> List[str]:
    return sorted(path.name for path in CASES.iterdir()) if CASES.is_dir() else ["absent"]


def triples(entries: Sequence[Dict[str, str]]) -> List[Tuple[str, str, str]]:
    return sorted((item["source"], item["destination"], item["ports"]) for item in entries)


@pytest.mark.parametrize("name", case_names())
def test_a_shared_case_comes_out_right(name: str) -> None:
    """Possible or not, blocked to the port, first cause, and who else gets in."""
    if not CASES.is_dir():
        pytest.skip(f"the shared cases are not beside the checkout ({CASES})")
    expected = json.loads((CASES / name / "expected.json").read_text(encoding="utf-8"))
    snapshot = ClusterSnapshot.from_directory(CASES / name)
    found = judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, EPHEMERAL)
    assert found.mesh_possible is expected["mesh_possible"]
    assert triples(list(found.blocked())) == triples(expected["blocked"])
    if expected["mesh_possible"] is None:
        assert (found.causes, bool(found.unanswered), bool(found.next_command)) == ((), True, True)
    elif expected["mesh_possible"]:
        assert found.causes == ()
    else:
        assert found.causes[0].id in expected["acceptable_causes"]
    keys = ("protocol", "ports", "source")
    named = [{key: item[key] for key in keys} for item in found.exposed_documents()]
    assert [item for item in expected["exposed"] if item not in named] == []
    assert [item for item in named if item not in expected["exposed"] + expected["exposed_optional"]] == []


def test_the_famous_failure_names_rule_pairs_and_command() -> None:
    """MASTER_PORT only: the summary is the sentence of the failing deploy, the command mends it."""
    found = judge(cluster([MASTER]))
    (cause,) = found.causes
    assert (cause.id, cause.subject) == ("sg-only-master-port", "cluster")
    assert cause.summary == (
        "members reach each other on 29500 but not on ports 32768-60999 (12 of 12 pairs, silent drop); "
        'security group sg-mesh (mesh) lacks "all TCP from itself"'
    )
    assert cause.commands == (
        "aws ec2 authorize-security-group-ingress --group-id sg-mesh --protocol tcp --port 0-65535 "
        "--source-group sg-mesh",
    )
    assert cause.evidence[0] == "sg-mesh allows tcp 29500 from sg-mesh"
    assert found.verdict is Verdict.FAIL


def missing_egress(group: str = "sg-mesh") -> World:
    return cluster([SELF], egress=[from_cidr("0.0.0.0/0", 443, 443)])


def lacking(groups: Sequence[str], default: Optional[Sequence[Dict[str, Any]]] = None) -> World:
    """Three members carry sg-mesh, the fourth carries these groups instead."""
    world = cluster([SELF], count=3)
    world.group("sg-default", [from_group("sg-default")] if default is None else default, name="default")
    world.group("sg-base", [from_group("sg-mesh", 22, 22)], name="base")
    world.group("sg-role", [from_group("sg-mesh", 29500, 29500)], name="role")
    world.node("3", "10.20.1.13", groups)
    return world


def roles(worker_ingress: Sequence[Dict[str, Any]], head_ingress: Sequence[Dict[str, Any]]) -> World:
    """One head and three workers with groups of their own."""
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.group("sg-head", head_ingress, name="head")
    world.group("sg-worker", worker_ingress, name="worker")
    world.node("head", "10.20.1.10", ["sg-head"])
    for number in range(3):
        world.node(f"w{number}", f"10.20.1.{11 + number}", ["sg-worker"])
    return world


BOTH = [from_group("sg-head"), from_group("sg-worker")]


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (cluster([SELF]), []),
        (cluster([]), [("sg-no-self-ingress", "cluster")]),
        (cluster([from_cidr("10.30.0.0/16")]), [("sg-no-self-ingress", "cluster")]),
        (cluster([from_group("sg-mesh", protocol="udp")]), [("sg-no-self-ingress", "cluster")]),
        (cluster([from_group("sg-mesh", 1024, 40000)]), [("sg-ports-too-narrow", "cluster")]),
        (cluster([from_group("sg-mesh", 32768, 60999)]), [("sg-ports-too-narrow", "cluster")]),
        (missing_egress(), [("sg-no-self-egress", "cluster")]),
        (
            cluster([MASTER], egress=[from_cidr("0.0.0.0/0", 443, 443)]),
            [("sg-no-self-egress", "cluster"), ("sg-only-master-port", "cluster")],
        ),
        (cluster([], count=2), [("sg-no-self-ingress", "cluster")]),
        (cluster([from_cidr("10.20.1.10/32")], count=2), [("sg-no-self-ingress", "pair:1>0")]),
        (lacking(["sg-default"]), [("sg-missing-on-node", "node:3")]),
        (lacking(["sg-default"], [from_cidr("10.20.0.0/16")]), [("sg-missing-on-node", "node:3")]),
        (lacking(["sg-base"]), [("sg-missing-on-node", "node:3")]),
        (lacking(["sg-role"]), [("sg-no-self-ingress", "node:3"), ("sg-only-master-port", "node:3")]),
        (lacking(["sg-mesh", "sg-base"]), []),
        (roles(BOTH, BOTH), []),
        (roles([from_group("sg-head")], BOTH), [("sg-no-self-ingress", "cluster")]),
        (roles(BOTH, [from_group("sg-worker", 29500, 29500)]), [("sg-only-master-port", "node:0")]),
        (roles([from_group("sg-worker")], BOTH), [("sg-no-self-ingress", "node:0")]),
    ],
)
def test_rules_raise_exactly_these_causes(world: World, expected: List[Tuple[str, str]]) -> None:
    """Exactly these causes at exactly these subjects, the one that stops most pairs first."""
    found = judge(world)
    assert causes(found) == expected
    assert found.mesh_possible is (not expected)


def test_a_base_group_on_all_does_not_hide_that_one_lacks_the_cluster_group() -> None:
    """A group that everybody carries and that names the cluster's group makes no roles."""
    world = cluster([SELF], count=3)
    world.group("sg-base", [MASTER], name="base")
    world.node("3", "10.20.1.13", [])
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-base"})
    found = judge(world)
    assert causes(found) == [("sg-missing-on-node", "node:3")]
    assert found.causes[0].commands == (
        "aws ec2 modify-network-interface-attribute --network-interface-id eni-3 --groups sg-base sg-mesh",
    )


def test_two_nodes_without_the_group_are_two_findings() -> None:
    """Each node that lacks the group is named, also when only half of the members carry it."""
    world = cluster([SELF], count=2)
    world.group("sg-default", [from_group("sg-default")], name="default")
    for number in (2, 3):
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-default"])
    assert causes(judge(world)) == [("sg-missing-on-node", "node:2"), ("sg-missing-on-node", "node:3")]


def test_a_missing_group_and_a_narrow_rule_are_two_causes() -> None:
    """What the others lack among themselves is not blamed on the node that lacks the group."""
    world = cluster([MASTER], count=3)
    world.group("sg-default", [from_group("sg-default")], name="default")
    world.node("3", "10.20.1.13", ["sg-default"])
    assert causes(judge(world)) == [("sg-missing-on-node", "node:3"), ("sg-only-master-port", "cluster")]


def test_one_pair_is_a_subject_of_its_own() -> None:
    """A rule for single addresses that leaves out one of the senders at one node."""
    world = cluster([SELF], count=4)
    world.group("sg-odd", [from_cidr("10.20.1.10/31"), from_cidr("10.20.1.13/32")], name="odd")
    world.interfaces[2]["Groups"] = [{"GroupId": "sg-odd"}]
    world.groups[0]["IpPermissions"].append(from_group("sg-odd"))
    assert causes(judge(world)) == []
    world.groups[1]["IpPermissions"].pop()
    (cause,) = judge(world).causes
    assert (cause.id, cause.subject) == ("sg-no-self-ingress", "pair:3>2")
    assert "no such range holds 10.20.1.13 of i-3" in cause.evidence
    assert cause.commands[0].endswith(
        "--group-id sg-odd --protocol tcp --port 0-65535 --source-group sg-mesh"
    )


def test_the_vpcs_default_group_is_not_the_one_to_change() -> None:
    """Of several groups that all members carry, the rule goes to the cluster's own."""
    world = cluster([])
    world.group("sg-aaa", [], name="default")
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-aaa"})
    (cause,) = judge(world).causes
    assert "--group-id sg-mesh " in cause.commands[0]


def test_egress_is_mended_on_the_senders_group() -> None:
    """The outbound rule is added where it lacks, to the group itself."""
    (cause,) = judge(missing_egress()).causes
    assert cause.commands == (
        "aws ec2 authorize-security-group-egress --group-id sg-mesh --ip-permissions "
        "'IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{GroupId=sg-mesh}]'",
    )


def apply_acl_commands(world: World, commands: Sequence[str]) -> None:
    """Do to the world's documents what the aws commands would do to the account."""
    for command in commands:
        words = shlex.split(command)
        options = dict(zip(words[3::2], words[4::2]))
        (acl,) = (item for item in world.acls if item["NetworkAclId"] == options["--network-acl-id"])
        number, egress = int(options["--rule-number"]), words[-1] == "--egress"
        same = [e for e in acl["Entries"] if (e["RuleNumber"], e["Egress"]) == (number, egress)]
        if words[2] == "delete-network-acl-entry":
            acl["Entries"].remove(same[0])
            continue
        assert same == [], "EC2 refuses a number that is taken"
        first, last = (int(part.partition("=")[2]) for part in options["--port-range"].split(","))
        acl["Entries"].append(
            {
                "RuleNumber": number,
                "Egress": egress,
                "RuleAction": options["--rule-action"],
                "Protocol": "6",
                "CidrBlock": options["--cidr-block"],
                "PortRange": {"From": first, "To": last},
            }
        )


@pytest.mark.parametrize(
    "entries",
    [
        [(50, "deny", "6", "10.20.2.0/24", (1024, 65535)), ALLOW_ALL],
        [(1, "deny", "-1", "0.0.0.0/0", None), ALLOW_ALL],
        [(100, "allow", "6", "0.0.0.0/0", (443, 443)), (32767, "deny", "-1", "0.0.0.0/0", None)],
        [],
        [(5, "allow", "6", "0.0.0.0/0", (29500, 29500)), (6, "deny", "6", "10.20.2.13/32", None), ALLOW_ALL],
    ],
)
def test_the_commands_for_an_acl_mend_it(entries: List[Any]) -> None:
    """Run on the documents, they leave a mesh that is possible."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"], entries, entries)
    world.acl("acl-2", ["subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    one_node = "10.20.2.13" in str(entries)
    assert causes(judge(world)) == [("nacl-deny", "node:3" if one_node else "cluster")]
    apply_acl_commands(world, [command for cause in judge(world).causes for command in cause.commands])
    assert judge(world).mesh_possible is True


def test_a_missing_route_is_named_with_the_command_for_its_table() -> None:
    """The peering connection shows in the other side's routes, so the command is exact."""
    world = World()
    world.vpc("vpc-2", "10.30.0.0/16")
    world.subnet("subnet-1", "10.20.1.0/24")
    world.subnet("subnet-2", "10.30.1.0/24", vpc_id="vpc-2")
    world.group("sg-mesh", [from_cidr("10.0.0.0/8")])
    world.node("0", "10.20.1.10", ["sg-mesh"])
    world.node("1", "10.30.1.10", ["sg-mesh"], subnet="subnet-2", vpc_id="vpc-2")
    world.acl("acl-1", ["subnet-1", "subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    world.tables[1]["Routes"].append(
        {"DestinationCidrBlock": "10.20.0.0/16", "VpcPeeringConnectionId": "pcx-1", "State": "active"}
    )
    (cause,) = judge(world).causes
    assert (cause.id, cause.subject) == ("route-missing", "cluster")
    assert cause.commands == (
        "aws ec2 create-route --route-table-id rtb-vpc-1 --destination-cidr-block 10.30.0.0/16 "
        "--vpc-peering-connection-id pcx-1",
    )


@pytest.mark.parametrize(
    ("document", "candidate", "command"),
    [
        (
            "network-acls",
            "nacl-deny",
            "aws ec2 describe-network-acls --filters Name=vpc-id,Values=vpc-1 --output json > "
            "network-acls.json",
        ),
        (
            "security-groups",
            "sg-no-self-ingress",
            "aws ec2 describe-security-groups --filters Name=vpc-id,Values=vpc-1 --output json "
            "> security-groups.json",
        ),
        (
            "network-interfaces",
            "sg-missing-on-node",
            "aws ec2 describe-network-interfaces --output json > network-interfaces.json",
        ),
    ],
)
def test_what_was_not_read_is_a_candidate_with_the_command_that_reads_it(
    document: str, candidate: str, command: str
) -> None:
    """No cause is named, the open question is, and the answer is UNKNOWN."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1", "subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    found = judge(world, document)
    assert (found.mesh_possible, found.verdict, found.causes) == (None, Verdict.UNKNOWN, ())
    assert [item.id for item in found.candidates] == [candidate]
    assert found.next_command == command
    assert found.unanswered


def test_members_that_may_be_missing_make_a_good_mesh_unknown_and_a_broken_one_stay_broken() -> None:
    """A page of instances: who else is a member cannot be told, but a blocked pair stays blocked."""
    for ingress, expected in (([SELF], None), ([MASTER], False)):
        documents = cluster(ingress).documents()
        documents["instances"]["NextToken"] = "more"
        snapshot = ClusterSnapshot.from_documents(documents)
        found = judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, EPHEMERAL)
        assert found.mesh_possible is expected
        assert found.unanswered[0] == (
            "who is a member cannot be told: instances ends with a NextToken: there is more that was not read"
        )


def test_fewer_than_two_members_are_unknown() -> None:
    """One member is no mesh, and says so."""
    found = judge(cluster([SELF], count=1))
    assert (found.mesh_possible, found.verdict) == (None, Verdict.UNKNOWN)
    assert found.unanswered == ("1 running member found: a mesh has at least 2",)


def test_members_given_by_id_need_no_instances_document() -> None:
    """Attached by instance ids, the answer needs their interfaces only."""
    found = judge_rules(cluster([SELF]).snapshot("instances"), ["i-0", "i-1"], 29500, EPHEMERAL)
    assert found.mesh_possible is True


def test_a_mesh_that_lets_others_in_fails_without_a_cause() -> None:
    """The mesh is possible, nothing is blamed, and who gets in is named."""
    world = cluster([SELF, from_group("sg-jump", 22, 22)])
    world.group("sg-jump")
    world.node("jump", "10.20.1.200", ["sg-jump"], member=False)
    found = judge(world)
    assert (found.mesh_possible, found.verdict, found.causes) == (True, Verdict.FAIL, ())
    assert found.exposed_documents() == [
        {"protocol": "tcp", "ports": "22", "source": "sg-jump", "instances": ["i-0", "i-1", "i-2", "i-3"]}
    ]
    assert found.exposed_lines() == ("sg-jump reaches tcp 22 on 4 members (through eni-jump; sg-mesh)",)


def test_a_good_mesh_passes_only_when_it_is_known_who_gets_in() -> None:
    """Unread routes under a rule for the world leave the verdict open."""
    assert judge(cluster([SELF])).verdict is Verdict.PASS
    world = cluster([SELF, from_cidr("0.0.0.0/0", 22, 22)])
    world.interfaces[0]["Association"] = {"PublicIp": "3.66.35.1"}
    found = judge(world, "route-tables")
    assert (found.mesh_possible, found.exposure_known, found.verdict) == (True, False, Verdict.UNKNOWN)
    assert found.next_command == (
        "aws ec2 describe-route-tables --filters Name=vpc-id,Values=vpc-1 --output json > route-tables.json"
    )


def test_ranks_follow_the_private_addresses() -> None:
    """Numerically, not as text: .9 before .10."""
    world = cluster([SELF], count=0)
    for name, address in (("b", "10.20.1.10"), ("a", "10.20.1.9")):
        world.node(name, address, ["sg-mesh"])
    assert judge(world).ranks == {"i-a": 0, "i-b": 1}


def test_blocked_entries_have_the_documented_shape() -> None:
    """Source, destination, ports and a reason, one for each contiguous run."""
    found = list(judge(cluster([from_cidr("10.20.1.10/32")], count=2)).blocked())
    assert [(item["source"], item["destination"], item["ports"]) for item in found] == [
        ("i-1", "i-0", "29500"),
        ("i-1", "i-0", "32768-60999"),
    ]
    assert found[0]["reason"].startswith("ENI_SG_RULES_MISMATCH: no rule of sg-mesh lets tcp")


def strangers(count: int) -> World:
    """Members that each carry a group of their own, which lets in only itself."""
    world = cluster([SELF], count=1)
    for number in range(1, count):
        world.group(f"sg-{number}", [from_group(f"sg-{number}")])
        world.node(str(number), f"10.20.1.{10 + number}", [f"sg-{number}"])
    return world


@pytest.mark.parametrize(
    ("count", "findings"),
    [(7, 42), (8, 1)],  # 7 * 6 missing rules, and 8 * 7, which are more than 50
)
def test_too_many_missing_rules_are_one_finding(count: int, findings: int) -> None:
    """Past fifty they are told together, and what is blocked is told for every pair all the same."""
    found = judge(strangers(count))
    assert len(found.causes) == findings
    assert {item.id for item in found.causes} == {"sg-no-self-ingress"}
    expected = [
        (f"i-{source}", f"i-{target}", ports)
        for source in range(count)
        for target in range(count)
        if source != target
        for ports in ("29500", "32768-60999")
    ]
    assert triples(list(found.blocked())) == sorted(expected)
    if findings == 1:
        assert causes(found) == [("sg-no-self-ingress", "cluster")]
        assert found.causes[0].summary == (
            "8 security groups of members lack more than 50 inbound rules for each other: "
            "29500,32768-60999 blocked (56 of 56 pairs, silent drop)"
        )
        assert found.causes[0].remediation == (
            "Give every member one security group that allows all TCP from itself and to itself."
        )
