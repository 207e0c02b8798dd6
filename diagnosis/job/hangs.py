"""Ranks that were there and did nothing: stopped, stuck in the kernel, or elsewhere in their program."""

from __future__ import annotations

from typing import List

from diagnosis.causes import finding
from diagnosis.job.ranks import Job, Rank
from diagnosis.report import Finding

# Uninterruptible for so long is stuck: a disk or a driver that does not answer.
_STUCK_S = 5.0


def judge_hangs(job: Job) -> List[Finding]:
    """peer-frozen, peer-not-in-collective."""
    found = [_frozen(job, rank) for rank in job.ranks if rank.stopped or _stuck(rank)]
    return found + [_elsewhere(job, rank) for rank in job.ranks if rank.elsewhere and not _stuck(rank)]


def _stuck(rank: Rank) -> bool:
    return rank.was_ended and rank.process.state == "D" and (rank.process.idle_s or 0.0) >= _STUCK_S


def _frozen(job: Job, rank: Rank) -> Finding:
    case = job.case
    what = "was stopped by a signal" if rank.stopped else "was stuck in the kernel"
    return finding(
        "peer-frozen",
        case.subject(rank.place),
        summary=f"the process of {case.name(rank.place)} {what} in step {job.step_of(rank)} "
        "and read nothing; the others waited for it",
        evidence=job.look(rank),
        fields={**case.fields(rank.place), "pid": rank.process.pid},
        at_s=_since(rank),
    )


def _elsewhere(job: Job, rank: Rank) -> Finding:
    case = job.case
    return finding(
        "peer-not-in-collective",
        case.subject(rank.place),
        summary=f"{case.name(rank.place)} never entered what the others waited in: "
        f"it stood at {rank.process.stack[0]}",
        evidence=job.look(rank),
        fields=case.fields(rank.place),
        at_s=_since(rank),
    )


def _since(rank: Rank) -> float:
    """When it began to hang."""
    ended_at = rank.at_s if rank.at_s is not None else float("inf")
    return ended_at - (rank.process.idle_s or 0.0)
