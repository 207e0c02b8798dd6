"""Reachability against a naive oracle that walks single ports through the documents."""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, List, Tuple

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.flows import reachability
from cluster.ports import PortRange, PortSet
from cluster.snapshot import ClusterSnapshot
from tests.cluster.world import ALLOW_ALL, ANYWHERE, World, from_cidr, from_group

EPHEMERAL = PortSet((PortRange(32768, 60999),))

PORT = st.sampled_from([0, 29499, 29500, 32768, 40000, 60999, 65535])
PORTS = st.tuples(PORT, PORT).map(lambda pair: (min(pair), max(pair)))
CIDR = st.sampled_from(
    ["0.0.0.0/0", "10.20.0.0/16", "10.20.1.0/24", "10.20.2.0/24", "10.20.1.10/32", "10.20.2.12/31"]
)
GROUP = st.sampled_from(["sg-a", "sg-b", "sg-c"])
PERMISSION = st.one_of(
    st.builds(lambda group, ports: from_group(group, *ports), GROUP, PORTS),
    st.builds(lambda cidr, ports: from_cidr(cidr, *ports), CIDR, PORTS),
    st.builds(lambda cidr: from_cidr(cidr, protocol="-1"), CIDR),
    st.builds(lambda cidr: from_cidr(cidr, protocol="udp"), CIDR),
)
PERMISSIONS = st.lists(PERMISSION, max_size=3)
ENTRY = st.tuples(
    st.integers(1, 9),
    st.sampled_from(["allow", "allow", "deny"]),
    st.sampled_from(["-1", "6", "17"]),
    CIDR,
    PORTS,
).map(lambda entry: (*entry[:4], None if entry[2] == "-1" else entry[4]))
ENTRIES = st.lists(ENTRY, max_size=4, unique_by=lambda entry: entry[0])
PROBED = sorted(
    {port + by for port in (0, 29500, 32768, 40000, 60999, 65535) for by in (-1, 0, 1)} & set(range(65536))
)


@st.composite
def worlds(draw: Any) -> World:
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.subnet("subnet-2", "10.20.2.0/24")
    for group in ("sg-a", "sg-b", "sg-c"):
        world.group(
            group, draw(PERMISSIONS), [*draw(PERMISSIONS), *([ANYWHERE] if draw(st.booleans()) else [])]
        )
    for number, half in enumerate((1, 1, 2, 2)):
        groups = draw(st.lists(GROUP, min_size=1, max_size=2, unique=True))
        world.node(str(number), f"10.20.{half}.{10 + number}", groups, subnet=f"subnet-{half}")
    for half in (1, 2):
        more = [ALLOW_ALL] if draw(st.booleans()) else []
        world.acl(f"acl-{half}", [f"subnet-{half}"], [*draw(ENTRIES), *more], [*draw(ENTRIES), *more])
    return world


def permitted(permission: Dict[str, Any], port: int, far: Dict[str, Any]) -> bool:
    if permission["IpProtocol"] not in ("tcp", "-1"):
        return False
    if permission["IpProtocol"] == "tcp" and not permission["FromPort"] <= port <= permission["ToPort"]:
        return False
    carried = {item["GroupId"] for item in far["Groups"]}
    address = ipaddress.ip_address(far["PrivateIpAddress"])
    return any(pair["GroupId"] in carried for pair in permission.get("UserIdGroupPairs", ())) or any(
        address in ipaddress.ip_network(item["CidrIp"]) for item in permission.get("IpRanges", ())
    )


def acl_lets(acl: Dict[str, Any], egress: bool, port: int, address: str) -> bool:
    for entry in sorted(acl["Entries"], key=lambda item: item["RuleNumber"]):
        ports = entry.get("PortRange") or {"From": 0, "To": 65535}
        if (
            entry["Egress"] is egress
            and entry["Protocol"] in ("6", "-1")
            and ipaddress.ip_address(address) in ipaddress.ip_network(entry["CidrBlock"])
            and ports["From"] <= port <= ports["To"]
        ):
            return bool(entry["RuleAction"] == "allow")
    return False


def naive(
    world: World, source: Dict[str, Any], target: Dict[str, Any], port: int, sources: List[int]
) -> bool:
    """Whether one destination port is open from every one of the source ports."""
    groups = {item["GroupId"]: item for item in world.groups}

    def group_allows(own: Dict[str, Any], far: Dict[str, Any], key: str) -> bool:
        rules = [rule for item in own["Groups"] for rule in groups[item["GroupId"]][key]]
        return any(permitted(rule, port, far) for rule in rules)

    if not group_allows(source, target, "IpPermissionsEgress") or not group_allows(
        target, source, "IpPermissions"
    ):
        return False
    if source["SubnetId"] == target["SubnetId"]:
        return True
    acls = {acl["Associations"][0]["SubnetId"]: acl for acl in world.acls}
    near, away = acls[source["SubnetId"]], acls[target["SubnetId"]]
    here, there = source["PrivateIpAddress"], target["PrivateIpAddress"]
    return (
        acl_lets(near, True, port, there)
        and acl_lets(away, False, port, here)
        and all(
            acl_lets(away, True, reply, here) and acl_lets(near, False, reply, there) for reply in sources
        )
    )


@settings(max_examples=150)
@given(worlds())
def test_every_pair_and_port_agrees_with_a_walk_through_the_documents(world: World) -> None:
    """Classes, port sets and memory change nothing: each port of each pair is what a naive walk says."""
    need = PortSet((PortRange(0, 65535),))
    sources = [port for port in PROBED if 32768 <= port <= 60999]
    snapshot = ClusterSnapshot.from_documents(world.documents())
    reach = reachability(snapshot, ["i-0", "i-1", "i-2", "i-3"], need, EPHEMERAL)
    assert not reach.gaps
    wrong: List[Tuple[str, str, int]] = []
    for source in world.interfaces:
        for target in world.interfaces:
            if source is target:
                continue
            ends = [item["Attachment"]["InstanceId"] for item in (source, target)]
            flow = reach.between(*ends)
            for port in PROBED:
                if naive(world, source, target, port, sources) is (port in flow.blocked):
                    wrong.append((*ends, port))
    assert wrong == []
