"""Who is a member and which interface speaks for it: answers written by hand."""

from __future__ import annotations

import pytest

from tests.cluster.world import World, cluster, from_cidr, from_group, two_subnets
from tests.diagnosis.verdicts import both_ways, check, every

SELF = from_group("sg-mesh")


@pytest.mark.parametrize("state", ["stopped", "stopping", "pending", "shutting-down", "terminated"])
def test_only_running_instances_are_members(state: str) -> None:
    """A tagged instance in another state neither breaks the mesh nor gets in."""
    world = cluster([SELF], count=2)
    world.group("sg-else", [], name="else")
    world.node("2", "10.20.1.12", ["sg-else"], state=state)
    assert check(world, True).reachability.members == ("i-0", "i-1")


def test_an_instance_without_the_tag_is_no_member() -> None:
    """It carries no group of the cluster's, so nothing of it matters."""
    world = cluster([SELF], count=2)
    world.group("sg-else", [], name="else")
    world.node("2", "10.20.1.12", ["sg-else"], member=False)
    check(world, True)


def test_a_tag_with_another_value_or_in_other_letters_is_another_tag() -> None:
    """EC2's tags are case-sensitive."""
    world = cluster([SELF], count=4)
    world.instances[2]["Tags"] = [{"Key": "fullmesh:cluster", "Value": "Demo"}]
    world.instances[3]["Tags"] = [{"Key": "Fullmesh:cluster", "Value": "demo"}]
    found = check(world, True, exposed=[("tcp", "0-65535", "sg-mesh")])  # both carry the group
    assert found.reachability.members == ("i-0", "i-1")


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_members_are_untold(count: int) -> None:
    """There is no pair to tell about, however good the rules."""
    found = check(cluster([SELF], count=count), None)
    word = "members" if count == 0 else "member"
    assert found.unanswered[0] == f"{count} running {word} found: a mesh has at least 2"


def test_tags_that_are_gone_leave_no_member() -> None:
    """Instances without a Tags list at all."""
    world = cluster([SELF], count=3)
    for instance in world.instances:
        del instance["Tags"]
    assert check(world, None).reachability.members == ()


def test_all_instances_of_one_reservation_count() -> None:
    """A reservation lists several instances."""
    world = cluster([SELF], count=3)
    world.group("sg-odd", [], name="default")
    world.node("3", "10.20.1.13", ["sg-odd"])
    documents = world.documents()
    documents["instances"] = {"Reservations": [{"Instances": world.instances}]}
    world.documents = lambda: documents  # type: ignore[method-assign]
    check(world, False, "sg-missing-on-node node:3", blocked=both_ways("3", "012"))


@pytest.mark.parametrize("order", [1, -1])
def test_the_interface_with_device_index_0_speaks_for_a_member(order: int) -> None:
    """A second interface with the wrong group changes nothing, in whatever order they are listed."""
    world = cluster([SELF], count=3)
    world.subnet("subnet-2", "10.20.2.0/24")
    world.group("sg-storage", [], name="storage")
    for number in range(3):
        world.node(str(number), f"10.20.2.{10 + number}", ["sg-storage"], subnet="subnet-2", device=1)
    world.interfaces[::order] = list(world.interfaces)
    assert check(world, True).advisories == ()


def test_the_group_on_the_second_interface_does_not_help() -> None:
    """Members meet on their first address: the group was put on the wrong interface."""
    world = cluster([SELF], count=3)
    world.subnet("subnet-2", "10.20.2.0/24")
    world.group("sg-default", [from_group("sg-default")], name="default")
    world.interfaces[2]["Groups"] = [{"GroupId": "sg-default"}]
    world.node("2", "10.20.2.12", ["sg-mesh"], subnet="subnet-2", device=1)
    check(world, False, "sg-missing-on-node node:2", blocked=both_ways("2", "01"))


def test_interfaces_on_further_network_cards_change_nothing() -> None:
    """EFA cards: device index 1 on cards 1 to 3, without an address of their own."""
    world = cluster(
        [from_group("sg-mesh", protocol="-1")],
        count=2,
        egress=[from_group("sg-mesh", protocol="-1"), from_cidr("0.0.0.0/0", protocol="-1")],
    )
    for number in range(2):
        for card in (1, 2, 3):
            world.node(f"{number}", "", ["sg-mesh"], device=card, kind="efa-only")
            world.interfaces[-1]["Attachment"].update(DeviceIndex=1, NetworkCardIndex=card)
    assert check(world, True).advisories == ()


def test_a_secondary_private_address_is_not_the_members() -> None:
    """A rule for a floating address on the same interface says nothing about the primary one."""
    world = cluster([from_cidr("10.20.1.100/32")], count=2)
    for interface in world.interfaces:
        interface["PrivateIpAddresses"] = [
            {"Primary": True, "PrivateIpAddress": interface["PrivateIpAddress"]},
            {"Primary": False, "PrivateIpAddress": "10.20.1.100"},
        ]
    check(world, False, "sg-no-self-ingress cluster", blocked=every("01"))


def test_public_addresses_are_not_what_members_use() -> None:
    """Rules for the members' public addresses: nothing between members matches, and a hint says so."""
    world = cluster([from_cidr("3.66.35.1/32"), from_cidr("3.66.35.2/32")], count=2)
    for number, interface in enumerate(world.interfaces):
        interface["Association"] = {"PublicIp": f"3.66.35.{number + 1}"}
    found = check(world, False, "sg-no-self-ingress cluster", blocked=every("01"))
    assert [item.id for item in found.advisories] == ["public-address"]


def test_a_member_whose_interface_was_not_listed_leaves_its_pairs_open() -> None:
    """Its address is unknown; the other pairs are fine."""
    world = cluster([SELF], count=3)
    world.interfaces.pop()
    check(world, None, candidates=["sg-missing-on-node"])


def test_a_member_on_another_subnet_of_the_vpc() -> None:
    """References do not care for subnets."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    check(world, True)


def test_ranks_of_the_subjects_follow_the_addresses() -> None:
    """The odd one is named by its rank by address, not by its place in the document."""
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.group("sg-mesh", [SELF])
    world.group("sg-default", [], name="default")
    world.node("0", "10.20.1.40", ["sg-default"])
    world.node("1", "10.20.1.9", ["sg-mesh"])
    world.node("2", "10.20.1.20", ["sg-mesh"])
    check(world, False, "sg-missing-on-node node:2", blocked=both_ways("0", "12"))


def test_an_interface_whose_groups_nobody_listed_leaves_its_pairs_open() -> None:
    """Neither document lists them, so it may carry the group or not."""
    world = cluster([SELF], count=2)
    del world.interfaces[1]["Groups"]
    check(world, None, candidates=["sg-missing-on-node"])


def test_a_member_with_one_interface_of_unknown_index() -> None:
    """The only interface is the first one; of two without an index, neither is."""
    world = cluster([SELF], count=2)
    del world.interfaces[0]["Attachment"]["DeviceIndex"]
    check(world, True)
    world.node("0", "10.20.1.99", ["sg-mesh"], device=1)
    del world.interfaces[-1]["Attachment"]["DeviceIndex"]
    check(world, None, candidates=["sg-missing-on-node"])


def test_members_of_unknown_subnets_may_be_parted_by_acls() -> None:
    """Without a subnet they are not in one and the same, and which VPC they are in is unknown too."""
    world = cluster([SELF], count=2)
    world.acl("acl-1", ["subnet-1"])
    for interface in world.interfaces:
        del interface["SubnetId"]
    check(world, None, candidates=["nacl-deny"])
    for interface in world.interfaces:
        del interface["VpcId"]
    check(world, None, candidates=["nacl-deny", "route-missing"])


def test_the_subnet_tells_the_vpc_of_an_interface() -> None:
    """Two subnets of one VPC: the local route leads from one to the other."""
    world = two_subnets([SELF])
    world.acl("acl-1", ["subnet-1", "subnet-2"])
    for interface in world.interfaces:
        del interface["VpcId"]
    check(world, True)
    del world.interfaces[3]["SubnetId"]
    check(world, None, candidates=["route-missing", "nacl-deny"])
