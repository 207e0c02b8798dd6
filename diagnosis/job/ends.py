"""Processes that ended in the middle of a job: who was first, and by whose hand.

A kill, a crash or an exit closes a rank's connections; all others then report closed or reset, one
after the other. The exit status that its own node's probe saw names it; where the whole node is
gone, the earliest of the others' reports does.
"""

from __future__ import annotations

from typing import List

from diagnosis.causes import finding
from diagnosis.job.ranks import Job, Rank
from diagnosis.job.words import Words
from diagnosis.report import Finding

# These never follow from another rank's end; SIGABRT does where a library gives up on an error.
_FROM_OUTSIDE_OR_CRASH = ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTERM", "SIGHUP", "SIGINT")
_LOSSES_SHOWN = 3


def judge_ends(job: Job, words: Words) -> List[Finding]:
    """peer-out-of-memory, store-host-exited, peer-died."""
    named = [rank for rank in job.ranks if rank.killed_by in _FROM_OUTSIDE_OR_CRASH]
    others = [rank for rank in job.ranks if rank not in named and (rank.killed_by or rank.vanished)]
    if not named and others:
        named = [min(others, key=_moment)]
    # What it printed itself before it ended (an exception, a failed check of Gloo's) is the cause.
    named = [rank for rank in named if not words.decide(rank.place)]
    found = [_ended(job, rank, words) for rank in sorted(named, key=_moment)]
    return found or _gone(job, words)


def _moment(rank: Rank) -> float:
    return rank.at_s if rank.at_s is not None else float("inf")


def _ended(job: Job, rank: Rank, words: Words) -> Finding:
    case, seen = job.case, rank.process
    how = f"ended by {rank.killed_by}" if rank.killed_by else f"ended with status {seen.exit_status}"
    lines = [f"{case.subject(rank.place)} process {seen.pid} was {how} in step {job.step_of(rank)}"]
    cause_id, what = "peer-died", f"the process of {case.name(rank.place)} was {how}"
    if rank.killed_by == "SIGKILL" and (seen.oom_kills or seen.kernel_lines):
        cause_id, what = "peer-out-of-memory", f"the kernel ended the process of {case.name(rank.place)}"
        if seen.oom_kills:
            lines.append(f"processes ended for memory there while it ran: {seen.oom_kills}")
        lines += seen.kernel_lines
    elif _holds_store(job, rank.place) and not job.mesh_stood:
        cause_id, what = "store-host-exited", f"{what}; it held the store, and the ranks had not met"
    lost = words.store_losses() if cause_id == "store-host-exited" else words.losses_after(rank.at_s)
    lines += lost[:_LOSSES_SHOWN]
    return finding(
        cause_id,
        case.subject(rank.place),
        summary=f"{what} (step {job.step_of(rank)})",
        evidence=lines,
        fields=case.fields(rank.place),
        at_s=rank.at_s,
    )


def _holds_store(job: Job, place: int) -> bool:
    """Whether this member's process serves the store: rank 0's, unless a launcher's agent does."""
    member = job.case.members[place]
    host = member.report.host if member.report else None
    return member.rank == 0 and (
        host is None or host.environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    )


def _gone(job: Job, words: Words) -> List[Finding]:
    """A member without a result that others lost before anything else, or whose store they lost."""
    first, at_s = words.first_lost, words.first_lost_at
    lines = words.losses_of(first) if first is not None else ()
    cause_id, what = "peer-died", "closed its connections in the all_reduce"
    if first is None and not job.mesh_stood and words.store_losses():
        first = next((place for place in job.silent if _holds_store(job, place)), None)
        lines, at_s = words.store_losses(), None
        cause_id, what = "store-host-exited", "closed the store before the ranks had met"
    if first is None or first not in job.silent:
        return []
    case = job.case
    return [
        finding(
            cause_id,
            case.subject(first),
            summary=f"{case.name(first)} {what} and sent no result",
            evidence=[*lines[:_LOSSES_SHOWN], f"{case.subject(first)} sent no result"],
            fields=case.fields(first),
            at_s=at_s,
        )
    ]
