"""Suggested rules: possible after them, none of them too many, and nothing taken away unsaid."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from hypothesis import given, settings

from cluster.document_groups import rule_key
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange
from cluster.rules import SecurityGroupRule
from cluster.snapshot import ClusterSnapshot
from diagnosis.rule_commands import rule_line
from diagnosis.static import judge_rules
from diagnosis.suggest import Suggestion, suggest
from diagnosis.suggest_rules import Profile
from diagnosis.what_if import apply
from diagnosis.what_if_words import RuleChange
from tests.cluster.test_flows_oracle import worlds
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

MASTER = 29500
NODES = DEFAULT_EPHEMERAL_PORTS
SELF = from_group("sg-mesh")


def members(world: World) -> List[str]:
    return [item["InstanceId"] for item in world.instances if item["Tags"]]


def suggested(world: World, profile: str = "all", ephemeral: PortRange = NODES) -> Suggestion:
    chosen = [Profile(profile)]
    (found,) = suggest(world.snapshot(), members(world), MASTER, ephemeral, profiles=chosen)
    return found


def changed(documents: Any, more: Sequence[SecurityGroupRule], gone: Sequence[SecurityGroupRule]) -> Any:
    """The documents after the calls that the suggestion prints."""
    for rule, authorize in [*((r, True) for r in more), *((r, False) for r in gone)]:
        documents = apply(documents, RuleChange(authorize=authorize, rule=rule), {}).documents
    return documents


def possible(documents: Any, names: Sequence[str], profile: Profile) -> bool:
    """The engine's word; for EFA also both rules for all protocols with one group that all carry."""
    snapshot = ClusterSnapshot.from_documents(documents)
    if judge_rules(snapshot, names, MASTER, NODES).mesh_possible is not True:
        return False
    if profile is not Profile.EFA:
        return True
    shared = frozenset.intersection(
        *(frozenset(snapshot.interfaces_of(name)[0].group_ids or ()) for name in names)
    )
    rules = [rule for group in snapshot.security_groups for rule in group.rules or ()]
    ways = {
        group: {r.egress for r in rules if (r.group_id, r.source, r.protocol) == (group, group, "-1")}
        for group in shared
    }
    return {True, False} in ways.values()


@pytest.mark.parametrize("profile", Profile)
@settings(max_examples=40, deadline=None)
@given(worlds())
def test_what_is_suggested_makes_the_mesh_possible_and_is_the_least(profile: Profile, world: World) -> None:
    """After it the mesh is possible; without any one rule of it, or any further one, it is not."""
    for acl in world.acls:
        acl["Entries"] = []
    world.acls = []
    for half in (1, 2):
        world.acl(f"acl-{half}", [f"subnet-{half}"])
    names = [item["InstanceId"] for item in world.instances]
    (found,) = suggest(world.snapshot(), names, MASTER, NODES, profiles=[profile])
    if found.problem:
        assert (profile, found.authorize, found.revoke) == (Profile.EFA, (), ())
        return
    assert found.after is not None
    assert found.after.mesh_possible is True
    gone = [item.rule for item in found.revoke]
    after = changed(world.documents(), found.authorize, gone)
    assert possible(after, names, profile)
    for rule in found.authorize:
        assert not possible(changed(after, [], [rule]), names, profile), rule_line(rule)
    least = changed(after, [], [item.rule for item in found.not_needed])
    assert possible(least, names, profile)
    left = ClusterSnapshot.from_documents(least)
    carried = {group["GroupId"] for item in world.interfaces for group in item["Groups"]}
    own = {rule_key(r): r for g in left.security_groups for r in g.rules or () if g.id in carried}
    assert {rule_key(rule) for rule in (*found.kept, *found.authorize)} == set(own)
    for rule in own.values():
        assert not possible(changed(least, [], [rule]), names, profile), rule_line(rule)


def lines(found: Suggestion) -> Tuple[List[str], List[str], List[str]]:
    """(authorize, revoke, not_needed) without the group that all of them are of."""
    spare = ([item.rule for item in some] for some in (found.revoke, found.not_needed))
    return tuple(  # type: ignore[return-value]
        [rule_line(rule).replace("sg-mesh", "sg") for rule in some] for some in (found.authorize, *spare)
    )


RULES: Dict[str, Tuple[List[Any], List[Any], str, Tuple[List[str], List[str], List[str]]]] = {
    "all-there": ([SELF], [ANYWHERE], "all", ([], [], [])),
    "only-master": (
        [from_group("sg-mesh", 29500, 29500)],
        [ANYWHERE],
        "all",
        (["sg ingress tcp 0-65535 from sg"], ["sg ingress tcp 29500 from sg"], []),
    ),
    "pinned-keeps-what-fits": (
        [from_group("sg-mesh", 29500, 29500)],
        [ANYWHERE],
        "pinned",
        (["sg ingress tcp 32768-60999 from sg"], [], []),
    ),
    "the-world": (
        [from_cidr("0.0.0.0/0")],
        [ANYWHERE],
        "all",
        (["sg ingress tcp 0-65535 from sg"], ["sg ingress tcp 0-65535 from 0.0.0.0/0"], []),
    ),
    "ssh-is-not-the-meshs": (
        [SELF, from_cidr("198.51.100.7/32", 22, 22)],
        [ANYWHERE],
        "all",
        ([], [], ["sg ingress tcp 22 from 198.51.100.7/32"]),
    ),
    "closed-outbound": (
        [SELF],
        [from_cidr("0.0.0.0/0", 443, 443)],
        "all",
        (["sg egress tcp 0-65535 to sg"], [], ["sg egress tcp 443 to 0.0.0.0/0"]),
    ),
    "outbound-self-makes-everything-spare": (
        [SELF],
        [ANYWHERE, SELF],
        "all",
        ([], [], ["sg egress all to 0.0.0.0/0"]),
    ),
    "efa-needs-its-own-outbound-rule": (
        [from_group("sg-mesh", protocol="-1")],
        [ANYWHERE],
        "efa",
        (["sg egress all to sg"], [], ["sg egress all to 0.0.0.0/0"]),
    ),
    "a-list-that-nobody-read-is-not-relied-on": (
        [SELF],
        [from_list("pl-1", protocol="-1")],
        "all",
        (["sg egress tcp 0-65535 to sg"], [], ["sg egress all to pl-1"]),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_set_of_rules_gets_exactly_these(name: str) -> None:
    """To authorise, to revoke, and not needed by the mesh."""
    ingress, egress, profile, expected = RULES[name]
    assert lines(suggested(cluster(ingress, egress=egress), profile)) == expected


def test_a_pinned_range_is_the_nodes_own() -> None:
    """The rules of `pinned` are for the master port and the range that the nodes were said to have."""
    found = suggested(cluster([SELF]), "pinned", PortRange(50000, 50999))
    assert lines(found)[0] == ["sg ingress tcp 29500 from sg", "sg ingress tcp 50000-50999 from sg"]
    assert any("within 50000-50999" in note for note in found.notes)


def test_role_groups_name_each_other() -> None:
    """Without a common group the missing direction is suggested; a group of one needs no rule with itself."""
    world = cluster([SELF], count=2)
    world.group("sg-head", [from_group("sg-mesh")], name="head")
    world.node("2", "10.20.1.12", ["sg-head"])
    found = suggested(world)
    assert [rule_line(rule) for rule in found.authorize] == ["sg-mesh ingress tcp 0-65535 from sg-head"]
    assert {rule_line(rule) for rule in found.instead} == {
        "sg-mesh egress tcp 0-65535 to sg-mesh",
        "sg-mesh egress tcp 0-65535 to sg-head",
        "sg-head egress tcp 0-65535 to sg-mesh",
    }


def test_a_group_that_strangers_carry_is_told_and_avoided() -> None:
    """Of two common groups the one of the members alone is taken; where there is one only, it is said."""
    world = cluster([SELF])
    world.node("other", "10.20.1.99", ["sg-mesh"], member=False)
    told = suggested(world)
    assert told.authorize == ()
    assert any("sg-mesh is also carried by eni-other, no member" in note for note in told.notes)
    world.group("sg-own", [], name="own")
    for interface in world.interfaces[:4]:
        interface["Groups"].append({"GroupId": "sg-own"})
    found = suggested(world)
    assert [rule_line(rule) for rule in found.authorize] == ["sg-own ingress tcp 0-65535 from sg-own"]
    assert [rule_line(item.rule) for item in found.revoke] == ["sg-mesh ingress tcp 0-65535 from sg-mesh"]
    assert "sg-mesh is also carried by eni-other" in found.revoke[0].also
    assert found.notes == ()


def test_rules_that_efa_needs_are_kept() -> None:
    """On EFA interfaces the rules for all protocols stay, whatever profile is asked for."""
    everything = from_group("sg-mesh", protocol="-1")
    world = cluster([everything], egress=[everything])
    for interface in world.interfaces:
        interface["InterfaceType"] = "efa"
    found = suggested(world)
    assert (lines(found), found.instead) == (([], [], []), ())
    assert [rule_line(rule) for rule in found.kept] == [
        "sg-mesh ingress all from sg-mesh",
        "sg-mesh egress all to sg-mesh",
    ]
    assert any("they need the profile efa" in note for note in found.notes)
    world.groups[0]["IpPermissions"].append(SELF)
    assert [item.also for item in suggested(world).not_needed] == ["EFA needs it: take the profile efa"]


def test_what_a_revoke_ends_besides_is_said() -> None:
    """The world that a rule lets in, and whoever else it is for."""
    world = cluster([from_cidr("0.0.0.0/0")])
    world.interfaces[0]["Association"] = {"PublicIp": "198.51.100.9"}
    world.route("rtb-vpc-1", "0.0.0.0/0", "igw-1")
    world.acl("acl-1", ["subnet-1"])
    (spare,) = suggested(world).revoke
    assert spare.also == "lets the internet in from outside; whatever else uses it at 0.0.0.0/0 ends with it"


def test_what_rules_cannot_mend_stays_impossible() -> None:
    """An ACL that parts the subnets is told by the judgement of the world after the suggestion."""
    world = two_subnets([from_group("sg-mesh", 29500, 29500)])
    world.acl("acl-1", ["subnet-1"], [(10, "deny", "-1", "10.20.2.0/24", None), ALLOW_ALL])
    world.acl("acl-2", ["subnet-2"])
    found = suggested(world)
    assert lines(found)[0] == ["sg ingress tcp 0-65535 from sg"]
    assert found.after is not None
    assert [item.id for item in found.after.causes] == ["nacl-deny"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda world: world.instances.clear(), "0 running members were found: a mesh has at least 2"),
        (lambda world: world.groups.clear(), "the rules of sg-mesh are unknown: it is not in the document"),
        (lambda world: world.interfaces[0].pop("Groups"), "the groups of the interface with 10.20.1.10"),
        (lambda world: world.interfaces.pop(), "the address of i-3 is unknown"),
    ],
)
def test_nothing_is_suggested_where_something_was_not_read(damage: Any, problem: str) -> None:
    """No rule is made up: the reason stands in its place."""
    world = cluster([SELF])
    damage(world)
    found = suggested(world)
    assert found.problem.startswith(problem)
    assert dataclasses.replace(found, problem="") == Suggestion(profile=Profile.ALL)
