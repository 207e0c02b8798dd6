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

from diagnosis.report import Diagnosis, Verdict
from stacks.runtime.decision import RESIGNAL_S, Evidence, LaunchFailure, Member, decide
from stacks.runtime.rows import Rows, Standing

CLUSTER_TAG = "fullmesh:cluster"
MAX_REASON_CHARACTERS = 400
ALIVE = ("pending", "running")
CLOCK_SLACK_S = 60.0
"""The wait and the group begin together; EC2 and CloudFormation stamp whole seconds of their own clocks."""


@dataclass(frozen=True)
class Settings:
    """The function's environment. proof: logical id of the wait; rules: names of its own rules."""

    cluster: str
    stack: str
    run: str
    proof: str
    handle_url: str
    bucket: str
    nodes: int
    timeout_s: float
    deadline_s: float
    rules: Tuple[str, ...]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        return cls(
            cluster=environment["CLUSTER"],
            stack=environment["STACK"],
            run=environment["RUN"],
            proof=environment["PROOF"],
            handle_url=environment["HANDLE_URL"],
            bucket=environment["EVIDENCE_BUCKET"],
            nodes=int(environment["NODES"]),
            timeout_s=float(environment["TIMEOUT_S"]),
            deadline_s=float(environment["DEADLINE_S"]),
            rules=tuple(environment["RULES"].split(",")),
        )


def handler(event: Dict[str, Any], _context: Any) -> Dict[str, Any]:
    """One look. The answer says what was done, for the log and for a call by hand."""
    return Referee(Settings.read(os.environ), boto3.Session()).look(event, time.time())


class Referee:
    """One call's worth of clients and decisions."""

    def __init__(self, settings: Settings, session: Any) -> None:
        self._settings = settings
        self._session = session
        self._rows = Rows(session.client("s3"), settings.bucket)

    def look(self, event: Mapping[str, Any], now_s: float) -> Dict[str, Any]:
        opened_at_s, waiting = self._wait()
        if opened_at_s is None:
            return {"did": "nothing", "why": f"{self._settings.proof} has not begun"}
        rows = self._rows.list(self._settings.run)
        standing = self._rows.latest_verdict(rows)
        if not waiting:
            self._disable()
            return {"did": "disabled", "why": f"{self._settings.proof} is no longer waiting"}
        if standing is not None and standing.ends_proof:
            return self._resignal(standing, now_s)
        reported = {row.instance_id for row in rows}
        members, vanished = self._members(reported, opened_at_s)
        group, failures, unread = self._launches(opened_at_s)
        reports, unreadable = self._rows.reports(rows)
        evidence = Evidence(
            nodes=self._settings.nodes,
            now_s=now_s,
            opened_at_s=opened_at_s,
            timeout_s=self._settings.timeout_s,
            deadline_s=self._settings.deadline_s,
            cluster=self._settings.cluster,
            bucket=self._settings.bucket,
            run=self._settings.run,
            auto_scaling_group=group,
            failures=(*failures, *vanished, *_failure_of(event, now_s)),
            members=members,
            reports=tuple(reports),
            unread=(*unread, *unreadable),
        )
        verdict = decide(evidence)
        if verdict is None:
            return {"did": "nothing", "why": f"{len(members)} members run, nodes may still judge"}
        stage = "collective" if standing else "mesh"
        key = self._rows.write_verdict(self._settings.run, stage, verdict)
        self._signal(verdict, key)
        self._disable()
        return {"did": "signalled", "verdict": verdict.verdict.value, "key": key}

    def _wait(self) -> Tuple[Optional[float], bool]:
        """When the wait began, and whether it still waits."""
        client = self._session.client("cloudformation")
        try:
            answer = client.describe_stack_resource(
                StackName=self._settings.stack, LogicalResourceId=self._settings.proof
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":  # the stack is not there yet
                return None, False
            raise
        detail = answer["StackResourceDetail"]
        return detail["LastUpdatedTimestamp"].timestamp(), detail["ResourceStatus"] == "CREATE_IN_PROGRESS"

    def _members(
        self, reported: set[str], opened_at_s: float
    ) -> Tuple[Tuple[Member, ...], Tuple[LaunchFailure, ...]]:
        """Instances that run, and those that EC2 ended by itself right after their launch."""
        members, vanished = [], []
        pages = self._session.client("ec2").get_paginator("describe_instances")
        for page in pages.paginate(
            Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}]
        ):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    launched_at_s = instance["LaunchTime"].timestamp()
                    if launched_at_s < opened_at_s - CLOCK_SLACK_S:
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

    def _launches(self, opened_at_s: float) -> Tuple[str, Tuple[LaunchFailure, ...], Tuple[str, ...]]:
        """The group's name and its refused launches since the wait began."""
        client = self._session.client("autoscaling")
        try:
            pages = client.get_paginator("describe_auto_scaling_groups")
            tag = {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._settings.cluster]}
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
                    if activity["StatusCode"] == "Failed" and started_at_s >= opened_at_s - CLOCK_SLACK_S:
                        reason = activity.get("StatusMessage") or activity.get("Cause", "no reason given")
                        failures.append(LaunchFailure(started_at_s, _short(reason)))
            return names[0], tuple(failures), ()
        except (ClientError, BotoCoreError) as error:
            return "", (), (f"the scaling activities: {error}",)

    def _is_ours(self, group: Mapping[str, Any]) -> bool:
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        return tags.get(CLUSTER_TAG) == self._settings.cluster

    def _resignal(self, standing: Standing, now_s: float) -> Dict[str, Any]:
        """A verdict stands and the stack still waits: its writer ended before it could signal."""
        if now_s - standing.written_at_s < RESIGNAL_S:
            return {"did": "nothing", "why": "a verdict stands, its signal is on the way"}
        key = f"rows/{self._settings.run}/"
        self._signal(standing.diagnosis, key)
        self._disable()
        return {"did": "signalled", "verdict": standing.diagnosis.verdict.value, "key": key}

    def _signal(self, diagnosis: Diagnosis, key: str) -> None:
        passed = diagnosis.verdict is Verdict.PASS
        document = {
            "Status": "SUCCESS" if passed else "FAILURE",
            "Reason": reason(diagnosis, f"s3://{self._settings.bucket}/{key}"),
            "UniqueId": "verdict",
            "Data": f"{diagnosis.verdict.value}: s3://{self._settings.bucket}/{key}",
        }
        request = urllib.request.Request(  # noqa: S310 - the handle's own https address
            self._settings.handle_url,
            data=json.dumps(document).encode(),
            method="PUT",
            headers={"Content-Type": ""},  # anything else breaks the signature
        )
        with urllib.request.urlopen(request, timeout=20):  # noqa: S310 - as above
            pass

    def _disable(self) -> None:
        """No verdict is missing any more: stop calling. New rules come with the next proof."""
        client = self._session.client("events")
        for name in self._settings.rules:
            client.disable_rule(Name=name)


def reason(diagnosis: Diagnosis, where: str) -> str:
    """The signal's reason: cause, one command, and where the rest stands; at most 400 characters."""
    named = diagnosis.causes or diagnosis.candidates
    head = "; ".join(f"{item.id}: {item.summary}" for item in named[:1]) or "nobody judged"
    if not diagnosis.causes:
        also = " or ".join(item.id for item in named) or "no evidence"
        head = f"undetermined ({also}): {named[0].summary if named else '; '.join(diagnosis.unanswered)}"
    command = diagnosis.next_command or next((c for item in named for c in item.commands), "")
    tail = f"; run: {command}; see {where}" if command else f"; see {where}"
    room = MAX_REASON_CHARACTERS - len(tail)
    if room < 80:  # the command is the longest part: the cause matters more, and it stands at `where` too
        tail = f"; see {where}"
        room = MAX_REASON_CHARACTERS - len(tail)
    return (head if len(head) <= room else head[: room - 3] + "...") + tail


def _failure_of(event: Mapping[str, Any], now_s: float) -> List[LaunchFailure]:
    """The refusal that an "EC2 Instance Launch Unsuccessful" event tells."""
    if event.get("detail-type") != "EC2 Instance Launch Unsuccessful":
        return []
    detail = event.get("detail") or {}
    words = detail.get("StatusMessage") or detail.get("Cause") or "EC2 gave no reason"
    return [LaunchFailure(now_s, _short(str(words)))]


def _short(words: str) -> str:
    return " ".join(words.split())[:600]
