"""What the referee concludes from what it saw. Pure: no AWS, no clock.

A node judges better than the referee, because it has probed. So the referee decides only
what no node can: launches that failed, nodes that run and stay silent, and a proof that
nobody judged. Where its evidence does not decide, it says so and names the candidates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional, Tuple

from diagnosis.causes import finding
from diagnosis.report import Diagnosis, Finding, NodeReport, Verdict

LAST_CALL_S = 150.0
"""Before the wait's time-out: two calls a minute apart, and room for a slow one."""

BOOT_S = 180.0
"""From launch to the first row of a healthy node: boot, user data, one download. It is added
to the probe's own deadline before silence means anything."""

RESIGNAL_S = 60.0
"""A verdict this old whose signal has not arrived was not signalled: its node died in between."""

# Auto Scaling retries these by itself, and the next attempt may succeed.
TRANSIENT = re.compile(
    r"insufficient|do not have sufficient|ReservationCapacityExceeded|RequestLimitExceeded|throttl|"
    r"Server\.InternalError|Service ?Unavailable|Invalid IAM Instance Profile",  # a new profile takes seconds to be known
    re.IGNORECASE,
)
# These come back the same however often it retries.
FATAL = re.compile(
    r"VcpuLimitExceeded|InstanceLimitExceeded|vCPU (capacity|limit)|does not exist|not supported|Unsupported|"
    r"Client\.\w+|InvalidParameter|InvalidAMIID|InvalidKMSKey|AccessDenied|Access denied|not authorized|"
    r"UnauthorizedOperation|OptInRequired|PendingVerification|placement group|InvalidPlacementGroup|"
    r"not a valid|exceeds? the",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class LaunchFailure:
    """One refused launch, in the words of EC2."""

    at_s: float
    reason: str

    @property
    def fatal(self) -> bool:
        """Whether trying again is pointless. A reason that is not known counts as worth a retry."""
        return not TRANSIENT.search(self.reason) and bool(FATAL.search(self.reason))


@dataclass(frozen=True)
class Member:
    """An instance of the cluster that runs, and whether anything of it is in the bucket."""

    instance_id: str
    launched_at_s: float
    reported: bool


@dataclass(frozen=True)
class Evidence:
    """All that the referee saw in one call. Times in seconds since the epoch.

    opened_at_s: when the wait began. standing: a verdict that ends the proof, and when it was written.
    """

    nodes: int
    now_s: float
    opened_at_s: float
    timeout_s: float
    deadline_s: float
    cluster: str
    bucket: str
    run: str
    auto_scaling_group: str = ""
    failures: Tuple[LaunchFailure, ...] = ()
    members: Tuple[Member, ...] = ()
    reports: Tuple[NodeReport, ...] = ()
    standing: Optional[Diagnosis] = None
    standing_since_s: Optional[float] = None
    unread: Tuple[str, ...] = field(default=())  # what could not be looked at, and why

    @property
    def last_call(self) -> bool:
        return self.now_s >= self.opened_at_s + self.timeout_s - LAST_CALL_S


def decide(seen: Evidence) -> Optional[Diagnosis]:
    """The referee's own verdict; None while nodes may still judge or a launch may still succeed."""
    if seen.standing is not None:
        return None
    fatal = [failure for failure in seen.failures if failure.fatal]
    if fatal:
        return _launch_failed(seen, tuple(fatal))
    if len(seen.members) < seen.nodes and seen.failures and seen.last_call:
        return _launch_failed(seen, seen.failures)
    silent = [member for member in seen.members if not member.reported]
    allowed_s = seen.deadline_s + BOOT_S
    all_up = len(seen.members) >= seen.nodes
    long_silent = all(seen.now_s - member.launched_at_s > allowed_s for member in silent)
    if all_up and len(silent) == len(seen.members) and long_silent:
        return _silent(seen, tuple(silent))
    if seen.last_call:
        return _nobody_judged(seen, tuple(silent))
    return None


def _launch_failed(seen: Evidence, failures: Tuple[LaunchFailure, ...]) -> Diagnosis:
    """EC2's own words are the evidence, so the cause is certain; the first failure came first."""
    first = min(failures, key=lambda failure: failure.at_s)
    reasons = tuple(dict.fromkeys(failure.reason for failure in sorted(failures, key=lambda f: f.at_s)))
    running = len(seen.members)
    return Diagnosis(
        verdict=Verdict.FAIL,
        causes=(
            finding(
                "launch-failed",
                "cluster",
                summary=f"EC2 launched {running} of {seen.nodes} instances: {first.reason}",
                evidence=reasons,
                fields={"auto_scaling_group": seen.auto_scaling_group},
                at_s=first.at_s,
            ),
        ),
        unanswered=(f"whether {seen.nodes} members reach each other: {running} of them were launched",),
    )


def _silent(seen: Evidence, silent: Tuple[Member, ...]) -> Diagnosis:
    """Instances that run and wrote nothing: from outside, two causes look the same."""
    ids = ", ".join(member.instance_id for member in silent[:4]) + (", ..." if len(silent) > 4 else "")
    first = silent[0].instance_id
    waited_s = seen.now_s - max(member.launched_at_s for member in silent)
    evidence = (
        f"{len(silent)} of {seen.nodes} instances run ({ids}), the last one since {waited_s:.0f} s",
        f"nothing below s3://{seen.bucket}/rows/{seen.run}/ is theirs",
    )
    fields = {"instance_id": first, "bucket": seen.bucket}
    summary = f"{len(silent)} of {seen.nodes} instances run but never reported"
    candidates = tuple(
        finding(cause_id, "cluster", summary=summary, evidence=evidence, fields=fields)
        for cause_id in ("bootstrap-failed", "storage-unreachable")
    )
    return _undetermined(candidates, seen)


def _nobody_judged(seen: Evidence, silent: Tuple[Member, ...]) -> Diagnosis:
    """The wait is about to end and no verdict stands: say what is there, and claim nothing else."""
    candidates: Tuple[Finding, ...] = ()
    if silent:
        candidates = _silent(seen, silent).candidates
    elif len(seen.members) < seen.nodes:
        candidates = (
            finding(
                "launch-failed",
                "cluster",
                summary=f"{len(seen.members)} of {seen.nodes} instances run, and no scaling activity says why",
                evidence=(f"{len(seen.members)} instances of {seen.cluster} run",),
                fields={"auto_scaling_group": seen.auto_scaling_group},
            ),
        )
    return _undetermined(candidates, seen)


def _undetermined(candidates: Tuple[Finding, ...], seen: Evidence) -> Diagnosis:
    commands = [command for candidate in candidates for command in candidate.commands]
    look = f"aws s3 ls --recursive s3://{seen.bucket}/rows/{seen.run}/"
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        candidates=candidates,
        next_command=commands[0] if commands else look,
        unanswered=(
            f"whether {seen.nodes} members reach each other: no node judged, {len(seen.reports)} of {seen.nodes} reported",
            *seen.unread,
        ),
    )
