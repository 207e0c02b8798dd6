"""Masks, groups and ACLs in masks, and whole rows of pairs: each against a naive walk, port by port."""

from __future__ import annotations

import ipaddress
from typing import Any, FrozenSet, List, Optional, Tuple

from hypothesis import given
from hypothesis import strategies as st

from cluster.acl_rules import AclRules
from cluster.flows import groups_of, reachability
from cluster.group_masks import GroupMasks
from cluster.lookup import Lookup
from cluster.masks import PortMasks
from cluster.passing import Passing
from cluster.path import PathRules
from cluster.ports import PortRange, PortSet
from cluster.rules import NetworkAclEntry, Peer, SecurityGroupRule, SourceKind
from cluster.snapshot import ClusterSnapshot, SecurityGroup, Table
from cluster.stages import Place
from tests.cluster.test_flows_oracle import EPHEMERAL, worlds
from tests.cluster.world import World, cluster, from_cidr, from_group, from_list

EDGE_PORTS = [0, 1, 22, 443, 1023, 1024, 29500, 32768, 60999, 65535]
PROBED = sorted({port + by for port in EDGE_PORTS for by in (-1, 0, 1)} & set(range(65536)))
EDGES = st.sampled_from(EDGE_PORTS)
RANGES = st.tuples(EDGES, EDGES).map(lambda pair: PortRange(min(pair), max(pair)))
ENDS = st.one_of(st.none(), RANGES.map(lambda one: (one.first, one.last)))
CIDRS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "10.20.1.0/24", "10.20.1.16/28", "10.20.1.17/32", "::/0"])
ADDRESSES = st.sampled_from(["10.20.1.17", "10.20.1.1", "10.9.9.9", "192.0.2.1", "2001:db8::1"])
PROTOCOLS = st.sampled_from(["-1", "tcp", "udp", "icmp"])
UNIVERSES = st.lists(RANGES, min_size=1, max_size=3).map(PortSet.of)


@given(UNIVERSES, st.lists(RANGES, max_size=6))
def test_a_mask_stands_for_the_universes_part_of_a_set(universe: PortSet, cuts: List[PortRange]) -> None:
    """Any set made of the cuts goes to a mask and comes back as its part of the universe."""
    masks = PortMasks(universe, cuts)
    for count in range(len(cuts) + 1):
        ports = PortSet.of(cuts[:count])
        assert masks.ports(masks.of(ports)) == ports.intersection(universe)
    assert masks.ports(masks.everything) == universe


def rule(
    group_id: str, protocol: str, ends: Optional[Tuple[int, int]], source: str, flag: str
) -> SecurityGroupRule:
    first, last = ends or (None, None)
    kinds = {"sg": SourceKind.GROUP, "pl": SourceKind.PREFIX_LIST}
    kind = kinds.get(source[:2], SourceKind.CIDR)
    return SecurityGroupRule(
        group_id=group_id,
        egress=False,
        protocol=protocol,
        first=first,
        last=last,
        kind=kind,
        source=source,
        network=ipaddress.ip_network(source) if kind is SourceKind.CIDR else None,
        peering_status="deleted" if flag == "stale" else "",
        disputed=flag == "disputed",
    )


GROUPS = st.sampled_from(["sg-a", "sg-b", "sg-c"])
SOURCES = st.one_of(CIDRS, GROUPS, st.just("pl-1"))
FLAGS = st.sampled_from(["", "", "", "stale", "disputed"])
CARRIED = st.one_of(st.none(), st.frozensets(GROUPS))


@given(
    st.lists(st.builds(rule, st.sampled_from(["sg-1", "sg-2"]), PROTOCOLS, ENDS, SOURCES, FLAGS), max_size=7),
    ADDRESSES,
    CARRIED,
)
def test_groups_allow_the_union_of_their_rules(
    rules: List[SecurityGroupRule], address: str, carried: Optional[FrozenSet[str]]
) -> None:
    """Port by port: for certain when any rule of the port matches, perhaps when one may match."""
    groups = {
        name: SecurityGroup(id=name, rules=tuple(one for one in rules if one.group_id == name))
        for name in ("sg-1", "sg-2")
    }
    own = frozenset(groups)
    lookup = Lookup(ClusterSnapshot(security_groups=Table(groups)))
    found = GroupMasks(lookup, own, PortSet((PortRange(0, 65535),)), "tcp")
    far = Place(carried, "subnet-1", "vpc-1", ipaddress.ip_address(address), 0)
    sure, maybe = (found.masks.ports(mask) for mask in found.allowed(own, False, far))
    peer = Peer(address=far.address, groups=carried)
    for port in PROBED:
        answers = {one.matches(peer) for one in rules if port in one.ports("tcp")}
        assert (port in sure) is (True in answers)
        assert (port in maybe) is (None in answers and True not in answers)


def entry(
    number: int, egress: bool, allow: bool, protocol: str, cidr: str, ends: Optional[Tuple[int, int]]
) -> NetworkAclEntry:
    first, last = ends or (None, None)
    return NetworkAclEntry(
        number=number,
        egress=egress,
        allow=allow,
        protocol=protocol,
        network=ipaddress.ip_network(cidr),
        first=first,
        last=last,
    )


ENTRIES = st.lists(
    st.builds(entry, st.integers(1, 5), st.booleans(), st.booleans(), PROTOCOLS, CIDRS, ENDS),
    max_size=8,
    unique_by=lambda item: (item.number, item.egress),
)


@given(ENTRIES, ADDRESSES, st.booleans(), UNIVERSES)
def test_an_acl_is_the_first_match_in_the_order_of_numbers(
    entries: List[NetworkAclEntry], address: str, egress: bool, universe: PortSet
) -> None:
    """Port by port: walk the sorted entries of the direction; what none names is denied, by nobody."""

    def decider(port: int) -> Optional[NetworkAclEntry]:
        for one in sorted(entries, key=lambda item: item.number):
            if one.egress is not egress or one.protocol not in ("tcp", "-1"):
                continue
            if ipaddress.ip_address(address) not in one.network:
                continue
            if one.protocol == "tcp" and one.first is not None and not one.first <= port <= (one.last or 0):
                continue
            return one
        return None

    rules = AclRules(entries, egress, "tcp", universe)
    far = ipaddress.ip_address(address)
    mask, denying = rules.denied(far)
    denied = rules.masks.ports(mask)
    assert denied.union(rules.allowed(far)) == universe
    said = {port: decider(port) for port in PROBED if port in universe}
    assert {port for port in said if port in denied} == {
        port for port, one in said.items() if one is None or not one.allow
    }
    assert {one for one in said.values() if one is not None and not one.allow} <= set(denying)
    assert all(not one.allow for one in denying)


NEED = PortSet.of([PortRange(29500, 29500), PortRange(32768, 60999)])


@given(worlds())
def test_a_row_holds_only_pairs_that_pass(world: World) -> None:
    """Whatever is found for a whole row is what judging each pair by itself finds."""
    lookup = Lookup(world.snapshot())
    reach = reachability(lookup, [f"i-{number}" for number in range(4)], NEED, EPHEMERAL)
    rules = PathRules(lookup, NEED, EPHEMERAL, groups_of(reach.places))
    for source, (row, by_groups) in enumerate(Passing(rules, reach.places).rows()):
        for target in range(len(reach.places)):
            if row >> target & 1 and (source, target) in reach.flows:
                stages = rules.stages(*(reach.places[number] for number in (source, target)))  # type: ignore[arg-type]
                assert [stage for stage in stages if stage.blocked or stage.unknown] == []
            if by_groups >> target & 1 and (source, target) in reach.flows:
                groups = rules.group_stages(*(reach.places[number] for number in (source, target)))  # type: ignore[arg-type]
                assert [stage for stage in groups if stage.blocked or stage.unknown] == []


def rows_of(world: World) -> Tuple[Any, List[int]]:
    lookup = Lookup(world.snapshot())
    members = [item["InstanceId"] for item in world.instances]
    reach = reachability(lookup, members, NEED, EPHEMERAL)
    passing = Passing(PathRules(lookup, NEED, EPHEMERAL, groups_of(reach.places)), reach.places)
    return reach, [row for row, _ in passing.rows()]


def test_rows_find_what_one_group_opens() -> None:
    """Classes apart by their groups: a reference, a range and the replies of another group's members."""
    world = cluster([from_group("sg-mesh"), from_cidr("10.20.1.12/32")], count=2)
    world.group("sg-extra", [from_group("sg-mesh")])
    world.interfaces[1]["Groups"].append({"GroupId": "sg-extra"})
    world.node("2", "10.20.1.12", ["sg-extra"])
    reach, rows = rows_of(world)
    assert len(reach.classes) == 3
    assert [f"{row:03b}"[::-1] for row in rows] == ["111", "111", "110"]
    assert reach.flows.holds is True  # 2 has no pair with itself


def test_rows_join_groups_and_leave_what_was_not_read() -> None:
    """Half the ports by one group and half by another are a row; half by a list that nobody read are not."""
    world = cluster([from_group("sg-mesh", 0, 32767)], count=2)
    world.group("sg-half", [from_group("sg-mesh", 32768, 65535), from_list("pl-1")])
    for interface in world.interfaces:
        interface["Groups"].append({"GroupId": "sg-half"})
    reach, rows = rows_of(world)
    assert (rows, reach.flows.holds) == ([1], True)
    world.groups[1]["IpPermissions"].pop(0)
    reach, rows = rows_of(world)
    assert (rows, reach.flows.holds) == ([0], None)
