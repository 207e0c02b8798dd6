"""Reachability of every ordered pair: each thing that decides, and a naive oracle."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from cluster.flows import Reachability, Reason, reachability
from cluster.ports import PortRange, PortSet
from cluster.snapshot import ClusterSnapshot
from tests.cluster.world import ALLOW_ALL, ANYWHERE, World, cluster, from_cidr, from_group, two_subnets

EPHEMERAL = PortSet((PortRange(32768, 60999),))
NEED = PortSet.of([PortRange(29500, 29500), *EPHEMERAL])
SELF = from_group("sg-mesh")


def judge(world: World, *without: str) -> Reachability:
    snapshot = world.snapshot(*without)
    return reachability(snapshot, snapshot.running_with_tag("fullmesh:cluster", "demo"), NEED, EPHEMERAL)


def blocked(reach: Reachability) -> Dict[str, str]:
    """ "source>destination" -> blocked ports, of pairs that are blocked."""
    return {
        f"{a.removeprefix('i-')}>{b.removeprefix('i-')}": str(flow.blocked)
        for a, b, flow in reach.pairs()
        if flow.blocked
    }


ALL_PAIRS = [f"{a}>{b}" for a in range(4) for b in range(4) if a != b]
ACROSS = [pair for pair in ALL_PAIRS if (pair[0] in "01") is not (pair[2] in "01")]


def test_a_group_that_names_itself_is_a_mesh() -> None:
    """All TCP from itself, everything out: every pair passes, in one class."""
    reach = judge(cluster([SELF]))
    assert (reach.holds, blocked(reach), len(reach.classes), reach.gaps) == (True, {}, 1, ())


def test_blocked_ports_are_exact_runs_with_their_reason() -> None:
    """What an inbound rule leaves out is blocked to the port; touching needed ports are one run."""
    world = cluster([from_group("sg-mesh", 29500, 40000)], count=2)
    snapshot = world.snapshot()
    need = PortSet.of([PortRange(32767, 32767), *EPHEMERAL])
    reach = reachability(snapshot, ["i-0", "i-1"], need, EPHEMERAL)
    runs = list(reach.blocked_runs())
    assert [(run.source, run.destination, str(run.ports)) for run in runs] == [
        ("i-0", "i-1", "40001-60999"),
        ("i-1", "i-0", "40001-60999"),
    ]
    assert runs[0].reason == (
        "ENI_SG_RULES_MISMATCH: no rule of sg-mesh lets tcp 40001-60999 in from members that carry sg-mesh "
        "(only 32767-40000 of what is needed)"
    )
    assert runs[0].obstacles[0].code == "ENI_SG_RULES_MISMATCH"


def test_egress_at_the_source_is_needed_too() -> None:
    """A closed outbound list stops the first packet, whatever the target admits."""
    reach = judge(cluster([SELF], egress=[from_cidr("0.0.0.0/0", 443, 443)]))
    assert blocked(reach) == dict.fromkeys(ALL_PAIRS, "29500,32768-60999")
    assert {o.reason for flow in reach.flows.values() for o in flow.obstacles} == {Reason.NO_EGRESS_RULE}


def test_groups_of_an_interface_are_a_union() -> None:
    """The ports of several groups add up."""
    world = cluster([from_group("sg-mesh", 29500, 29500)])
    world.group("sg-more", [from_group("sg-mesh", 32768, 60999)])
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-more"})
    assert judge(world).holds is True


def test_a_cidr_is_matched_against_the_sender() -> None:
    """A range that ends before one member blocks what that member opens, and nothing to it."""
    reach = judge(cluster([from_cidr("10.20.1.0/28"), from_cidr("10.20.1.12/32")], count=7))
    assert blocked(reach) == {f"6>{n}": "29500,32768-60999" for n in range(6)}
    assert len(reach.classes) == 3


def test_an_acl_is_met_between_subnets_only() -> None:
    """A deny of everything does nothing to pairs of one subnet and stops all others."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    world.acl("acl-2", ["subnet-2"], [], [])
    reach = judge(world)
    assert blocked(reach) == dict.fromkeys(ACROSS, "29500,32768-60999")
    flow = reach.between("i-0", "i-2")
    assert [o.reason for o in flow.obstacles] == [Reason.ACL_INGRESS, Reason.ACL_REPLY_EGRESS]
    assert flow.obstacles[0].code == "SUBNET_ACL_RESTRICTION"


def test_replies_that_an_acl_drops_block_every_port() -> None:
    """Stateless: one source port whose replies are dropped is enough for all destination ports."""
    world = two_subnets([SELF])
    world.acl(
        "acl-1", ["subnet-1"], [(90, "deny", "6", "10.20.2.0/24", (60999, 60999)), ALLOW_ALL], [ALLOW_ALL]
    )
    world.acl("acl-2", ["subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    reach = judge(world)
    into_two = {f"{a}>{b}": "29500,32768-60999" for a in (0, 1) for b in (2, 3)}
    into_one = {f"{a}>{b}": "60999" for a in (2, 3) for b in (0, 1)}
    assert blocked(reach) == {**into_two, **into_one}
    assert [o.reason for o in reach.between("i-0", "i-2").obstacles] == [Reason.ACL_REPLY_INGRESS]


def test_an_acl_rule_that_comes_first_decides() -> None:
    """A deny behind an allow, or of UDP only, does nothing."""
    world = two_subnets([SELF])
    late = [(50, "deny", "17", "0.0.0.0/0", None), ALLOW_ALL, (200, "deny", "6", "0.0.0.0/0", None)]
    world.acl("acl-1", ["subnet-1", "subnet-2"], late, late)
    assert judge(world).holds is True


def test_an_acl_may_part_two_addresses_of_one_subnet() -> None:
    """A deny of one far address stops the pairs with that member only."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"], [(1, "deny", "-1", "10.20.2.13/32", None), ALLOW_ALL], [ALLOW_ALL])
    world.acl("acl-2", ["subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    assert set(blocked(judge(world))) == {"0>3", "1>3", "3>0", "3>1"}


def test_absent_acls_are_unknown_between_subnets_and_not_needed_within_one() -> None:
    """The same missing document leaves two subnets open and one subnet answered."""
    reach = judge(two_subnets([SELF]), "network-acls")
    assert (reach.holds, blocked(reach)) == (None, {})
    assert [gap.document for gap in reach.gaps] == ["network-acls", "network-acls"]
    assert judge(cluster([SELF]), "network-acls").holds is True


def test_one_acl_that_is_missing_from_the_document_is_unknown() -> None:
    """Every subnet has an ACL, so one that is not listed was not read."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    reach = judge(world)
    assert (reach.holds, [gap.detail for gap in reach.gaps]) == (
        None,
        ["the network ACL of subnet-2 is unknown: it is not in the document"],
    )


def test_what_is_certainly_blocked_is_blocked_whatever_else_is_unknown() -> None:
    """Half an ACL's answer is enough for False; unknown ports stay apart."""
    world = two_subnets([from_group("sg-mesh", 32768, 60999)])
    flow = judge(world, "network-acls").between("i-0", "i-2")
    assert (flow.passes, str(flow.blocked), str(flow.unknown)) == (False, "29500", "32768-60999")


def test_a_group_whose_rules_were_not_read_may_allow_anything() -> None:
    """What no known rule allows is unknown then, not blocked."""
    world = cluster([from_group("sg-mesh", 29500, 29500)])
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-unread"})
    flow = judge(world).between("i-0", "i-1")
    assert (flow.passes, str(flow.unknown), [gap.detail for gap in flow.gaps]) == (
        None,
        "32768-60999",
        ["the rules of sg-unread are unknown: it is not in the document"],
    )


def test_a_prefix_list_is_unknown_only_where_nothing_else_allows() -> None:
    """Its ports are unknown, the rest is blocked, and a rule that allows makes it not matter."""
    prefix_list = {
        "IpProtocol": "tcp",
        "FromPort": 29500,
        "ToPort": 40000,
        "PrefixListIds": [{"PrefixListId": "pl-1"}],
    }
    flow = judge(cluster([prefix_list])).between("i-0", "i-1")
    assert (str(flow.blocked), str(flow.unknown)) == ("40001-60999", "29500,32768-40000")
    flow = judge(cluster([{**prefix_list, "ToPort": 65535}])).between("i-0", "i-1")
    assert (flow.passes, [gap.detail for gap in flow.gaps]) == (None, ["the entries of pl-1 were not read"])
    assert judge(cluster([prefix_list, SELF])).holds is True


def test_a_member_without_a_known_address_is_unknown() -> None:
    """An interface that was not read gives no answer for its pairs, and the others keep theirs."""
    world = cluster([SELF], count=3)
    del world.interfaces[2]
    reach = judge(world)
    assert (reach.holds, reach.between("i-0", "i-1").passes, reach.between("i-0", "i-2").passes) == (
        None,
        True,
        None,
    )


def test_the_primary_interface_is_the_one_with_device_index_0() -> None:
    """A second interface's groups and address do not count for the mesh."""
    world = cluster([SELF], count=2)
    world.group("sg-other")
    world.interfaces.insert(0, {**world.interfaces[0], "NetworkInterfaceId": "eni-second"})
    world.interfaces[0].update(
        Attachment={"InstanceId": "i-0", "DeviceIndex": 1},
        Groups=[{"GroupId": "sg-other"}],
        PrivateIpAddress="10.20.1.99",
    )
    assert judge(world).holds is True


def test_fewer_than_two_members_are_no_mesh() -> None:
    """Nothing to look at is no answer."""
    assert judge(cluster([SELF], count=1)).holds is None
    assert judge(cluster([SELF], count=0)).holds is None


def two_vpcs(route_there: Any, route_back: Any) -> World:
    """Member 0 in vpc-1, member 1 in vpc-2; both groups admit everything."""
    world = World()
    world.vpc("vpc-2", "10.30.0.0/16")
    world.subnet("subnet-1", "10.20.1.0/24")
    world.subnet("subnet-2", "10.30.1.0/24", vpc_id="vpc-2")
    world.group("sg-mesh", [from_cidr("10.0.0.0/8")])
    world.node("0", "10.20.1.10", ["sg-mesh"])
    world.node("1", "10.30.1.10", ["sg-mesh"], subnet="subnet-2", vpc_id="vpc-2")
    world.acl("acl-all", ["subnet-1", "subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    for table, route in zip(world.tables, (route_there, route_back)):
        if route:
            other = World()
            other.table("x", "x", [route])
            table["Routes"] += other.tables[-1]["Routes"]
    return world


@pytest.mark.parametrize(
    ("there", "back", "expected"),
    [
        (("10.30.0.0/16", "pcx-1"), ("10.20.0.0/16", "pcx-1"), True),
        (None, ("10.20.0.0/16", "pcx-1"), False),
        (("10.30.0.0/16", "pcx-1"), None, False),
        (("10.30.0.0/16", "pcx-1", "blackhole"), ("10.20.0.0/16", "pcx-1"), False),
        (("10.30.0.0/16", "pcx-2"), ("10.20.0.0/16", "pcx-1"), None),
        (("10.30.0.0/16", "tgw-1"), ("10.20.0.0/16", "tgw-1"), None),
        (("0.0.0.0/0", "nat-1"), ("0.0.0.0/0", "igw-1"), False),
        (("pl-1", "tgw-1"), ("10.20.0.0/16", "tgw-1"), None),
        (("pl-1", "vpce-1"), ("10.20.0.0/16", "tgw-1"), False),
    ],
)
def test_two_vpcs_need_routes_both_ways(there: Any, back: Any, expected: Any) -> None:
    """A peering that both sides route to joins them; a gateway's own routes are not in the snapshot."""
    assert judge(two_vpcs(there, back)).holds is expected


def test_a_missing_route_is_named_with_its_table_and_code() -> None:
    """The reason, the route table and EC2's explanation code."""
    flow = judge(two_vpcs(None, None)).between("i-0", "i-1")
    assert [(o.reason, o.resources, o.code) for o in flow.obstacles] == [
        (Reason.NO_ROUTE, ("rtb-vpc-1",), "NO_ROUTE_TO_DESTINATION"),
        (Reason.NO_RETURN_ROUTE, ("rtb-vpc-2",), "NO_ROUTE_TO_DESTINATION"),
    ]


def test_inside_a_vpc_a_more_specific_route_may_lead_away() -> None:
    """A blackhole stops, an appliance is unknown; within the subnet no route is looked up."""
    for route, expected in (
        (("10.20.2.0/24", "eni-9", "blackhole"), False),
        (("10.20.2.0/24", "eni-9"), None),
    ):
        world = two_subnets([SELF])
        world.acl("acl-all", ["subnet-1", "subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
        world.table("rtb-own", "vpc-1", [("10.20.0.0/16", "local"), route], subnets=["subnet-1", "subnet-2"])
        reach = judge(world)
        assert (reach.holds, reach.between("i-2", "i-3").passes) == (expected, True)


def test_route_tables_are_not_needed_inside_a_vpc() -> None:
    """The local route always exists."""
    world = two_subnets([SELF])
    world.acl("acl-all", ["subnet-1", "subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    assert judge(world, "route-tables").holds is True
    assert judge(two_vpcs(("10.30.0.0/16", "pcx-1"), ("10.20.0.0/16", "pcx-1")), "route-tables").holds is None


def test_a_main_route_table_counts_only_when_all_associations_were_read() -> None:
    """On a page of route tables, the subnet's own table may be on the next."""
    documents = two_vpcs(None, ("10.20.0.0/16", "pcx-1")).documents()
    for more, expected in ((None, False), ("more", None)):
        documents["route-tables"]["NextToken"] = more
        snapshot = ClusterSnapshot.from_documents(documents)
        assert reachability(snapshot, ["i-0", "i-1"], NEED, EPHEMERAL).holds is expected


def test_ipv6_members_are_judged_by_ipv6_rules() -> None:
    """An interface without an IPv4 address is met at its IPv6 one."""
    for rule, expected in ((from_cidr("2001:db8::/64"), True), (from_cidr("10.0.0.0/8"), False)):
        world = cluster([rule], count=2, egress=[ANYWHERE, from_cidr("::/0", protocol="-1")])
        for number, interface in enumerate(world.interfaces):
            del interface["PrivateIpAddress"]
            interface["Ipv6Addresses"] = [{"Ipv6Address": f"2001:db8::{number + 1}"}]
        assert judge(world).holds is expected


def test_a_pair_is_two_members() -> None:
    """Asking for a member's way to itself is a mistake."""
    with pytest.raises(KeyError):
        judge(cluster([SELF])).between("i-0", "i-0")


def test_a_thousand_equal_members_are_one_class() -> None:
    """The work follows the rules, not the pairs."""
    world = cluster([SELF], count=0)
    for number in range(1000):
        world.node(str(number), f"10.20.{number // 250}.{number % 250 + 4}", ["sg-mesh"])
    reach = judge(world)
    assert (reach.holds, len(reach.classes), len(reach.flows)) == (True, 1, 1)
