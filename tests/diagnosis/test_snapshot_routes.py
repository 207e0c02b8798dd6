"""Routes, one snapshot a kind: the answer was written by hand from EC2's documentation."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.cluster.world import World, from_cidr, from_group, two_subnets
from tests.diagnosis.verdicts import both_ways, check, check_documents

PRIVATE_IN = from_cidr("10.0.0.0/8")
ALL_OUT = from_cidr("0.0.0.0/0", protocol="-1")


def two_vpcs(here: str = "", there: str = "", far_cidr: str = "10.30.0.0/16") -> World:
    """Members 0 and 1 in vpc-1, 2 and 3 in vpc-2; each side's route to the other is given or not."""
    world = World()
    world.vpc("vpc-2", far_cidr)
    base = far_cidr.split(".")
    world.subnet("subnet-1", "10.20.1.0/24")
    world.subnet("subnet-2", f"{base[0]}.{base[1]}.1.0/24", vpc_id="vpc-2")
    world.group("sg-1", [PRIVATE_IN, from_cidr(far_cidr)])
    world.group("sg-2", [PRIVATE_IN, from_cidr(far_cidr)])
    for number in (0, 1):
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-1"])
    for number in (2, 3):
        address = f"{base[0]}.{base[1]}.1.{10 + number}"
        world.node(str(number), address, ["sg-2"], subnet="subnet-2", vpc_id="vpc-2")
    world.acl("acl-1", ["subnet-1"])
    world.acl("acl-2", ["subnet-2"], vpc_id="vpc-2")
    if here:
        world.route("rtb-vpc-1", far_cidr, *here.split())
    if there:
        world.route("rtb-vpc-2", "10.20.0.0/16", *there.split())
    return world


APART = both_ways("01", "23")


def test_peering_needs_a_route_on_both_sides() -> None:
    """With one side only, neither direction works: the answer does not come back."""
    check(two_vpcs("pcx-1", "pcx-1"), True)
    check(two_vpcs("pcx-1", ""), False, "route-missing cluster", blocked=APART)
    check(two_vpcs("", "pcx-1"), False, "route-missing cluster", blocked=APART)


def test_two_vpcs_without_any_route_are_two_causes() -> None:
    """A table on each side lacks its route."""
    found = check(two_vpcs(), False, "route-missing cluster", "route-missing cluster", blocked=APART)
    assert next(iter(found.blocked()))["reason"].startswith("NO_ROUTE_TO_DESTINATION: rtb-vpc-1: no route")


@pytest.mark.parametrize(
    ("target", "far_cidr", "code"),
    [
        ("igw-1", "10.30.0.0/16", "IGW_DESTINATION_ADDRESS_NOT_IN_RFC1918_EGRESS"),
        ("nat-1", "172.31.0.0/16", "IGW_DESTINATION_ADDRESS_NOT_IN_RFC1918_EGRESS"),
        ("igw-1", "100.64.0.0/16", "IGW_DESTINATION_ADDRESS_NOT_IN_RFC6598_EGRESS"),
        ("igw-1", "44.55.0.0/16", "NO_POSSIBLE_DESTINATION"),
    ],
)
def test_the_internet_is_no_way_to_a_private_address(target: str, far_cidr: str, code: str) -> None:
    """Default routes on both sides and no peering: EC2's own code says why the gateway refuses."""
    world = two_vpcs(far_cidr=far_cidr)
    for vpc in ("vpc-1", "vpc-2"):
        world.route(f"rtb-{vpc}", "0.0.0.0/0", target)
    found = check(world, False, "route-missing cluster", "route-missing cluster", blocked=APART)
    reasons = {item["reason"].partition(":")[0] for item in found.blocked() if item["source"] == "i-0"}
    back = "IGW_DESTINATION_ADDRESS_NOT_IN_RFC1918_EGRESS"  # 10.20.0.0/16, for the answer
    assert reasons == {", ".join(dict.fromkeys((code, back)))}


def test_a_peering_that_was_deleted_leaves_a_blackhole() -> None:
    """The route is still there and leads nowhere, whatever wider route stands behind it."""
    world = two_vpcs("pcx-1 blackhole", "pcx-1 blackhole")
    world.route("rtb-vpc-1", "10.0.0.0/8", "pcx-2")
    found = check(
        world,
        False,
        *["route-missing cluster"] * 2,
        blocked=APART,
        exposed=[("tcp", "0-65535", "10.0.0.0/8")],  # whoever is behind pcx-2
    )
    assert next(iter(found.blocked()))["reason"].startswith("BAD_STATE_ROUTE")


def test_a_peering_route_in_the_wrong_table_is_none() -> None:
    """The subnet has a table of its own; the route was added to the main one."""
    world = two_vpcs("pcx-1", "pcx-1")
    world.table("rtb-own", "vpc-1", [("10.20.0.0/16", "local")], subnets=["subnet-1"])
    check(world, False, "route-missing cluster", blocked=APART)
    world.route("rtb-own", "10.30.0.0/16", "pcx-1")
    check(world, True)


def test_a_peering_route_for_one_block_of_the_other_vpc() -> None:
    """The member in the other VPC's second block is out of reach."""
    world = two_vpcs("pcx-1", "pcx-1")
    world.vpcs[1]["CidrBlockAssociationSet"] = [{"CidrBlock": "10.31.0.0/16"}]
    world.subnet("subnet-3", "10.31.1.0/24", vpc_id="vpc-2")
    world.acls[1]["Associations"].append({"SubnetId": "subnet-3"})
    world.node("4", "10.31.1.10", ["sg-2"], subnet="subnet-3", vpc_id="vpc-2")
    check(world, False, "route-missing node:4", blocked=both_ways("01", "4"))


def test_a_transit_gateway_on_both_sides_is_untold() -> None:
    """What it forwards stands in its own route tables, which are not in the snapshot."""
    found = check(two_vpcs("tgw-1", "tgw-1"), None, candidates=["route-missing"])
    assert found.next_command == (
        "aws ec2 describe-transit-gateway-attachments --filters Name=transit-gateway-id,Values=tgw-1 "
        "--output json"
    )


def test_a_transit_gateway_on_one_side_is_broken_for_certain() -> None:
    """Whatever it forwards, the other side has no way back."""
    check(two_vpcs("tgw-1", ""), False, "route-missing cluster", blocked=APART)


def test_a_private_nat_gateway_may_lead_to_a_transit_gateway() -> None:
    """Its own subnet's routes decide; where the far side answers over a transit gateway that is untold."""
    world = two_vpcs("nat-1", "tgw-1")
    check(world, None, candidates=["route-missing"])
    check(two_vpcs("nat-1", "nat-2"), False, *["route-missing cluster"] * 2, blocked=APART)


@pytest.mark.parametrize("read", [None, "10.30.0.0/16", "10.40.0.0/16"])
def test_a_prefix_list_as_a_destination_counts_by_its_entries(read: Any) -> None:
    """Unread it may lead there; read, it does or does not."""
    world = two_vpcs("", "pcx-1")
    world.route("rtb-vpc-1", "pl-1", "pcx-1")
    world.route("rtb-vpc-1", "0.0.0.0/0", "igw-1")
    documents: Dict[str, Any] = world.documents()
    if read is None:
        check_documents(documents, None, candidates=["route-missing"])
        return
    documents["prefix-list-entries"] = {
        "PrefixLists": [{"PrefixListId": "pl-1", "Entries": [{"Cidr": read}]}]
    }
    if read == "10.30.0.0/16":
        check_documents(documents, True)
    else:
        behind = [("tcp", "0-65535", "10.0.0.0/8")]  # the route leads to somebody, and rules let them in
        check_documents(documents, False, "route-missing cluster", blocked=APART, exposed=behind)


def test_the_list_of_a_gateway_endpoint_leads_to_no_member() -> None:
    """S3's prefix list beside the local route: nothing is open, nothing needs to be read."""
    world = two_vpcs()
    world.route("rtb-vpc-1", "pl-s3", "vpce-1")
    check(world, False, *["route-missing cluster"] * 2, blocked=APART)


def test_inside_one_vpc_routes_are_not_needed() -> None:
    """The local route is always there: absent or empty tables change nothing."""
    world = two_subnets([from_group("sg-mesh")])
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    check(world, True, without=["route-tables", "vpcs", "subnets"])
    world.tables[0]["Routes"].clear()
    check(world, True)


@pytest.mark.parametrize(
    ("route", "possible"),
    [("eni-fw", None), ("vpce-gwlb", None), ("eni-fw blackhole", False), ("local", True)],
)
def test_a_route_more_specific_than_local_leads_to_an_appliance(route: str, possible: Any) -> None:
    """What an appliance lets through is not in the snapshot; a dead one lets nothing through."""
    world = two_subnets([from_group("sg-mesh")])
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    world.route("rtb-vpc-1", "10.20.2.0/24", *route.split())
    if possible is None:
        check(world, None, candidates=["route-missing"])
    elif possible:
        check(world, True)
    else:
        check(world, False, "route-missing cluster", blocked=APART)


def test_vpcs_whose_ranges_overlap_cannot_be_joined() -> None:
    """The local route keeps the packet in its own VPC."""
    world = two_vpcs("", "pcx-1", far_cidr="10.20.0.0/16")
    for number in (2, 3):
        world.interfaces[number]["PrivateIpAddress"] = f"10.20.1.{100 + number}"
    found = check(world, False, *["route-missing cluster"] * 2, blocked=APART)
    assert next(iter(found.blocked()))["reason"].startswith("NO_POSSIBLE_DESTINATION")


def test_two_vpcs_without_their_tables_are_untold() -> None:
    """Absent, and a document that holds one side's table only."""
    world = two_vpcs("pcx-1", "pcx-1")
    check(world, None, candidates=["route-missing"], without=["route-tables"])
    world.tables.pop()
    check(world, None, candidates=["route-missing"])


def test_the_group_blocks_where_the_route_is_untold() -> None:
    """A transit gateway in between and no rule for the other side: blocked for certain."""
    world = two_vpcs("tgw-1", "tgw-1")
    world.groups[1]["IpPermissions"] = [from_cidr("10.30.0.0/16")]
    found = check(
        world,
        False,
        "sg-no-self-ingress cluster",
        blocked={pair: ports for pair, ports in APART.items() if pair[0] in "01"},
    )
    assert found.reachability.gaps


def test_an_answer_needs_every_pair() -> None:
    """Three VPCs, two of them peered with the first: peering does not go through."""
    world = two_vpcs("pcx-1", "pcx-1")
    world.vpc("vpc-3", "10.50.0.0/16")
    world.subnet("subnet-3", "10.50.1.0/24", vpc_id="vpc-3")
    world.acl("acl-3", ["subnet-3"], vpc_id="vpc-3")
    world.group("sg-3", [PRIVATE_IN])
    world.node("4", "10.50.1.10", ["sg-3"], subnet="subnet-3", vpc_id="vpc-3")
    world.route("rtb-vpc-1", "10.50.0.0/16", "pcx-3")
    world.route("rtb-vpc-3", "10.20.0.0/16", "pcx-3")
    check(world, False, "route-missing node:4", "route-missing node:4", blocked=both_ways("23", "4"))
