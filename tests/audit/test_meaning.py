"""Whose doing it is: single differences, and those that only break something together."""

from __future__ import annotations

import dataclasses
import ipaddress
import time
from collections.abc import Sequence
from typing import Any

import pytest

from audit import undo
from audit.difference import Deviation, Difference, Meaning, Undo
from audit.meaning import Judge
from cluster.ports import PortRange, PortSet
from cluster.rules import SecurityGroupRule
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group, two_subnets

NEED = PortSet.of([PortRange(29500, 29500), PortRange(32768, 60999)])
EPHEMERAL = PortSet((PortRange(32768, 60999),))
SELF = from_group("sg-mesh")
LIMIT_S = 30.0  # of processor time; a quiet machine takes a tenth


def deviation(name: str, undone: Undo | None, at_least: Meaning = Meaning.WEAKENS) -> Deviation:
    return Deviation(
        resource=name,
        logical_id="",
        attribute="x",
        expected=None,
        actual=None,
        why="no more than that",
        at_least=at_least,
        undo=undone,
    )


def judged(
    world: World, *deviations: Deviation, members: Sequence[str] = ("i-0", "i-1", "i-2", "i-3")
) -> Any:
    found = Judge(world.snapshot(), members, NEED, EPHEMERAL).differences(deviations)
    return {item.deviation.resource: item for item in found}


def told(ingress: Any, group: str = "sg-mesh") -> tuple[SecurityGroupRule, ...]:
    """Rules as the snapshot would have them."""
    found = cluster([ingress]).snapshot().security_groups.get(group)
    assert found is not None
    return tuple(rule for rule in found.rules or () if not rule.egress)


def gone(ingress: Any) -> Undo:
    return undo.rules("sg-mesh", back=told(ingress))


def parted(item: Difference) -> int:
    return len({(source, destination) for source, destination, _ in item.pairs})


def test_two_rules_that_stood_in_for_each_other_are_both_named() -> None:
    """Neither breaks anything alone, but each would mend it."""
    vpc = from_cidr("10.20.0.0/16")
    found = judged(cluster([]), deviation("self", gone(SELF)), deviation("vpc", gone(vpc)))
    assert [(item.meaning, parted(item)) for item in found.values()] == [
        (Meaning.BREAKS_NEW_CONNECTIONS, 12)
    ] * 2


def test_what_no_single_difference_explains_belongs_to_the_one_that_tipped_it() -> None:
    """Two ways in and two ways out are gone: none breaks alone, none mends alone, the second tipped it."""
    vpc = from_cidr("10.20.0.0/16")
    ways = [
        (name, SecurityGroupRule(**{**told(rule)[0].__dict__, "egress": egress}))
        for egress in (False, True)
        for name, rule in ((f"self {egress}", SELF), (f"vpc {egress}", vpc))
    ]
    found = judged(
        cluster([], egress=[]),
        *(deviation(name, undo.rules("sg-mesh", back=(rule,))) for name, rule in ways),
    )
    assert {name: parted(found[name]) for name, _ in ways} == {
        "self False": 0,
        "vpc False": 12,
        "self True": 0,
        "vpc True": 0,
    }


def test_two_differences_that_each_break_are_both_named() -> None:
    """In and out are gone: either one alone parts every pair."""
    world = cluster([], egress=[])
    out = SecurityGroupRule(**{**told(SELF)[0].__dict__, "egress": True})
    found = judged(world, deviation("in", gone(SELF)), deviation("out", undo.rules("sg-mesh", back=(out,))))
    assert [parted(found[name]) for name in ("in", "out")] == [12, 12]


def test_an_acl_cuts_what_stands_and_a_group_does_not() -> None:
    """Both part the same pairs; the ACL at once."""
    world = two_subnets([SELF])
    deny = (50, "deny", "6", "10.20.0.0/16", (29500, 29500))
    for number in (1, 2):
        world.acl(f"acl-{number}", [f"subnet-{number}"], [deny, ALLOW_ALL], [ALLOW_ALL])
    snapshot = world.snapshot()
    entry = next(e for e in snapshot.network_acls.items["acl-1"].entries if e.number == 50)
    found = judged(world, deviation("acl", undo.acl_entries("acl-1", gone=(entry,))))
    assert (found["acl"].meaning, parted(found["acl"])) == (Meaning.BREAKS_MESH, 4)
    assert "connections that stand are cut" in found["acl"].detail


@pytest.mark.parametrize("somebody", [True, False])
def test_a_rule_opens_the_cluster_only_to_somebody(somebody: bool) -> None:
    """A rule for a neighbour's address is an opening while the neighbour runs."""
    rule = from_cidr("10.20.1.200/32", 22, 22)
    world = cluster([SELF, rule])
    world.group("sg-other", name="other")
    if somebody:
        world.node("bastion", "10.20.1.200", ["sg-other"], member=False)
    found = judged(world, deviation("rule", undo.rules("sg-mesh", gone=told(rule))))
    one = found["rule"]
    assert one.meaning is (Meaning.OPENS_CLUSTER if somebody else Meaning.WEAKENS)
    assert [(item["ports"], item["source"]) for item in one.opens_to] == (
        [("22", "10.20.1.200/32")] if somebody else []
    )


def test_what_no_rule_depends_on_keeps_its_own_grade() -> None:
    """A difference without an undo is as grave as it was declared."""
    found = judged(cluster([SELF]), deviation("tag", None, Meaning.COSMETIC))
    assert (found["tag"].meaning, found["tag"].detail) == (Meaning.COSMETIC, "no more than that")


def moved(world: World, *members: int) -> list[Deviation]:
    """Members whose interface carries another group than it was told."""
    return [
        dataclasses.replace(
            deviation(
                f"eni-{number}",
                undo.interface(
                    f"eni-{number}", lambda item: dataclasses.replace(item, group_ids=("sg-mesh",))
                ),
            ),
            alike="moved",
            involves=f"i-{number}",
        )
        for number in members
    ]


def with_moved(*members: int) -> World:
    world = cluster([SELF])
    world.group("sg-other", name="other")
    for number in members:
        world.interfaces[number]["Groups"] = [{"GroupId": "sg-other"}]
    return world


def test_alike_differences_each_have_the_pairs_of_their_own_member() -> None:
    """Judged at once, told apart: every pair that one of them takes part in, and no other."""
    world = with_moved(1, 3)
    found = judged(world, *moved(world, 1, 3))
    for number in (1, 3):
        pairs = {run[:2] for run in found[f"eni-{number}"].pairs}
        others = [other for other in range(4) if other != number]
        expected = {(f"i-{number}", f"i-{o}") for o in others} | {(f"i-{o}", f"i-{number}") for o in others}
        assert (pairs, found[f"eni-{number}"].pair_count) == (expected, 6)


def test_alike_or_not_the_meaning_is_the_same() -> None:
    """Taking them one by one finds the same pairs."""
    world = with_moved(0, 1, 3)
    together = judged(world, *moved(world, 0, 1, 3))
    single = judged(
        world, *(dataclasses.replace(item, alike=None, involves="") for item in moved(world, 0, 1, 3))
    )
    for name, item in together.items():
        assert (item.meaning, set(item.pairs)) == (single[name].meaning, set(single[name].pairs))


def test_a_group_is_not_blamed_for_what_an_acl_cuts() -> None:
    """Both part the same pairs: only the ACL cuts what stands."""
    world = two_subnets([])
    deny = (50, "deny", "6", "10.20.0.0/16", (29500, 60999))
    for number in (1, 2):
        world.acl(f"acl-{number}", [f"subnet-{number}"], [deny, ALLOW_ALL], [ALLOW_ALL])
    entries = world.snapshot().network_acls.items
    both_acls = [
        deviation(name, undo.acl_entries(name, gone=[e for e in entries[name].entries if e.number == 50]))
        for name in ("acl-1", "acl-2")
    ]
    found = judged(world, deviation("group", gone(SELF)), *both_acls)
    assert found["group"].meaning is Meaning.BREAKS_NEW_CONNECTIONS
    assert {found[name].meaning for name in ("acl-1", "acl-2")} == {Meaning.BREAKS_MESH}


def test_a_thousand_members_are_judged_in_seconds() -> None:
    """A million pairs and five hundred alike differences are told in groups, never one by one."""
    count = 1000
    world = World()
    world.subnet("subnet-1", "10.20.0.0/18")
    world.group("sg-mesh", [])
    world.group("sg-other", name="other")
    base = int(ipaddress.ip_address("10.20.0.10"))
    for number in range(count):
        group = "sg-other" if number < count // 2 else "sg-mesh"
        world.node(str(number), str(ipaddress.ip_address(base + number)), [group])
    members = [f"i-{number}" for number in range(count)]
    began = time.process_time()
    found = judged(
        world, deviation("sg-mesh", gone(SELF)), *moved(world, *range(count // 2)), members=members
    )
    assert time.process_time() - began < LIMIT_S
    assert found["eni-0"].pair_count == 2 * (count - 1)
    assert found["sg-mesh"].meaning is Meaning.BREAKS_NEW_CONNECTIONS
