"""Network ACLs, one snapshot a kind: the answer was written by hand from EC2's documentation.

Members 0 and 1 are in subnet-1, members 2 and 3 in subnet-2; groups let everything through.
"""

from __future__ import annotations

from typing import Any, Sequence

import pytest

from tests.cluster.world import ALLOW_ALL, World, cluster, from_group, two_subnets
from tests.diagnosis.verdicts import EPHEMERAL_RANGE, NEED, across, both_ways, check

SELF = from_group("sg-mesh")
DENY_ALL = (32767, "deny", "-1", "0.0.0.0/0", None)


def walled(ingress: Sequence[Any], egress: Sequence[Any] = (ALLOW_ALL,)) -> World:
    """subnet-1 behind these entries, subnet-2 behind an open ACL."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"], [*ingress, DENY_ALL], [*egress, DENY_ALL])
    world.acl("acl-2", ["subnet-2"])
    return world


def tcp(number: int, action: str, cidr: str, first: int, last: int) -> Any:
    return (number, action, "6", cidr, (first, last))


def test_an_acl_that_lets_the_mesh_through() -> None:
    """Both directions: the needed ports of the other subnet, which are the replies' ports too."""
    entries = [
        tcp(100, "allow", "10.20.2.0/24", 29500, 29500),
        tcp(110, "allow", "10.20.2.0/24", 32768, 60999),
    ]
    check(walled(entries, entries), True)


def test_inbound_ports_that_are_not_let_in() -> None:
    """Connections to subnet-1 fail on the ports it keeps out; replies to it arrive on ephemeral ones."""
    entries = [
        tcp(100, "allow", "0.0.0.0/0", 29500, 29500),
        tcp(110, "allow", "0.0.0.0/0", 32768, 60999),
        (90, "deny", "6", "0.0.0.0/0", (29000, 30000)),
    ]
    check(walled(entries), False, "nacl-deny cluster", blocked=across("23", "01", "29500"))


def test_replies_are_cut_for_some_source_ports() -> None:
    """Outbound ends at 50000: own connections above it, and answers to whoever called from above it."""
    outbound = [
        tcp(100, "allow", "0.0.0.0/0", 29500, 29500),
        tcp(110, "allow", "0.0.0.0/0", 32768, 50000),
    ]
    blocked = {**across("01", "23", "50001-60999"), **across("23", "01", NEED)}
    check(walled([ALLOW_ALL], outbound), False, "nacl-deny cluster", blocked=blocked)


def test_inbound_without_the_ephemeral_range_cuts_the_replies_to_own_connections() -> None:
    """MASTER_PORT alone comes in: members of subnet-1 get no answer to anything they open."""
    inbound = [tcp(100, "allow", "0.0.0.0/0", 29500, 29500)]
    blocked = {**across("01", "23", NEED), **across("23", "01", EPHEMERAL_RANGE)}
    check(walled(inbound), False, "nacl-deny cluster", blocked=blocked)


def test_the_lowest_number_decides_in_whatever_order_they_are_listed() -> None:
    """A deny after an allow changes nothing; before it, it does."""
    late = [(200, "deny", "6", "0.0.0.0/0", (1, 65535)), ALLOW_ALL]
    check(walled(late, late), True)
    early = [ALLOW_ALL, (50, "deny", "6", "0.0.0.0/0", (40000, 40000))]
    # in to subnet-1: port 40000, and every answer that would have to arrive on source port 40000
    blocked = {**across("23", "01", "40000"), **across("01", "23", NEED)}
    check(walled(early), False, "nacl-deny cluster", blocked=blocked)


def test_an_entry_for_another_protocol_is_none_for_tcp() -> None:
    """UDP and ICMP denied in front, TCP allowed behind."""
    entries = [(10, "deny", "17", "0.0.0.0/0", (0, 65535)), (20, "deny", "1", "0.0.0.0/0", None), ALLOW_ALL]
    check(walled(entries, entries), True)


def test_only_udp_is_allowed() -> None:
    """An ACL that lets the wrong protocol through stops every pair across."""
    entries = [(100, "allow", "17", "0.0.0.0/0", (0, 65535))]
    check(walled(entries, entries), False, "nacl-deny cluster", blocked=both_ways("01", "23"))


def test_ipv6_entries_let_no_ipv4_through() -> None:
    """Allowed for ::/0 only."""
    entries = [(100, "allow", "-1", "::/0", None)]
    check(walled(entries, entries), False, "nacl-deny cluster", blocked=both_ways("01", "23"))


def test_one_address_is_denied() -> None:
    """The denied member reaches nobody across, and nobody across reaches it."""
    entries = [(50, "deny", "-1", "10.20.2.13/32", None), ALLOW_ALL]
    check(walled(entries, entries), False, "nacl-deny node:3", blocked=both_ways("01", "3"))


def test_a_rule_for_the_wrong_subnet_denies_nothing_here() -> None:
    """The denied range holds no member."""
    entries = [(50, "deny", "-1", "10.20.3.0/24", None), ALLOW_ALL]
    check(walled(entries, entries), True)


def test_an_acl_of_one_subnet_never_parts_its_own_members() -> None:
    """Everything denied, and the members are all inside: no packet meets it."""
    world = cluster([SELF])
    world.acl("acl-1", ["subnet-1"], [DENY_ALL], [DENY_ALL])
    check(world, True)


def test_both_subnets_under_one_acl_meet_it_twice() -> None:
    """Out of one and into the other: one entry out and one in are needed for both ways."""
    world = two_subnets([SELF])
    entries = [tcp(100, "allow", "10.20.0.0/16", 1024, 65535)]
    world.acl("acl-1", ["subnet-1", "subnet-2"], entries, entries)
    check(world, True)
    world.acls[0]["Entries"] = [entry for entry in world.acls[0]["Entries"] if not entry["Egress"]]
    check(world, False, "nacl-deny cluster", blocked=both_ways("01", "23"))


def test_a_subnet_without_an_association_has_the_vpcs_default_acl() -> None:
    """EC2 gives it to every subnet that no other ACL names."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"])
    world.acl("acl-default", [], default=True)
    check(world, True)
    world.acls[1]["Entries"] = []
    check(world, False, "nacl-deny cluster", blocked=both_ways("01", "23"))


@pytest.mark.parametrize("kind", ["another ACL only", "cut off", "absent"])
def test_an_acl_that_was_not_read_is_not_the_default(kind: str) -> None:
    """Without the subnet's ACL, or the VPC's default in a whole document, pairs across are untold."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"])
    if kind == "cut off":
        world.acl("acl-default", [], default=True)
        documents = world.documents()
        documents["network-acls"]["NextToken"] = "more"
        world.documents = lambda: documents  # type: ignore[method-assign]
    check(
        world,
        None,
        candidates=["nacl-deny"],
        without=["network-acls"] if kind == "absent" else [],
    )


def test_a_default_acl_of_another_vpc_is_nobodys() -> None:
    """The default counts in its own VPC."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"])
    world.acl("acl-default", [], vpc_id="vpc-9", default=True)
    check(world, None, candidates=["nacl-deny"])


def test_acl_and_group_together_name_what_stops_most_first() -> None:
    """The group stops all pairs, the ACL those across: both are named, and the union is blocked."""
    world = two_subnets([from_group("sg-mesh", 29500, 29500)])
    world.acl("acl-1", ["subnet-1"], [DENY_ALL], [DENY_ALL])
    world.acl("acl-2", ["subnet-2"])
    blocked = {
        **both_ways("01", "23", NEED),
        **both_ways("0", "1", EPHEMERAL_RANGE),
        **both_ways("2", "3", EPHEMERAL_RANGE),
    }
    check(world, False, "sg-only-master-port cluster", "nacl-deny cluster", blocked=blocked)


def test_the_reason_names_the_acl_the_way_and_the_entries() -> None:
    """Each of the four places where an ACL stops a packet, in EC2's code and in words."""
    late = [tcp(100, "allow", "0.0.0.0/0", 29500, 32768)]
    found = check(
        walled([ALLOW_ALL], late),
        False,
        "nacl-deny cluster",
        blocked={**across("01", "23", "32769-60999"), **across("23", "01", NEED)},
    )
    reasons = {f"{item['source']}>{item['destination']}": item["reason"] for item in found.blocked()}
    denied = "entry * denies all protocols from 0.0.0.0/0"
    assert reasons["i-0>i-2"] == (
        "SUBNET_ACL_RESTRICTION: acl-1 of subnet-1 drops tcp 32769-60999 out: "
        "entry * denies all protocols to 0.0.0.0/0"
    )
    assert reasons["i-2>i-0"] == (
        "SUBNET_ACL_RESTRICTION: acl-1 of subnet-1 drops replies to ports 32769-60999 out: "
        "entry * denies all protocols to 0.0.0.0/0"
    )
    found = check(
        walled(late),
        False,
        "nacl-deny cluster",
        blocked={**across("23", "01", "32769-60999"), **across("01", "23", NEED)},
    )
    reasons = {f"{item['source']}>{item['destination']}": item["reason"] for item in found.blocked()}
    assert reasons["i-0>i-2"].endswith(f"drops replies to ports 32769-60999 in: {denied}")
    assert reasons["i-2>i-0"].endswith(f"drops tcp 32769-60999 in: {denied}")
