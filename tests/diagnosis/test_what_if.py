"""Changes in words, the documents after them, and what they do."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from cluster.snapshot import ClusterSnapshot
from diagnosis.rule_commands import rule_line
from diagnosis.static import StaticFindings, judge_rules
from diagnosis.what_if import NotReadError, apply
from diagnosis.what_if_effect import effect, untracked, why_nothing
from diagnosis.what_if_words import ChangeError, parse_change
from tests.cluster.test_flows_oracle import PERMISSION, worlds
from tests.cluster.world import (
    ALLOW_ALL,
    ANYWHERE,
    World,
    cluster,
    from_cidr,
    from_group,
    from_list,
    two_subnets,
)

SELF = from_group("sg-mesh")

READ = {
    "revoke sg-1 tcp 29500 from self": "sg-1 ingress tcp 29500 from sg-1",
    "REVOKE sg-1 ingress tcp 0-65535 from sg-2": "sg-1 ingress tcp 0-65535 from sg-2",
    "authorize sg-1 egress all to 0.0.0.0/0": "sg-1 egress all to 0.0.0.0/0",
    "authorize sg-1 -1 to ::/0": "sg-1 egress all to ::/0",
    "authorize sg-1 6 all from 10.0.0.9/8": "sg-1 ingress tcp 0-65535 from 10.0.0.0/8",
    "authorize sg-1 udp 53 to pl-1": "sg-1 egress udp 53 to pl-1",
    "authorize sg-1 icmp 3:4 from 10.0.0.0/16": "sg-1 ingress icmp 3:4 from 10.0.0.0/16",
    "authorize sg-1 icmp all from 10.0.0.0/16": "sg-1 ingress icmp all from 10.0.0.0/16",
    "authorize sg-1 50 from 10.0.0.0/16": "sg-1 ingress 50 from 10.0.0.0/16",
}


@pytest.mark.parametrize("text", READ)
def test_a_rule_in_words_is_read(text: str) -> None:
    """Direction, protocol, ports and source, in EC2's own spelling."""
    change: Any = parse_change(text)
    assert rule_line(change.rule) == READ[text]
    assert change.authorize is text.startswith("authorize")
    again: Any = parse_change(f"revoke {READ[text]}")
    assert again.rule == change.rule


WRONG = {
    "": "does not begin with a change; allowed are revoke, authorize",
    "remove sg-1 tcp 1 from self": "does not begin with a change",
    "revoke vpc-1 tcp 1 from self": "expected a security group (sg-...), got 'vpc-1'",
    "revoke sg-1": "expected [ingress|egress] PROTOCOL [PORTS] from|to SOURCE",
    "revoke sg-1 tcp from self": "expected ports as PORT, FIRST-LAST within 0-65535, or all",
    "revoke sg-1 tcp 65536 from self": "got '65536'",
    "revoke sg-1 tcp 9-8 from self": "got '9-8'",
    "revoke sg-1 tcp 1 2 from self": "expected one range of ports, got '1 2'",
    "revoke sg-1 ingress tcp 1 to self": "ingress goes with 'from', got 'to'",
    "revoke sg-1 gre from self": "expected a protocol",
    "revoke sg-1 all 22 from self": "has no ports, got '22'",
    "revoke sg-1 icmp 256 from self": "expected an icmp TYPE",
    "revoke sg-1 tcp 1 from 10.0.0.1": "one address is 10.0.0.1/32",
    "revoke sg-1 tcp 1 from i-1": "expected a group (sg-...), a prefix list (pl-...), self or a CIDR",
    "attach sg-1 from i-1": "attach takes: attach SG to i-...|eni-...",
    "deny acl-1 32767 tcp 1 from 10.0.0.0/8": "expected a rule number from 1 to 32766, got '32767'",
    "deny acl-1 1 tcp 1 from sg-1": "an ACL's entry names a CIDR",
    "delete acl-1 1": "delete takes: delete ACL NUMBER ingress|egress",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_change_that_cannot_be_read_says_what_is_allowed(text: str) -> None:
    """The text, the value and what would do."""
    with pytest.raises(ChangeError) as caught:
        parse_change(text)
    assert WRONG[text] in str(caught.value)
    assert repr(text) in str(caught.value)


def documents(world: World, *, listed: bool = True) -> Dict[str, Any]:
    rules = {"security-group-rules": {"SecurityGroupRules": world.listed_rules()}} if listed else {}
    return {**world.documents(), **rules}


def after(world: World, *texts: str, listed: bool = True) -> Dict[str, Any]:
    found: Any = documents(world, listed=listed)
    for text in texts:
        found = apply(found, parse_change(text), {}).documents
    return dict(found)


def judged(found: Dict[str, Any]) -> StaticFindings:
    snapshot = ClusterSnapshot.from_documents(found)
    names = snapshot.running_with_tag("fullmesh:cluster", "demo")
    return judge_rules(snapshot, names, 29500, DEFAULT_EPHEMERAL_PORTS)


def rules(found: Dict[str, Any]) -> List[Tuple[str, bool]]:
    groups = ClusterSnapshot.from_documents(found).security_groups
    return sorted((rule_line(rule), rule.disputed) for group in groups for rule in group.rules or ())


@settings(max_examples=150, deadline=None)
@given(worlds(), PERMISSION, st.data())
def test_documents_change_as_if_the_rule_had_never_been_there_or_always(
    world: World, fresh: Dict[str, Any], data: Any
) -> None:
    """A revoke takes this rule alone, an authorize adds this one alone; both documents of rules agree."""
    for group in world.groups:
        for key in ("IpPermissions", "IpPermissionsEgress"):
            group[key] = [item for n, item in enumerate(group[key]) if item not in group[key][:n]]
    before = documents(world, listed=data.draw(st.booleans()))
    kept = copy.deepcopy(before)
    lines = [line for line, _ in rules(before)]
    fresh_world = cluster([fresh])
    ((new, _),) = [item for item in rules(documents(fresh_world)) if " ingress " in item[0]]
    new = new.replace("sg-mesh ingress", "sg-a ingress", 1)
    if new not in lines:
        change = parse_change(f"authorize {new}")
        assert rules(dict(apply(before, change, {}).documents)) == sorted((n, False) for n in [*lines, new])
    for gone in dict.fromkeys(lines):
        left = rules(dict(apply(before, parse_change(f"revoke {gone}"), {}).documents))
        assert left == sorted((line, False) for line in lines if line != gone)
    assert before == kept


def test_one_source_of_a_permission_goes_and_the_others_stay() -> None:
    """EC2 prints several sources under one permission; a revoke names one of them."""
    world = cluster([{**SELF, "IpRanges": [{"CidrIp": "10.0.0.0/8"}, {"CidrIp": "192.0.2.0/24"}]}])
    left = after(world, "revoke sg-mesh tcp 0-65535 from 10.0.0.0/8")
    assert [line for line, _ in rules(left) if "ingress" in line] == [
        "sg-mesh ingress tcp 0-65535 from 192.0.2.0/24",
        "sg-mesh ingress tcp 0-65535 from sg-mesh",
    ]


def test_a_group_known_from_the_list_of_rules_alone_changes_there() -> None:
    """Without security-groups.json the other document carries the change."""
    found = documents(cluster([SELF]))
    del found["security-groups"]
    changed = dict(apply(found, parse_change("revoke sg-mesh tcp 0-65535 from self"), {}).documents)
    assert [line for line, _ in rules(changed)] == ["sg-mesh egress all to 0.0.0.0/0"]


def test_an_interface_that_only_its_instance_shows_changes_there() -> None:
    """Without network-interfaces.json the instances' own list carries the change."""
    world = cluster([SELF], count=2)
    world.group("sg-other", [])
    found = documents(world)
    for instance, interface in zip(world.instances, world.interfaces):
        instance["NetworkInterfaces"] = [dict(interface)]
        instance["SecurityGroups"] = interface["Groups"]
    del found["network-interfaces"]
    changed = dict(apply(found, parse_change("attach sg-other to i-1"), {}).documents)
    snapshot = ClusterSnapshot.from_documents(changed)
    assert [item.group_ids for item in snapshot.interfaces] == [("sg-mesh",), ("sg-mesh", "sg-other")]
    (_, second) = changed["instances"]["Reservations"]
    assert second["Instances"][0]["SecurityGroups"] == [{"GroupId": "sg-mesh"}, {"GroupId": "sg-other"}]


def test_who_gets_in_by_another_rule_for_the_same_list_is_no_difference() -> None:
    """A prefix list has no range that could be compared: the same list with more ports stands in for it."""
    world = open_world()
    world.groups[0]["IpPermissions"] += [from_list("pl-1", 443, 443), from_list("pl-1", 400, 500)]
    entries = {"PrefixLists": [{"PrefixListId": "pl-1", "Entries": [{"Cidr": "203.0.113.0/24"}]}]}
    found = {**documents(world), "prefix-list-entries": entries}
    for text, nothing in (("tcp 443", True), ("tcp 400-500", False)):
        change = parse_change(f"revoke sg-mesh {text} from pl-1")
        assert effect(judged(found), judged(dict(apply(found, change, {}).documents))).nothing is nothing


REFUSED = {
    "revoke sg-mesh tcp 29500 from self": (
        "there is no rule sg-mesh ingress tcp 29500 from sg-mesh: EC2 would answer "
        "InvalidPermission.NotFound and take nothing away, for a revoke names a rule exactly; there is: "
        "sg-mesh ingress tcp 0-65535 from sg-mesh"
    ),
    "authorize sg-mesh tcp all from self": "is there already: EC2 would answer InvalidPermission.Duplicate",
    "authorize sg-none tcp all from self": "there is no security group sg-none in what was read",
    "revoke sg-mesh sgr-none": "sg-mesh has no rule sgr-none (InvalidSecurityGroupRuleId.NotFound)",
    "attach sg-mesh to i-0": "eni-0 carries sg-mesh already",
    "detach sg-mesh from i-0": "sg-mesh is the only group of eni-0",
    "detach sg-other from eni-0": "eni-0 does not carry sg-other; it carries sg-mesh",
    "detach sg-mesh from i-9": "there is no interface of i-9 in what was read",
    "deny acl-1 100 tcp 1 from 10.0.0.0/8": "EC2 would answer NetworkAclEntryAlreadyExists",
    "delete acl-1 50 ingress": "EC2 would answer InvalidNetworkAclEntry.NotFound; there are: 100",
    "delete acl-9 50 ingress": "there is no network ACL acl-9 in what was read",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_ec2_would_refuse_is_refused(text: str) -> None:
    """With EC2's code, and what stands instead."""
    world = cluster([SELF])
    world.acl("acl-1", ["subnet-1"])
    with pytest.raises(ChangeError) as caught:
        after(world, text)
    assert REFUSED[text] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("revoke sg-mesh tcp 0-65535 from self", "security-groups"),
        ("attach sg-mesh to eni-0", "network-interfaces"),
        ("delete acl-1 100 ingress", "network-acls"),
    ],
)
def test_what_was_not_read_cannot_be_changed(text: str, without: str) -> None:
    """No answer is made up about a document that is not there."""
    found = documents(cluster([SELF]), listed=False)
    del found[without]
    with pytest.raises(NotReadError, match=f"{without} was not read"):
        apply(found, parse_change(text), {})


# change -> (pairs newly blocked, at once; pairs newly open; newly exposed; no longer exposed)
Doing = Tuple[int, bool, int, List[str], List[str]]
OPEN = [SELF, from_cidr("0.0.0.0/0", 22, 22)]
DOES: Dict[str, Doing] = {
    "revoke sg-mesh tcp 0-65535 from self": (12, False, 0, [], []),
    "revoke sg-mesh tcp 22 from 0.0.0.0/0": (0, False, 0, [], ["tcp 22 0.0.0.0/0"]),
    "authorize sg-mesh tcp 23 from 0.0.0.0/0": (0, False, 0, ["tcp 23 0.0.0.0/0"], []),
    "authorize sg-mesh tcp 22 from 203.0.113.0/24": (0, False, 0, [], []),
    "authorize sg-mesh all from 0.0.0.0/0": (0, False, 0, ["-1 0-65535 0.0.0.0/0"], []),
    "revoke sg-mesh all to 0.0.0.0/0": (9, False, 0, [], []),
    "detach sg-mesh from i-1": (6, False, 0, [], ["tcp 22 0.0.0.0/0"]),
    "deny acl-1 50 tcp 29500 from 10.20.2.0/24": (4, True, 0, [], []),
    "delete acl-1 100 egress": (8, True, 0, [], ["tcp 22 0.0.0.0/0"]),
    "allow acl-1 50 tcp 29500 from 10.20.2.0/24": (0, False, 0, [], []),
}


def open_world() -> World:
    """Two subnets, the world let in to ssh; member 1 has another group besides."""
    world = two_subnets(OPEN)
    world.group("sg-other", [])
    world.interfaces[1]["Groups"].append({"GroupId": "sg-other"})
    for interface in world.interfaces:
        interface["Association"] = {"PublicIp": "198.51.100.9"}
    world.route("rtb-vpc-1", "0.0.0.0/0", "igw-1")
    for number in (1, 2):
        world.acl(f"acl-{number}", [f"subnet-{number}"])
    return world


@pytest.mark.parametrize("text", DOES)
def test_what_a_change_does_is_told(text: str) -> None:
    """Pairs that are newly blocked or open, whether at once, and who gets in or no longer does."""
    world = open_world()
    done = effect(judged(documents(world)), judged(after(world, text)))
    exposed = (
        [f"{item.protocol} {item.ports} {item.source}" for item in some]
        for some in (done.newly_exposed, done.no_longer_exposed)
    )
    assert done.told
    assert (
        sum(item.pair_count for item in done.newly_blocked),
        any(item.at_once for item in done.newly_blocked),
        sum(item.pair_count for item in done.newly_open),
        *exposed,
    ) == DOES[text]
    assert done.nothing is (DOES[text] == (0, False, 0, [], []))


def test_a_missing_rule_that_comes_opens_exactly_what_it_names() -> None:
    """The pairs and ports that pass after it and did not before."""
    world = cluster([from_group("sg-mesh", 29500, 29500)], count=3)
    done = effect(
        judged(documents(world)), judged(after(world, "authorize sg-mesh tcp 40000-65535 from self"))
    )
    (opened,) = done.newly_open
    assert (str(opened.ports), opened.pair_count, done.newly_blocked) == ("40000-60999", 6, ())
    assert next(iter(opened.documents())) == {
        "source": "i-0",
        "destination": "i-1",
        "ports": "40000-60999",
    }


WHY: List[Tuple[List[Any], str, str]] = [
    (
        [SELF, from_cidr("10.20.0.0/16")],
        "revoke sg-mesh tcp 0-65535 from self",
        "the same is allowed by sg-mesh ingress tcp 0-65535 from 10.20.0.0/16",
    ),
    (
        [SELF, from_group("sg-mesh", 0, 40000), from_group("sg-mesh", 40001)],
        "revoke sg-mesh tcp 0-65535 from self",
        "the same is allowed by sg-mesh ingress tcp 0-40000 from sg-mesh; "
        "sg-mesh ingress tcp 40001-65535 from sg-mesh",
    ),
    (
        [SELF],
        "authorize sg-mesh tcp 29500 from self",
        "the same is allowed by sg-mesh ingress tcp 0-65535 from sg-mesh",
    ),
    ([SELF], "authorize sg-free tcp all from self", "no member carries sg-free"),
    (
        [SELF],
        "authorize sg-mesh tcp 22 from 10.0.0.0/8",
        "it lets no member in on a needed port, and nobody outside is there to use it",
    ),
    ([SELF], "authorize sg-mesh tcp 22 to 10.0.0.0/8", "it lets members out to no member's needed port"),
]


@pytest.mark.parametrize(("ingress", "text", "reason"), WHY)
def test_why_a_change_does_nothing_is_named(ingress: List[Any], text: str, reason: str) -> None:
    """The rule that allows the same, or that nobody is there whom it concerns."""
    world = cluster(ingress)
    world.group("sg-free", [])
    world.acl("acl-1", ["subnet-1"])
    applied = apply(documents(world), parse_change(text), {})
    worlds_ = (documents(world), dict(applied.documents))
    assert effect(judged(worlds_[0]), judged(worlds_[1])).nothing
    assert applied.rule is not None
    with_it, without = worlds_[:: -1 if applied.came else 1]
    snapshot = ClusterSnapshot.from_documents(without)
    assert why_nothing(applied.rule, snapshot, judged(without), judged(with_it)) == reason


def test_a_rule_that_something_else_overrules_is_told_so() -> None:
    """Without a way out no rule inwards makes a difference."""
    world = cluster([], egress=[])
    world.acl("acl-1", ["subnet-1"])
    applied = apply(documents(world), parse_change("authorize sg-mesh tcp all from self"), {})
    before, now = judged(documents(world)), judged(dict(applied.documents))
    assert effect(before, now).nothing
    assert applied.rule is not None
    reason = why_nothing(applied.rule, world.snapshot(), before, now)
    assert reason == "something else stops the same traffic anyway"


@pytest.mark.parametrize(
    ("ingress", "egress", "cut"),
    [
        ([from_cidr("0.0.0.0/0")], [ANYWHERE], True),
        ([from_cidr("0.0.0.0/0")], [from_cidr("0.0.0.0/0", 443, 443), SELF], False),
        ([from_cidr("10.0.0.0/8")], [ANYWHERE], False),
        ([from_cidr("::/0")], [ANYWHERE], False),
    ],
)
def test_flows_that_everybody_is_let_through_both_ways_are_not_tracked(
    ingress: List[Any], egress: List[Any], cut: bool
) -> None:
    """Their end cuts connections that stand; any other rule's end does not."""
    snapshot = cluster(ingress, egress=egress).snapshot()
    group = snapshot.security_groups.get("sg-mesh")
    assert group is not None
    assert group.rules is not None
    assert untracked(group.rules[0], snapshot) is cut


def test_a_group_that_nobody_read_is_not_nobody() -> None:
    """Members of a group in another VPC may get in: who carries it is said to be unknown."""
    world = cluster([SELF])
    world.acl("acl-1", ["subnet-1"])
    found = judged(after(world, "authorize sg-mesh tcp 22 from sg-far"))
    assert (found.mesh_possible, found.exposure_known) == (True, False)
    assert any("sg-far" in gap for gap in found.unanswered)


@pytest.mark.parametrize("spelling", ["6", "tcp", None])
def test_an_acls_entry_is_written_as_ec2_prints_it(spelling: Optional[str]) -> None:
    """Protocol numbers, port ranges and both address families."""
    world = cluster([SELF])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL])
    text = f"deny acl-1 7 {spelling or 'icmpv6'} {'22' if spelling else '2'} from "
    (acl,) = after(world, text + ("10.0.0.0/8" if spelling else "fd00::/8"))["network-acls"]["NetworkAcls"]
    traffic: Dict[str, Any] = {
        "Protocol": "6",
        "CidrBlock": "10.0.0.0/8",
        "PortRange": {"From": 22, "To": 22},
    }
    if not spelling:
        traffic = {
            "Protocol": "58",
            "Ipv6CidrBlock": "fd00::/8",
            "IcmpTypeCode": {"Type": 2, "Code": -1},
        }
    assert acl["Entries"][-1] == {"RuleNumber": 7, "Egress": False, "RuleAction": "deny", **traffic}
