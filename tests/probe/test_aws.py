"""The node's AWS client against ministack, looked at with boto3; and its signal, byte by byte."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from probe.aws import S3Client, signal
from probe.credentials import CredentialChain
from probe.metadata import InstanceMetadata
from probe.transport import AwsError, RetryPolicy
from tests.probe.aws_server import KEYS, REGION, Answer, answering
from tests.probe.imds_server import Instance, serving

HANDLE_QUERY = "X-Amz-Expires=86399&X-Amz-Signature=hidden-signature&X-Amz-Credential=AKID%2F20251118"


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


PORTAL = b"<html><body>Welcome to our network</body></html>"


@pytest.mark.parametrize("call", ["put", "get", "list", "list-cut-short"])
def test_what_is_not_s3_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A portal's page with status 200 is neither a written row nor an empty bucket."""
    page = PORTAL
    if call == "list-cut-short":
        page = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    with answering(lambda *_: Answer(body=page)) as (url, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        s3 = S3Client(bucket="rows", region=REGION, credentials=lambda _: KEYS)
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: s3.put_object("k", b"row"),
            "get": lambda: s3.get_object("k"),
        }
        with pytest.raises(AwsError) as caught:
            calls.get(call, lambda: s3.list_keys("rows/"))()
    assert (caught.value.code, caught.value.status, len(asked)) == ("NotS3", 200, 1)
    assert "check for a proxy or a captive portal" in caught.value.next_step


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
    assert 'eval "$(aws configure export-credentials --format env)"' in caught.value.next_step


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
