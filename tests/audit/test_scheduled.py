"""The audit inside the account: its own function, deployed and called on a control plane."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from audit import scheduled
from audit.answer import audit_stack
from audit.difference import Deviation, Difference, Meaning
from audit.drift import Drift, our_stack
from audit.live import read_stack
from tests.audit.deployed import ASSETS, Account, ec2_error, refusing, running_account
from tests.lab.plane import REGION
from tests.stacks.synthesis import synthesise

NAMESPACE = "Fullmesh"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A deployed cluster whose functions have their code."""
    with running_account(tmp_path_factory.mktemp("scheduled")) as running:
        made = synthesise(cluster__name="fullmesh")
        keys = {
            item["Properties"]["Code"]["S3Key"]
            for item in made.of_type("AWS::Lambda::Function").values()
            if "S3Key" in item["Properties"]["Code"]
        }
        (key,) = keys
        folder = made.folder / f"asset.{Path(key).stem}"
        running.client("s3").put_object(Bucket=ASSETS, Key=key, Body=zipped(folder))
        running.deploy()
        yield running


def zipped(folder: Path) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return archive.getvalue()


def called(account: Account, event: dict[str, Any] | None = None) -> dict[str, Any]:
    """The function's answer, called as the schedule calls it."""
    client = account.client("lambda")
    (name,) = (
        item["FunctionName"]
        for page in client.get_paginator("list_functions").paginate()
        for item in page["Functions"]
        if item["Handler"] == "audit.scheduled.handler"
    )
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event or {}).encode())
    document: dict[str, Any] = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, document
    return document


def samples(account: Account, name: str) -> list[float]:
    """Every value of a metric that was sent, oldest first."""
    now = datetime.now(timezone.utc)
    found = account.client("cloudwatch").get_metric_data(
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=2),
        ScanBy="TimestampAscending",
        MetricDataQueries=[
            {
                "Id": "m",
                "MetricStat": {
                    "Metric": {
                        "Namespace": NAMESPACE,
                        "MetricName": name,
                        "Dimensions": [{"Name": "Cluster", "Value": "fullmesh"}],
                    },
                    "Period": 60,
                    "Stat": "Maximum",
                },
            }
        ],
    )
    return [float(value) for value in found["MetricDataResults"][0]["Values"]]


def test_an_untouched_cluster_is_in_sync_and_says_so_with_zeros(account: Account) -> None:
    """The deployed function sends both metrics as 0, and notes that no trail tells it of changes."""
    said = called(account)
    assert (said["verdict"], said["drift"], said["unanswered"]) == ("PASS", [], [])
    assert said["because"] == "schedule"
    assert said["changes"] == (
        "no CloudTrail trail logs in this region: a change is seen by the next audit, within 15 min"
    )
    assert max(samples(account, scheduled.DRIFTED)) == max(samples(account, scheduled.BREAKING)) == 0


def test_a_revoked_self_rule_is_told_with_its_meaning(account: Account) -> None:
    """CloudTrail's event is named as the reason; the metrics count what differs and what breaks the mesh."""
    ec2 = account.client("ec2")
    group = account.outputs()["MemberGroupId"]
    (rule,) = (
        item["SecurityGroupRuleId"]
        for item in ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])[
            "SecurityGroupRules"
        ]
        if not item["IsEgress"] and item.get("ReferencedGroupInfo", {}).get("GroupId") == group
    )
    ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rule])
    detail = {"eventName": "RevokeSecurityGroupIngress", "eventTime": "2026-01-01T00:00:00Z"}
    said = called(account, {"source": "aws.ec2", "detail": detail})
    assert (said["verdict"], said["mesh_possible"]) == ("FAIL", False)
    assert said["causes"][0]["id"] == "sg-no-self-ingress"
    assert said["because"] == "RevokeSecurityGroupIngress at 2026-01-01T00:00:00Z"
    assert [(item["resource"], item["meaning"], item["pairs"]) for item in said["drift"]] == [
        (group, "breaks-new-connections-only", 12)
    ]
    assert max(samples(account, scheduled.DRIFTED)) == max(samples(account, scheduled.BREAKING)) == 1


def test_an_audit_with_gaps_sends_no_metric(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused read leaves silence, which has an alarm, and the line names the permission."""
    before = samples(account, scheduled.DRIFTED), samples(account, scheduled.BREAKING)
    for name, value in {
        "STACK": "fullmesh",
        "METRIC_NAMESPACE": "Gaps",
        "INTERVAL_MIN": "15",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    denied = ec2_error("UnauthorizedOperation")
    with refusing(
        account, lambda action, _: denied if action == "DescribeSecurityGroups" else None
    ) as session:
        monkeypatch.setattr(boto3, "Session", lambda: session)
        said = scheduled.handler({}, None)
    assert said["verdict"] == "UNKNOWN"
    assert any("ec2:DescribeSecurityGroups" in line for line in said["unanswered"])
    names = account.client("cloudwatch").list_metrics(Namespace="Gaps")["Metrics"]
    assert names == []
    assert (samples(account, scheduled.DRIFTED), samples(account, scheduled.BREAKING)) == before


def test_beside_a_gap_nothing_is_counted_as_none(account: Account) -> None:
    """A cosmetic difference makes a FAIL, but with something unread neither metric says 0."""
    documents = read_stack(account.session, "fullmesh")
    audited = audit_stack(documents, our_stack(documents))
    told = Deviation("sg-1", "Group", "description", "a", "b", "", at_least=Meaning.COSMETIC)
    cosmetic = Difference(told, Meaning.COSMETIC, "")
    findings = dataclasses.replace(audited.findings, mesh_possible=True, exposed=(), unanswered=())
    whole = dataclasses.replace(audited, findings=findings, drift=Drift((cosmetic,)))
    assert scheduled.metrics(whole) == {scheduled.DRIFTED: 0, scheduled.BREAKING: 0}
    gap = dataclasses.replace(whole, drift=Drift((cosmetic,), ("flow logs were not read",)))
    assert (gap.verdict.value, scheduled.metrics(gap)) == ("FAIL", {})
