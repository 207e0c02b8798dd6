"""The referee: a function outside the VPC that says what no node can.

Called when EC2 refuses a launch and once a minute. It compares the fleet, its scaling
activities and the rows, and when a verdict stands it disables its own rules.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cluster import serial
from cluster.keys import CLUSTER_TAG, SIGNAL_UNIQUE_ID, run_prefix
from cluster.node_config import NodeConfig
from diagnosis.render import signal_reason
from diagnosis.report import Diagnosis, Verdict
from stacks.runtime.decision import Evidence, LaunchFailure, Member, decide
from stacks.runtime.rows import Row, Rows, registered

RESIGNAL_S = 60.0
"""A verdict this old whose signal has not arrived was never signalled: its node died in between."""

ALIVE = ("pending", "running")
CLOCK_SLACK_S = 5.0
"""EC2, Auto Scaling and CloudFormation stamp whole seconds of clocks of their own."""


@dataclass(frozen=True)
class Settings:
    """The function's environment.

    handle, proof: logical ids of the handle and the wait. rules: names of its own rules.
    """

    config: NodeConfig
    stack: str
    handle: str
    proof: str
    handle_url: str
    timeout_s: float
    rules: Tuple[str, ...]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        return cls(
            config=serial.decode(NodeConfig, json.loads(environment["CONFIG"])),
            stack=environment["STACK"],
            handle=environment["HANDLE"],
            proof=environment["PROOF"],
            handle_url=environment["HANDLE_URL"],
            timeout_s=float(environment["TIMEOUT_S"]),
            rules=tuple(environment["RULES"].split(",")),
        )


@dataclass(frozen=True)
class Opening:
    """since_s: when this proof was opened. clock_s: when its time-out began. waiting: whether it is open."""

    since_s: float
    clock_s: float
    waiting: bool


def handler(event: Dict[str, Any], _context: Any) -> Dict[str, Any]:
    """One look. The answer says what was done, for the log and for a call by hand."""
    return Referee(Settings.read(os.environ), boto3.Session()).look(event, time.time())


class Referee:
    """One call's worth of clients and decisions."""

    def __init__(self, settings: Settings, session: Any) -> None:
        self._settings = settings
        self._config = settings.config
        self._session = session
        self._rows = Rows(session.client("s3"), settings.config.bucket)

    def look(self, event: Mapping[str, Any], now_s: float) -> Dict[str, Any]:
        """Look once, and do what is due."""
        opening = self._opening()
        if opening is None:
            return {"did": "nothing", "why": f"{self._settings.handle} is not there yet"}
        if not opening.waiting:
            self._disable()
            return {"did": "disabled", "why": f"{self._settings.proof} no longer waits"}
        rows = self._rows.list(self._config.run)
        standing = self._rows.latest_verdict(rows)
        if standing is not None and standing.ends_proof:
            if now_s - standing.written_at_s < RESIGNAL_S:
                return {"did": "nothing", "why": "a verdict stands, its signal is on the way"}
            return self._end(standing.diagnosis, standing.key)
        verdict = decide(self._evidence(event, rows, opening, now_s))
        if verdict is None:
            return {"did": "nothing", "why": "nodes may still judge"}
        stage = "mesh" if standing is None else "collective"
        return self._end(verdict, self._rows.write_verdict(self._config.run, stage, verdict))

    def _evidence(
        self, event: Mapping[str, Any], rows: List[Row], opening: Opening, now_s: float
    ) -> Evidence:
        members, vanished = self._members({row.instance_id for row in rows}, opening.since_s)
        group, failures, unread = self._launches(opening.since_s)
        reports, unreadable = self._rows.reports(rows)
        return Evidence(
            config=self._config,
            now_s=now_s,
            opened_at_s=opening.clock_s,
            timeout_s=self._settings.timeout_s,
            auto_scaling_group=group,
            failures=(*failures, *vanished, *_failure_of(event, now_s)),
            members=members,
            registered=registered(rows),
            reports=tuple(reports),
            unread=(*unread, *unreadable),
        )

    def _end(self, diagnosis: Diagnosis, key: str) -> Dict[str, Any]:
        """Tell the stack, and stop calling: new rules come with the next proof."""
        self._signal(diagnosis, key)
        self._disable()
        return {"did": "signalled", "verdict": diagnosis.verdict.value, "key": key}

    def _opening(self) -> Optional[Opening]:
        """When handle and wait were made; None before there is a handle.

        The handle is made before the fleet, so it parts this fleet's instances from those that
        it replaces; the wait's own time is what its time-out counts from.
        """
        handle = self._resource(self._settings.handle)
        if handle is None:
            return None
        proof = self._resource(self._settings.proof)
        return Opening(
            since_s=handle["LastUpdatedTimestamp"].timestamp(),
            clock_s=(proof or handle)["LastUpdatedTimestamp"].timestamp(),
            waiting=proof is None or proof["ResourceStatus"] == "CREATE_IN_PROGRESS",
        )

    def _resource(self, logical_id: str) -> Optional[Dict[str, Any]]:
        """A resource of the stack; None while CloudFormation has not come to it."""
        client = self._session.client("cloudformation")
        try:
            answer = client.describe_stack_resource(
                StackName=self._settings.stack, LogicalResourceId=logical_id
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":  # no such stack or resource (yet)
                return None
            raise
        detail: Dict[str, Any] = answer["StackResourceDetail"]
        return detail

    def _members(
        self, reported: set[str], since_s: float
    ) -> Tuple[Tuple[Member, ...], Tuple[LaunchFailure, ...]]:
        """Instances that run, and those that EC2 ended by itself right after their launch."""
        members, vanished = [], []
        pages = self._session.client("ec2").get_paginator("describe_instances")
        tag = {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._config.cluster]}
        for page in pages.paginate(Filters=[tag]):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    launched_at_s = instance["LaunchTime"].timestamp()
                    if launched_at_s < since_s - CLOCK_SLACK_S:
                        continue  # of the fleet that this one replaces
                    instance_id = instance["InstanceId"]
                    reason = instance.get("StateReason") or {}
                    if instance["State"]["Name"] in ALIVE:
                        members.append(Member(instance_id, launched_at_s, instance_id in reported))
                    elif reason.get("Code") in ("Client.InternalError", "Client.VolumeLimitExceeded"):
                        # Typically a default EBS key that grants nothing to the Auto Scaling role.
                        words = (
                            f"{instance_id} was ended by EC2: {reason['Code']}: {reason.get('Message', '')}"
                        )
                        vanished.append(LaunchFailure(launched_at_s, words))
        return tuple(members), tuple(vanished)

    def _launches(self, since_s: float) -> Tuple[str, Tuple[LaunchFailure, ...], Tuple[str, ...]]:
        """The group's name and its refused launches since the wait began."""
        client = self._session.client("autoscaling")
        try:
            pages = client.get_paginator("describe_auto_scaling_groups")
            tag = {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._config.cluster]}
            groups = [group for page in pages.paginate(Filters=[tag]) for group in page["AutoScalingGroups"]]
            names = [group["AutoScalingGroupName"] for group in groups if self._is_ours(group)]
            if not names:
                return "", (), ()
            failures = []
            for page in client.get_paginator("describe_scaling_activities").paginate(
                AutoScalingGroupName=names[0], PaginationConfig={"MaxItems": 500}
            ):
                for activity in page["Activities"]:
                    started_at_s = activity["StartTime"].timestamp()
                    if activity["StatusCode"] == "Failed" and started_at_s >= since_s - CLOCK_SLACK_S:
                        reason = activity.get("StatusMessage") or activity.get("Cause", "no reason given")
                        failures.append(LaunchFailure(started_at_s, _short(reason)))
            return names[0], tuple(failures), ()
        except (ClientError, BotoCoreError) as error:
            return "", (), (f"the scaling activities: {error}",)

    def _is_ours(self, group: Mapping[str, Any]) -> bool:
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        return tags.get(CLUSTER_TAG) == self._config.cluster

    def _signal(self, diagnosis: Diagnosis, key: str) -> None:
        where = f"s3://{self._config.bucket}/{key}"
        passed = diagnosis.verdict is Verdict.PASS
        document = {
            "Status": "SUCCESS" if passed else "FAILURE",
            "Reason": signal_reason(diagnosis, f"s3://{self._config.bucket}/{run_prefix(self._config.run)}"),
            "UniqueId": SIGNAL_UNIQUE_ID,
            "Data": json.dumps({"verdict": diagnosis.verdict.value, "evidence": where}),
        }
        request = urllib.request.Request(  # noqa: S310 - the handle's own address
            self._settings.handle_url,
            data=json.dumps(document).encode(),
            method="PUT",
            headers={"Content-Type": ""},  # anything else breaks the URL's signature
        )
        with urllib.request.urlopen(request, timeout=20):  # noqa: S310 - as above
            pass

    def _disable(self) -> None:
        client = self._session.client("events")
        for name in self._settings.rules:
            client.disable_rule(Name=name)


def _failure_of(event: Mapping[str, Any], now_s: float) -> List[LaunchFailure]:
    """The refusal that an "EC2 Instance Launch Unsuccessful" event tells."""
    if event.get("detail-type") != "EC2 Instance Launch Unsuccessful":
        return []
    detail = event.get("detail") or {}
    words = detail.get("StatusMessage") or detail.get("Cause") or "EC2 gave no reason"
    return [LaunchFailure(now_s, _short(str(words)))]


def _short(words: str) -> str:
    return " ".join(words.split())[:600]
