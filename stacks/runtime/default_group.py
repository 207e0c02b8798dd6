"""Custom resource: revoke every rule of one security group.

Ships inline (at most 4,096 bytes), so it stands alone. Runs on create and update; on
delete the group goes with its VPC.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any, Dict

import boto3


def handler(event: Dict[str, Any], _context: Any) -> None:
    """Answer CloudFormation in every case: silence would cost an hour's wait."""
    group_id = event["ResourceProperties"]["GroupId"]
    answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    answer["PhysicalResourceId"] = event.get("PhysicalResourceId") or group_id
    try:
        if event["RequestType"] != "Delete":
            revoke_all(boto3.client("ec2"), group_id)
        answer["Status"] = "SUCCESS"
    except Exception as error:  # noqa: BLE001 - whatever it was, CloudFormation must hear of it
        answer["Status"] = "FAILED"
        answer["Reason"] = f"cannot revoke the rules of {group_id}: {error}"
    request = urllib.request.Request(  # noqa: S310 - the URL is CloudFormation's own, https
        event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT", headers={"Content-Type": ""}
    )
    with urllib.request.urlopen(request, timeout=20):  # noqa: S310 - as above
        pass


def revoke_all(ec2: Any, group_id: str) -> None:
    """Revoke what stands in the group now, both ways; an empty group is fine."""
    rules = []
    pages = ec2.get_paginator("describe_security_group_rules")
    for page in pages.paginate(Filters=[{"Name": "group-id", "Values": [group_id]}]):
        rules += page["SecurityGroupRules"]
    outward = [rule["SecurityGroupRuleId"] for rule in rules if rule["IsEgress"]]
    inward = [rule["SecurityGroupRuleId"] for rule in rules if not rule["IsEgress"]]
    if inward:
        ec2.revoke_security_group_ingress(GroupId=group_id, SecurityGroupRuleIds=inward)
    if outward:
        ec2.revoke_security_group_egress(GroupId=group_id, SecurityGroupRuleIds=outward)
