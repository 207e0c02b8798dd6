"""What shows the mesh all the time: one dashboard, alarms for a broken and a silent mesh.

Metrics are one set a run, whatever the number of nodes; the pair matrix comes from the
latest verdict through a custom widget, because a metric for every pair costs thousands.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cluster.spec import ClusterSpec
from stacks.function import Function

DAY_S = 86_400
DASHBOARD_COLUMNS = 24


class Monitoring(Construct):
    """Dashboard and alarms of one cluster.

    url: the dashboard in the console. known_good: name of the composite alarm that is OK only while
    the mesh is proven and not broken.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec: ClusterSpec,
        run: str,
        metric_namespace: str,
        verdicts: str,
        functions: str,
        evidence_bucket: str,
        code: lambda_.CfnFunction.CodeProperty,
    ) -> None:
        super().__init__(scope, id_)
        self._spec = spec
        self._namespace = metric_namespace
        self._period_s = spec.check_interval_min * 60
        silent_s = self._period_s * spec.alarm_silent_checks
        if self._period_s < DAY_S // 24 and silent_s > DAY_S:
            # docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
            raise ValueError(
                f"cluster.alarm_silent_checks: {spec.alarm_silent_checks} checks of "
                f"{spec.check_interval_min} min are {silent_s} s, but an alarm looks back at most {DAY_S} s; "
                f"set it to {DAY_S // self._period_s} or less"
            )
        alarms = self._alarms()
        region, stack_name = cdk.Aws.REGION, cdk.Stack.of(self).stack_name
        widget = Function(
            self,
            "Widget",
            code=code,
            handler="stacks.runtime.widget.handler",
            description=f"fullmesh {spec.name}: draws the pair matrix of the latest verdict",
            log_group=functions,
            environment={"CLUSTER": spec.name, "RUN": run, "EVIDENCE_BUCKET": evidence_bucket},
            statements=[
                {
                    "Effect": "Allow",
                    "Action": "s3:ListBucket",
                    "Resource": f"arn:{cdk.Aws.PARTITION}:s3:::{evidence_bucket}",
                    "Condition": {"StringLike": {"s3:prefix": "rows/*"}},
                },
                {
                    "Effect": "Allow",
                    "Action": "s3:GetObject",
                    "Resource": f"arn:{cdk.Aws.PARTITION}:s3:::{evidence_bucket}/rows/*",
                },
            ],
        )
        dashboard = cloudwatch.CfnDashboard(
            self,
            "Dashboard",
            dashboard_name=stack_name,
            dashboard_body=cdk.Stack.of(self).to_json_string(
                {"widgets": self._widgets(alarms, widget.arn, verdicts, region)}
            ),
        )
        self.url = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#dashboards:name={dashboard.ref}"

    def _alarms(self) -> list[cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm]:
        spec, name = self._spec, self._spec.name
        failed = self._alarm(
            "Failed",
            f"{name}: the last verdict on the mesh is FAIL",
            "MeshVerdict",
            statistic="Minimum",
            comparison_operator="LessThanThreshold",
            threshold=1,
        )
        broken = self._alarm(
            "BrokenPairs",
            f"{name}: more than {spec.alarm_broken_pairs} ordered pairs cannot open a new connection",
            "BrokenPairs",
            statistic="Maximum",
            comparison_operator="GreaterThanThreshold",
            threshold=spec.alarm_broken_pairs,
        )
        # No data is no proof: an UNKNOWN verdict sends no MeshVerdict either.
        silent = self._alarm(
            "Silent",
            f"{name}: {spec.alarm_silent_checks} checks without a verdict",
            "MeshVerdict",
            statistic="SampleCount",
            comparison_operator="LessThanThreshold",
            threshold=1,
            evaluation_periods=spec.alarm_silent_checks,
            treat_missing_data="breaching",
        )
        slow = self._alarm(
            "RoundTrip",
            f"{name}: p99 round-trip time above {spec.alarm_round_trip_ms} ms",
            "RoundTripTime",
            extended_statistic="p99",
            comparison_operator="GreaterThanThreshold",
            threshold=spec.alarm_round_trip_ms,
        )
        alarms: list[cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm] = [failed, broken, silent, slow]
        known_good = cloudwatch.CfnCompositeAlarm(
            self,
            "KnownGood",
            alarm_description=f"{name}: the mesh is broken, or nobody has proven it lately",
            alarm_rule=" OR ".join(f'ALARM("{alarm.ref}")' for alarm in (failed, broken, silent)),
        )
        return [known_good, *alarms]

    def _alarm(self, id_: str, description: str, metric: str, **condition: Any) -> cloudwatch.CfnAlarm:
        defaults = {"evaluation_periods": 1, "treat_missing_data": "ignore"}
        return cloudwatch.CfnAlarm(
            self,
            id_,
            alarm_description=description,
            namespace=self._namespace,
            metric_name=metric,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="Cluster", value=self._spec.name)],
            period=self._period_s,
            **{**defaults, **condition},
        )

    def _widgets(
        self,
        alarms: list[cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm],
        widget_arn: str,
        log_group: str,
        region: str,
    ) -> list[dict[str, Any]]:
        nodes = self._spec.nodes
        numbers = self._metrics(
            "Verdict (1 PASS, 0 FAIL), completeness and broken pairs",
            region,
            [
                ("MeshVerdict", "Minimum"),
                ("NodesReported", "Minimum"),
                ("NodesExpected", "Maximum"),
                ("BrokenPairs", "Maximum"),
            ],
            view="singleValue",
        )
        round_trip = self._metrics(
            "Round-trip time (ms)",
            region,
            [("RoundTripTime", "p50"), ("RoundTripTime", "p99")],
            unit_label="ms",
        )
        # Only a deploy runs the collective: beside a training run it would take the wire from it. So
        # there is no alarm on it, which would stay as the last deploy left it.
        bandwidth = self._metrics(
            "all_reduce bus bandwidth at the last proof (Gbit/s)",
            region,
            [("AllReduceBusBandwidth", "Minimum")],
            unit_label="Gbit/s",
        )
        pairs = self._metrics(
            f"Broken pairs, of {nodes * (nodes - 1)}",
            region,
            [("BrokenPairs", "Maximum")],
            unit_label="pairs",
        )
        alarm_states = {
            "type": "alarm",
            "properties": {
                "title": "Alarms",
                "alarms": [alarm.get_att("Arn").to_string() for alarm in alarms],
            },
        }
        matrix = {
            "type": "custom",
            "properties": {
                "title": "Every ordered pair, from the latest verdict",
                "endpoint": widget_arn,
                "updateOn": {"refresh": True, "resize": False, "timeRange": False},
            },
        }
        causes = {
            "type": "log",
            "properties": {
                "title": "Latest verdicts and their causes",
                "region": region,
                "view": "table",
                "query": (
                    f"SOURCE '{log_group}' | filter kind = 'verdict' | sort @timestamp desc | limit 20 "
                    "| display @timestamp, run, verdict, causes.0.id, causes.0.subject, causes.0.summary"
                ),
            },
        }
        return [
            {**numbers, "x": 0, "y": 0, "width": 16, "height": 4},
            {**alarm_states, "x": 16, "y": 0, "width": 8, "height": 4},
            {**matrix, "x": 0, "y": 4, "width": DASHBOARD_COLUMNS, "height": 9},
            {**round_trip, "x": 0, "y": 13, "width": 8, "height": 6},
            {**bandwidth, "x": 8, "y": 13, "width": 8, "height": 6},
            {**pairs, "x": 16, "y": 13, "width": 8, "height": 6},
            {**causes, "x": 0, "y": 19, "width": DASHBOARD_COLUMNS, "height": 6},
        ]

    def _metrics(
        self,
        title: str,
        region: str,
        metrics: list[tuple[str, str]],
        *,
        view: str = "timeSeries",
        unit_label: str = "",
    ) -> dict[str, Any]:
        cluster = self._spec.name
        properties: dict[str, Any] = {
            "title": title,
            "region": region,
            "view": view,
            "period": self._period_s,
            "metrics": [
                [
                    self._namespace,
                    name,
                    "Cluster",
                    cluster,
                    {
                        "stat": statistic,
                        "label": f"{name} {statistic}" if statistic.startswith("p") else name,
                    },
                ]
                for name, statistic in metrics
            ],
        }
        if unit_label:
            properties["yAxis"] = {"left": {"label": unit_label, "min": 0, "showUnits": False}}
        return {"type": "metric", "properties": properties}
