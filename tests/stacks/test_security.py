"""Who may talk to whom, by port profile."""

from __future__ import annotations

import pytest

from tests.stacks.synthesis import Synthesis, synthesise

SELF = {"Fn::GetAtt": ["MemberGroup", "GroupId"]}


def self_rules(found: Synthesis) -> dict[str, list[tuple[str, int | None, int | None]]]:
    """Direction -> (protocol, first, last) of every rule that names the group itself."""
    rules = {}
    for way, end in (("Ingress", "Source"), ("Egress", "Destination")):
        rules[way] = sorted(
            (p["IpProtocol"], p.get("FromPort"), p.get("ToPort"))
            for p in (r["Properties"] for r in found.of_type(f"AWS::EC2::SecurityGroup{way}").values())
            if p["GroupId"] == SELF and p[f"{end}SecurityGroupId"] == SELF
        )
    return rules


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, [("tcp", 0, 65535)]),
        ({"cluster__port_profile": "pinned"}, [("tcp", 29500, 29500), ("tcp", 50000, 50999)]),
        ({"cluster__port_profile": "efa"}, [("-1", None, None)]),
    ],
)
def test_each_profile_opens_the_group_to_itself_both_ways(
    context: dict[str, str], expected: list[tuple[str, int | None, int | None]]
) -> None:
    """All TCP, the pinned ports, or every protocol; in and out alike, and nothing besides."""
    assert self_rules(synthesise(**context)) == {"Ingress": expected, "Egress": expected}


def test_the_inline_rules_are_the_only_ones_by_address(public: Synthesis) -> None:
    """Fragmentation needed comes in from the VPC, HTTPS goes out; both make the lists explicit."""
    group = public.cluster["Resources"]["MemberGroup"]["Properties"]
    assert [
        (r["IpProtocol"], r["FromPort"], r["ToPort"], r["CidrIp"]) for r in group["SecurityGroupIngress"]
    ] == [("icmp", 3, 4, "10.20.0.0/16")]
    assert [
        (r["IpProtocol"], r["FromPort"], r["ToPort"], r["CidrIp"]) for r in group["SecurityGroupEgress"]
    ] == [("tcp", 443, 443, "0.0.0.0/0")]


def test_the_deliberate_fault_narrows_the_inbound_side_only() -> None:
    """The famous failure: MASTER_PORT in, and the way out as in a healthy cluster."""
    faulty = synthesise(**{"fullmesh:unsafe-rules": "sg-only-master-port"})
    assert self_rules(faulty) == {"Ingress": [("tcp", 29500, 29500)], "Egress": [("tcp", 0, 65535)]}
