"""Who made a difference, and when: the account's own log of API calls.

CloudTrail shows a call up to 15 minutes after it was made, and for 90 days
(docs.aws.amazon.com/awscloudtrail/latest/APIReference/API_LookupEvents.html).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from audit import readings
from audit.account import Account, Unread
from audit.difference import Deviation, Difference, Key
from audit.documents import Json
from audit.readings import Reading

LATE = "who: CloudTrail shows a call up to 15 minutes after it was made, so the latest ones may be missing"
PAUSE_S = 0.6
"""LookupEvents takes two requests a second of an account and region."""
SHOWN = 3

EVENTS = Reading("Events", "cloudtrail", "lookup_events", readings.WHO)

TAGS = ("CreateTags", "DeleteTags")
CALLS: Mapping[str, tuple[str, ...]] = {
    "sg": (
        "AuthorizeSecurityGroupIngress",
        "AuthorizeSecurityGroupEgress",
        "RevokeSecurityGroupIngress",
        "RevokeSecurityGroupEgress",
        "ModifySecurityGroupRules",
        "UpdateSecurityGroupRuleDescriptionsIngress",
        "UpdateSecurityGroupRuleDescriptionsEgress",
        "DeleteSecurityGroup",
    ),
    "acl": ("CreateNetworkAclEntry", "ReplaceNetworkAclEntry", "DeleteNetworkAclEntry"),
    "subnet": (
        "ReplaceNetworkAclAssociation",
        "ReplaceRouteTableAssociation",
        "AssociateRouteTable",
        "DisassociateRouteTable",
        "ModifySubnetAttribute",
        "DeleteSubnet",
    ),
    "rtb": ("CreateRoute", "ReplaceRoute", "DeleteRoute"),
    "vpc": ("ModifyVpcAttribute", "AssociateVpcCidrBlock", "DeleteVpc"),
    "eni": ("ModifyNetworkInterfaceAttribute", "AttachNetworkInterface", "AssociateAddress"),
    "i": (
        "ModifyInstanceMetadataOptions",
        "ModifyInstancePlacement",
        "ModifyInstanceAttribute",
        "UnmonitorInstances",
        "TerminateInstances",
        "StopInstances",
        "RunInstances",
        "ReplaceIamInstanceProfileAssociation",
    ),
    "vpce": ("ModifyVpcEndpoint", "DeleteVpcEndpoints"),
    "fl": ("DeleteFlowLogs",),
    "lt": ("CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "UpdateAutoScalingGroup"),
    "cr": ("CancelCapacityReservation", "ModifyCapacityReservation"),
    "igw": ("DetachInternetGateway", "DeleteInternetGateway"),
    "nat": ("DeleteNatGateway",),
    "vol": ("ModifyVolume", "AttachVolume"),
    "": (
        "UpdateAutoScalingGroup",
        "SetDesiredCapacity",
        "SuspendProcesses",
        "DeleteAutoScalingGroup",
        "TerminateInstanceInAutoScalingGroup",
        "DeletePlacementGroup",
    ),
}
"""By the prefix of a resource's id; blank = it has a name instead."""

_ID = re.compile(r"\b[a-z]{1,5}-[0-9a-f]{8,17}\b")


def who_did_it(
    session: Any,
    differences: Sequence[Difference],
    since: Any = None,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[dict[Key, list[Json]], tuple[str, ...]]:
    """The latest calls that may have made each difference, newest first, and what to know about them.

    session: a boto3 session. since: a moment before which nothing counts (the last deploy).
    A call of CloudFormation itself is the stack's own and does not count.
    """
    log = _Log(Account(session), since, pause)
    found: dict[Key, list[Json]] = {}
    try:
        for item in differences:
            found[item.deviation.key] = log.calls(item.deviation)
    except Unread as error:
        return found, (f"who made the differences cannot be told: {error.refusal.text}",)
    return found, (LATE,)


class _Log:
    """CloudTrail, asked as seldom as can be: each name once."""

    def __init__(self, account: Account, since: Any, pause: Callable[[float], None]) -> None:
        self._account = account
        self._since = since
        self._pause = pause
        self._asked: dict[tuple[str, str], list[Json]] = {}

    def calls(self, item: Deviation) -> list[Json]:
        """By the resource's name; for calls that CloudTrail files under no resource by their own names."""
        kind = item.resource.partition("-")[0] if _ID.fullmatch(item.resource) else ""
        names = TAGS if item.attribute == "tags" else CALLS.get(kind, CALLS[""])
        found = [
            event for event in self._lookup("ResourceName", item.resource) if event["EventName"] in names
        ]
        if not found:
            wanted = {item.resource, *_ID.findall(f"{item.expected} {item.actual}")}
            found = [
                event
                for name in names
                for event in self._lookup("EventName", name)
                if any(each in event["CloudTrailEvent"] for each in wanted)
            ]
        newest = sorted(found, key=lambda event: event["EventTime"], reverse=True)
        return [_call(event) for event in newest[:SHOWN]]

    def _lookup(self, key: str, value: str) -> Iterable[Json]:
        if (key, value) not in self._asked:
            if self._asked:
                self._pause(PAUSE_S)
            arguments: Json = {"LookupAttributes": [{"AttributeKey": key, "AttributeValue": value}]}
            if self._since is not None:
                arguments["StartTime"] = self._since
            # One page: the newest 50, and only the newest few are shown.
            answer = self._account.call(EVENTS, MaxResults=50, **arguments) or {}
            self._asked[key, value] = [e for e in answer.get("Events", ()) if _by_somebody(e)]
        return self._asked[key, value]


def _by_somebody(event: Json) -> bool:
    """Neither a reading call nor one of CloudFormation's, nor one that AWS refused."""
    told = _detail(event)
    invoked = str((told.get("userIdentity") or {}).get("invokedBy", ""))
    reads = str(event.get("ReadOnly", "false")).lower() == "true"
    return not reads and not told.get("errorCode") and not invoked.startswith("cloudformation.")


def _detail(event: Json) -> Json:
    try:
        told = json.loads(event.get("CloudTrailEvent") or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _call(event: Json) -> Json:
    told = _detail(event)
    at = event["EventTime"]
    return {
        "at": at.isoformat() if hasattr(at, "isoformat") else str(at),
        "user": (told.get("userIdentity") or {}).get("arn") or event.get("Username", ""),
        "event": event["EventName"],
        "source_address": told.get("sourceIPAddress", ""),
        "event_id": event.get("EventId", ""),
    }
