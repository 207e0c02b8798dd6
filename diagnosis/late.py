"""peer-late: a member that came once the others had met, waited and gone."""

from __future__ import annotations

from typing import Dict, List, Optional

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.opinion import Opinion
from diagnosis.report import Finding, NodeReport

# What boots together is some seconds apart; from here on a difference is told as the reason.
APART_S = 10.0
# A probe that begins so soon after its boot is part of it; one that begins later was started by hand.
BOOT_LASTS_AT_MOST_S = 3600.0


def judge_late(case: Case) -> Opinion:
    """One finding a member that began after every other one had ended, and whom none of them met.

    Its clock may be unknown then; that the others' rows do not know it is what shows that it is late.
    """
    rows = {
        place: member.report
        for place, member in enumerate(case.members)
        if member.report is not None and member.report.probes is not None
    }
    ends = [row.finished_at for row in rows.values() if row.finished_at is not None]
    if not ends:
        return Opinion()
    first = {place: row for place, row in rows.items() if (row.started_at or 0.0) <= min(ends)}
    gave_up_at = max((row.finished_at or 0.0) for row in first.values()) if first else 0.0
    met = {member_id for row in first.values() for member_id in row.members}
    late = [
        place
        for place, row in rows.items()
        if row.started_at is not None and row.started_at > gave_up_at and row.member_id not in met
    ]
    return Opinion(causes=tuple(_finding(case, place, rows, first, gave_up_at) for place in late if first))


def _finding(
    case: Case, place: int, rows: Dict[int, NodeReport], first: Dict[int, NodeReport], gave_up_at: float
) -> Finding:
    own = rows[place]
    began_at = min(row.started_at for row in first.values() if row.started_at is not None)
    after_s = (own.started_at or 0.0) - began_at
    why = _reason(own, list(first.values()))
    return finding(
        "peer-late",
        case.subject(place),
        summary=f"{case.name(place)} began {after_s:.0f} s after the others, who had given up waiting by then"
        + (f": {why}" if why else ""),
        evidence=[
            f"{case.subject(place)} began {after_s:.1f} s after the first of the others",
            f"the others met {len(first)} of {case.expectation.nodes} members and ended after "
            f"{gave_up_at - began_at:.1f} s",
            *_boots(case, place, rows),
        ],
        fields=case.fields(place),
        at_s=gave_up_at,
    )


def _reason(own: NodeReport, others: List[NodeReport]) -> str:
    """Booted late, or slow from its boot to its probe; "" where boots tell nothing."""
    booted = [row.booted_at for row in others if row.booted_at is not None]
    if own.booted_at is None or not booted:
        return ""
    after_s = own.booted_at - max(booted)
    if after_s > APART_S:
        return f"it booted {after_s:.0f} s after the last of them"
    took_s, usual_s = _start_up_s(own), max(_start_up_s(row) or 0.0 for row in others)
    if took_s is not None and took_s < BOOT_LASTS_AT_MOST_S and took_s - usual_s > APART_S:
        return (
            f"{took_s:.0f} s passed between its boot and its probe, {usual_s:.0f} s at most on the others "
            "(an installation, a download or a slow disk)"
        )
    return ""


def _start_up_s(row: NodeReport) -> Optional[float]:
    if row.started_at is None or row.booted_at is None:
        return None
    return row.started_at - row.booted_at


def _boots(case: Case, place: int, rows: Dict[int, NodeReport]) -> List[str]:
    took_s = _start_up_s(rows[place])
    if took_s is None:
        return []
    return [f"{case.subject(place)} had booted {took_s:.0f} s before its probe began"]
