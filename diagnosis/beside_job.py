"""What a check leaves out on purpose, so as not to disturb a job that trains already."""

from __future__ import annotations

from typing import Tuple

from diagnosis.case import NAMED_AT_MOST, Case


def left_to_jobs(case: Case) -> Tuple[str, ...]:
    """Sentences for `Diagnosis.skipped`, by node; nodes beyond the first ones are counted."""
    lines = [
        f"{member.subject}: {member.report.job}; MASTER_PORT and the all_reduce are left to it"
        for member in case.members
        if member.report is not None and member.report.job is not None
    ]
    more = len(lines) - NAMED_AT_MOST
    return (*lines[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else ()))
