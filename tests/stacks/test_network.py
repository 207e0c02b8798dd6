"""The network: its shapes, its way out, and that nodes do not boot before it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import app
from stacks.network import member_zones, subnet_blocks
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import ACCOUNT, REGION, Synthesis, cdk_json, new_app, synthesise


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


def test_each_endpoint_admits_the_services_own_actions(isolated: Synthesis) -> None:
    """CloudWatch's endpoint is `monitoring`, its actions are cloudwatch's: else no metric arrives."""
    admitted = {}
    for endpoint in isolated.of_type("AWS::EC2::VPCEndpoint").values():
        properties = endpoint["Properties"]
        if properties["VpcEndpointType"] == "Interface":
            (statement,) = properties["PolicyDocument"]["Statement"]
            assert statement["Condition"] == {
                "StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}
            }
            admitted[_text(properties["ServiceName"]).rpartition(".")[2]] = statement["Action"]
    assert {service: _listed(actions) for service, actions in admitted.items()} == {
        "logs": ["logs:*"],
        "monitoring": ["cloudwatch:*"],
        "ec2": ["ec2:*"],
        "ssm": ["ssm:*"],
        "ssmmessages": ["ssmmessages:*"],
    }


def test_what_a_node_may_do_passes_the_endpoints(isolated: Synthesis) -> None:
    """No action of the role is cut off in a network whose only ways out are its endpoints."""
    prefixes = {
        action.partition(":")[0]
        for endpoint in isolated.of_type("AWS::EC2::VPCEndpoint").values()
        for statement in endpoint["Properties"]["PolicyDocument"]["Statement"]
        for action in _listed(statement["Action"])
        if action.endswith(":*")
    }
    (role,) = (
        r["Properties"]
        for r in isolated.of_type("AWS::IAM::Role").values()
        if "ManagedPolicyArns" in r["Properties"]
    )
    (policy,) = role["Policies"]
    used = {
        action.partition(":")[0]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in _listed(statement["Action"])
    }
    assert used == {"s3", "cloudwatch", "logs", "ec2"}
    assert used <= prefixes


def test_the_s3_endpoint_admits_the_account_and_what_belongs_to_aws(public: Synthesis) -> None:
    """Any bucket for the account's own principals; without them only AWS's packages, layers, the signal."""
    endpoint = public.one("AWS::EC2::VPCEndpoint")
    statements = {s["Sid"]: s for s in endpoint["PolicyDocument"]["Statement"]}
    own = statements.pop("OwnAccount")
    assert (own["Action"], own["Resource"]) == (["s3:*"], ["*"])
    assert own["Condition"] == {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}
    buckets = {
        sid: (s["Action"][0], [_text(item) for item in _listed(s["Resource"])])
        for sid, s in statements.items()
    }
    arn = "arn:<AWS::Partition>:s3:::"
    assert buckets == {
        "ReadOfAws": (
            "s3:GetObject",
            [
                f"{arn}al2023-repos-<AWS::Region>-*/*",
                f"{arn}prod-<AWS::Region>-starport-layer-bucket/*",
            ],
        ),
        "Signal": ("s3:PutObject", [f"{arn}cloudformation-waitcondition-<AWS::Region>/*"]),
    }
    assert all("Condition" not in s for s in statements.values())


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

    zones = "us-east-1b,us-east-1d"
    spec = ClusterSpec.from_context(
        cdk_json()["cluster"], {"subnets": 2, "placement": "none", "availability_zone": zones}
    )
    assert member_zones(spec) == ["us-east-1b", "us-east-1d"]
    assert subnet_blocks(spec) == ["10.20.0.0/18", "10.20.64.0/18", "10.20.128.0/18", "10.20.192.0/18"]
    found = synthesise(**SHAPES["spread-two-subnets"])
    used = [s["Properties"]["AvailabilityZone"] for s in found.of_type("AWS::EC2::Subnet").values()]
    assert sorted(used) == ["us-east-1b", "us-east-1d"]


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


def test_services_have_the_names_of_their_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """China's regions call some services otherwise; an endpoint under the usual name cannot be made there."""
    application = new_app(tmp_path, cluster__network="isolated", cluster__torch_source="image")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "cn-north-1")
    app.build(application)
    application.synth()
    template = json.loads((tmp_path / "fullmesh.template.json").read_text(encoding="utf-8"))
    names = [
        resource["Properties"]["ServiceName"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::EC2::VPCEndpoint"
        and resource["Properties"]["VpcEndpointType"] == "Interface"
    ]
    assert sorted(names) == [
        "cn.com.amazonaws.cn-north-1.ec2",
        "cn.com.amazonaws.cn-north-1.monitoring",
        "com.amazonaws.cn-north-1.logs",
        "com.amazonaws.cn-north-1.ssm",
        "com.amazonaws.cn-north-1.ssmmessages",
    ]


def looked_up(vpc_id: str, public: dict[str, str]) -> dict[str, Any]:
    """What the CLI keeps of a VPC that has public subnets alone (id -> zone)."""
    key = (
        f"vpc-provider:account={ACCOUNT}:filter.vpc-id={vpc_id}:region={REGION}:returnAsymmetricSubnets=true"
    )
    subnets = [
        {"subnetId": name, "cidr": f"10.0.{index}.0/24", "availabilityZone": zone, "routeTableId": "rtb-1"}
        for index, (name, zone) in enumerate(public.items())
    ]
    return {
        key: {
            "vpcId": vpc_id,
            "vpcCidrBlock": "10.0.0.0/16",
            "ownerAccountId": ACCOUNT,
            "availabilityZones": [],
            "subnetGroups": [{"name": "Public", "type": "Public", "subnets": subnets}],
        }
    }


@pytest.mark.parametrize(
    "given",
    [
        {"cluster__network": "isolated", "cluster__torch_source": "image"},
        {"cluster__availability_zone": "us-east-1c"},
    ],
)
def test_a_vpc_that_nobody_looked_up_is_asked_of_the_cli(given: dict[str, Any]) -> None:
    """Whatever is wanted of it: a synthesis that failed here would never come to the look-up."""
    found = synthesise(cluster__vpc_id="vpc-0123456789abcdef0", **given)
    manifest = json.loads((found.folder / "manifest.json").read_text(encoding="utf-8"))
    assert [item["provider"] for item in manifest["missing"]] == ["vpc-provider"]


def test_a_vpc_without_such_subnets_is_refused_with_what_it_has(tmp_path: Path) -> None:
    """The error names the kinds of subnets that the VPC has, and where."""
    vpc_id = "vpc-0123456789abcdef0"
    known = looked_up(vpc_id, {"subnet-1": "us-east-1a", "subnet-2": "us-east-1b"})
    application = new_app(tmp_path, cluster__vpc_id=vpc_id, cluster__network="private", **known)
    with pytest.raises(ValueError, match="has private subnets in 0 zones, 1 needed") as caught:
        app.build(application)
    assert "(it has public: us-east-1a, us-east-1b; private: none; isolated: none)" in str(caught.value)


def test_two_subnets_of_an_existing_vpc_lie_in_two_zones(tmp_path: Path) -> None:
    """A VPC may have several subnets in a zone: one of each zone is taken, of the named zones if named."""
    vpc_id = "vpc-0123456789abcdef0"
    known = looked_up(
        vpc_id,
        {
            "subnet-1": "us-east-1a",
            "subnet-2": "us-east-1a",
            "subnet-3": "us-east-1b",
            "subnet-4": "us-east-1c",
        },
    )

    def taken(folder: str, **more: str) -> Any:
        application = new_app(
            tmp_path / folder,
            cluster__vpc_id=vpc_id,
            cluster__subnets="2",
            cluster__placement="none",
            **{**known, **more},
        )
        app.build(application)
        application.synth()
        template = json.loads((tmp_path / folder / "fullmesh.template.json").read_text(encoding="utf-8"))
        return template["Resources"]["Group"]["Properties"]["VPCZoneIdentifier"]

    assert taken("any") == ["subnet-1", "subnet-3"]
    assert taken("named", cluster__availability_zone="us-east-1b,us-east-1c") == ["subnet-3", "subnet-4"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    from stacks.accepted import as_cdk_nag_writes  # noqa: PLC0415

    if isinstance(value, dict) and "Fn::ImportValue" in value:
        return f"<{value['Fn::ImportValue']}>"
    if isinstance(value, dict) and "Fn::Join" in value:
        return "".join(_text(part) for part in value["Fn::Join"][1])
    return as_cdk_nag_writes(value)
