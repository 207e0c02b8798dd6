"""Who outside the members gets in, and when nobody is there to use a rule."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from cluster.exposure import Exposure, exposure
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group

SELF = from_group("sg-mesh")
SSH = from_cidr("0.0.0.0/0", 22, 22)


def look(world: World, *without: str) -> Exposure:
    snapshot = world.snapshot(*without)
    return exposure(snapshot, snapshot.running_with_tag("fullmesh:cluster", "demo"))


def brief(found: Exposure) -> List[Tuple[str, str, str]]:
    return [(item.protocol, item.ports, item.source) for item in found.entries]


def public(ingress: List[Dict[str, Any]], count: int = 2) -> World:
    """Members with public addresses, a route to an internet gateway and an open ACL."""
    world = cluster(ingress, count=count)
    for number, interface in enumerate(world.interfaces):
        interface["Association"] = {"PublicIp": f"3.66.35.{number + 1}"}
    world.tables[0]["Routes"].append(
        {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "active"}
    )
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    return world


def test_the_world_needs_a_rule_a_public_address_and_a_route() -> None:
    """All three: exposed. Without any one of them: nobody."""
    assert brief(look(public([SELF, SSH]))) == [("tcp", "22", "0.0.0.0/0")]
    assert look(public([SELF, SSH])).entries[0].instances == ("i-0", "i-1")
    assert look(public([SELF, SSH])).entries[0].via == ("internet",)
    assert brief(look(public([SELF]))) == []
    unaddressed = public([SELF, SSH])
    for interface in unaddressed.interfaces:
        del interface["Association"]
    assert brief(look(unaddressed)) == []
    unrouted = public([SELF, SSH])
    unrouted.tables[0]["Routes"].pop()
    assert brief(look(unrouted)) == []


def test_only_the_exposed_members_are_named() -> None:
    """One public address exposes one member."""
    world = public([SELF, SSH], count=3)
    for interface in world.interfaces[1:]:
        del interface["Association"]
    assert [item.instances for item in look(world).entries] == [("i-0",)]


def test_a_single_outside_address_is_named_as_the_rule_names_it() -> None:
    """A hand-added office address is an exposure too; a private range is not the internet's."""
    world = public([SELF, from_cidr("203.0.113.7/32", 0, 65535), from_cidr("192.168.0.0/16")])
    assert brief(look(world)) == [("tcp", "0-65535", "203.0.113.7/32")]


def test_the_subnets_acl_counts() -> None:
    """Denied in or without any way for replies: nobody; a part denied: the rest is exposed."""
    closed = public([SELF, SSH])
    closed.acls.clear()
    closed.acl("acl-1", ["subnet-1"], [(1, "allow", "-1", "10.0.0.0/8", None)], [ALLOW_ALL])
    assert brief(look(closed)) == []
    mute = public([SELF, SSH])
    mute.acls.clear()
    mute.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [(1, "allow", "-1", "10.0.0.0/8", None)])
    assert brief(look(mute)) == []
    part = public([SELF, from_cidr("0.0.0.0/0", 0, 1000)])
    part.acls.clear()
    part.acl("acl-1", ["subnet-1"], [(1, "deny", "6", "0.0.0.0/0", (100, 199)), ALLOW_ALL], [ALLOW_ALL])
    assert brief(look(part)) == [("tcp", "0-99", "0.0.0.0/0"), ("tcp", "200-1000", "0.0.0.0/0")]


def test_an_acl_that_stops_some_addresses_leaves_the_others() -> None:
    """Blocking half the internet is still exposed to the other half."""
    world = public([SELF, SSH])
    world.acls.clear()
    world.acl("acl-1", ["subnet-1"], [(1, "deny", "-1", "0.0.0.0/1", None), ALLOW_ALL], [ALLOW_ALL])
    assert brief(look(world)) == [("tcp", "22", "0.0.0.0/0")]


def test_all_protocols_are_one_entry_unless_the_acl_parts_them() -> None:
    """-1 stays -1; where the ACL lets UDP through only, UDP is named."""
    everything = from_cidr("0.0.0.0/0", protocol="-1")
    assert brief(look(public([SELF, everything]))) == [("-1", "0-65535", "0.0.0.0/0")]
    world = public([SELF, everything])
    world.acls.clear()
    world.acl("acl-1", ["subnet-1"], [(1, "allow", "17", "0.0.0.0/0", None)], [ALLOW_ALL])
    assert brief(look(world)) == [("udp", "0-65535", "0.0.0.0/0")]


def test_icmp_errors_are_no_exposure_and_ping_is() -> None:
    """Fragmentation-needed only reports on the members' own traffic."""
    world = public([SELF, from_cidr("0.0.0.0/0", 3, 4, "icmp"), from_cidr("0.0.0.0/0", 8, -1, "icmp")])
    assert brief(look(world)) == [("icmp", "8", "0.0.0.0/0")]
    assert brief(look(public([SELF, from_cidr("0.0.0.0/0", -1, -1, "icmp")]))) == [
        ("icmp", "all", "0.0.0.0/0")
    ]


@pytest.mark.parametrize(
    ("state", "status", "kind", "expected"),
    [
        ("running", "in-use", "interface", True),
        ("stopped", "in-use", "interface", False),
        (None, "in-use", "interface", True),
        (None, "available", "interface", False),
        (None, "in-use", "vpc_endpoint", False),
        (None, "in-use", "nat_gateway", False),
    ],
)
def test_a_group_exposes_through_a_running_interface_that_carries_it(
    state: Any, status: str, kind: str, expected: bool
) -> None:
    """A stranger's instance or function may connect; a stopped, idle or answering one does not."""
    world = cluster([SELF, from_group("sg-jump", 22, 22)])
    world.group("sg-jump")
    world.node("jump", "10.20.1.200", ["sg-jump"], state=state or "running", member=False, kind=kind)
    world.interfaces[-1]["Status"] = status
    if state is None:
        world.interfaces[-1]["Attachment"] = {"DeviceIndex": 1}
        world.instances.pop()
    assert brief(look(world)) == ([("tcp", "22", "sg-jump")] if expected else [])


def test_a_stranger_with_the_clusters_own_group_gets_in() -> None:
    """The self reference admits whoever carries the group."""
    world = cluster([SELF])
    world.node("stray", "10.20.1.200", ["sg-mesh"], member=False)
    found = look(world)
    assert brief(found) == [("tcp", "0-65535", "sg-mesh")]
    assert found.entries[0].via == ("eni-stray",)


def test_a_range_inside_the_vpc_exposes_to_strangers_in_it() -> None:
    """Members alone in the range: nobody. A stranger's address in it: exposed, unless the ACL stops it."""
    world = cluster([from_cidr("10.20.0.0/16")])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    assert brief(look(world)) == []
    world.subnet("subnet-9", "10.20.9.0/24")
    world.node("stray", "10.20.9.9", [], subnet="subnet-9", member=False)
    assert brief(look(world)) == [("tcp", "0-65535", "10.20.0.0/16")]
    world.acls.clear()
    world.acl("acl-1", ["subnet-1"], [(1, "deny", "-1", "10.20.9.0/24", None), ALLOW_ALL], [ALLOW_ALL])
    assert brief(look(world)) == []


def test_a_network_behind_a_gateway_gets_in_where_a_route_leads_there() -> None:
    """A rule for the office's private range counts with a VPN route to it, and not without."""
    world = cluster([SELF, from_cidr("192.168.0.0/16", 22, 22)])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    assert brief(look(world)) == []
    world.tables[0]["Routes"].append(
        {"DestinationCidrBlock": "192.168.4.0/24", "GatewayId": "vgw-1", "State": "active"}
    )
    assert [(item.source, item.via) for item in look(world).entries] == [("192.168.0.0/16", ("vgw-1",))]


def test_a_peered_vpc_that_was_read_exposes_only_through_its_interfaces() -> None:
    """Members alone in the peer: nobody. A stranger there, or a peer that was not read: exposed."""
    world = cluster([from_cidr("10.0.0.0/8")])
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    world.tables[0]["Routes"].append(
        {"DestinationCidrBlock": "10.30.0.0/16", "VpcPeeringConnectionId": "pcx-1", "State": "active"}
    )
    assert [item.via for item in look(world).entries] == [("pcx-1",)]
    world.vpc("vpc-2", "10.30.0.0/16")
    assert brief(look(world)) == []
    world.node("stray", "10.30.1.9", [], subnet="subnet-2", vpc_id="vpc-2", member=False)
    assert [item.via for item in look(world).entries] == [("eni-stray",)]


def test_a_members_second_interface_is_a_door_too() -> None:
    """Its groups decide who gets in there."""
    world = public([SELF])
    world.group("sg-open", [SSH])
    world.node("0", "10.20.1.99", ["sg-open"], device=1, public="3.66.35.99")
    assert [(item.source, item.instances) for item in look(world).entries] == [("0.0.0.0/0", ("i-0",))]


def test_ipv6_needs_a_route_to_an_internet_gateway_of_its_own() -> None:
    """An egress-only gateway lets nobody in."""
    for key, gateway, expected in (
        ("GatewayId", "igw-1", [("tcp", "22", "::/0")]),
        ("EgressOnlyInternetGatewayId", "eigw-1", []),
    ):
        world = cluster([SELF, from_cidr("::/0", 22, 22)], count=2)
        for number, interface in enumerate(world.interfaces):
            interface["Ipv6Addresses"] = [{"Ipv6Address": f"2600:1f14::{number + 1}"}]
        world.tables[0]["Routes"].append(
            {"DestinationIpv6CidrBlock": "::/0", key: gateway, "State": "active"}
        )
        world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
        for out in (True, False):
            entry = {"RuleNumber": 101, "RuleAction": "allow", "Protocol": "-1", "Egress": out}
            world.acls[0]["Entries"].append({**entry, "Ipv6CidrBlock": "::/0"})
        assert brief(look(world)) == expected


@pytest.mark.parametrize(
    ("without", "detail"),
    [
        ("route-tables", "the route table of subnet-1 is unknown: route-tables was not read"),
        ("network-acls", "the network ACL of subnet-1 is unknown: network-acls was not read"),
        ("network-interfaces", "the interfaces of i-0 are unknown: network-interfaces was not read"),
        ("security-groups", "the rules of sg-mesh are unknown: security-groups was not read"),
    ],
)
def test_what_was_not_read_is_a_gap_and_not_nobody(without: str, detail: str) -> None:
    """Each document that the answer needs leaves a gap when it is absent."""
    found = look(public([SELF, SSH]), without)
    assert found.entries == ()
    assert detail in [gap.detail for gap in found.gaps]


def test_what_is_not_needed_is_no_gap() -> None:
    """Members without public addresses and a self reference need neither routes nor ACLs."""
    assert look(cluster([SELF]), "route-tables", "network-acls").gaps == ()


def test_a_prefix_list_is_a_gap() -> None:
    """Who is in it was not read."""
    prefix_list = {
        "IpProtocol": "tcp",
        "FromPort": 443,
        "ToPort": 443,
        "PrefixListIds": [{"PrefixListId": "pl-1"}],
    }
    (gap,) = look(cluster([SELF, prefix_list])).gaps
    assert gap.detail == "who is in pl-1 was not read (sg-mesh allows tcp 443 from pl-1)"


def test_a_group_of_a_peer_is_a_gap() -> None:
    """The interfaces of another VPC's account are not in the snapshot."""
    rule = from_group("sg-peer")
    rule["UserIdGroupPairs"][0]["PeeringStatus"] = "active"
    (gap,) = look(cluster([SELF, rule])).gaps
    assert gap.detail == "who carries sg-peer of the peer was not read"
