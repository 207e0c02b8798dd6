"""A small Lambda function with exactly the permissions it is given."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.accepted import accept, accept_wildcards

RUNTIME = "python3.13"
ARCHITECTURE = "arm64"


class Function(Construct):
    """One function, its role and nothing else: no managed policy, no log group of its own making."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        code: lambda_.CfnFunction.CodeProperty,
        handler: str,
        description: str,
        statements: list[dict[str, Any]],
        log_group: str,
        environment: dict[str, str] | None = None,
        timeout_s: int = 30,
        memory_mb: int = 256,
    ) -> None:
        super().__init__(scope, id_)
        write_logs = {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": log_group_arn(log_group),
        }
        role = iam.CfnRole(
            self,
            "Role",
            assume_role_policy_document=trust("lambda.amazonaws.com"),
            # Inline, so that no function ever runs before its permissions exist.
            policies=[
                iam.CfnRole.PolicyProperty(
                    policy_name="exactly-this",
                    policy_document={"Version": "2012-10-17", "Statement": [write_logs, *statements]},
                )
            ],
        )
        self.resource = lambda_.CfnFunction(
            self,
            "Function",
            code=code,
            handler=handler,
            role=role.attr_arn,
            runtime=RUNTIME,
            architectures=[ARCHITECTURE],
            description=description,
            timeout=timeout_s,
            memory_size=memory_mb,
            environment=lambda_.CfnFunction.EnvironmentProperty(variables=environment)
            if environment
            else None,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group),
        )
        accept(self.resource, {"L1": f"{RUNTIME} is in every region and partition, and what the tests cover"})
        accept_wildcards(role, [write_logs, *statements])
        self.arn = self.resource.attr_arn


def log_group_arn(name: str, stream: str = "*") -> str:
    """Of a log group of this account, given by its name: its streams, or one of them."""
    kind = "" if stream == "*" else "log-stream:"
    prefix = f"arn:{cdk.Aws.PARTITION}:logs:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:log-group"
    return f"{prefix}:{name}:{kind}{stream}"


def trust(service: str, condition: dict[str, Any] | None = None) -> dict[str, Any]:
    """The policy document that lets an AWS service, and it alone, take a role."""
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    if condition:
        statement["Condition"] = condition
    return {"Version": "2012-10-17", "Statement": [statement]}
