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
from stacks.alarms import Alarm, make_alarms
from stacks.function import Function

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
        alarms = make_alarms(self, spec, metric_namespace)
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
                {"widgets": self._widgets(alarms, widget.arn, verdicts, functions, region)}
            ),
        )
        self.url = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#dashboards:name={dashboard.ref}"

    def _widgets(
        self,
        alarms: list[Alarm],
        widget_arn: str,
        verdicts: str,
        functions: str,
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
                    f"SOURCE '{verdicts}' | filter kind = 'verdict' | sort @timestamp desc | limit 20 "
                    "| display @timestamp, run, verdict, causes.0.id, causes.0.subject, causes.0.summary"
                ),
            },
        }
        widgets = [
            {**numbers, "x": 0, "y": 0, "width": 16, "height": 4},
            {**alarm_states, "x": 16, "y": 0, "width": 8, "height": 4},
            {**matrix, "x": 0, "y": 4, "width": DASHBOARD_COLUMNS, "height": 9},
            {**round_trip, "x": 0, "y": 13, "width": 8, "height": 6},
            {**bandwidth, "x": 8, "y": 13, "width": 8, "height": 6},
            {**pairs, "x": 16, "y": 13, "width": 8, "height": 6},
            {**causes, "x": 0, "y": 19, "width": DASHBOARD_COLUMNS, "height": 6},
        ]
        if self._spec.audit_interval_min:
            drift = self._metrics(
                "Drift: differences from the stack",
                region,
                [("DriftedRules", "Maximum"), ("MeshBreakingDrift", "Maximum")],
                unit_label="differences",
                period_s=self._spec.audit_interval_min * 60,
            )
            audits = {
                "type": "log",
                "properties": {
                    "title": "Latest audits: what differs from the stack, and what it means",
                    "region": region,
                    "view": "table",
                    "query": (
                        f"SOURCE '{functions}' | filter kind = 'audit' | sort @timestamp desc | limit 20 "
                        "| display @timestamp, verdict, drift.0.meaning, drift.0.resource, drift.0.detail, "
                        "unanswered.0, changes"
                    ),
                },
            }
            widgets += [
                {**drift, "x": 0, "y": 25, "width": 8, "height": 6},
                {**audits, "x": 8, "y": 25, "width": 16, "height": 6},
            ]
        return widgets

    def _metrics(
        self,
        title: str,
        region: str,
        metrics: list[tuple[str, str]],
        *,
        view: str = "timeSeries",
        unit_label: str = "",
        period_s: int = 0,
    ) -> dict[str, Any]:
        cluster = self._spec.name
        properties: dict[str, Any] = {
            "title": title,
            "region": region,
            "view": view,
            "period": period_s or self._period_s,
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
