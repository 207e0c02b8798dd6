"""What the network rejected, in a log group: the last witness where no node can say anything."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.accepted import accept_wildcards
from stacks.function import log_group_arn, trust


def log_rejected(
    scope: Construct, watched: Sequence[tuple[str, str]], log_group: str, name: cdk.CfnTag
) -> None:
    """A flow log of rejected traffic for each of `watched`: ("VPC" or "Subnet", its id)."""
    role = _role(scope, log_group)
    for index, (kind, resource) in enumerate(watched):
        ec2.CfnFlowLog(
            scope,
            f"FlowLog{index}",
            resource_id=resource,
            resource_type=kind,
            traffic_type="REJECT",
            max_aggregation_interval=60,
            log_destination_type="cloud-watch-logs",
            log_group_name=log_group,
            deliver_logs_permission_arn=role.attr_arn,
            tags=[name],
        )


def _role(scope: Construct, log_group: str) -> iam.CfnRole:
    # docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html, without CreateLogGroup:
    # a deleted group must stay deleted.
    write = {
        "Effect": "Allow",
        "Action": ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        "Resource": log_group_arn(log_group),
    }
    role = iam.CfnRole(
        scope,
        "FlowLogRole",
        assume_role_policy_document=trust(
            "vpc-flow-logs.amazonaws.com", {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
        ),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="write-rejected-traffic",
                policy_document={"Version": "2012-10-17", "Statement": [write]},
            )
        ],
    )
    accept_wildcards(role, [write])
    return role
