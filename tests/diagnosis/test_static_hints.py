"""What rules show beside the mesh: EFA, second interfaces, public addresses."""

from __future__ import annotations

from cluster.ports import PortRange
from diagnosis.static import StaticFindings, judge_tagged
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group

SELF = from_group("sg-mesh")


def judge(world: World) -> StaticFindings:
    return judge_tagged(world.snapshot(), "fullmesh:cluster", "demo", 29500, PortRange(32768, 60999))


def test_efa_needs_all_protocols_with_the_group_itself_both_ways() -> None:
    """0.0.0.0/0 outbound is enough for TCP and not for EFA; the hint changes no verdict."""
    all_self = from_group("sg-mesh", protocol="-1")
    for egress, expected in (
        ([from_cidr("0.0.0.0/0", protocol="-1")], ["efa-self-egress"]),
        ([all_self], []),
    ):
        world = cluster([all_self], egress=egress)
        for interface in world.interfaces:
            interface["InterfaceType"] = "efa"
        found = judge(world)
        assert ([item.id for item in found.advisories], found.mesh_possible) == (expected, True)
        for hint in found.advisories:
            assert hint.commands == (
                "aws ec2 authorize-security-group-egress --group-id sg-mesh --ip-permissions "
                "'IpProtocol=-1,UserIdGroupPairs=[{GroupId=sg-mesh}]'",
            )


def test_a_second_address_in_one_subnet_is_a_hint() -> None:
    """Two interfaces of a node in one subnet; one without an address is none."""
    world = cluster([SELF])
    world.node("1", "10.20.1.99", ["sg-mesh"], device=1)
    world.node("2", "", ["sg-mesh"], device=1, kind="efa-only")
    found = judge(world)
    assert [(item.id, item.subject) for item in found.advisories] == [("asymmetric-interfaces", "node:1")]
    assert found.mesh_possible is True


def test_rules_that_name_public_addresses_are_pointed_out() -> None:
    """Members admit each other's public addresses, which nothing between them comes from."""
    world = cluster([from_cidr("3.66.35.1/32"), from_cidr("3.66.35.2/32")], count=2)
    for number, interface in enumerate(world.interfaces):
        interface["Association"] = {"PublicIp": f"3.66.35.{number + 1}"}
    world.acl("acl-1", ["subnet-1"], [ALLOW_ALL], [ALLOW_ALL])
    found = judge(world)
    assert [item.id for item in found.causes] == ["sg-no-self-ingress"]
    assert [item.id for item in found.advisories] == ["public-address"]
