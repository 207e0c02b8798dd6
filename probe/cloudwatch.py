"""Metrics and log events from a node, without boto3."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, Mapping, Optional, Sequence, Tuple

from probe.aws import FORM, xml_error
from probe.credentials import CredentialChain
from probe.endpoints import Endpoint
from probe.signing import encode_query
from probe.transport import AwsError, CredentialSource, Request, Response, RetryPolicy, Transport

METRIC_VALUES_PER_DATUM = 150  # CloudWatch's limit of Values.member.N
METRIC_DATA_PER_CALL = 1000


@dataclass(frozen=True)
class Metric:
    """One metric of a run. unit: as CloudWatch names it ("Count", "Milliseconds", "Gigabits/Second").

    values: all observations; CloudWatch derives p50 and p99 from them.
    """

    name: str
    values: Sequence[float]
    unit: str = "None"
    dimensions: Mapping[str, str] = field(default_factory=dict)


def put_metric_data(
    *,
    namespace: str,
    metrics: Iterable[Metric],
    region: str,
    credentials: Optional[CredentialSource] = None,
    policy: Optional[RetryPolicy] = None,
) -> None:
    """Send metrics; equal values travel once with their count, and long lists in several data.

    Raises:
        AwsError: the call failed.
    """
    data = [datum for metric in metrics for datum in _metric_data(metric)]
    transport = Transport(
        service="monitoring",
        region=region,
        endpoint=Endpoint.of("monitoring", region, "CLOUDWATCH"),
        credentials=credentials or CredentialChain(),
        parse_error=xml_error,
        policy=policy,
    )
    try:
        for start in range(0, len(data), METRIC_DATA_PER_CALL):
            form = {"Action": "PutMetricData", "Version": "2010-08-01", "Namespace": namespace}
            for index, datum in enumerate(data[start : start + METRIC_DATA_PER_CALL], 1):
                form.update({f"MetricData.member.{index}.{key}": value for key, value in datum.items()})
            transport.call(
                Request(
                    operation="PutMetricData",
                    permission=f"cloudwatch:PutMetricData in namespace {namespace}",
                    method="POST",
                    headers=FORM,
                    body=encode_query(form.items()).encode(),
                )
            )
    finally:
        transport.close()


def put_log_event(
    *,
    log_group: str,
    log_stream: str,
    message: str,
    region: str,
    at_s: Optional[float] = None,
    credentials: Optional[CredentialSource] = None,
    policy: Optional[RetryPolicy] = None,
) -> None:
    """Write one event, and the stream first where it is missing. The group must exist.

    Args:
        at_s: seconds since the epoch; None = now.

    Raises:
        AwsError: `ResourceNotFoundException` when the group does not exist; or what else failed.
    """
    moment = int((time.time() if at_s is None else at_s) * 1000)
    names = {"logGroupName": log_group, "logStreamName": log_stream}
    event = {**names, "logEvents": [{"timestamp": moment, "message": message}]}
    transport = Transport(
        service="logs",
        region=region,
        endpoint=Endpoint.of("logs", region, "CLOUDWATCH_LOGS"),
        credentials=credentials or CredentialChain(),
        parse_error=_json_error,
        policy=policy,
    )
    try:
        try:
            transport.call(_logs_request("PutLogEvents", log_group, event))
        except AwsError as error:
            if error.code != "ResourceNotFoundException":
                raise
            try:
                transport.call(_logs_request("CreateLogStream", log_group, names))
            except AwsError as refusal:
                if refusal.code != "ResourceAlreadyExistsException":  # another node was faster
                    raise
            transport.call(_logs_request("PutLogEvents", log_group, event))
    finally:
        transport.close()


def _metric_data(metric: Metric) -> Iterable[Dict[str, str]]:
    counted = sorted(Counter(metric.values).items())
    for start in range(0, len(counted), METRIC_VALUES_PER_DATUM):
        datum = {"MetricName": metric.name, "Unit": metric.unit}
        for index, (key, value) in enumerate(sorted(metric.dimensions.items()), 1):
            datum[f"Dimensions.member.{index}.Name"] = key
            datum[f"Dimensions.member.{index}.Value"] = value
        for index, (number, count) in enumerate(counted[start : start + METRIC_VALUES_PER_DATUM], 1):
            datum[f"Values.member.{index}"] = repr(float(number))
            datum[f"Counts.member.{index}"] = str(count)
        yield datum


def _logs_request(operation: str, log_group: str, document: Mapping[str, object]) -> Request:
    return Request(
        operation=operation,
        permission=f"logs:{operation} on log group {log_group}",
        method="POST",
        headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"Logs_20140328.{operation}"},
        body=json.dumps(document).encode(),
    )


def _json_error(response: Response) -> Tuple[str, str]:
    try:
        document = json.loads(response.body)
        code = str(document["__type"]).rpartition("#")[2]
        return code, str(document.get("message") or document.get("Message") or "no message")
    except (ValueError, KeyError, TypeError):
        return f"Http{response.status}", "no message"
