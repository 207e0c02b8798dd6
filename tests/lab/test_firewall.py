"""lab.firewall: the text of the ruleset, and what the kernel makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.snapshot import ClusterSnapshot
from lab import firewall
from tests.lab import vpc
from tests.lab.identities import IDENTITIES, Identity

A, B = "10.42.0.10", "10.42.0.11"
PORTS = {vpc.interface_id(A): "va", vpc.interface_id(B): "vb"}


def chain(text: str, name: str) -> list[str]:
    """The lines of one chain."""
    lines = text.splitlines()
    start = lines.index(f"chain {name} {{") + 1
    return lines[start : lines.index("}", start)]


def compiled(groups: list[Any], members: list[str], **named: Any) -> str:
    """The ruleset of two nodes with the same groups."""
    options = {key: named.pop(key) for key in ("prefix_lists", "endpoint_vpcs") if key in named}
    return firewall.compile_ruleset(vpc.snapshot({A: members, B: members}, groups, **named), PORTS, **options)


def test_groups_of_an_interface_are_a_union() -> None:
    """Rules of all groups stand in one chain, and what none of them allows is dropped."""
    text = compiled(
        [
            vpc.group("sg-1", [vpc.tcp(29500, 29500, **vpc.member_of("sg-1"))]),
            vpc.group("sg-2", [vpc.tcp(40000, 40999, IpRanges=[{"CidrIp": "10.42.0.0/16"}])]),
        ],
        ["sg-2", "sg-1"],
    )
    assert chain(text, "sg_in_0") == [
        "ip saddr @group_sg_1 tcp dport 29500 return",
        "ip saddr 10.42.0.0/16 tcp dport 40000-40999 return",
        "drop",
    ]
    assert chain(text, "sg_out_0") == ["return", "drop"]


def test_every_kind_of_traffic_has_its_match() -> None:
    """Protocols by name and number, all ports, ICMP type and code; IPv6 has no place in an IPv4 table."""
    text = compiled(
        [
            vpc.group(
                "sg-1",
                [
                    vpc.tcp(0, 65535, **vpc.ANYWHERE),
                    {"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, **vpc.ANYWHERE},
                    {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, **vpc.ANYWHERE},
                    {"IpProtocol": "icmp", "FromPort": 8, "ToPort": -1, **vpc.ANYWHERE},
                    {"IpProtocol": "icmp", "FromPort": -1, "ToPort": -1, **vpc.ANYWHERE},
                    {"IpProtocol": "50", **vpc.ANYWHERE},
                    {"IpProtocol": "300", **vpc.ANYWHERE},
                    {"IpProtocol": "icmpv6", "FromPort": -1, "ToPort": -1, **vpc.ANYWHERE},
                    {"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]},
                ],
            )
        ],
        ["sg-1"],
    )
    assert chain(text, "sg_in_0") == [
        "meta l4proto tcp return",
        "udp dport 53 return",
        "icmp type 3 icmp code 4 return",
        "icmp type 8 return",
        "meta l4proto icmp return",
        "meta l4proto 50 return",
        "drop",
    ]


def test_prefix_list_matches_its_entries_and_an_unread_one_nothing() -> None:
    """A list whose entries are known becomes a set; one that nobody read lets nothing through."""
    lists = {"PrefixListIds": [{"PrefixListId": "pl-1"}, {"PrefixListId": "pl-2"}]}
    text = compiled(
        [vpc.group("sg-1", [], [vpc.tcp(443, 443, **lists)])],
        ["sg-1"],
        prefix_lists={"pl-1": ["198.51.100.10/32", "2001:db8::/32"]},
    )
    assert chain(text, "sg_out_0") == ["ip daddr @list_pl_1 tcp dport 443 return", "drop"]
    assert "elements = { 198.51.100.10/32 }" in text


def test_acl_entries_keep_their_order_and_leave_the_subnet_alone() -> None:
    """The subnet's own traffic returns first; then the entries by number; then the drop."""
    entries = [
        vpc.entry(200, egress=False, action="allow"),
        vpc.entry(
            100,
            egress=False,
            action="deny",
            cidr="10.42.16.0/20",
            Protocol="6",
            PortRange={"From": 1, "To": 99},
        ),
        vpc.entry(50, egress=True, action="allow"),
    ]
    text = compiled([vpc.group("sg-1", [])], ["sg-1"], acls=[vpc.acl("acl-1", entries)])
    assert chain(text, "acl_in_0") == [
        "ip saddr 10.42.0.0/20 return",
        "ip saddr 10.42.16.0/20 tcp dport 1-99 drop",
        "return",
        "drop",
    ]
    assert chain(text, "acl_out_0") == ["ip daddr 10.42.0.0/20 return", "return", "drop"]


def test_nodes_with_the_same_groups_share_their_chains() -> None:
    """64 nodes of one group need one chain a way, so the ruleset stays small."""
    addresses = [f"10.42.0.{n}" for n in range(10, 74)]
    text = firewall.compile_ruleset(
        vpc.snapshot({a: ["sg-1"] for a in addresses}, [vpc.group("sg-1", [])]),
        {vpc.interface_id(a): f"v{n}" for n, a in enumerate(addresses)},
    )
    assert [line for line in text.splitlines() if line.startswith("chain sg_")] == [
        "chain sg_out_0 {",
        "chain sg_in_0 {",
    ]


def test_interface_without_known_groups_may_do_nothing() -> None:
    """When the document does not list the groups, nothing is allowed rather than everything."""
    documents = vpc.documents({A: ["sg-1"], B: ["sg-1"]}, [vpc.group("sg-1", [vpc.ALL_OUT])])
    for instance in documents["instances"]["Reservations"][0]["Instances"]:
        del instance["NetworkInterfaces"][0]["Groups"]
    text = firewall.compile_ruleset(ClusterSnapshot.from_documents(documents), PORTS)
    assert (chain(text, "sg_in_0"), chain(text, "sg_out_0")) == (["drop"], ["drop"])


IGW = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}


@pytest.mark.parametrize(
    ("routes", "public", "reaches"),
    [
        ([IGW], True, True),
        ([IGW], False, False),
        ([{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}], False, True),
        (
            [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1", "State": "blackhole"}],
            False,
            False,
        ),
        ([{"DestinationPrefixListId": "pl-1", "GatewayId": "vpce-1"}], False, True),
        ([{"DestinationCidrBlock": "10.42.0.0/16", "GatewayId": "local"}], True, False),
        ([], True, False),
    ],
)
def test_services_are_reached_as_the_routes_say(
    routes: list[dict[str, str]], public: bool, reaches: bool
) -> None:
    """An internet gateway carries only those with a public address; a NAT gateway and an endpoint all."""
    documents = vpc.documents({A: ["sg-1"]}, [vpc.group("sg-1", [])], routes=routes)
    if not public:
        del documents["instances"]["Reservations"][0]["Instances"][0]["NetworkInterfaces"][0]["Association"]
    snapshot = ClusterSnapshot.from_documents(documents)
    (interface,) = snapshot.interfaces
    assert firewall.reaches_services(snapshot, interface) is reaches


KERNEL = """
import json, sys
from pathlib import Path
from tests.lab import kernel
kernel.main(Path(sys.argv[1]), json.loads(sys.argv[2]))
"""

C = "10.42.16.10"  # in the other subnet
ALL_TCP = vpc.group("sg-1", [vpc.tcp(0, 65535, **vpc.member_of("sg-1"))])
MASTER_ONLY = vpc.group("sg-1", [vpc.tcp(29500, 29500, **vpc.member_of("sg-1"))])
NO_EPHEMERAL_IN = [
    vpc.entry(100, egress=False, action="allow", Protocol="6", PortRange={"From": 29500, "To": 29500}),
    vpc.entry(100, egress=True, action="allow"),
]
OPEN, LOST = "connected", "timed out"

CASES: dict[str, tuple[dict[str, list[str]], dict[str, Any], dict[str, str]]] = {
    "self-reference": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [ALL_TCP]},
        {f"{A}>{B}:29500": OPEN, f"{B}>{A}:40000": OPEN},
    ),
    "master-port-only": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [MASTER_ONLY]},
        {f"{A}>{B}:29500": OPEN, f"{A}>{B}:40000": LOST, f"{B}>{A}:40000": LOST},
    ),
    "one-way-between-groups": (
        {A: ["sg-1"], B: ["sg-2"]},
        {"groups": [vpc.group("sg-1", []), vpc.group("sg-2", [vpc.tcp(0, 65535, **vpc.member_of("sg-1"))])]},
        {f"{A}>{B}:29500": OPEN, f"{B}>{A}:29500": LOST},
    ),
    "closed-egress": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [vpc.group("sg-1", ALL_TCP["IpPermissions"], [vpc.tcp(29500, 29500, **vpc.ANYWHERE)])]},
        {f"{A}>{B}:29500": OPEN, f"{A}>{B}:40000": LOST},
    ),
    "acl-does-not-part-a-subnet": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [ALL_TCP], "acls": [vpc.acl("acl-1", [])]},
        {f"{A}>{B}:29500": OPEN, f"{A}>{B}:40000": OPEN},
    ),
    "acl-is-stateless-between-subnets": (
        {A: ["sg-1"], C: ["sg-1"]},
        {"groups": [ALL_TCP], "acls": [vpc.OPEN_ACL, vpc.acl("acl-1", NO_EPHEMERAL_IN, ["subnet-b"])]},
        # C may be reached on 29500; the answers to its own connections come to ports that are shut
        {f"{A}>{C}:29500": OPEN, f"{A}>{C}:40000": LOST, f"{C}>{A}:29500": LOST},
    ),
    "absent-host": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [ALL_TCP]},
        {f"{A}>10.42.0.99:29500": "no route to host", f"{A}>192.0.2.7:29500": LOST},
    ),
    "open-port-nobody-listens-on": (
        {A: ["sg-1"], B: ["sg-1"]},
        {"groups": [ALL_TCP]},
        {f"{A}>{B}:5000": "connection refused"},
    ),
}


@pytest.mark.lab
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("who", IDENTITIES, ids=str)
def test_kernel_does_what_the_rules_say(who: Identity, case: str) -> None:
    """Every flow of the case has exactly the outcome that EC2 would give it; no node sees a ruleset."""
    nodes, named, flows = CASES[case]
    # a drop shows by waiting; a good connect may be slow on a loaded machine
    patience = {flow: 2.5 if outcome == LOST else 20.0 for flow, outcome in flows.items()}
    wanted = {"documents": vpc.documents(nodes, **named), "flows": patience}
    done = who.run("-c", KERNEL, str(who.folder()), json.dumps(wanted))
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == {"flows": flows, "rulesets": [""] * len(nodes)}
