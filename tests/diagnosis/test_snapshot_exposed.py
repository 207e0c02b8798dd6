"""Who else gets in, one snapshot a kind: answers written by hand. The mesh itself always forms."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import pytest

from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group, from_list
from tests.diagnosis.verdicts import check, check_documents

SELF = from_group("sg-mesh")
WORLD = "0.0.0.0/0"
SSH = from_cidr(WORLD, 22, 22)
SSH_FROM_WORLD = ("tcp", "22", WORLD)


def public(rules: Sequence[Dict[str, Any]], address: bool = True, route: str = "igw-1", **acl: Any) -> World:
    """Two members of a public subnet: addresses of their own and a default route."""
    world = cluster(rules, count=0)
    for number in range(2):
        own = f"3.66.35.{number + 1}" if address else ""
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-mesh"], public=own)
    world.route("rtb-vpc-1", WORLD, *route.split())
    world.acl("acl-1", ["subnet-1"], **acl)
    return world


@pytest.mark.parametrize(
    ("address", "route", "exposed"),
    [
        (True, "igw-1", [SSH_FROM_WORLD]),
        (False, "igw-1", []),
        (True, "nat-1", []),
        (True, "igw-1 blackhole", []),
        (False, "nat-1", []),
    ],
)
def test_the_world_needs_an_address_and_a_way(
    address: bool, route: str, exposed: List[Tuple[str, str, str]]
) -> None:
    """A rule for everybody lets nobody in where no packet arrives."""
    check(public([SELF, SSH], address, route), True, exposed=exposed)


def test_a_route_to_an_internet_gateway_for_some_of_the_internet() -> None:
    """A narrower route than the default still leads somebody in; a rule for others lets nobody in."""
    world = public([SELF, SSH], route="nat-1")
    world.route("rtb-vpc-1", "203.0.113.0/24", "igw-1")
    check(world, True, exposed=[SSH_FROM_WORLD])
    world = public([SELF, from_cidr("198.51.100.0/24", 22, 22)], route="nat-1")
    world.route("rtb-vpc-1", "203.0.113.0/24", "igw-1")
    check(world, True)


def test_the_subnets_own_table_counts_and_not_the_main_one() -> None:
    """Main leads to a NAT gateway; the members' subnet has a table with an internet gateway."""
    world = public([SELF, SSH], route="nat-1")
    world.table("rtb-public", "vpc-1", [("10.20.0.0/16", "local"), (WORLD, "igw-1")], subnets=["subnet-1"])
    check(world, True, exposed=[SSH_FROM_WORLD])


@pytest.mark.parametrize(
    ("ingress", "egress", "exposed"),
    [
        ([(1, "deny", "6", WORLD, (22, 22)), ALLOW_ALL], [ALLOW_ALL], []),
        ([(1, "allow", "-1", "10.0.0.0/8", None)], [ALLOW_ALL], []),
        ([ALLOW_ALL], [(1, "allow", "-1", "10.0.0.0/8", None)], []),
        ([ALLOW_ALL], [(1, "allow", "6", WORLD, (443, 443))], []),  # no answer reaches a client's port
        ([ALLOW_ALL], [(1, "allow", "6", WORLD, (1024, 65535))], [SSH_FROM_WORLD]),
        (
            [(9, "allow", "6", WORLD, (22, 22)), (10, "deny", "-1", WORLD, None)],
            [ALLOW_ALL],
            [SSH_FROM_WORLD],
        ),
        ([(9, "deny", "6", "203.0.113.0/24", (22, 22)), ALLOW_ALL], [ALLOW_ALL], [SSH_FROM_WORLD]),
    ],
)
def test_the_acl_of_a_public_subnet(ingress: Any, egress: Any, exposed: Any) -> None:
    """What it denies in, or denies to answer, is not exposed; what it denies some is, to the others."""
    check(public([SELF, SSH], ingress=ingress, egress=egress), True, exposed=exposed)


@pytest.mark.parametrize(
    ("rule", "exposed"),
    [
        (from_cidr(WORLD), ("tcp", "0-65535", WORLD)),
        (from_cidr(WORLD, protocol="-1"), ("-1", "0-65535", WORLD)),
        (from_cidr(WORLD, 53, 53, "udp"), ("udp", "53", WORLD)),
        (from_cidr(WORLD, -1, -1, "icmp"), ("icmp", "all", WORLD)),
        (from_cidr(WORLD, 8, -1, "icmp"), ("icmp", "8", WORLD)),
        (from_cidr(WORLD, 8265, 8266), ("tcp", "8265-8266", WORLD)),
        (from_cidr("203.0.113.7/32", 22, 22), ("tcp", "22", "203.0.113.7/32")),
        (from_cidr("0.0.0.0/1", 22, 22), ("tcp", "22", "0.0.0.0/1")),
        (from_cidr(WORLD, 3, 4, "icmp"), None),  # fragmentation needed: about the members' own packets
        (from_cidr("192.168.0.0/16", 22, 22), None),
        (from_cidr("100.64.0.0/10", 22, 22), None),
        (from_cidr("::/0", 22, 22), None),
    ],
)
def test_a_rule_for_outside_in_a_public_subnet(rule: Dict[str, Any], exposed: Any) -> None:
    """Named by protocol, ports and source as the rule has them."""
    check(public([SELF, rule]), True, exposed=[exposed] if exposed else [])


def test_world_rules_of_both_families_are_two_entries() -> None:
    """IPv6 needs an address, a route of its own and an ACL entry of its own."""
    rule = {**SSH, "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
    world = public([SELF, rule])
    check(world, True, exposed=[SSH_FROM_WORLD])
    for number, interface in enumerate(world.interfaces):
        interface["Ipv6Addresses"] = [{"Ipv6Address": f"2600:1f14::{number + 1}"}]
    check(world, True, exposed=[SSH_FROM_WORLD])
    world.route("rtb-vpc-1", "::/0", "eigw-1")
    check(world, True, exposed=[SSH_FROM_WORLD])
    world.tables[0]["Routes"].pop()
    world.route("rtb-vpc-1", "::/0", "igw-1")
    check(world, True, exposed=[SSH_FROM_WORLD])
    world.acls.clear()
    both = [ALLOW_ALL, (101, "allow", "-1", "::/0", None)]
    world.acl("acl-1", ["subnet-1"], both, both)
    check(world, True, exposed=[SSH_FROM_WORLD, ("tcp", "22", "::/0")])


def test_a_group_that_nobody_runs_with_lets_nobody_in() -> None:
    """The bastion's group: nobody, a stopped bastion, a running one."""
    world = cluster([SELF, from_group("sg-bastion", 22, 22)])
    world.group("sg-bastion", [SSH], name="bastion")
    check(world, True)
    world.node("b", "10.20.1.200", ["sg-bastion"], member=False, state="stopped")
    check(world, True)
    world.instances[-1]["State"] = {"Name": "running"}
    found = check(world, True, exposed=[("tcp", "22", "sg-bastion")])
    assert found.exposed[0].instances == ("i-0", "i-1", "i-2", "i-3")


def test_members_among_themselves_are_not_exposed() -> None:
    """Role groups that name each other, all of them carried by members only."""
    world = cluster([SELF, from_group("sg-head")], count=3)
    world.group("sg-head", [from_group("sg-mesh")], name="head")
    world.node("3", "10.20.1.13", ["sg-head", "sg-mesh"])
    check(world, True)


def test_a_stranger_with_the_clusters_group() -> None:
    """Another project's instance was launched into the cluster's group."""
    world = cluster([SELF])
    world.node("s", "10.20.1.200", ["sg-mesh"], member=False)
    check(world, True, exposed=[("tcp", "0-65535", "sg-mesh")])


@pytest.mark.parametrize("cidr", ["10.20.0.0/16", "10.0.0.0/8", "10.20.7.9/32"])
def test_a_range_of_the_vpc_counts_with_a_stranger_in_it(cidr: str) -> None:
    """Nobody else in the VPC: nobody gets in. A load balancer's or a function's interface: it does."""
    world = cluster([SELF, from_cidr(cidr, 8080, 8080)])
    world.acl("acl-1", ["subnet-1"])
    check(world, True)
    world.subnet("subnet-7", "10.20.7.0/24")
    world.node("lb", "10.20.7.9", [], subnet="subnet-7", member=False)
    world.instances.pop()
    world.interfaces[-1]["Attachment"] = {"InstanceOwnerId": "amazon-elb"}
    check(world, True, exposed=[("tcp", "8080", cidr)])


def test_a_range_that_ends_before_the_stranger() -> None:
    """Strangers outside the rule's range do not matter."""
    world = cluster([SELF, from_cidr("10.20.1.0/24", 8080, 8080)])
    world.acl("acl-1", ["subnet-1"])
    world.node("s", "10.20.7.9", [], subnet="subnet-7", member=False)
    check(world, True)


@pytest.mark.parametrize("gateway", ["vgw-1", "tgw-1", "pcx-1"])
def test_the_office_behind_a_private_gateway(gateway: str) -> None:
    """A corporate range counts with a route to it, for the ports of its rule."""
    world = cluster([SELF, from_cidr("172.16.0.0/12", 22, 22)])
    world.acl("acl-1", ["subnet-1"])
    check(world, True)
    world.route("rtb-vpc-1", "172.16.0.0/12", gateway)
    found = check(world, True, exposed=[("tcp", "22", "172.16.0.0/12")])
    assert found.exposed[0].via == (gateway,)


def test_the_world_comes_in_through_a_private_gateway_too() -> None:
    """No public address, but a rule for everybody and a route to the office."""
    world = cluster([SELF, SSH])
    world.acl("acl-1", ["subnet-1"])
    world.route("rtb-vpc-1", "10.0.0.0/8", "tgw-1")
    check(world, True, exposed=[SSH_FROM_WORLD])


def test_prefix_lists_count_by_their_entries() -> None:
    """Unread: who gets in is open. The office's addresses: exposed. The members' own: nobody."""
    world = public([SELF, from_list("pl-1", 22, 22)])
    documents = world.documents()
    assert check_documents(documents, True).exposure_known is False
    for cidr, exposed in (("203.0.113.0/24", [("tcp", "22", "pl-1")]), ("10.20.1.0/24", [])):
        documents["prefix-list-entries"] = {
            "PrefixLists": [{"PrefixListId": "pl-1", "Entries": [{"Cidr": cidr}]}]
        }
        assert check_documents(documents, True, exposed=exposed).exposure_known is True


def test_a_group_of_another_account_is_open() -> None:
    """A shared VPC or a peer: whoever carries the group there is in no document of this account."""
    world = cluster([SELF])
    world.groups[0]["OwnerId"] = "111122223333"
    world.groups[0]["IpPermissions"][0]["UserIdGroupPairs"][0]["UserId"] = "111122223333"
    assert check(world, True).exposure_known is True
    other = from_group("sg-theirs", 443, 443)
    other["UserIdGroupPairs"][0]["UserId"] = "444455556666"
    world.groups[0]["IpPermissions"].append(other)
    found = check(world, True)
    assert found.exposure_known is False
    assert found.unanswered == ("who carries sg-theirs of account 444455556666 was not read",)


def test_a_second_group_opens_what_the_first_keeps_shut() -> None:
    """The mesh's group is tight; a second one on one member lets the world in to it alone."""
    world = public([SELF])
    world.group("sg-jupyter", [from_cidr(WORLD, 8888, 8888)], name="jupyter")
    world.interfaces[1]["Groups"].append({"GroupId": "sg-jupyter"})
    found = check(world, True, exposed=[("tcp", "8888", WORLD)])
    assert found.exposed[0].instances == ("i-1",)


def test_interfaces_that_only_answer_let_nobody_in() -> None:
    """Endpoints of the VPC and NAT gateways never open a connection."""
    world = cluster([SELF, from_cidr("10.20.0.0/16", 443, 443)])
    world.acl("acl-1", ["subnet-1"])
    for number, kind in enumerate(("vpc_endpoint", "nat_gateway", "gateway_load_balancer_endpoint")):
        world.node(f"e{number}", f"10.20.7.{number}", [], subnet="subnet-7", member=False, kind=kind)
        world.instances.pop()
        world.interfaces[-1]["Attachment"] = {}
    check(world, True)


def test_what_only_the_instance_shows_of_an_interface_counts() -> None:
    """Two documents read at different times: a public address or the groups stand in one of them only."""
    world = public([SELF, SSH], address=False)
    shown = [dict(interface) for interface in world.interfaces]
    shown[0]["Association"] = {"PublicIp": "3.66.35.1"}
    del world.interfaces[1]["Groups"]
    for instance, interface in zip(world.instances, shown):
        instance["NetworkInterfaces"] = [interface]
    found = check(world, True, exposed=[SSH_FROM_WORLD])
    assert found.exposed[0].instances == ("i-0",)
