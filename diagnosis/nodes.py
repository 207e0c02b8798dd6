"""What each node says of itself: steps that failed, what it could not write, its all_reduce."""

from __future__ import annotations

import re
from typing import List

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.collective import judge_collective
from diagnosis.opinion import Opinion
from diagnosis.report import Finding, StepFailure

# Errors of S3 calls: no way there, or no permission. AWS CLI, boto3 and plain HTTP say it so.
_STORAGE = re.compile(
    r"Could not connect to the endpoint URL: \S*s3|Connect timeout on endpoint URL: \S*s3|"
    r"\(AccessDenied\) when calling the (?:PutObject|GetObject|HeadObject|ListObjects)|"
    r"EndpointConnectionError\b.*s3|s3[\w.-]*amazonaws\.com\S* .*(?:timed out|unreachable|refused|resolve)",
    re.IGNORECASE | re.DOTALL,
)
_STORAGE_STEPS = ("storage", "bucket", "rows")


def judge_nodes(case: Case) -> Opinion:
    """Start-up failures, publishing errors and the collective."""
    causes: List[Finding] = []
    for place, member in enumerate(case.members):
        if member.report is not None:
            causes += [_failed_step(case, place, failure) for failure in member.report.failures]
    causes += _unpublished(case)
    opinion = Opinion(causes=tuple(causes))
    if "collective" in case.expectation.stages:
        opinion += judge_collective(case)
    return opinion


def _failed_step(case: Case, place: int, failure: StepFailure) -> Finding:
    storage = failure.step.lower() in _STORAGE_STEPS or bool(_STORAGE.search(failure.output))
    lines = [line for line in failure.output.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "it printed nothing"
    report = case.members[place].report
    return finding(
        "storage-unreachable" if storage else "bootstrap-failed",
        case.subject(place),
        summary=f"step {failure.step} on {case.name(place)} ended with status {failure.exit_status}: {last}",
        evidence=lines[-10:] or [f"exit status {failure.exit_status}, no output"],
        fields=case.fields(place),
        at_s=report.started_at if report else None,
    )


def _unpublished(case: Case) -> List[Finding]:
    """One finding for all when every node that reported says so."""
    said = {
        place: member.report.publish_errors
        for place, member in enumerate(case.members)
        if member.report is not None and member.report.publish_errors
    }
    if not said:
        return []
    everywhere = len(said) == len(case.members) > 1
    places = [min(said)] if everywhere else sorted(said)
    return [
        finding(
            "publish-failed",
            "cluster" if everywhere else case.subject(place),
            summary=f"{'every node' if everywhere else case.name(place)} could not publish: {said[place][0]}",
            evidence=said[place][:NAMED_AT_MOST],
        )
        for place in places
    ]
