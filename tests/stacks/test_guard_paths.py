"""What the guard reads of the ways between two subnets: network ACLs and routes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stacks.guard import check
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import Json, synthesise
from tests.stacks.test_guard import Mutation, deny_by_acl, spec_of

TWO = "spread-two-subnets"


def add(kind: str, **properties: Any) -> Mutation:
    """One more resource, named New."""

    def mutate(template: Json) -> None:
        template["Resources"]["New"] = {"Type": kind, "Properties": properties}

    return mutate


def acl_of_both(*entries: Json) -> Mutation:
    """One ACL on both subnets that allows all IPv4, and these entries beside."""
    everything = {"RuleNumber": 100, "Protocol": -1, "RuleAction": "allow", "CidrBlock": "0.0.0.0/0"}

    def mutate(template: Json) -> None:
        deny_by_acl(template)
        both = ({**everything, "Egress": egress} for egress in (True, False))
        for number, entry in enumerate((*both, *entries)):
            template["Resources"][f"Entry{number}"] = {
                "Type": "AWS::EC2::NetworkAclEntry",
                "Properties": {"NetworkAclId": {"Ref": "Acl"}, **entry},
            }

    return mutate


def route(**properties: Any) -> Mutation:
    """One more route in the members' own table."""

    def mutate(template: Json) -> None:
        table = next(i for i, r in template["Resources"].items() if r["Type"] == "AWS::EC2::RouteTable")
        add("AWS::EC2::Route", RouteTableId={"Ref": table}, **properties)(template)

    return mutate


@pytest.mark.parametrize(
    "mutation",
    [
        acl_of_both({"RuleNumber": 101, "Protocol": -1, "RuleAction": "allow", "Ipv6CidrBlock": "::/0"}),
        route(DestinationIpv6CidrBlock="::/0", EgressOnlyInternetGatewayId={"Ref": "Gateway"}),
        route(DestinationPrefixListId="pl-1", TransitGatewayId="tgw-1"),
    ],
)
def test_what_leads_no_member_astray_is_no_fault(mutation: Mutation) -> None:
    """Entries and routes of IPv6 or of other addresses leave the way between members as it is."""
    template = copy.deepcopy(synthesise(**SHAPES[TWO]).cluster)
    mutation(template)
    assert check(template, spec_of(TWO)) == []


def test_a_denying_acl_of_two_subnets_is_told_as_blocked() -> None:
    """One ACL on several subnets is read for all of them."""
    template = copy.deepcopy(synthesise(**SHAPES[TWO]).cluster)
    deny_by_acl(template)
    (fault,) = check(template, spec_of(TWO))
    assert fault.detail.startswith("members cannot reach each other on tcp 29500")
    assert "Acl of NetworkMembers02D29B6B8" in fault.detail
    assert "Acl of NetworkMembers1E5968E6F" in fault.detail
