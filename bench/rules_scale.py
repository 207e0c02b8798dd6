"""The rules of 1,000 nodes judged: time and memory, for clusters that are alike and for the worst there is.

Each scenario is judged in a process of its own, so that its peak memory is its own: of the whole
process, with the interpreter, the documents and what was parsed from them.
"""

from __future__ import annotations

import gc
import ipaddress
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target

NODES = 1000
GROUPS = 5
RULES = 60  # inbound, EC2's default quota of rules in one direction
ACL_ENTRIES = 40  # each way, the most an ACL can have
LIMIT_S = 1.0
LIMIT_MIB = 200.0
SUBNETS = ("10.0.0.0/17", "10.0.128.0/17")
CHECKOUT = Path(__file__).resolve().parent.parent

Json = dict[str, Any]


def _tcp(first: int, last: int, **source: Any) -> Json:
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, **source}


def _cidr(cidr: str) -> Json:
    return {"IpRanges": [{"CidrIp": cidr}]}


def _reference(group: str) -> Json:
    return {"UserIdGroupPairs": [{"GroupId": group, "UserId": "111122223333"}]}


def _group(group_id: str, ingress: list[Json]) -> Json:
    return {
        "GroupId": group_id,
        "GroupName": group_id,
        "OwnerId": "111122223333",
        "VpcId": "vpc-1",
        "IpPermissions": ingress,
        "IpPermissionsEgress": [{"IpProtocol": "-1", **_cidr("0.0.0.0/0")}],
    }


def _varied(group: str, others: list[str], rng: random.Random) -> list[Json]:
    """60 rules of all kinds, of which the last lets the group itself in."""
    rules = [
        _tcp(
            port,
            port + rng.randint(0, 400),
            **(_reference(rng.choice(others)) if port % 2 else _cidr(_somewhere(rng))),
        )
        for port in rng.sample(range(1024, 60000), RULES - 1)
    ]
    return [*rules, _tcp(0, 65535, **_reference(group))]


def _somewhere(rng: random.Random) -> str:
    """A range of the VPC, from a few addresses to a whole subnet."""
    length = rng.randint(17, 30)
    base = int(ipaddress.IPv4Address("10.0.0.0")) + rng.randrange(65536)
    return str(ipaddress.IPv4Network((base, length), strict=False))


def _documents(
    groups: list[Json], carried: Callable[[int], list[str]], subnets: int, acls: list[Json]
) -> Json:
    """1,000 members over these subnets of one VPC, each with the groups it carries."""
    hosts = [ipaddress.IPv4Network(cidr) for cidr in SUBNETS[:subnets]]
    instances, interfaces = [], []
    for number in range(NODES):
        place = number % subnets
        address = str(hosts[place][4 + number])
        own = {
            "NetworkInterfaceId": f"eni-{number:017x}",
            "SubnetId": f"subnet-{place}",
            "VpcId": "vpc-1",
            "PrivateIpAddress": address,
            "Groups": [{"GroupId": item} for item in carried(number)],
            "Attachment": {"InstanceId": f"i-{number:017x}", "DeviceIndex": 0},
            "Status": "in-use",
        }
        interfaces.append(own)
        tags = [{"Key": "fullmesh:cluster", "Value": "demo"}]
        instances.append(
            {
                "InstanceId": f"i-{number:017x}",
                "State": {"Name": "running"},
                "Tags": tags,
                "NetworkInterfaces": [own],
            }
        )
    return {
        "security-groups": {"SecurityGroups": groups},
        "network-interfaces": {"NetworkInterfaces": interfaces},
        "instances": {"Reservations": [{"Instances": instances}]},
        "network-acls": {"NetworkAcls": acls},
        "vpcs": {"Vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/16"}]},
        "subnets": {
            "Subnets": [
                {"SubnetId": f"subnet-{n}", "VpcId": "vpc-1", "CidrBlock": SUBNETS[n]} for n in range(subnets)
            ]
        },
        "route-tables": {
            "RouteTables": [
                {
                    "RouteTableId": "rtb-1",
                    "VpcId": "vpc-1",
                    "Associations": [{"Main": True}],
                    "Routes": [
                        {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}
                    ],
                }
            ]
        },
    }


def _acl(number: int, rng: random.Random) -> Json:
    """40 entries each way: denials of small ranges in front of what the mesh needs."""
    entries = []
    for egress in (False, True):
        for rule in range(1, ACL_ENTRIES):
            first = rng.randrange(1024, 65000)
            entries.append(
                _entry(rule, egress, "deny", _somewhere(rng), (first, first + rng.randint(0, 100)))
            )
        entries.append(_entry(ACL_ENTRIES, egress, "allow", "0.0.0.0/0", (1024, 65535)))
    return {
        "NetworkAclId": f"acl-{number}",
        "VpcId": "vpc-1",
        "Associations": [{"SubnetId": f"subnet-{number}"}],
        "Entries": entries,
    }


def _entry(number: int, egress: bool, action: str, cidr: str, ports: tuple[int, int]) -> Json:
    return {
        "RuleNumber": number,
        "Egress": egress,
        "RuleAction": action,
        "Protocol": "6",
        "CidrBlock": cidr,
        "PortRange": {"From": ports[0], "To": ports[1]},
    }


def _alike(rng: random.Random) -> Json:
    names = [f"sg-{n}" for n in range(GROUPS)]
    return _documents([_group(name, _varied(name, names, rng)) for name in names], lambda _: names, 1, [])


def _group_sets(rng: random.Random) -> Json:
    """Every node carries 5 of 10 groups, in 252 different ways."""
    names = [f"sg-{n}" for n in range(10)]
    sets = [rng.sample(names, GROUPS) for _ in range(NODES)]
    return _documents([_group(name, _varied(name, names, rng)) for name in names], lambda n: sets[n], 1, [])


def _cidr_each(_: random.Random) -> Json:
    """Rules for single addresses: 60 a group, 5 groups, so that 300 nodes are a class of their own."""
    names = [f"sg-{n}" for n in range(GROUPS)]
    first = int(ipaddress.IPv4Network(SUBNETS[0])[4])
    groups = []
    for number, name in enumerate(names):
        own = range(number * (RULES - 1), (number + 1) * (RULES - 1))
        singles = [_tcp(0, 65535, **_cidr(f"{ipaddress.IPv4Address(first + n)}/32")) for n in own]
        groups.append(_group(name, [*singles, _tcp(29500, 29500, **_reference(name))]))
    return _documents(groups, lambda _: names, 1, [])


def _two_acls(rng: random.Random) -> Json:
    """Two subnets, each behind an ACL of 40 entries a way that denies ranges of the other."""
    names = [f"sg-{n}" for n in range(GROUPS)]
    groups = [_group(name, _varied(name, names, rng)) for name in names]
    return _documents(groups, lambda _: names, 2, [_acl(number, rng) for number in range(2)])


def _everything(rng: random.Random) -> Json:
    """Different group sets, two subnets and two ACLs of 40 entries a way."""
    names = [f"sg-{n}" for n in range(10)]
    sets = [rng.sample(names, GROUPS) for _ in range(NODES)]
    groups = [_group(name, _varied(name, names, rng)) for name in names]
    return _documents(groups, lambda n: sets[n], 2, [_acl(number, rng) for number in range(2)])


def _own_groups(_: random.Random) -> Json:
    """A group for each node that lets in only itself: a million pairs, all different, all stopped."""
    names = [f"sg-{n}" for n in range(NODES)]
    groups = [_group(name, [_tcp(0, 65535, **_reference(name))]) for name in names]
    return _documents(groups, lambda n: [names[n]], 1, [])


SCENARIOS: dict[str, tuple[str, Callable[[random.Random], Json]]] = {
    "alike": ("5 groups of 60 rules on every node", _alike),
    "cidr": ("5 groups with 300 rules for single addresses", _cidr_each),
    "acls": ("such groups, and two subnets behind ACLs of 40 entries each way", _two_acls),
    "sets": ("5 of 10 groups of 60 rules on each, in 252 ways", _group_sets),
    "everything": ("such sets, and two subnets behind such ACLs", _everything),
    "own": ("a group of its own on each node", _own_groups),
}
WITHOUT_TARGET = ("own",)
"""The worst that was found, shown for what it is: nobody builds a cluster so."""


def measure(_options: Options) -> Result:
    seen = {name: _in_a_process(name) for name in SCENARIOS}
    return Result(
        comparisons=tuple(item for name, found in seen.items() for item in _compared(name, found)),
        data={"nodes": NODES, "scenarios": seen},
        notes=(
            "parsing the documents into rules is part of the time; reading their JSON is not, nor is "
            "listing every blocked pair",
            "one thread; processor time, the least of three runs, as other processes only ever add to it",
            "memory is that of the whole process, with the documents",
        ),
    )


def _compared(name: str, found: Json) -> tuple[Comparison, Comparison]:
    what = f"rules of {NODES:,} nodes judged, {SCENARIOS[name][0]} ({found['classes']} classes of nodes)"
    targets = (None, None) if name in WITHOUT_TARGET else (Target(limit=LIMIT_S), Target(limit=LIMIT_MIB))
    return (
        Comparison(
            what=what,
            ours=Figure(label="causes and who gets in, processor time", value=found["cpu_s"]),
            target=targets[0],
        ),
        Comparison(
            what=f"{what}: memory",
            ours=Figure(label="the whole process", value=found["peak_mib"], unit="MiB"),
            target=targets[1],
        ),
    )


def _in_a_process(name: str) -> Json:
    done = subprocess.run(
        [sys.executable, "-m", "bench.rules_scale", name],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"scenario {name} failed: {done.stderr.strip()[-500:]}")
    found: Json = json.loads(done.stdout)
    return found


def judge_scenario(name: str) -> Json:
    """Judge one scenario here, three times."""
    text = json.dumps(SCENARIOS[name][1](random.Random(1)))  # noqa: S311 - the same rules each time
    runs = [_judge_once(text) for _ in range(3)]
    return {
        **runs[0],
        "wall_s": [round(run["wall_s"], 3) for run in runs],
        "cpu_s": min(run["cpu_s"] for run in runs),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _judge_once(text: str) -> Json:
    from cluster.ports import DEFAULT_EPHEMERAL_PORTS  # noqa: PLC0415 - part of what is measured
    from cluster.snapshot import ClusterSnapshot  # noqa: PLC0415
    from diagnosis.static import judge_tagged  # noqa: PLC0415

    documents = json.loads(text)
    gc.collect()
    begun, cpu = time.perf_counter(), time.process_time()
    snapshot = ClusterSnapshot.from_documents(documents)
    found = judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, DEFAULT_EPHEMERAL_PORTS)
    return {
        "wall_s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu,
        "classes": len(found.reachability.classes),
        "mesh_possible": found.mesh_possible,
        "causes_found": len(found.causes),
        "causes": [f"{item.id} {item.subject}" for item in found.causes[:20]],
        "exposed": len(found.exposed),
    }


if __name__ == "__main__":
    print(json.dumps(judge_scenario(sys.argv[1])))
