"""The node's AWS client against ministack, looked at with boto3; and its signal, byte by byte."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.parsers import EC2QueryParser

from cluster.rules import SourceKind
from probe.account import AccountReader
from probe.aws import CredentialChain, Metric, S3Client, put_log_event, put_metric_data, signal
from probe.ec2_query import OPERATIONS, parse_answer
from probe.metadata import InstanceMetadata
from probe.signing import Credentials
from probe.transport import AwsError, RetryPolicy
from tests.probe.aws_server import Answer, Asked, answering
from tests.probe.imds_server import Instance, serving

REGION = "eu-central-1"
KEYS = Credentials(access_key_id="AKID", secret_access_key="s")  # noqa: S106 - made up
QUICK = RetryPolicy(total_s=5.0, timeout_s=2.0, attempts=2, base_s=0.01, cap_s=0.02)
HANDLE_QUERY = "X-Amz-Expires=86399&X-Amz-Signature=hidden-signature&X-Amz-Credential=AKID%2F20251118"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A control plane of its own on a free loopback port."""
    folder = tmp_path_factory.mktemp("ministack")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "HOME": str(folder),
        "TMPDIR": str(folder),  # it leaves a file named after its port there
    }
    with (folder / "log").open("w") as log:
        program = str(Path(sys.executable).with_name("ministack"))
        server = subprocess.Popen([program], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/_ministack/health", timeout=1).close()  # noqa: S310 - http, loopback
                break
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def cloud(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sends our client there by the environment, and gives boto3 clients of it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        monkeypatch.delenv(name, raising=False)
    return lambda service: boto3.client(service, region_name=REGION)


@pytest.fixture
def bucket(cloud: Any, request: pytest.FixtureRequest) -> str:
    """A new bucket."""
    name = f"b{abs(hash(request.node.nodeid)) % 10**10}"
    cloud("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


def test_objects_go_and_come(cloud: Any, bucket: str) -> None:
    """A row's key with its odd characters arrives as written, and boto3 sees the same key and bytes."""
    key = "rows/r1/AROAX:i-0/member~10.0.0.4~29500~32768,60999 ü+%41&=?#"
    s3 = S3Client(bucket=bucket, region=REGION)
    s3.put_object(key, b"row \x00\xff")
    assert s3.get_object(key) == b"row \x00\xff"
    assert s3.list_keys("rows/") == [key]
    assert [item["Key"] for item in cloud("s3").list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert cloud("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == b"row \x00\xff"
    assert s3.clock_offset_s == pytest.approx(0, abs=2)


def test_listings_are_read_to_their_end(bucket: str) -> None:
    """More keys than one page holds are all there, in order, and none of another prefix."""
    s3 = S3Client(bucket=bucket, region=REGION)
    keys = [f"many/{number:04d}" for number in range(1003)]
    for key in [*keys, "other/1"]:
        s3.put_object(key, b"")
    assert s3.list_keys("many/") == keys
    assert s3.list_keys("none/") == []


def test_what_is_missing_is_named(bucket: str) -> None:
    """A missing object and a missing bucket are told apart, each with its next step."""
    with pytest.raises(AwsError) as no_key:
        S3Client(bucket=bucket, region=REGION).get_object("none")
    with pytest.raises(AwsError) as no_bucket:
        S3Client(bucket="no-such-bucket-here", region=REGION).list_keys("rows/")
    assert (no_key.value.code, no_bucket.value.code) == ("NoSuchKey", "NoSuchBucket")
    assert "deploy the evidence stack" in no_bucket.value.next_step


def test_a_bucket_is_part_of_the_host_name_on_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a custom endpoint the address is the bucket's own, except where a dot forbids it."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    policy = RetryPolicy(total_s=0.5, timeout_s=0.1, attempts=1)
    hosts = []
    for name in ("rows-1", "rows.with.dots"):
        with pytest.raises(AwsError) as caught:  # a label of a host name has at most 63 characters
            S3Client(bucket=name, region="x" * 70, policy=policy, credentials=lambda _: KEYS).get_object("k")
        hosts.append(str(caught.value).partition("no answer from ")[2].partition(":")[0])
    assert hosts == [f"rows-1.s3.{'x' * 70}.amazonaws.com", f"s3.{'x' * 70}.amazonaws.com"]


def test_metrics_arrive_whole(cloud: Any) -> None:
    """Hundreds of values of one metric, repeated ones among them, keep their count, sum and extremes."""
    values = [number / 8 for number in range(400)] + [1.0] * 5
    namespace = f"Fullmesh{time.time_ns()}"
    put_metric_data(
        namespace=namespace,
        metrics=[
            Metric(name="RoundTripTime", values=values, unit="Milliseconds", dimensions={"Cluster": "c"}),
            Metric(name="MeshVerdict", values=[1]),
        ],
        region=REGION,
    )
    (point,) = cloud("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName="RoundTripTime",
        Dimensions=[{"Name": "Cluster", "Value": "c"}],
        StartTime=time.time() - 3600,
        EndTime=time.time() + 3600,
        Period=7200,
        Statistics=["Sum", "SampleCount", "Minimum", "Maximum"],
    )["Datapoints"]
    told = [point[name] for name in ("SampleCount", "Sum", "Minimum", "Maximum", "Unit")]
    assert told == [405.0, sum(values), 0.0, 399 / 8, "Milliseconds"]


def test_a_log_event_makes_its_stream(cloud: Any) -> None:
    """The stream is made when it is missing, once; a missing group is an error that names it."""
    group = f"verdicts-{time.time_ns()}"
    with pytest.raises(AwsError, match=f"ResourceNotFoundException .*{group}.*evidence stack"):
        put_log_event(log_group=group, log_stream="verdicts", message="m", region=REGION)
    cloud("logs").create_log_group(logGroupName=group)
    for message in ('{"kind": "verdict", "name": "ü"}', "second"):
        put_log_event(log_group=group, log_stream="verdicts", message=message, region=REGION)
    events = cloud("logs").get_log_events(logGroupName=group, logStreamName="verdicts")["events"]
    assert [event["message"] for event in events] == ['{"kind": "verdict", "name": "ü"}', "second"]


def test_credentials_of_the_environment_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment are taken, else the role's; half a pair is an error that names the rest."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    with serving(Instance()) as url:
        chain = CredentialChain(InstanceMetadata(url))
        assert (chain().access_key_id, chain().session_token) == ("AKENV", "t")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(AwsError, match="AWS_SECRET_ACCESS_KEY is not set"):
            chain()
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        assert chain().access_key_id == "ASIA1"
        assert chain(renew=True).access_key_id == "ASIA2"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AwsError) as caught:
        CredentialChain()()
    assert (caught.value.code, caught.value.denied) == ("NoCredentials", False)


def test_the_signal_is_what_the_handle_takes() -> None:
    """A PUT to the URL as it stands, an empty Content-Type, no signature of ours; Data is cut to fit."""
    with answering(lambda *_: Answer()) as (url, asked):
        signal(
            handle_url=f"{url}/arn%3Aaws%3Acloudformation/handle?{HANDLE_QUERY}",
            status="FAILURE",
            reason="sg-only-master-port: …",
            data="ü" * 3000,
        )
    (request,) = asked
    assert (request.method, request.target) == ("PUT", f"/arn%3Aaws%3Acloudformation/handle?{HANDLE_QUERY}")
    assert request.headers["content-type"] == ""
    assert "authorization" not in request.headers
    document = json.loads(request.body)
    assert {key: document[key] for key in ("Status", "Reason", "UniqueId")} == {
        "Status": "FAILURE",
        "Reason": "sg-only-master-port: …",
        "UniqueId": "verdict",
    }
    assert document["Data"] == "ü" * 2048


def test_a_wait_condition_hears_the_signal(cloud: Any) -> None:
    """A stack of the control plane completes on SUCCESS, with the data as its output."""
    name = f"wait-{time.time_ns()}"
    resources = {
        "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
        "Wait": {
            "Type": "AWS::CloudFormation::WaitCondition",
            "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "60"},
        },
    }
    cloud("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps({"Resources": resources}))
    url = ""
    for _ in range(100):
        for item in cloud("cloudformation").describe_stack_resources(StackName=name)["StackResources"]:
            if item["LogicalResourceId"] == "Handle":
                url = item.get("PhysicalResourceId", "")
        if url:
            break
        time.sleep(0.1)
    signal(handle_url=url, status="SUCCESS", reason="", data="PASS")
    for _ in range(100):
        status = cloud("cloudformation").describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        if status != "CREATE_IN_PROGRESS":
            break
        time.sleep(0.1)
    assert status == "CREATE_COMPLETE"


def test_a_refused_signal_does_not_show_the_url() -> None:
    """Whoever has the URL can signal, so no error holds its query."""
    with (
        answering(lambda *_: Answer(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")) as (
            url,
            _,
        ),
        pytest.raises(AwsError) as caught,
    ):
        signal(handle_url=f"{url}/handle?{HANDLE_QUERY}", status="SUCCESS", reason="")
    assert "SignalWaitCondition failed: AccessDenied (status 403)" in str(caught.value)
    assert "hidden" not in f"{caught.value!r}{vars(caught.value)}"
    with pytest.raises(ValueError, match="signal status 'OK' is neither SUCCESS nor FAILURE"):
        signal(handle_url=url, status="OK", reason="")


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
