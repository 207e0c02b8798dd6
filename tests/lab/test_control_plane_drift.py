"""Drift detection of stacks: exactly as blind as CloudFormation's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.lab.plane import Plane
from tests.lab.stack import Stack, Template, fleet_template


def hand_added_rule(plane: Plane, group: str) -> None:
    plane.client("ec2").authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ],
    )


def group_template(ingress: list[dict[str, Any]] | None) -> Template:
    full = copy.deepcopy(fleet_template(1))
    resources = {name: full["Resources"][name] for name in ("Vpc", "Group", "SelfIn")}
    if ingress is not None:
        resources["Group"]["Properties"]["SecurityGroupIngress"] = ingress
    return {"Resources": resources, "Outputs": {"Group": {"Value": {"Ref": "Group"}}}}


INLINE = {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, "CidrIp": "10.42.0.0/16", "Description": "mtu"}


@pytest.mark.parametrize(
    ("ingress", "drifted"),
    [(None, {}), ([INLINE], {"Group": "MODIFIED"})],
    ids=["no-inline-rule", "one-inline-rule"],
)
def test_a_hand_added_rule_is_seen_only_beside_an_inline_one(
    plane: Plane, stack: Stack, ingress: list[dict[str, Any]] | None, drifted: dict[str, str]
) -> None:
    """Drift detection is exactly as blind as CloudFormation's own."""
    stack.create(group_template(ingress))
    assert stack.settle() == "CREATE_COMPLETE"
    assert stack.drifted() == {}
    hand_added_rule(plane, stack.outputs()["Group"])
    assert stack.drifted() == drifted


def test_a_separate_rule_that_was_revoked_is_seen(plane: Plane, stack: Stack) -> None:
    """The self rule is a resource of its own: without it the stack has drifted."""
    stack.create(group_template(None))
    assert stack.settle() == "CREATE_COMPLETE"
    group = stack.outputs()["Group"]
    pair = {"GroupId": group}
    plane.client("ec2").revoke_security_group_ingress(
        GroupId=group,
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": [pair]}],
    )
    assert stack.drifted() == {"SelfIn": "DELETED"}
