"""The audit that never sleeps: a function in the account, called by a schedule and by changes of EC2.

It runs what `fullmesh audit` runs, sends two metrics and prints one line of JSON, which
the dashboard shows. What it could not look at sends no metric: a silent audit has an
alarm of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from audit.answer import Audit, audit_stack
from audit.difference import Meaning
from audit.drift import our_stack
from audit.live import read_stack
from diagnosis.report import Verdict

DRIFTED = "DriftedRules"
BREAKING = "MeshBreakingDrift"
MOST_SHOWN = 50
"""Differences in one line: a log event holds 256 KiB, and pairs are told by their number there."""


def handler(event: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    """One audit. The answer is the line that it also prints, for a call by hand.

    Environment: STACK (its name is the cluster's), METRIC_NAMESPACE, INTERVAL_MIN.
    """
    session = boto3.Session()
    stack = os.environ["STACK"]
    documents = read_stack(session, stack)
    answer = audit_stack(documents, our_stack(documents, stack))
    sent = metrics(answer)
    if sent:
        session.client("cloudwatch").put_metric_data(
            Namespace=os.environ["METRIC_NAMESPACE"],
            MetricData=[
                {
                    "MetricName": name,
                    "Dimensions": [{"Name": "Cluster", "Value": stack}],
                    "Value": value,
                    "Unit": "Count",
                }
                for name, value in sent.items()
            ],
        )
    line = {
        **summary(answer),
        "cluster": stack,
        "because": called_by(event),
        "changes": changes_note(session, int(os.environ["INTERVAL_MIN"])),
    }
    print(json.dumps(line))
    return line


def metrics(answer: Audit) -> dict[str, int]:
    """Name -> value. No 0 where the comparison has gaps: it would say that nothing differs."""
    differences = answer.differences
    breaking = sum(item.meaning.breaks for item in differences)
    drifted = sum(item.meaning.grade > Meaning.COSMETIC.grade for item in differences)
    if answer.verdict is Verdict.UNKNOWN:
        return {}
    # The mesh can be impossible by what the template itself says; no difference tells that.
    found = {DRIFTED: drifted, BREAKING: max(breaking, int(answer.findings.mesh_possible is False))}
    return {name: count for name, count in found.items() if count or not answer.unanswered}


def summary(answer: Audit) -> dict[str, Any]:
    """What the log and the dashboard show of it."""
    shown = answer.differences[:MOST_SHOWN]
    return {
        "kind": "audit",
        "verdict": answer.verdict.value,
        "mesh_possible": answer.findings.mesh_possible,
        "causes": [{"id": item.id, "summary": item.summary} for item in answer.findings.causes],
        "exposed": answer.findings.exposed_documents()[:MOST_SHOWN],
        "drift": [
            {
                "resource": item.deviation.resource,
                "attribute": item.deviation.attribute,
                "meaning": item.meaning.value,
                "detail": item.detail,
                "pairs": item.pair_count,
            }
            for item in shown
        ],
        "drift_not_shown": len(answer.differences) - len(shown),
        "unanswered": list(answer.unanswered)[:MOST_SHOWN],
    }


def called_by(event: Mapping[str, Any]) -> str:
    """The API call that CloudTrail told of, or the schedule."""
    detail = event.get("detail") or {}
    name = detail.get("eventName")
    return f"{name} at {detail.get('eventTime', 'an unknown time')}" if name else "schedule"


def changes_note(session: Any, interval_min: int) -> str:
    """Whether changes of EC2 call the audit at once: EventBridge hears of them only through a trail.

    docs.aws.amazon.com/eventbridge/latest/userguide/eb-ct-api-tutorial.html: "a CloudTrail trail with
    logging enabled is required".
    """
    otherwise = f"a change is seen by the next audit, within {interval_min} min"
    try:
        client = session.client("cloudtrail")
        trails = client.describe_trails(includeShadowTrails=True).get("trailList", ())
        here = [
            t for t in trails if t.get("IsMultiRegionTrail") or t.get("HomeRegion") == session.region_name
        ]
        for trail in here:
            if client.get_trail_status(Name=trail["TrailARN"]).get("IsLogging"):
                return "a CloudTrail trail logs here: changes of EC2 call the audit within minutes"
    except (ClientError, BotoCoreError) as error:
        return f"whether a CloudTrail trail logs here was not told ({error}); without one {otherwise}"
    return f"no CloudTrail trail logs in this region: {otherwise}"
