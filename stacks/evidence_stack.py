"""What outlives a failed deploy: the rows of the nodes, the verdicts and the logs.

CloudFormation deletes what a failed create made, so evidence that lived in the cluster's
own stack would go with the nodes it should explain. It has a stack of its own, deployed
first, whose resources are retained and empty themselves after some days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.accepted import accept


@dataclass(frozen=True)
class Evidence:
    """Names of what holds the evidence.

    bucket: rows/RUN/MEMBER/... verdicts: one structured event a run. flow_logs: the traffic that
    the VPC rejected. functions: what the referee and the widget log; a function that may make
    its own log group would bring it back after the stack is gone.
    """

    bucket: str
    verdicts: str
    flow_logs: str
    functions: str


class EvidenceStack(cdk.Stack):
    """Bucket and log groups, retained.

    names: what another stack knows them by.
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
        accept(
            self.bucket,
            {"S1": "some days of rows, written by one role; an access log would outlive what it logs"},
        )
        self.names = Evidence(
            bucket=self._export("EvidenceBucket", self.bucket.bucket_name),
            verdicts=self._export("VerdictLogGroup", self._log_group("Verdicts")),
            flow_logs=self._export("FlowLogGroup", self._log_group("FlowLogs")),
            functions=self._export("FunctionLogGroup", self._log_group("Functions")),
        )

    def _export(self, name: str, value: str) -> str:
        """Export a name under a name of its own, and give what imports it in another stack."""
        cdk.CfnOutput(self, name, value=value, export_name=f"{self.stack_name}-{name}")
        return cdk.Fn.import_value(f"{self.stack_name}-{name}")

    def _log_group(self, id_: str) -> str:
        group = logs.CfnLogGroup(self, id_, retention_in_days=self._retention_days)
        group.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        return group.ref
