"""How a deploy comes to its verdict: a handle, a wait beside the fleet, and a referee.

The wait must not stand behind the auto scaling group: CloudFormation completes a group
only at its desired capacity, so after a failed launch a wait behind it would never
begin, and nobody could say why. Nothing may depend on the wait: its logical id changes
with all that is proven, and a dependency on a changing id makes cycles that are none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cluster import serial
from cluster.node_config import NodeConfig
from stacks.fleet import GROUP_ID
from stacks.function import Function


def fingerprint(**proven: Any) -> str:
    """12 hex digits over everything that the nodes prove.

    The handle and the wait carry it in their logical ids: CloudFormation cannot update
    either, so a change must make new ones, or the new fleet would stand unproven.
    """
    return hashlib.sha256(json.dumps(proven, sort_keys=True).encode()).hexdigest()[:12]


class Handle(Construct):
    """The address that the verdict is sent to."""

    def __init__(self, scope: Construct, id_: str, *, run: str) -> None:
        super().__init__(scope, id_)
        self.run = run
        self._resource = cdk.CfnWaitConditionHandle(self, "Handle")
        self._resource.override_logical_id(handle_id(run))
        self.url = self._resource.ref

    def wait(self, *, timeout_s: int, before: list[cdk.CfnResource]) -> Wait:
        """Wait for one verdict. before: what the fleet waits for too, so that both begin together."""
        return Wait(self, "Wait", run=self.run, url=self.url, timeout_s=timeout_s, before=before)


class Wait(Construct):
    """CREATE_COMPLETE means: the nodes themselves have proven the mesh."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        run: str,
        url: str,
        timeout_s: int,
        before: list[cdk.CfnResource],
    ) -> None:
        super().__init__(scope, id_)
        resource = cdk.CfnWaitCondition(self, "Proof", count=1, handle=url, timeout=str(timeout_s))
        resource.override_logical_id(proof_id(run))
        for other in before:
            resource.add_resource_dependency(other)
        self.data = resource.attr_data.to_string()


def handle_id(run: str) -> str:
    """The handle's logical id."""
    return f"Handle{run}"


def proof_id(run: str) -> str:
    """The wait's logical id."""
    return f"MeshProof{run}"


class Referee(Construct):
    """Says what no node can: launches that failed, nodes that never reported.

    A function outside the VPC, called when EC2 refuses a launch and once a minute while
    the proof is open. When a verdict stands it disables its own rules. It must not refer
    to the group (the group's user data refers to the handle, which the referee signals),
    so it finds it by its tag.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: NodeConfig,
        timeout_s: int,
        code: lambda_.CfnFunction.CodeProperty,
        functions: str,
    ) -> None:
        super().__init__(scope, id_)
        stack = cdk.Stack.of(self)
        run = config.run
        rows = f"arn:{cdk.Aws.PARTITION}:s3:::{config.bucket}"
        # New rules for every proof, because the last ones were disabled; their State is not given,
        # so that disabling them is no drift.
        rule_names = [f"{stack.stack_name}-{run}-{kind}" for kind in ("launch", "minute")]
        function = Function(
            self,
            "Referee",
            code=code,
            handler="stacks.runtime.referee.handler",
            description=f"fullmesh {config.cluster}: launches that failed, nodes that never reported",
            log_group=functions,
            timeout_s=50,
            environment={
                "CONFIG": json.dumps(serial.encode(dataclasses.replace(config, handle_url=""))),
                "STACK": stack.stack_name,
                "HANDLE": handle_id(run),
                "PROOF": proof_id(run),
                "HANDLE_URL": config.handle_url,
                "TIMEOUT_S": str(timeout_s),
                "RULES": ",".join(rule_names),
            },
            statements=[
                # Describe actions of Auto Scaling and EC2 know no resources.
                {
                    "Effect": "Allow",
                    "Action": [
                        "autoscaling:DescribeAutoScalingGroups",
                        "autoscaling:DescribeScalingActivities",
                        "ec2:DescribeInstances",
                    ],
                    "Resource": "*",
                },
                {
                    "Effect": "Allow",
                    "Action": "cloudformation:DescribeStackResource",
                    "Resource": stack.format_arn(
                        service="cloudformation", resource="stack", resource_name=f"{stack.stack_name}/*"
                    ),
                },
                {
                    "Effect": "Allow",
                    "Action": "s3:ListBucket",
                    "Resource": rows,
                    "Condition": {"StringLike": {"s3:prefix": "rows/*"}},
                },
                {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{rows}/rows/*"},
                {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"{rows}/rows/*/referee/*"},
                {
                    "Effect": "Allow",
                    "Action": "events:DisableRule",
                    "Resource": [
                        stack.format_arn(service="events", resource="rule", resource_name=name)
                        for name in rule_names
                    ],
                },
            ],
        )
        launch, minute = rule_names
        self._rule(
            launch,
            function,
            event_pattern={
                "source": ["aws.autoscaling"],
                "detail-type": ["EC2 Instance Launch Unsuccessful"],
                "detail": {"AutoScalingGroupName": [{"prefix": f"{stack.stack_name}-{GROUP_ID}-"}]},
            },
        )
        self._rule(minute, function, schedule_expression="rate(1 minute)")

    def _rule(self, name: str, function: Function, **trigger: Any) -> None:
        kind = name.rsplit("-", 1)[1]
        rule = events.CfnRule(
            self,
            f"Rule-{name}",
            name=name,
            description="fullmesh: calls the referee until a verdict stands, then it is disabled",
            targets=[events.CfnRule.TargetProperty(arn=function.arn, id="referee")],
            **trigger,
        )
        lambda_.CfnPermission(
            self,
            f"May-{kind}",
            action="lambda:InvokeFunction",
            function_name=function.arn,
            principal="events.amazonaws.com",
            source_arn=rule.attr_arn,
        )
