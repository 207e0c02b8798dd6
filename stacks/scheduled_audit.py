"""The audit inside the account: the same code as `fullmesh audit`, on a schedule and after changes of EC2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.function import Function

Statements = Callable[[list[str], str], list[dict[str, Any]]]
"""ARNs of the stacks and of the evidence bucket -> what the audit's reading needs of IAM."""

CHANGED_BY = (
    "AssociateRouteTable",
    "AttachNetworkInterface",
    "DeleteFlowLogs",
    "DeleteNatGateway",
    "DeleteVpcEndpoints",
    "DetachInternetGateway",
    "DetachNetworkInterface",
    "DisassociateRouteTable",
    "ModifyManagedPrefixList",
    "ModifySubnetAttribute",
    "ModifyVpcAttribute",
    "StopInstances",
    "TerminateInstances",
)
CHANGED_BY_ALL = (
    "AuthorizeSecurityGroup",
    "CancelCapacityReservation",
    "CreateNetworkAcl",
    "CreateRoute",
    "DeleteNetworkAcl",
    "DeleteRoute",
    "ModifyCapacityReservation",
    "ModifyInstance",
    "ModifyNetworkInterface",
    "ModifySecurityGroup",
    "ModifyVpcEndpoint",
    "ReplaceNetworkAcl",
    "ReplaceRoute",
    "RevokeSecurityGroup",
    "UpdateSecurityGroup",
)
"""EC2's calls that can part a cluster from its stack: by name, and by how the name begins."""

TIMEOUT_S = 120  # some thirty calls, and a row from S3 for every node


class ScheduledAudit(Construct):
    """One function, a schedule, and a rule for EC2's changes, which speaks only where a trail logs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        interval_min: int,
        metric_namespace: str,
        evidence_bucket: str,
        functions: str,
        code: lambda_.CfnFunction.CodeProperty,
        reading: Statements,
    ) -> None:
        super().__init__(scope, id_)
        stack = cdk.Stack.of(self)
        stacks = [
            stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{name}/*")
            for name in (stack.stack_name, f"{stack.stack_name}-evidence")
        ]
        bucket = f"arn:{cdk.Aws.PARTITION}:s3:::{evidence_bucket}"
        function = Function(
            self,
            "Audit",
            code=code,
            handler="audit.scheduled.handler",
            description=f"fullmesh {stack.stack_name}: compares what stands with the stack, read-only",
            log_group=functions,
            timeout_s=TIMEOUT_S,
            memory_mb=512,
            environment={
                "STACK": stack.stack_name,
                "METRIC_NAMESPACE": metric_namespace,
                "INTERVAL_MIN": str(interval_min),
            },
            statements=[
                *reading(stacks, bucket),
                {
                    "Effect": "Allow",
                    "Action": "cloudwatch:PutMetricData",
                    "Resource": "*",
                    "Condition": {"StringEquals": {"cloudwatch:namespace": metric_namespace}},
                },
                # DescribeTrails knows no resources, and whose trail logs here is not known before.
                {
                    "Effect": "Allow",
                    "Action": ["cloudtrail:DescribeTrails", "cloudtrail:GetTrailStatus"],
                    "Resource": "*",
                },
            ],
        )
        minutes = "minute" if interval_min == 1 else "minutes"
        self._rule("Schedule", function, schedule_expression=f"rate({interval_min} {minutes})")
        self._rule(
            "Changes",
            function,
            event_pattern={
                "source": ["aws.ec2"],
                "detail-type": ["AWS API Call via CloudTrail"],
                "detail": {
                    "eventSource": ["ec2.amazonaws.com"],
                    "eventName": [*CHANGED_BY, *({"prefix": name} for name in CHANGED_BY_ALL)],
                },
            },
        )

    def _rule(self, id_: str, function: Function, **trigger: Any) -> None:
        rule = events.CfnRule(
            self,
            id_,
            description="fullmesh: audits the cluster against its stack",
            targets=[events.CfnRule.TargetProperty(arn=function.arn, id="audit")],
            **trigger,
        )
        lambda_.CfnPermission(
            self,
            f"May{id_}",
            action="lambda:InvokeFunction",
            function_name=function.arn,
            principal="events.amazonaws.com",
            source_arn=rule.attr_arn,
        )
