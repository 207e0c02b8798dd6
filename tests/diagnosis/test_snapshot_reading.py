"""Documents that are absent, cut, paginated or at odds: untold only where the answer needs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from cluster.ports import PortRange
from cluster.snapshot import ClusterSnapshot
from diagnosis.static import StaticFindings, judge_tagged
from tests.cluster.world import World, cluster, from_cidr, from_group, from_list, two_subnets
from tests.diagnosis.verdicts import check_documents, every

SELF = from_group("sg-mesh")
MASTER = from_group("sg-mesh", 29500, 29500)


def whole(world: World) -> Dict[str, Any]:
    """All eight documents; instances show their interfaces too, as EC2 prints them."""
    documents = world.documents()
    documents["security-group-rules"] = {"SecurityGroupRules": world.listed_rules()}
    for instance in world.instances:
        own = [i for i in world.interfaces if i["Attachment"]["InstanceId"] == instance["InstanceId"]]
        instance["NetworkInterfaces"] = own
    return documents


def written(folder: Path, documents: Dict[str, Any], cut: str) -> StaticFindings:
    """The documents as files, one of them cut off in its middle."""
    for name, document in documents.items():
        text = json.dumps(document, indent=4)
        (folder / f"{name}.json").write_text(text[: len(text) // 2] if name == cut else text)
    snapshot = ClusterSnapshot.from_directory(folder)
    return judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, PortRange(32768, 60999))


@pytest.mark.parametrize(
    ("cut", "subnets", "possible"),
    [
        ("", 2, True),
        ("instances", 1, None),
        ("security-groups", 1, True),  # security-group-rules tells the same
        ("security-group-rules", 1, True),
        ("network-interfaces", 1, True),  # instances tells them; who else is there, it does not
        ("network-acls", 1, True),
        ("network-acls", 2, None),
        ("route-tables", 2, True),
        ("subnets", 2, True),
        ("vpcs", 2, True),
    ],
)
def test_a_cut_document_matters_where_the_answer_needs_it(
    cut: str, subnets: int, possible: Optional[bool], tmp_path: Path
) -> None:
    """One kind after the other, as a file that ends in its middle."""
    world = cluster([SELF]) if subnets == 1 else two_subnets([SELF])
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    found = written(tmp_path, whole(world), cut)
    assert found.mesh_possible is possible
    assert (found.causes, list(found.blocked())) == ((), [])
    assert found.exposure_known is (cut not in ("instances", "network-interfaces"))


@pytest.mark.parametrize("gone", [["security-groups", "security-group-rules"], ["instances"]])
def test_without_rules_or_members_nothing_is_told(gone: List[str]) -> None:
    """Both documents of the rules, or the one that says who is a member."""
    documents = {key: value for key, value in whole(cluster([MASTER])).items() if key not in gone}
    candidates = ["sg-no-self-ingress"] if "security-groups" in gone else []
    check_documents(documents, None, candidates=candidates)


def test_a_blocked_pair_stays_blocked_when_more_members_may_be_missing() -> None:
    """What is there suffices to say no."""
    documents = whole(cluster([MASTER]))
    documents["instances"]["NextToken"] = "more"
    blocked = every("0123", "32768-60999")
    check_documents(documents, False, "sg-only-master-port cluster", blocked=blocked)


def test_a_page_of_groups_counts_for_the_groups_on_it() -> None:
    """The members' group is on the page; one that is not leaves their rules open."""
    world = cluster([SELF])
    documents = whole(world)
    documents["security-groups"]["NextToken"] = "more"
    check_documents(documents, True)
    world.interfaces[0]["Groups"].append({"GroupId": "sg-next-page"})
    world.groups[0]["IpPermissions"] = [MASTER]
    documents = whole(world)
    documents["security-groups"]["NextToken"] = "more"
    documents["security-group-rules"]["NextToken"] = "more"
    # what lets others in is known for members 1 to 3: only member 0 may let more in
    check_documents(
        documents,
        False,
        "sg-only-master-port cluster",
        blocked={pair: ports for pair, ports in every("0123", "32768-60999").items() if pair[2] != "0"},
    )


def test_the_listed_rules_alone_tell_the_same() -> None:
    """Without the groups' document, to the port."""
    documents = whole(cluster([MASTER]))
    del documents["security-groups"]
    blocked = every("0123", "32768-60999")
    check_documents(documents, False, "sg-only-master-port cluster", blocked=blocked)


def test_a_group_of_the_next_page_is_told_by_the_listed_rules() -> None:
    """One page of groups, and all rules: the group that is not on the page lets the members in."""
    world = cluster([MASTER])
    world.group("sg-second", [SELF], name="second")
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-second"})
    documents = whole(world)
    documents["security-groups"] = {"SecurityGroups": world.groups[:1], "NextToken": "more"}
    check_documents(documents, True)


def test_a_page_of_listed_rules_tells_nothing_of_a_group() -> None:
    """Alone it leaves the rules open; beside the groups' document it takes nothing away."""
    documents = whole(cluster([SELF, from_cidr("10.0.0.0/8", 22, 22)]))
    listed = documents["security-group-rules"]["SecurityGroupRules"]
    for page in ([listed[0]], [listed[1]]):
        documents["security-group-rules"] = {"SecurityGroupRules": page, "NextToken": "more"}
        alone = {key: value for key, value in documents.items() if key != "security-groups"}
        check_documents(alone, None, candidates=["sg-no-self-ingress"])
        check_documents(documents, True)


def test_the_listed_rules_are_not_needed() -> None:
    """The groups' document holds the rules."""
    documents = whole(cluster([SELF]))
    for content in (None, {"SecurityGroupRules": []}, {"SecurityGroupRules": [{}]}, {"Error": "denied"}):
        check_documents({**documents, "security-group-rules": content}, True)


def test_documents_at_odds_leave_open_what_hangs_on_it() -> None:
    """The self rule is in one document only: revoked or added between two calls."""
    documents = whole(cluster([SELF, from_cidr("10.0.0.0/8", 22, 22)]))
    listed = documents["security-group-rules"]["SecurityGroupRules"]
    without = [rule for rule in listed if "ReferencedGroupInfo" not in rule]
    found = check_documents(
        {**documents, "security-group-rules": {"SecurityGroupRules": without}},
        None,
        candidates=["sg-no-self-ingress"],
    )
    assert found.unanswered[0].startswith("whether sg-mesh allows all tcp from sg-mesh is unknown: ")
    for old in (cluster([]), cluster([from_group("sg-else")])):
        groups = {"security-groups": {"SecurityGroups": old.groups}}
        check_documents({**documents, **groups}, None, candidates=["sg-no-self-ingress"])


def test_documents_at_odds_about_another_rule_change_nothing() -> None:
    """The mesh does not hang on it; who gets in does."""
    documents = whole(cluster([SELF, from_cidr("10.0.0.0/8", 22, 22)]))
    listed = documents["security-group-rules"]["SecurityGroupRules"]
    without = [rule for rule in listed if rule["FromPort"] != 22]
    found = check_documents({**documents, "security-group-rules": {"SecurityGroupRules": without}}, True)
    assert found.exposure_known is False


@pytest.mark.parametrize("spelling", [{"FromPort": -1, "ToPort": -1}, {"FromPort": 0, "ToPort": 65535}, {}])
def test_one_rule_spelled_two_ways_is_no_dispute(spelling: Dict[str, int]) -> None:
    """All ports of TCP, with and without numbers, and a range with host bits set."""
    world = cluster([{**SELF, **spelling}, from_cidr("10.20.1.7/24", 22, 22)])
    documents = whole(world)
    for rule in documents["security-group-rules"]["SecurityGroupRules"]:
        rule.update({"CidrIpv4": "10.20.1.0/24"} if rule.get("CidrIpv4") == "10.20.1.7/24" else {})
    if not spelling:
        for key in ("FromPort", "ToPort"):
            del world.groups[0]["IpPermissions"][0][key]
    assert check_documents(documents, True).exposure_known is True


def test_unknown_fields_and_kinds_are_no_matter() -> None:
    """New fields of later API versions, and entries of other kinds."""
    documents = whole(cluster([SELF]))
    for key, value in documents.items():
        first = next(iter(value.values()))
        for entry in first:
            entry["ANewField"] = {"of": ["another", "kind"]}
        value["ResponseMetadata"] = {"RequestId": key}
    check_documents(documents, True)


def test_an_entry_that_cannot_be_read_leaves_its_own_part_open() -> None:
    """A stranger's broken group costs nothing; the members' own one leaves the mesh open."""
    documents = whole(cluster([SELF]))
    documents["security-groups"]["SecurityGroups"].append({"GroupId": "sg-broken", "IpPermissions": 7})
    check_documents(documents, True)
    del documents["security-group-rules"]
    documents["security-groups"] = {"SecurityGroups": [{"GroupId": "sg-mesh", "IpPermissions": [7]}]}
    check_documents(documents, None, candidates=["sg-no-self-ingress"])


def test_the_entries_of_a_prefix_list_count_when_their_file_is_there(tmp_path: Path) -> None:
    """The command that the answer asks for writes the file that settles it."""
    documents = whole(cluster([from_list("pl-1")]))
    assert written(tmp_path, documents, "").mesh_possible is None
    entries = tmp_path / "prefix-list-entries.pl-1.json"
    for cidr, possible in (("10.20.0.0/16", True), ("192.168.0.0/16", False), ("10.20.1.8/30", False)):
        entries.write_text(json.dumps({"Entries": [{"Cidr": cidr}]}))
        assert written(tmp_path, documents, "").mesh_possible is possible
    for broken in ({"Entries": [{}]}, {"Entries": [], "NextToken": "more"}, []):
        entries.write_text(json.dumps(broken))
        assert written(tmp_path, documents, "").mesh_possible is None
