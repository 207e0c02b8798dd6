"""What outlives a failed deploy: the rows of the nodes, the verdicts and the logs.

CloudFormation deletes what a failed create made, so evidence that lived in the cluster's
own stack would go with the nodes it should explain. It has a stack of its own, deployed
first, whose resources are retained and empty themselves after some days.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct


class EvidenceStack(cdk.Stack):
    """The bucket where rows meet, and the log groups.

    bucket: rows/RUN/MEMBER/..., kept `retention_days` days.
    verdicts: one structured event per run.
    flow_logs: the traffic that the VPC rejected.
    functions: what the referee and the widget log. A function that may create its own log
        group would bring it back after the stack is gone; these write to a given one.
    """

    def __init__(self, scope: Construct, id_: str, *, retention_days: int, **stack: Any) -> None:
        super().__init__(scope, id_, **stack)
        self._retention_days = retention_days
        # No physical names: a retained bucket of a deleted stack must not block the next one.
        self.bucket = s3.Bucket(
            self,
            "Rows",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="evidence-expires",
                    expiration=cdk.Duration.days(retention_days),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
                )
            ],
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
        self.verdicts = self._log_group("Verdicts")
        self.flow_logs = self._log_group("FlowLogs")
        self.functions = self._log_group("Functions")
        for name, value in (
            ("EvidenceBucket", self.bucket.bucket_name),
            ("VerdictLogGroup", self.verdicts.log_group_name),
            ("FlowLogGroup", self.flow_logs.log_group_name),
            ("FunctionLogGroup", self.functions.log_group_name),
        ):
            cdk.CfnOutput(self, name, value=value)

    def _log_group(self, id_: str) -> logs.LogGroup:
        group = logs.LogGroup(self, id_, removal_policy=cdk.RemovalPolicy.RETAIN)
        resource = group.node.default_child
        assert isinstance(resource, logs.CfnLogGroup)  # noqa: S101 - narrows jsii's type
        resource.retention_in_days = self._retention_days
        return group
