"""Random security groups and network ACLs over a few fixed nodes, as `aws ec2 describe-*` documents.

What is drawn is small and lies close together (port ranges that share edges, ranges that hold
some of the nodes), so that rules meet, overlap and miss each other by one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from cluster.snapshot import ClusterSnapshot

Json = dict[str, Any]

VPC_CIDR = "10.42.0.0/16"
SUBNETS = {"subnet-a": "10.42.0.0/20", "subnet-b": "10.42.16.0/20"}
NODES = {
    "10.42.0.10": "subnet-a",
    "10.42.0.11": "subnet-a",
    "10.42.15.200": "subnet-a",
    "10.42.16.10": "subnet-b",
    "10.42.31.77": "subnet-b",
}
GROUPS = ("sg-a", "sg-b", "sg-c")
LISTS = ("pl-a", "pl-b")
EDGES = (0, 1, 22, 1023, 1024, 29499, 29500, 29501, 32767, 32768, 45000, 50000, 60999, 61000, 65535)
SOURCE_PORTS = DEFAULT_EPHEMERAL_PORTS
DESTINATIONS_TRIED = 6


@dataclass(frozen=True)
class Flow:
    """One connection to try: addresses and ports."""

    source: str
    source_port: int
    target: str
    port: int


@dataclass(frozen=True)
class RuleWorld:
    documents: Json
    flows: tuple[Flow, ...]

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot.from_documents(self.documents)

    def prefix_lists(self) -> dict[str, list[str]]:
        """Entries by list, as the lab's compiler takes them."""
        lists = self.documents["prefix-list-entries"]["PrefixLists"]
        return {item["PrefixListId"]: [entry["Cidr"] for entry in item["Entries"]] for item in lists}


def instance_id(address: str) -> str:
    return "i-" + address.replace(".", "-")


def interface_id(address: str) -> str:
    return "eni-" + address.replace(".", "")


def draw(rng: random.Random) -> RuleWorld:
    """A world and the connections that tell its rules apart; the same `rng` gives the same one."""
    groups = [_group(rng, group_id) for group_id in GROUPS]
    acls = [_acl(rng, number, subnet) for number, subnet in enumerate(SUBNETS)]
    documents = {
        "security-groups": {"SecurityGroups": groups},
        "network-acls": {"NetworkAcls": acls},
        "vpcs": {"Vpcs": [{"VpcId": "vpc-1", "CidrBlock": VPC_CIDR}]},
        "subnets": {
            "Subnets": [{"SubnetId": k, "VpcId": "vpc-1", "CidrBlock": v} for k, v in SUBNETS.items()]
        },
        "network-interfaces": {
            "NetworkInterfaces": [_interface(rng, address, subnet) for address, subnet in NODES.items()]
        },
        "prefix-list-entries": {"PrefixLists": [_list(rng, list_id) for list_id in LISTS]},
    }
    ranges = [
        (item.get("FromPort", 0), item.get("ToPort", 65535))
        for group in groups
        for key in ("IpPermissions", "IpPermissionsEgress")
        for item in group[key]
        if item["IpProtocol"] == "tcp"
    ]
    entries = [
        (e["PortRange"]["From"], e["PortRange"]["To"]) for a in acls for e in a["Entries"] if "PortRange" in e
    ]
    return RuleWorld(documents=documents, flows=_flows(rng, ranges + entries, entries))


def _flows(
    rng: random.Random, ranges: list[tuple[int, int]], acl_ranges: list[tuple[int, int]]
) -> tuple[Flow, ...]:
    """Destination ports on both sides of the rules' edges; a source port of every part that ACLs make."""
    near = {port + by for pair in ranges for port in pair for by in (-1, 0, 1)}
    inside = sorted(port for port in near if 0 < port <= 65535)
    ports = {29500, *rng.sample(inside, min(DESTINATIONS_TRIED - 1, len(inside)))}
    cuts = {SOURCE_PORTS.first, *(low for low, _ in acl_ranges), *(high + 1 for _, high in acl_ranges)}
    starts = sorted(port for port in cuts if port in SOURCE_PORTS)
    ends = [*(start - 1 for start in starts[1:]), SOURCE_PORTS.last]
    sources = []
    for first, last in zip(starts, ends, strict=True):
        # no port is on both sides: two connections would be one, opened from both ends
        free = [port for port in (first, last, first + 1) if first <= port <= last and port not in ports]
        sources.append(rng.choice(free) if free else first)
    ports -= set(sources)
    return tuple(
        Flow(source=source, source_port=source_port, target=target, port=port)
        for source, target in permutations(NODES, 2)
        for source_port in (sources if NODES[source] != NODES[target] else sources[:1])
        for port in sorted(ports)
    )


def _group(rng: random.Random, group_id: str) -> Json:
    egress = [_permission(rng) for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.7:
        egress.append({"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]})
    return {
        "GroupId": group_id,
        "GroupName": group_id,
        "VpcId": "vpc-1",
        "IpPermissions": [_permission(rng) for _ in range(rng.randint(1, 4))],
        "IpPermissionsEgress": egress,
    }


def _permission(rng: random.Random) -> Json:
    protocol = rng.choice(("tcp",) * 8 + ("-1", "-1", "udp", "icmp"))
    found: Json = {"IpProtocol": protocol}
    if protocol in ("tcp", "udp"):
        found["FromPort"], found["ToPort"] = _range(rng)
    elif protocol == "icmp":
        found["FromPort"] = found["ToPort"] = -1
    for _ in range(rng.randint(1, 3)):
        kind = rng.randint(0, 9)
        if kind < 5:
            pair = {"GroupId": rng.choice(GROUPS), "UserId": "111122223333"}
            found.setdefault("UserIdGroupPairs", []).append(pair)
        elif kind == 5:
            stale = {"GroupId": rng.choice(GROUPS), "PeeringStatus": "deleted"}
            found.setdefault("UserIdGroupPairs", []).append(stale)
        elif kind == 6:
            found.setdefault("PrefixListIds", []).append({"PrefixListId": rng.choice(LISTS)})
        elif kind == 7:
            found.setdefault("Ipv6Ranges", []).append({"CidrIpv6": "::/0"})
        else:
            found.setdefault("IpRanges", []).append({"CidrIp": _cidr(rng)})
    return found


def _range(rng: random.Random) -> tuple[int, int]:
    first, last = sorted((rng.choice(EDGES), rng.choice(EDGES)))
    return first, last


def _cidr(rng: random.Random) -> str:
    """A range around one of the nodes, as narrow as the node alone or as wide as everything."""
    address = rng.choice(tuple(NODES))
    length = rng.choice((0, 16, 19, 20, 21, 24, 28, 31, 31, 32, 32))
    packed = int.from_bytes(bytes(map(int, address.split("."))), "big") >> (32 - length) << (32 - length)
    return ".".join(map(str, packed.to_bytes(4, "big"))) + f"/{length}"


def _list(rng: random.Random, list_id: str) -> Json:
    entries = [{"Cidr": _cidr(rng)} for _ in range(rng.randint(0, 2))]
    return {"PrefixListId": list_id, "Entries": entries}


def _interface(rng: random.Random, address: str, subnet_id: str) -> Json:
    groups = rng.sample(GROUPS, rng.choice((1, 1, 2, 3)))
    return {
        "NetworkInterfaceId": interface_id(address),
        "SubnetId": subnet_id,
        "VpcId": "vpc-1",
        "PrivateIpAddress": address,
        "Groups": [{"GroupId": group} for group in groups],
        "Attachment": {"InstanceId": instance_id(address), "DeviceIndex": 0},
        "Status": "in-use",
    }


def _acl(rng: random.Random, number: int, subnet_id: str) -> Json:
    entries = []
    for egress in (False, True):
        for rule_number in rng.sample(range(1, 20), rng.randint(0, 3)):
            entries.append(_entry(rng, rule_number, egress))
        if rng.random() < 0.8:
            entries.append(_all(100, egress, "allow"))
        entries.append(_all(32767, egress, "deny"))
    rng.shuffle(entries)
    return {
        "NetworkAclId": f"acl-{number}",
        "VpcId": "vpc-1",
        "IsDefault": False,
        "Associations": [{"SubnetId": subnet_id}],
        "Entries": entries,
    }


def _all(number: int, egress: bool, action: str) -> Json:
    return {
        "RuleNumber": number,
        "Egress": egress,
        "RuleAction": action,
        "Protocol": "-1",
        "CidrBlock": "0.0.0.0/0",
    }


def _entry(rng: random.Random, number: int, egress: bool) -> Json:
    protocol = rng.choice(("6", "6", "6", "6", "-1", "17"))
    found = {
        **_all(number, egress, rng.choice(("allow", "deny"))),
        "Protocol": protocol,
        "CidrBlock": _cidr(rng),
    }
    if protocol != "-1":
        first, last = _range(rng)
        found["PortRange"] = {"From": first, "To": last}
    return found
