"""The account's rules as a node reads them: from ministack, and from an EC2 that refuses or is silent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.parsers import EC2QueryParser

from cluster.rules import SourceKind
from probe.account import AccountReader
from probe.ec2_query import OPERATIONS, parse_answer
from probe.transport import RetryPolicy
from tests.probe.aws_server import KEYS, REGION, Answer, Asked, answering

QUICK = RetryPolicy(total_s=5.0, timeout_s=2.0, attempts=2, base_s=0.01, cap_s=0.02)


@pytest.fixture
def members(cloud: Any) -> list[str]:
    """Two instances in a VPC with a group that refers to itself."""
    ec2 = cloud("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet_id = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    group_id = ec2.create_security_group(GroupName="mesh", Description="members", VpcId=vpc_id)["GroupId"]
    ec2.authorize_security_group_ingress(
        GroupId=group_id,
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 0,
                "ToPort": 65535,
                "UserIdGroupPairs": [{"GroupId": group_id, "Description": "mesh"}],
            },
            {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]},
        ],
    )
    started = ec2.run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=2,
        MaxCount=2,
        SubnetId=subnet_id,
        SecurityGroupIds=[group_id],
    )
    return [instance["InstanceId"] for instance in started["Instances"]]


def test_the_account_is_read_as_a_snapshot(cloud: Any, members: list[str]) -> None:
    """Instances, groups, ACLs, routes, subnets and VPC of the members are there, and all tables complete."""
    snapshot = AccountReader(region=REGION).describe_cluster_snapshot(members)
    assert snapshot is not None
    assert sorted(snapshot.instances.items) == sorted(members)
    (group_id,) = (group.id for group in snapshot.security_groups if group.name == "mesh")
    group = snapshot.security_groups.get(group_id)
    assert group is not None
    assert group.rules is not None
    inbound = {(rule.protocol, rule.kind, rule.source) for rule in group.rules if not rule.egress}
    assert inbound == {
        ("tcp", SourceKind.GROUP, group_id),
        ("icmp", SourceKind.CIDR, "10.0.0.0/16"),
    }
    assert snapshot.interfaces.complete
    tables = (
        snapshot.instances,
        snapshot.security_groups,
        snapshot.network_acls,
        snapshot.route_tables,
        snapshot.subnets,
        snapshot.vpcs,
    )
    assert [table.problem for table in tables] == [""] * len(tables)
    assert all(len(table) for table in tables)


def test_the_emulators_answers_read_as_botocore_reads_them(
    cloud: Any, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer that came over the wire gives the document that the AWS CLI prints."""
    seen: list[bytes] = []

    def recorded(xml: bytes) -> Any:
        seen.append(xml)
        return parse_answer(xml)

    monkeypatch.setattr("probe.account.parse_answer", recorded)
    documents, problems = AccountReader(region=REGION).describe_cluster(members)
    assert problems == {}
    for vpc in documents["vpcs"]["Vpcs"]:
        for foreign in ("DefaultNetworkAclId", "DefaultSecurityGroupId", "MainRouteTableId"):
            del vpc[foreign]  # the emulator's own elements, which EC2 does not have
    model = cloud("ec2").meta.service_model
    for (name, operation), xml in zip(OPERATIONS.items(), seen, strict=True):
        shape = model.operation_model(operation).output_shape
        wanted = EC2QueryParser().parse({"body": xml, "headers": {}, "status_code": 200}, shape)
        for key in ("ResponseMetadata", "NextToken"):
            wanted.pop(key, None)
        assert documents[name] == json.loads(json.dumps(wanted, default=lambda moment: moment.isoformat()))


def ec2_answer(request: Asked, denied: frozenset[str]) -> Answer:
    """An EC2 that refuses some operations and pages its instances."""
    fields = dict(pair.split("=") for pair in request.body.decode().split("&"))
    operation = fields["Action"]
    if operation in denied:
        error = f"<Code>UnauthorizedOperation</Code><Message>You may not {operation}</Message>"
        body = f"<Response><Errors><Error>{error}</Error></Errors></Response>"
        return Answer(status=403, body=body.encode())
    inner, token = "", ""
    if operation == "DescribeInstances":
        number = 2 if fields.get("NextToken") == "more" else 1
        token = "more" if number == 1 else ""
        instance = f"<instanceId>i-{number}</instanceId><vpcId>vpc-1</vpcId>"
        reservation = f"<instancesSet><item>{instance}</item></instancesSet>"
        inner = f"<reservationSet><item>{reservation}</item></reservationSet>"
    elif operation == "DescribeSecurityGroups":
        inner = "<securityGroupInfo/>"
    inner = f"<requestId>1</requestId>{inner}<nextToken>{token}</nextToken>"
    return Answer(body=f"<{operation}Response>{inner}</{operation}Response>".encode())


def reader(monkeypatch: pytest.MonkeyPatch, url: str) -> AccountReader:
    """A reader of that EC2."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    return AccountReader(region=REGION, credentials=lambda _: KEYS, policy=QUICK)


def test_pages_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of instances become one document without a NextToken."""
    with answering(lambda request, _: ec2_answer(request, frozenset())) as (url, _):
        documents, problems = reader(monkeypatch, url).describe_cluster(["i-1", "i-2"])
    reservations = documents["instances"]["Reservations"]
    assert [item["Instances"][0]["InstanceId"] for item in reservations] == ["i-1", "i-2"]
    assert "NextToken" not in documents["instances"]
    assert problems == {}


def test_instances_of_the_cluster_that_are_no_members_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cluster's name, its tagged instances come beside the members, each once."""

    def answer(request: Asked, _: int) -> Answer:
        found = ec2_answer(request, frozenset())
        tagged = b"Filter.1.Name=tag%3Afullmesh%3Acluster&" in request.body
        return Answer(body=found.body.replace(b"i-1", b"i-3")) if tagged else found

    with answering(answer) as (url, _):
        documents, problems = reader(monkeypatch, url).describe_cluster(["i-1", "i-2"], "demo")
    reservations = documents["instances"]["Reservations"]
    assert [item["Instances"][0]["InstanceId"] for item in reservations] == ["i-1", "i-2", "i-3"]
    assert problems == {}


def test_a_missing_permission_leaves_its_table_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may not be read is a table that is incomplete and an action to allow, never an empty table."""
    denied = frozenset({"DescribeNetworkAcls", "DescribeVpcs"})
    with answering(lambda request, _: ec2_answer(request, denied)) as (url, _):
        account = reader(monkeypatch, url)
        snapshot = account.describe_cluster_snapshot(["i-1"])
    assert snapshot is not None
    assert account.missing_permissions == ("ec2:DescribeNetworkAcls", "ec2:DescribeVpcs")
    assert "allow ec2:DescribeNetworkAcls in this node's role" in snapshot.network_acls.problem
    assert snapshot.security_groups.complete


def test_without_the_instances_there_is_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Access denied to the instances gives None, and says which permission is missing."""
    with answering(lambda request, _: ec2_answer(request, frozenset({"DescribeInstances"}))) as (url, asked):
        account = reader(monkeypatch, url)
        assert account.describe_cluster_snapshot(["i-1"]) is None
    assert account.missing_permissions == ("ec2:DescribeInstances",)
    assert len(asked) == 1
    assert set(account.problems) == set(OPERATIONS)


def test_an_ec2_that_is_silent_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that cannot be reached costs one call's time, not seven, and is no missing permission."""

    def cut_off(request: Asked, number: int) -> Answer:
        return ec2_answer(request, frozenset()) if number < 2 else Answer(silent=True)

    with answering(cut_off) as (url, asked):
        account = reader(monkeypatch, url)
        snapshot = account.describe_cluster_snapshot(["i-1"])
    assert snapshot is not None
    assert account.missing_permissions == ()
    assert len(asked) <= 2 + 2 * QUICK.attempts
    assert account.problems["vpcs"] == "not tried: ec2 had not answered before"


def test_many_members_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter takes 200 values, so 250 members take two calls."""
    with answering(lambda request, _: ec2_answer(request, frozenset())) as (url, asked):
        reader(monkeypatch, url).describe_cluster([f"i-{number}" for number in range(250)])
    counts = [
        request.body.count(b"Filter.1.Value.") for request in asked if b"DescribeInstances" in request.body
    ]
    assert counts == [200, 200, 50, 50]
