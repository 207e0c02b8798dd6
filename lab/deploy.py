"""The real CDK CLI against the lab: bootstrap, deploy, and what the stack's events say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from cluster.serial import decode
from diagnosis.report import Diagnosis
from lab import toolchain
from lab.state import LabState

_SIGNAL_EVENT = re.compile(r"received failed message: '(?P<reason>[^\n]*?)' for uniqueId")


@dataclass(frozen=True)
class Deployment:
    """complete: both stacks reached CREATE_COMPLETE or UPDATE_COMPLETE.

    event: the reason the wait condition gave, as in the terminal; "" when it gave none.
    """

    complete: bool
    event: str
    output: str


def client(state: LabState, service: str) -> Any:
    """A boto3 client of the lab's control plane."""
    return boto3.client(
        service,
        endpoint_url=state.endpoint_url,
        region_name=state.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - no secret: the control plane takes any
    )


def cdk(state: LabState, log: Path, *arguments: str) -> toolchain.CdkResult:
    """One CDK command with its cloud assembly beside the lab's state, not in the user's cdk.out."""
    return toolchain.cdk(
        list(arguments),
        toolchain.environment(state.endpoint_url, state.region),
        log=log,
        output_dir=Path(state.state_dir) / "cdk.out",
        lives_with=state.pid,
    )


def bootstrap(state: LabState, log: Path) -> bool:
    """`cdk bootstrap`; False when it failed (the log says why)."""
    env = toolchain.environment(state.endpoint_url, state.region)
    return toolchain.bootstrap(env, state.region, log, state.pid).status == 0


def deploy(state: LabState, log: Path, context: dict[str, str]) -> Deployment:
    """`cdk deploy --all` with the given context values."""
    arguments = ["deploy", "--all"]
    for key, value in context.items():
        arguments += ["-c", f"{key}={value}"]
    result = cdk(state, log, *arguments)
    event = _SIGNAL_EVENT.search(result.output)
    return Deployment(
        complete=result.status == 0, event=event["reason"] if event else "", output=result.output
    )


def outputs(state: LabState, stack: str) -> dict[str, str]:
    """The outputs of a stack; none when it does not exist (any more)."""
    cloudformation = client(state, "cloudformation")
    try:
        (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except cloudformation.exceptions.ClientError:
        return {}
    return {item["OutputKey"]: item["OutputValue"] for item in found.get("Outputs", [])}


def function_name(state: LabState, stack: str, part: str) -> str | None:
    """The Lambda function of the stack whose logical id names that part; None when there is none."""
    cloudformation = client(state, "cloudformation")
    try:
        found = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    except cloudformation.exceptions.ClientError:
        return None
    for item in found:
        if item["ResourceType"] == "AWS::Lambda::Function" and part in item["LogicalResourceId"]:
            return str(item["PhysicalResourceId"])
    return None


def newest_verdict(state: LabState, cluster: str) -> tuple[Diagnosis, str] | None:
    """The last verdict in the evidence bucket and its s3:// address; None when none stands."""
    bucket = outputs(state, f"{cluster}-evidence").get("EvidenceBucket")
    if bucket is None:
        return None
    s3 = client(state, "s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="rows/")
    verdicts = [item for page in pages for item in page.get("Contents", []) if "/verdict-" in item["Key"]]
    if not verdicts:
        return None
    # Of one run both stages may bear the same second; "collective" covers "mesh", and sorts before it.
    newest = max(verdicts, key=lambda item: (item["LastModified"], "/verdict-collective" in item["Key"]))
    body = s3.get_object(Bucket=bucket, Key=newest["Key"])["Body"].read()
    return decode(Diagnosis, json.loads(body)), f"s3://{bucket}/{newest['Key']}"
