"""What the referee concludes from what it saw. Pure: no AWS, no clock.

A node judges better than the referee, because it has probed. So the referee decides only
what no node can: launches that failed, nodes that run and stay silent, and a proof that
nobody judged. Where its evidence does not decide, it says so and names the candidates.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from cluster.node_config import NodeConfig
from cluster.spec_times import BOOT_S, LAST_CALL_S
from diagnosis.causes import finding
from diagnosis.judge import judge
from diagnosis.membership import Expectation
from diagnosis.report import Diagnosis, Finding, NodeReport, Verdict

NAMED_AT_MOST = 4

# Auto Scaling retries these by itself, and the next attempt may succeed.
TRANSIENT = re.compile(
    r"insufficient|do not have sufficient|ReservationCapacityExceeded|RequestLimitExceeded|throttl|"
    r"Server\.InternalError|Service ?Unavailable|"
    r"Invalid IAM Instance Profile",  # a new profile takes seconds to be known
    re.IGNORECASE,
)
# These come back the same however often it retries.
FATAL = re.compile(
    r"VcpuLimitExceeded|InstanceLimitExceeded|vCPU (capacity|limit)|does not exist|not supported|Unsupported|"
    r"Client\.\w+|InvalidParameter|InvalidAMIID|InvalidKMSKey|InvalidCapacityReservation|AccessDenied|"
    r"Access denied|not authorized|UnauthorizedOperation|OptInRequired|PendingVerification|placement group|"
    r"InvalidPlacementGroup|not a Capacity Block|not a valid|exceeds? the",
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

    opened_at_s: when the wait began. registered: instance id -> address of who registered.
    unread: what could not be looked at, and why.
    """

    config: NodeConfig
    now_s: float
    opened_at_s: float
    timeout_s: float
    auto_scaling_group: str = ""
    failures: Tuple[LaunchFailure, ...] = ()
    members: Tuple[Member, ...] = ()
    registered: Mapping[str, str] = field(default_factory=dict)
    reports: Tuple[NodeReport, ...] = ()
    unread: Tuple[str, ...] = ()

    @property
    def last_call(self) -> bool:
        # A wait that is shorter than twice the notice keeps half of itself for the nodes.
        notice_s = min(LAST_CALL_S, self.timeout_s / 2)
        return self.now_s >= self.opened_at_s + self.timeout_s - notice_s

    @property
    def silent(self) -> Tuple[Member, ...]:
        return tuple(member for member in self.members if not member.reported)


def decide(seen: Evidence) -> Optional[Diagnosis]:
    """The referee's own verdict; None while nodes may still judge or a launch may still succeed."""
    fatal = tuple(failure for failure in seen.failures if failure.fatal)
    if fatal:
        return _launch_failed(seen, fatal)
    all_run = len(seen.members) >= seen.config.nodes
    if not all_run and seen.failures and seen.last_call:
        return _launch_failed(seen, seen.failures)
    allowed_s = seen.config.deadline_s + BOOT_S
    long_up = all(seen.now_s - member.launched_at_s > allowed_s for member in seen.members)
    if all_run and long_up and len(seen.silent) == len(seen.members):
        return _silent(seen)
    return _nobody_judged(seen) if seen.last_call else None


def _launch_failed(seen: Evidence, failures: Tuple[LaunchFailure, ...]) -> Diagnosis:
    """EC2's own words are the evidence, so the cause is certain; the first failure came first."""
    in_order = sorted(failures, key=lambda failure: failure.at_s)
    running, nodes = len(seen.members), seen.config.nodes
    return Diagnosis(
        verdict=Verdict.FAIL,
        causes=(
            finding(
                "launch-failed",
                "cluster",
                summary=f"{running} of {nodes} instances run; EC2 refused a launch: {in_order[0].reason}",
                evidence=tuple(dict.fromkeys(failure.reason for failure in in_order)),
                fields={"auto_scaling_group": seen.auto_scaling_group},
                at_s=in_order[0].at_s,
            ),
        ),
        unanswered=(f"whether {nodes} members reach each other: only {running} of them run",),
    )


def _silent(seen: Evidence) -> Diagnosis:
    """Instances that run and wrote nothing: seen from outside, two causes look the same."""
    candidates = _silent_candidates(seen)
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        candidates=candidates,
        next_command=candidates[0].commands[0],
        unanswered=(f"whether {seen.config.nodes} members reach each other: no node reported", *seen.unread),
    )


def _silent_candidates(seen: Evidence) -> Tuple[Finding, ...]:
    silent, config = seen.silent, seen.config
    names = ", ".join(member.instance_id for member in silent[:NAMED_AT_MOST])
    waited_s = seen.now_s - max(member.launched_at_s for member in silent)
    evidence = (
        f"{len(silent)} of {config.nodes} instances run ({names}), the last of them since {waited_s:.0f} s",
        f"nothing below s3://{config.bucket}/rows/{config.run}/ is theirs",
    )
    return tuple(
        finding(
            cause_id,
            "cluster",
            summary=f"{len(silent)} of {config.nodes} instances run but never reported",
            evidence=evidence,
            fields={"instance_id": silent[0].instance_id, "bucket": config.bucket},
        )
        for cause_id in ("bootstrap-failed", "storage-unreachable")
    )


def _nobody_judged(seen: Evidence) -> Diagnosis:
    """The wait is about to end and no verdict stands: judge what rows there are, as a node would."""
    config = seen.config
    judged = judge(
        seen.reports,
        Expectation(
            nodes=config.nodes,
            master_port=config.master_port,
            ephemeral=config.ephemeral_ports,
            stages=("mesh", "collective"),
            registered=seen.registered,
            cluster=config.cluster,
            rules_expected=True,
            rules_problem="the nodes read them, and none of them judged",
        ),
    )
    if judged.verdict is not Verdict.UNKNOWN:
        return judged
    candidates = _silent_candidates(seen) if seen.silent else judged.candidates
    first = next((command for item in candidates for command in item.commands), judged.next_command)
    return dataclasses.replace(
        judged,
        candidates=candidates,
        next_command=first or f"aws s3 ls --recursive s3://{config.bucket}/rows/{config.run}/",
        unanswered=(*judged.unanswered, *seen.unread),
    )
