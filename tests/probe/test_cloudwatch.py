"""Metrics and log events against ministack, looked at with boto3."""

from __future__ import annotations

import time
from typing import Any

import pytest

from probe.cloudwatch import Metric, put_log_event, put_metric_data
from probe.transport import AwsError
from tests.probe.aws_server import REGION


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
