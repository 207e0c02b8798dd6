"""The network: its shapes, its way out, and that nodes do not boot before it is there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stacks.network import member_zones, subnet_blocks
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import Synthesis, cdk_json, synthesise


def default_routes(found: Synthesis) -> list[str]:
    """What the routes to 0.0.0.0/0 lead to."""
    kinds = []
    for route in found.of_type("AWS::EC2::Route").values():
        properties = route["Properties"]
        assert properties["DestinationCidrBlock"] == "0.0.0.0/0"
        kinds += [key for key in ("GatewayId", "NatGatewayId") if key in properties]
    return sorted(kinds)


@pytest.mark.parametrize(
    ("shape", "routes", "public_address"),
    [
        ("public", ["GatewayId"], True),
        ("private-pinned-reservation", ["GatewayId", "NatGatewayId"], False),
        ("isolated-efa-existing", [], False),
    ],
)
def test_each_kind_of_network_has_its_way_out(shape: str, routes: list[str], public_address: bool) -> None:
    """Public: a gateway. Private: NAT behind one. Isolated: no route out at all."""
    found = synthesise(**SHAPES[shape])
    (interface,) = found.launch_data["NetworkInterfaces"]
    assert default_routes(found) == routes
    assert interface["AssociatePublicIpAddress"] is public_address


def test_the_isolated_network_reaches_exactly_what_nodes_call(isolated: Synthesis) -> None:
    """Interface endpoints cost by the hour: logs, metrics, rules, Session Manager; S3's is free."""
    services = {
        json.dumps(e["Properties"]["ServiceName"]).split(".")[-1].rstrip('"]} '): e["Properties"][
            "VpcEndpointType"
        ]
        for e in isolated.of_type("AWS::EC2::VPCEndpoint").values()
    }
    assert services == {
        "s3": "Gateway",
        "logs": "Interface",
        "monitoring": "Interface",
        "ec2": "Interface",
        "ssm": "Interface",
        "ssmmessages": "Interface",
    }


def test_the_s3_endpoint_admits_what_a_node_needs(public: Synthesis) -> None:
    """Assets and packages to read, rows and the signal to write, and no other bucket."""
    endpoint = public.one("AWS::EC2::VPCEndpoint")
    text = {
        statement["Sid"]: [_text(item) for item in _listed(statement["Resource"])]
        for statement in endpoint["PolicyDocument"]["Statement"]
    }
    rows = "arn:<AWS::Partition>:s3:::<fullmesh-evidence-EvidenceBucket>"
    assets = "arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-123456789012-us-east-1/*"
    assert text == {
        "Read": [assets, f"{rows}/*", "arn:<AWS::Partition>:s3:::al2023-repos-<AWS::Region>-*/*"],
        "Write": [f"{rows}/rows/*", "arn:<AWS::Partition>:s3:::cloudformation-waitcondition-<AWS::Region>/*"],
        "List": [rows],
    }


def test_nodes_wait_for_routes_associations_endpoints_and_rules(shape: Synthesis) -> None:
    """Neither CDK nor CloudFormation orders them before the group by itself."""
    needed = {
        logical_id
        for kind in (
            "AWS::EC2::Route",
            "AWS::EC2::SubnetRouteTableAssociation",
            "AWS::EC2::VPCEndpoint",
            "AWS::EC2::SecurityGroupIngress",
            "AWS::EC2::SecurityGroupEgress",
        )
        for logical_id in shape.of_type(kind)
    }
    assert needed
    assert needed <= set(shape.cluster["Resources"]["Group"]["DependsOn"])


def test_rejected_traffic_is_logged_where_it_survives(public: Synthesis) -> None:
    """Flow logs of REJECT only, into the evidence stack's group."""
    log = public.one("AWS::EC2::FlowLog")
    assert (log["TrafficType"], log["ResourceType"], log["LogGroupName"]) == (
        "REJECT",
        "VPC",
        {"Fn::ImportValue": "fullmesh-evidence-FlowLogGroup"},
    )
    assert synthesise(cluster__flow_logs="false").of_type("AWS::EC2::FlowLog") == {}


def test_the_default_group_is_emptied_with_no_more_rights_than_that(public: Synthesis) -> None:
    """The function may revoke rules of this one group, and describe rules."""
    (closed,) = public.of_type("Custom::ClosedDefaultGroup").values()
    (vpc,) = public.of_type("AWS::EC2::VPC")
    assert closed["Properties"]["GroupId"] == {"Fn::GetAtt": [vpc, "DefaultSecurityGroup"]}
    revoking = [s for s in public.statements() if "ec2:RevokeSecurityGroupIngress" in s["Action"]]
    assert [s["Action"] for s in revoking] == [
        ["ec2:RevokeSecurityGroupIngress", "ec2:RevokeSecurityGroupEgress"]
    ]
    assert f"<{vpc}.DefaultSecurityGroup>" in _text(revoking[0]["Resource"])


def test_two_subnets_lie_in_two_zones() -> None:
    """Zones by name or the account's first ones; the range is split without overlap."""
    from cluster.spec import ClusterSpec  # noqa: PLC0415

    spec = ClusterSpec.from_context(
        cdk_json()["cluster"], {"subnets": 2, "placement": "none", "availability_zone": "us-east-1b"}
    )
    assert member_zones(spec) == ["us-east-1b", "us-east-1a"]
    assert subnet_blocks(spec) == ["10.20.0.0/18", "10.20.64.0/18", "10.20.128.0/18", "10.20.192.0/18"]
    found = synthesise(**SHAPES["spread-two-subnets"])
    zones = [s["Properties"]["AvailabilityZone"] for s in found.of_type("AWS::EC2::Subnet").values()]
    assert sorted(zones) == ["us-east-1a", "us-east-1b"]


def test_an_existing_vpc_is_used_and_not_changed() -> None:
    """Only a group and the fleet are made in it: no route, no endpoint, no subnet, no emptied group."""
    found = synthesise(cluster__vpc_id="vpc-0123456789abcdef0")
    made = {resource["Type"] for resource in found.cluster["Resources"].values()}
    assert not made & {
        "AWS::EC2::VPC",
        "AWS::EC2::Subnet",
        "AWS::EC2::Route",
        "AWS::EC2::VPCEndpoint",
        "Custom::ClosedDefaultGroup",
    }
    group = found.cluster["Resources"]["MemberGroup"]["Properties"]
    assert group["VpcId"] == "vpc-0123456789abcdef0"
    assert found.one("AWS::EC2::FlowLog")["ResourceType"] == "Subnet"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    from stacks.accepted import as_cdk_nag_writes  # noqa: PLC0415

    if isinstance(value, dict) and "Fn::ImportValue" in value:
        return f"<{value['Fn::ImportValue']}>"
    if isinstance(value, dict) and "Fn::Join" in value:
        return "".join(_text(part) for part in value["Fn::Join"][1])
    return as_cdk_nag_writes(value)
