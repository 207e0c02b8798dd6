"""What each node says of itself: steps that failed, what it could not write, its all_reduce."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.opinion import NOTHING, Opinion, total, undetermined
from diagnosis.report import CollectiveResult, Finding, StepFailure, Verdict

# Errors of S3 calls: no way there, or no permission. AWS CLI, boto3 and plain HTTP say it so.
_STORAGE = re.compile(
    r"Could not connect to the endpoint URL: \S*s3|Connect timeout on endpoint URL: \S*s3|"
    r"\(AccessDenied\) when calling the (?:PutObject|GetObject|HeadObject|ListObjects)|"
    r"EndpointConnectionError\b.*s3|s3[\w.-]*amazonaws\.com\S* .*(?:timed out|unreachable|refused|resolve)",
    re.IGNORECASE | re.DOTALL,
)
COLLECTIVE_LOG = "/var/log/fullmesh/collective.log"
"""Where userdata/bootstrap.sh keeps the output of its step `collective`."""

_STORAGE_STEPS = ("storage", "bucket", "rows")
_ENV_EXPECTED = re.compile(r"environment variable (\w+) expected, but not set")


def judge_nodes(case: Case) -> Opinion:
    """Start-up failures, publishing errors and the collective."""
    causes: List[Finding] = []
    for place, member in enumerate(case.members):
        if member.report is not None:
            causes += [_failed_step(case, place, failure) for failure in member.report.failures]
    causes += _unpublished(case)
    opinion = Opinion(causes=tuple(causes))
    if "collective" in case.expectation.stages:
        opinion += _collective(case)
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


# --- the collective ----------------------------------------------------------------------------


def _collective(case: Case) -> Opinion:
    opinions = []
    unnamed: List[Tuple[int, CollectiveResult]] = []
    for place, member in enumerate(case.members):
        result = member.report.collective if member.report else None
        if result is None:
            opinions.append(Opinion(unanswered=(f"{member.subject}: no result of the all_reduce",)))
            continue
        cause = _result_cause(case, place, result)
        if cause is not None:
            opinions.append(Opinion(causes=(cause,)))
        elif result.outcome is Verdict.FAIL or result.error:
            unnamed.append((place, result))
        elif result.outcome is not Verdict.PASS:
            words = f"{member.subject}: the all_reduce is {result.outcome.value}"
            opinions.append(Opinion(unanswered=(words,)))
        elif result.world_size != _planned(case, place):
            opinions.append(Opinion(causes=(_other_world(case, place, result),)))
    return total(opinions) + _unnamed(case, unnamed)


def _result_cause(case: Case, place: int, result: CollectiveResult) -> Optional[Finding]:
    """A cause that one rank's own result decides."""
    error = result.error or ""
    missing = _ENV_EXPECTED.search(error)
    words = ""
    cause_id = ""
    fields = case.fields(place)
    if result.wrong_values:
        cause_id = "collective-wrong-result"
        words = f"the all_reduce on {case.name(place)} is wrong: {result.wrong_values}"
    elif missing:
        cause_id, words = "env-missing", f"{missing.group(1)} is not set on {case.name(place)}"
        fields["name"] = missing.group(1)
    elif "unsupported gloo device" in error:
        cause_id, words = (
            "transport-unsupported",
            f"torch on {case.name(place)} lacks the transport asked for",
        )
    elif "Too many open files" in error:
        cause_id, words = "fd-limit", f"{case.name(place)} ran out of file descriptors"
    if not cause_id:
        return None
    return finding(
        cause_id,
        case.subject(place),
        summary=words,
        evidence=[text for text in (result.wrong_values, _first_line(error)) if text],
        fields=fields,
        at_s=_finished(case, place),
    )


def _planned(case: Case, place: int) -> int:
    """How many ranks the all_reduce should have."""
    report = case.members[place].report
    return (report.processes if report else None) or case.expectation.nodes


def _other_world(case: Case, place: int, result: CollectiveResult) -> Finding:
    nodes = _planned(case, place)
    return finding(
        "world-size-mismatch",
        case.subject(place),
        summary=f"the all_reduce of {case.name(place)} ran with {result.world_size} ranks instead of {nodes}",
        evidence=[f"world size of the collective: {result.world_size}", f"planned: {nodes}"],
        fields=case.fields(place),
        at_s=_finished(case, place),
    )


def _unnamed(case: Case, failed: List[Tuple[int, CollectiveResult]]) -> Opinion:
    """A failed collective whose text alone does not decide; over a broken mesh it is an echo."""
    if not failed:
        return NOTHING
    place, result = failed[0]
    text = _first_line(result.error or "") or "no error text"
    every = len(failed) == len(case.members)
    subject = "cluster" if every or len(failed) > 1 else case.subject(place)
    return undetermined(
        [("peer-not-in-collective", subject), ("peer-died", subject), ("timeout-too-short", subject)],
        why=f"the all_reduce failed on {len(failed)} of {len(case.members)} ranks: {text}",
        evidence=[
            f"{case.subject(p)}: {_first_line(r.error or '') or 'failed'}" for p, r in failed[:NAMED_AT_MOST]
        ],
        next_command=_read_log(case, place),
        fields=case.fields(place),
        at_s=_finished(case, place),
    )


def _read_log(case: Case, place: int) -> str:
    """What reads the torch log of a member: bootstrap.sh's own where it was deployed."""
    if case.members[place].member_id.startswith("i-"):
        return f"fullmesh explain {COLLECTIVE_LOG}  # on {case.name(place)}"
    return f"fullmesh check 2>check.log; fullmesh explain check.log  # on {case.name(place)}, as a job again"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _finished(case: Case, place: int) -> Optional[float]:
    report = case.members[place].report
    return report.finished_at if report else None


def slowest(case: Case) -> Optional[CollectiveResult]:
    """The collective of the whole: a failed rank's, else the slowest's."""
    results = [m.report.collective for m in case.members if m.report and m.report.collective]
    if not results:
        return None
    order = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIPPED, Verdict.PASS)
    return min(results, key=lambda r: (order.index(r.outcome), r.busbw_gbit_per_s or 0.0))
