"""A VPC's default security group, emptied.

Every VPC comes with a group whose members reach each other and the world, and whoever
starts an instance without naming a group is in it. CloudFormation cannot change it, so a
custom resource revokes its rules once.
"""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.function import Function

SOURCE = Path(__file__).parent / "runtime" / "default_group.py"


class ClosedDefaultGroup(Construct):
    """Revokes every rule of `vpc`'s default security group when the VPC is made."""

    def __init__(self, scope: Construct, id_: str, *, vpc: ec2.CfnVPC, functions: str) -> None:
        super().__init__(scope, id_)
        group_id = vpc.attr_default_security_group
        group_arn = cdk.Stack.of(self).format_arn(
            service="ec2", resource="security-group", resource_name=group_id
        )
        function = Function(
            self,
            "Closer",
            code=lambda_.CfnFunction.CodeProperty(zip_file=SOURCE.read_text(encoding="utf-8")),
            handler="index.handler",
            description="fullmesh: revokes the rules of the VPC's default security group",
            log_group=functions,
            statements=[
                {
                    "Effect": "Allow",
                    "Action": ["ec2:RevokeSecurityGroupIngress", "ec2:RevokeSecurityGroupEgress"],
                    "Resource": group_arn,
                },
                # Describe actions know no resources: docs.aws.amazon.com/service-authorization/
                # latest/reference/list_amazonec2.html
                {"Effect": "Allow", "Action": "ec2:DescribeSecurityGroupRules", "Resource": "*"},
            ],
        )
        cdk.CustomResource(
            self,
            "Closed",
            resource_type="Custom::ClosedDefaultGroup",
            service_token=function.arn,
            properties={"GroupId": group_id},
        )
