"""The alarms of a cluster: a broken mesh, a silent one, and one whose account has left the stack."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from cluster.spec import ClusterSpec

Alarm = cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm

DAY_S = 86_400
SILENT_AUDITS = 3  # an alarm looks back a day at most, and audits come every 480 min or more often


def make_alarms(scope: Construct, spec: ClusterSpec, namespace: str) -> list[Alarm]:
    """All of them, the one that stands for the whole first.

    Raises:
        ValueError: an alarm would have to look further back than CloudWatch does.
    """
    return _Maker(scope, spec, namespace).make()


class _Maker:
    def __init__(self, scope: Construct, spec: ClusterSpec, namespace: str) -> None:
        self._scope = scope
        self._spec = spec
        self._namespace = namespace
        self._period_s = spec.check_interval_min * 60
        silent_s = self._period_s * spec.alarm_silent_checks
        if self._period_s < DAY_S // 24 and silent_s > DAY_S:
            # docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
            raise ValueError(
                f"cluster.alarm_silent_checks: {spec.alarm_silent_checks} checks of "
                f"{spec.check_interval_min} min are {silent_s} s, but an alarm looks back at most {DAY_S} s; "
                f"set it to {DAY_S // self._period_s} or less"
            )

    def make(self) -> list[Alarm]:
        failed, broken, silent, slow = self._of_the_mesh()
        not_good = [failed, broken, silent]
        alarms: list[Alarm] = [failed, broken, silent, slow]
        if self._spec.audit_interval_min:
            audits = self._of_the_audit()
            not_good.append(audits[0])
            alarms += audits
        known_good = cloudwatch.CfnCompositeAlarm(
            self._scope,
            "KnownGood",
            alarm_description=f"{self._spec.name}: the mesh is broken, or nobody has proven it lately",
            alarm_rule=" OR ".join(f'ALARM("{alarm.ref}")' for alarm in not_good),
        )
        return [known_good, *alarms]

    def _of_the_mesh(self) -> list[cloudwatch.CfnAlarm]:
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
        return [failed, broken, silent, slow]

    def _of_the_audit(self) -> list[cloudwatch.CfnAlarm]:
        """What breaks the mesh first; open connections hide it from every check."""
        name, period_s = self._spec.name, self._spec.audit_interval_min * 60
        above_zero = {
            "statistic": "Maximum",
            "comparison_operator": "GreaterThanThreshold",
            "threshold": 0,
            "period": period_s,
        }
        return [
            self._alarm(
                "MeshBreakingDrift",
                f"{name}: what stands differs from the stack, and new connections fail by it",
                "MeshBreakingDrift",
                **above_zero,
            ),
            self._alarm("Drift", f"{name}: what stands differs from the stack", "DriftedRules", **above_zero),
            self._alarm(
                "AuditSilent",
                f"{name}: {SILENT_AUDITS} audits that did not see everything, or did not run",
                "DriftedRules",
                statistic="SampleCount",
                comparison_operator="LessThanThreshold",
                threshold=1,
                period=period_s,
                evaluation_periods=SILENT_AUDITS,
                treat_missing_data="breaching",
            ),
        ]

    def _alarm(self, id_: str, description: str, metric: str, **condition: Any) -> cloudwatch.CfnAlarm:
        defaults = {"evaluation_periods": 1, "treat_missing_data": "ignore", "period": self._period_s}
        return cloudwatch.CfnAlarm(
            self._scope,
            id_,
            alarm_description=description,
            namespace=self._namespace,
            metric_name=metric,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="Cluster", value=self._spec.name)],
            **{**defaults, **condition},
        )
