"""Rules, ACL entries and routes, one at a time and against naive oracles."""

from __future__ import annotations

import ipaddress
from typing import Optional

import pytest
from hypothesis import strategies as st

from cluster.rules import (
    Peer,
    Route,
    SecurityGroupRule,
    SourceKind,
    best_route,
)

EDGE_PORTS = [0, 1, 22, 443, 1023, 1024, 29500, 32768, 60999, 65535]
PROBED = sorted({port + by for port in EDGE_PORTS for by in (-1, 0, 1)} & set(range(65536)))
EDGES = st.sampled_from(EDGE_PORTS)
ENDS = st.one_of(st.none(), st.tuples(EDGES, EDGES).map(lambda pair: (min(pair), max(pair))))
CIDRS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "10.20.1.0/24", "10.20.1.16/28", "10.20.1.17/32", "::/0"])
ADDRESSES = st.sampled_from(["10.20.1.17", "10.20.1.1", "10.9.9.9", "192.0.2.1", "2001:db8::1"])
PROTOCOLS = st.sampled_from(["-1", "tcp", "udp", "icmp"])


def rule(
    protocol: str = "tcp",
    ends: Optional[tuple[int, int]] = (0, 65535),
    kind: SourceKind = SourceKind.GROUP,
    source: str = "sg-a",
    peering_status: str = "",
) -> SecurityGroupRule:
    first, last = ends or (None, None)
    return SecurityGroupRule(
        group_id="sg-own",
        egress=False,
        protocol=protocol,
        first=first,
        last=last,
        kind=kind,
        source=source,
        network=ipaddress.ip_network(source) if kind is SourceKind.CIDR else None,
        peering_status=peering_status,
    )


def peer(address: str = "10.20.1.17", groups: Optional[frozenset[str]] = frozenset({"sg-a"})) -> Peer:
    return Peer(address=ipaddress.ip_address(address), groups=groups)


@pytest.mark.parametrize(
    ("one", "far", "expected"),
    [
        (rule(source="sg-a"), peer(), True),
        (rule(source="sg-b"), peer(), False),
        (rule(source="sg-a"), peer(groups=None), None),
        (rule(source="sg-a", peering_status="active"), peer(), True),
        (rule(source="sg-a", peering_status="deleted"), peer(), False),
        (rule(kind=SourceKind.CIDR, source="10.20.1.0/27"), peer("10.20.1.31"), True),
        (rule(kind=SourceKind.CIDR, source="10.20.1.0/27"), peer("10.20.1.32"), False),
        (rule(kind=SourceKind.CIDR, source="::/0"), peer("10.20.1.1"), False),
        (rule(kind=SourceKind.PREFIX_LIST, source="pl-1"), peer(), None),
    ],
)
def test_a_rule_matches_by_group_or_address_or_cannot_tell(
    one: SecurityGroupRule, far: Peer, expected: Optional[bool]
) -> None:
    """True, False, and None for what nobody read."""
    assert one.matches(far) is expected


@pytest.mark.parametrize(
    ("one", "tcp"),
    [
        (rule(ends=(29500, 29500)), "29500"),
        (rule("-1", None), "0-65535"),
        (rule("tcp", None), "0-65535"),
        (rule("udp"), "none"),
        (rule("icmp", (-1, -1)), "none"),
    ],
)
def test_a_rule_speaks_of_its_own_protocol_and_minus_one_of_all(one: SecurityGroupRule, tcp: str) -> None:
    """Ports of another protocol are none of TCP's."""
    assert str(one.ports("tcp")) == tcp


def test_the_longest_prefix_is_the_route() -> None:
    """A route for a part goes before one for the whole, whatever the order; prefix lists come last."""
    routes = [
        Route(ipaddress.ip_network("0.0.0.0/0"), "igw-1"),
        Route(ipaddress.ip_network("10.20.2.0/24"), "eni-1"),
        Route(ipaddress.ip_network("10.20.0.0/16"), "local"),
        Route(None, "tgw-1", prefix_list="pl-1"),
    ]
    targets = []
    for address in ("10.20.2.9", "10.20.1.9", "192.0.2.1", "2001:db8::1"):
        best = best_route(routes, ipaddress.ip_address(address))
        targets.append(best.target if best else None)
    assert targets == ["eni-1", "local", "igw-1", None]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (rule(ends=(29500, 29500)), "sg-own allows tcp 29500 from sg-a"),
        (rule(), "sg-own allows all tcp from sg-a"),
        (rule("-1", None), "sg-own allows all protocols from sg-a"),
        (rule("icmp", (3, 4)), "sg-own allows icmp type 3 from sg-a"),
        (rule("50", None), "sg-own allows all 50 from sg-a"),
    ],
)
def test_a_rule_reads_as_people_say_it(one: SecurityGroupRule, text: str) -> None:
    """The evidence in a verdict is this text."""
    assert str(one) == text
