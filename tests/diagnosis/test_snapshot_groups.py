"""Security groups, one snapshot a kind: the answer was written by hand from EC2's documentation."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from tests.cluster.world import ANYWHERE, World, cluster, from_cidr, from_group, from_list
from tests.diagnosis.verdicts import EPHEMERAL_RANGE, NEED, across, both_ways, check, every

SELF = from_group("sg-mesh")
VPC_IN = from_cidr("10.20.0.0/16")


def carried(*groups: str, ingress: Dict[str, List[Any]]) -> World:
    """Four members that all carry these groups; inbound rules by group."""
    world = cluster([], count=0)
    world.groups.clear()
    for group, rules in ingress.items():
        world.group(group, rules, name=group)
    for number in range(4):
        world.node(str(number), f"10.20.1.{10 + number}", groups)
    return world


def test_the_groups_of_an_interface_are_a_union() -> None:
    """One group brings the master port, the other the ephemeral range, each from the other group."""
    world = carried(
        "sg-a",
        "sg-b",
        ingress={
            "sg-a": [from_group("sg-b", 29500, 29500)],
            "sg-b": [from_group("sg-a", 32768, 60999)],
        },
    )
    check(world, True)


def test_a_member_with_one_of_the_two_groups_is_the_odd_one() -> None:
    """It lets nobody in on the ephemeral range and nobody lets it in there."""
    world = carried(
        "sg-a",
        "sg-b",
        ingress={
            "sg-a": [from_group("sg-a", 29500, 29500)],
            "sg-b": [from_group("sg-b", 32768, 60999)],
        },
    )
    world.interfaces[3]["Groups"].pop()
    check(world, False, "sg-missing-on-node node:3", blocked=both_ways("3", "012", EPHEMERAL_RANGE))


def test_a_member_with_more_groups_than_the_others_changes_nothing() -> None:
    """Groups only ever allow: an empty one beside the cluster's takes nothing away."""
    world = cluster([SELF])
    world.group("sg-empty", [], egress=[], name="empty")
    world.interfaces[2]["Groups"].append({"GroupId": "sg-empty"})
    check(world, True)


def test_role_groups_shaped_like_a_star_leave_workers_apart() -> None:
    """Head and workers reach each other; no rule was thought of between workers."""
    world = carried(
        "sg-worker",
        ingress={
            "sg-head": [from_group("sg-worker")],
            "sg-worker": [from_group("sg-head")],
        },
    )
    world.interfaces[0]["Groups"] = [{"GroupId": "sg-head"}]
    check(world, False, "sg-no-self-ingress cluster", blocked=every("123"))


def test_the_second_reference_of_a_permission_counts() -> None:
    """The self reference stands behind two others in one UserIdGroupPairs."""
    rule = from_group("sg-else")
    rule["UserIdGroupPairs"] += [{"GroupId": "sg-other"}, {"GroupId": "sg-mesh"}]
    check(cluster([rule]), True)


def test_a_group_that_no_member_carries_lets_no_member_in() -> None:
    """A reference to the load balancer's group is none to the members."""
    world = cluster([from_group("sg-lb")])
    world.group("sg-lb", name="lb")
    check(world, False, "sg-no-self-ingress cluster", blocked=every("0123"))


@pytest.mark.parametrize("status", ["active", "deleted", "expired"])
def test_a_reference_over_peering_counts_while_the_peering_is_active(status: str) -> None:
    """A stale rule of a deleted peering connection matches nobody, and says so."""
    world = World()
    world.vpc("vpc-2", "10.30.0.0/16")
    for half, vpc, cidr in ((1, "vpc-1", "10.20.1.0/24"), (2, "vpc-2", "10.30.1.0/24")):
        world.subnet(f"subnet-{half}", cidr, vpc_id=vpc)
        world.acl(f"acl-{half}", [f"subnet-{half}"], vpc_id=vpc)
    world.route("rtb-vpc-1", "10.30.0.0/16", "pcx-1")
    world.route("rtb-vpc-2", "10.20.0.0/16", "pcx-1")
    for own, far in (("sg-1", "sg-2"), ("sg-2", "sg-1")):
        peer = from_group(far)
        peer["UserIdGroupPairs"][0].update(
            VpcPeeringConnectionId="pcx-1", PeeringStatus=status, VpcId="vpc-x", UserId="222233334444"
        )
        world.group(own, [peer])
    world.node("0", "10.20.1.10", ["sg-1"])
    world.node("1", "10.30.1.10", ["sg-2"], subnet="subnet-2", vpc_id="vpc-2")
    if status == "active":
        check(world, True)
    else:
        to_1, to_0 = "sg-no-self-ingress pair:0>1", "sg-no-self-ingress pair:1>0"  # a rule in each group
        found = check(world, False, to_1, to_0, blocked=every("01"))
        assert found.causes[1].evidence[0] == (
            f"sg-1 allows all tcp from sg-2 (matches nobody: its peering connection is {status})"
        )


@pytest.mark.parametrize(
    ("cidrs", "outside"),
    [
        (["10.20.1.8/30"], "23"),  # .8 to .11
        (["10.20.1.10/32", "10.20.1.12/31"], "1"),
        (["10.20.1.11/30"], "23"),  # host bits set: the same /30, as EC2 reads it
        (["10.20.1.0/28"], ""),  # .0 to .15
    ],
)
def test_a_range_lets_in_the_senders_that_it_holds(cidrs: List[str], outside: str) -> None:
    """Who is outside cannot open a connection to anybody, and is reached by all."""
    blocked = across(outside, "0123")
    blocked = {pair: ports for pair, ports in blocked.items() if pair[0] != pair[2]}
    found = check_ranges(cidrs, blocked)
    assert found is (not outside)


def check_ranges(cidrs: List[str], blocked: Dict[str, str]) -> Any:
    world = cluster([from_cidr(cidr) for cidr in cidrs])
    senders = sorted({pair[0] for pair in blocked})
    subject = f"node:{senders[0]}" if len(senders) == 1 else "cluster"
    causes = [f"sg-no-self-ingress {subject}"] if blocked else []
    return check(world, not blocked, *causes, blocked=blocked).mesh_possible


def test_an_outbound_range_that_misses_a_member_cuts_the_way_to_it() -> None:
    """Nobody can open a connection to the member outside; it reaches everybody."""
    world = cluster([SELF], egress=[from_cidr("10.20.1.10/31"), from_cidr("10.20.1.12/32")])
    check(world, False, "sg-no-self-egress node:3", blocked=across("012", "3"))


def test_every_block_of_a_vpc_counts() -> None:
    """A rule for the first block does not hold a member whose subnet lies in the second."""
    world = cluster([VPC_IN], count=2)
    world.subnet("subnet-2", "100.64.1.0/24")
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    world.node("2", "100.64.1.10", ["sg-mesh"], subnet="subnet-2")
    check(world, False, "sg-no-self-ingress node:2", blocked=across("2", "01"))
    world.groups[0]["IpPermissions"].append(from_cidr("100.64.0.0/16"))
    check(world, True)


def test_ipv6_rules_alone_let_no_ipv4_in() -> None:
    """Members meet on their IPv4 addresses, also when they have IPv6 ones."""
    world = cluster([from_cidr("::/0")])
    for number, interface in enumerate(world.interfaces):
        interface["Ipv6Addresses"] = [{"Ipv6Address": f"2600:1f14::{number + 1}"}]
    check(world, False, "sg-no-self-ingress cluster", blocked=every("0123"))


def test_ipv6_egress_alone_lets_no_ipv4_out() -> None:
    """The console's default of both families with the IPv4 one removed."""
    world = cluster([SELF], egress=[from_cidr("::/0", protocol="-1")])
    check(world, False, "sg-no-self-egress cluster", blocked=every("0123"))


def test_members_without_ipv4_meet_on_ipv6() -> None:
    """In an IPv6-only subnet, IPv6 ranges and references decide."""
    world = cluster([], count=0, egress=[from_cidr("::/0", protocol="-1")])
    for number in range(2):
        world.node(str(number), "", ["sg-mesh"], ipv6=[f"2600:1f14::{number + 1}"])
    check(world, False, "sg-no-self-ingress cluster", blocked=every("01"))
    world.groups[0]["IpPermissions"].append(from_cidr("2600:1f14::/64"))
    check(world, True)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_prefix_list_alone_leaves_the_mesh_open(way: str) -> None:
    """Nobody read who is in it, so it may hold the members or not."""
    world = cluster([from_list("pl-1")]) if way == "in" else cluster([SELF], egress=[from_list("pl-1")])
    candidate = "sg-no-self-ingress" if way == "in" else "sg-no-self-egress"
    found = check(world, None, candidates=[candidate])
    assert found.next_command == (
        "aws ec2 get-managed-prefix-list-entries --prefix-list-id pl-1 --output json "
        "> prefix-list-entries.pl-1.json"
    )


def test_a_prefix_list_beside_a_reference_is_not_needed() -> None:
    """Egress to AWS's own list for S3 and to the group itself."""
    world = cluster([SELF], egress=[from_list("pl-s3", 443, 443), from_group("sg-mesh")])
    assert check(world, True).exposure_known is True


def test_a_prefix_list_for_some_ports_leaves_those_open_and_the_rest_blocked() -> None:
    """The ephemeral range hangs on the list; MASTER_PORT is admitted by nothing at all."""
    world = cluster([from_list("pl-1", 32768, 60999)])
    check(world, False, "sg-ports-too-narrow cluster", blocked=every("0123", "29500"))


def test_only_what_is_needed_is_asked_for() -> None:
    """Of two lists, the one for other ports is not; nor is a rule of another group's members."""
    world = cluster([from_list("pl-1"), from_list("pl-web", 443, 443), from_group("sg-else")])
    found = check(world, None, candidates=["sg-no-self-ingress"])
    assert found.reachability.gaps[0].resource == "pl-1"
    assert len(found.reachability.gaps) == 1


@pytest.mark.parametrize(
    ("rule", "possible"),
    [
        (from_group("sg-mesh", protocol="-1"), True),
        ({**from_group("sg-mesh", protocol="-1"), "FromPort": -1, "ToPort": -1}, True),
        (from_group("sg-mesh", 0, 65535), True),
        (from_group("sg-mesh", 1, 65535), True),
        (from_group("sg-mesh", 1024, 65535), True),
        (from_group("sg-mesh", 0, 65535, "6"), True),
        (from_group("sg-mesh", 0, 65535, "udp"), False),
        (from_group("sg-mesh", -1, -1, "icmp"), False),
        (from_group("sg-mesh", -1, -1, "icmpv6"), False),
        (from_group("sg-mesh", 0, 65535, "132"), False),
    ],
)
def test_only_tcp_and_all_protocols_carry_gloo(rule: Dict[str, Any], possible: bool) -> None:
    """Ping works and UDP works, and neither is a mesh."""
    blocked = {} if possible else every("0123")
    check(cluster([rule]), possible, *([] if possible else ["sg-no-self-ingress cluster"]), blocked=blocked)


@pytest.mark.parametrize(
    ("ranges", "cause", "ports"),
    [
        ([(29500, 29500), (32768, 45000), (45001, 60999)], "", ""),
        ([(29500, 29500), (32768, 50000), (40000, 60999)], "", ""),
        ([(0, 29500), (29501, 65535)], "", ""),
        ([(29500, 29500), (32768, 44999), (45001, 60999)], "sg-ports-too-narrow", "45000"),
        ([(29500, 29500), (32769, 60998)], "sg-ports-too-narrow", "32768,60999"),
        ([(1024, 32767), (50000, 65535)], "sg-ports-too-narrow", "32768-49999"),
        ([(29400, 29600)], "sg-only-master-port", EPHEMERAL_RANGE),
        ([(22, 22), (443, 443)], "sg-no-self-ingress", NEED),
        ([(0, 0)], "sg-no-self-ingress", NEED),
        ([(32768, 60999)], "sg-ports-too-narrow", "29500"),
    ],
)
def test_port_ranges_meet_end_to_end_or_leave_a_hole(ranges: Any, cause: str, ports: str) -> None:
    """To the port: what no range holds is blocked, and touching ranges are one."""
    world = cluster([from_group("sg-mesh", first, last) for first, last in ranges])
    if not cause:
        check(world, True)
    else:
        check(world, False, f"{cause} cluster", blocked=every("0123", ports))


def test_rules_that_stand_twice_change_nothing() -> None:
    """The same source in two permissions, in one permission twice, and as a range besides."""
    twice = from_group("sg-mesh")
    twice["UserIdGroupPairs"] *= 2
    check(cluster([twice, SELF, VPC_IN, VPC_IN]), True)


@pytest.mark.parametrize(
    ("egress", "cause", "blocked"),
    [
        ([from_group("sg-mesh")], "", {}),
        ([from_group("sg-mesh", protocol="-1")], "", {}),
        ([from_cidr("10.20.1.0/24"), from_cidr("0.0.0.0/0", 443, 443)], "", {}),
        ([from_group("sg-mesh", 29500, 29500)], "sg-only-master-port", every("0123", EPHEMERAL_RANGE)),
        ([from_cidr("0.0.0.0/0", 443, 443)], "sg-no-self-egress", every("0123")),
        ([from_cidr("255.255.255.255/32", 252, 86, "icmp")], "sg-no-self-egress", every("0123")),
        ([], "sg-no-self-egress", every("0123")),
        ([from_cidr("0.0.0.0/0", 1024, 50000)], "sg-ports-too-narrow", every("0123", "50001-60999")),
    ],
)
def test_egress_restricted(egress: List[Any], cause: str, blocked: Dict[str, str]) -> None:
    """A closed outbound list has to name the members, on every port that is needed."""
    world = cluster([SELF], egress=egress)
    check(world, not cause, *([f"{cause} cluster"] if cause else []), blocked=blocked)


def test_both_ways_too_narrow_are_two_causes_and_the_union_is_blocked() -> None:
    """In: the upper half is missing; out: the lower half."""
    world = cluster(
        [from_group("sg-mesh", 29500, 50000)],
        egress=[from_group("sg-mesh", 29500, 29500), from_group("sg-mesh", 45000, 60999)],
    )
    check(
        world,
        False,
        "sg-ports-too-narrow cluster",
        "sg-ports-too-narrow cluster",
        blocked=every("0123", EPHEMERAL_RANGE.replace("32768-60999", "32768-44999,50001-60999")),
    )


def test_a_group_in_the_default_group_only_is_the_vpcs_default() -> None:
    """All members in the VPC's default group: it lets itself in, and the mesh forms."""
    world = cluster([], count=0)
    world.groups.clear()
    world.group("sg-default", [from_group("sg-default", protocol="-1")], [ANYWHERE], name="default")
    for number in range(3):
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-default"])
    check(world, True)


def test_a_group_without_any_rule_blocks_all() -> None:
    """Written, attached, and empty in both directions: each direction is a cause of its own."""
    world = cluster([], egress=[])
    check(
        world,
        False,
        "sg-no-self-ingress cluster",
        "sg-no-self-egress cluster",
        blocked=every("0123"),
    )


def test_a_group_that_was_written_and_not_attached() -> None:
    """The mesh's group exists, and every interface carries another, empty one."""
    world = cluster([SELF], count=0)
    world.group("sg-web", [from_cidr("10.0.0.0/8", 443, 443)], name="web")
    for number in range(3):
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-web"])
    check(world, False, "sg-no-self-ingress cluster", blocked=every("012"))


def test_a_member_without_any_group_is_shut_off() -> None:
    """An interface always has a group on EC2; an empty list allows nothing."""
    world = cluster([SELF], count=3)
    world.node("3", "10.20.1.13", [])
    check(world, False, "sg-missing-on-node node:3", blocked=both_ways("3", "012"))
