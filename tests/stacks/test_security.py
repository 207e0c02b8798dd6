"""Who may talk to whom, by port profile."""

from __future__ import annotations

import pytest

from cluster.ports import PortRange
from diagnosis.static import judge_rules
from stacks.security import UNSAFE_RULES
from stacks.template_model import read_template
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


ALL = [("tcp", 0, 65535)]
MASTER = ("tcp", 29500, 29500)


@pytest.mark.parametrize(
    ("fault", "inward", "outward"),
    [
        ("sg-only-master-port", [MASTER], ALL),
        ("sg-no-self-ingress", [], ALL),
        ("sg-no-self-egress", ALL, []),
        ("sg-ports-too-narrow", [MASTER, ("tcp", 46884, 60999)], ALL),
    ],
)
def test_a_deliberate_fault_narrows_one_side_and_is_what_the_rules_say(
    fault: str, inward: list[object], outward: list[object]
) -> None:
    """Each fault's rules; judged as the nodes would judge them, they are that cause and nothing else."""
    faulty = synthesise(**{"fullmesh:unsafe-rules": fault})
    assert self_rules(faulty) == {"Ingress": inward, "Egress": outward}
    model = read_template(faulty.cluster, outside_cidr="10.20.0.0/16")
    found = judge_rules(model.snapshot, model.members, 29500, PortRange(32768, 60999))
    assert [(item.id, item.subject) for item in found.causes] == [(fault, "cluster")]


def test_every_deliberate_fault_is_tested() -> None:
    """A new one needs its line above."""
    tested = {"sg-only-master-port", "sg-no-self-ingress", "sg-no-self-egress", "sg-ports-too-narrow"}
    assert set(UNSAFE_RULES) == tested
