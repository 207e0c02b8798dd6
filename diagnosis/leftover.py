"""Variables of another launcher that torch would read: the job's own processes wait for nobody."""

from __future__ import annotations

from typing import List, Optional

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.claims import started
from diagnosis.launchers import ClaimError, Conflict, conflict_words, launched
from diagnosis.membership import Member
from diagnosis.opinion import Opinion
from diagnosis.report import Finding


def judge_leftover(case: Case) -> Opinion:
    """env-leftover, where a node's row tells which launcher started it; else an open question."""
    causes: List[Finding] = []
    unanswered: List[str] = []
    for place, member in enumerate(case.members):
        conflict = misleading(member)
        if conflict is None:
            continue
        if conflict.right is not None:
            causes.append(left_over(conflict, case.subject(place), started(case, [place])))
        else:
            summary, evidence = conflict_words(conflict)
            unanswered.append(f"{case.subject(place)}: {summary} ({', '.join(evidence)})")
    return Opinion(causes=tuple(causes), unanswered=tuple(unanswered))


def left_over(conflict: Conflict, subject: str, at_s: Optional[float] = None) -> Finding:
    """The cause of a conflict, with the command that takes the leftovers away."""
    summary, evidence = conflict_words(conflict)
    return finding(
        "env-leftover", subject, summary=summary, evidence=evidence, commands=(conflict.unset,), at_s=at_s
    )


def misleading(member: Member) -> Optional[Conflict]:
    """What misleads torch on a member; a launcher's variables that nobody reads are no fault."""
    host = member.report.host if member.report else None
    if host is None:
        return None
    try:
        launch = launched(host.environment, host.started_by)
    except ClaimError:  # a rank that is no number is told where it was read
        return None
    return launch.conflict if launch.conflict is not None and launch.conflict.torch_misled else None
