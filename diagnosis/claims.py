"""Values of all nodes side by side, and who is meant by a difference."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from diagnosis.case import Case
from diagnosis.membership import Member


def environments(case: Case) -> Dict[int, Mapping[str, str]]:
    return {
        place: member.report.host.environment
        for place, member in enumerate(case.members)
        if member.report is not None and member.report.host is not None
    }


def started(case: Case, places: Sequence[int]) -> Optional[float]:
    times = [report.started_at for report in (case.members[place].report for place in places) if report]
    return min((time for time in times if time is not None), default=None)


def where(case: Case, places: Sequence[int]) -> List[Tuple[str, Sequence[int]]]:
    """One subject for all when every member is meant, else one a node."""
    if len(places) == len(case.members) and len(places) > 1:
        return [("cluster", places)]
    return [(case.subject(place), [place]) for place in places]


def claims(case: Case, of: Callable[[Member], Optional[str]]) -> Dict[int, str]:
    found = {place: of(member) for place, member in enumerate(case.members) if member.report is not None}
    return {place: value for place, value in found.items() if value is not None}


def variable(member: Member, name: str) -> Optional[str]:
    host = member.report.host if member.report else None
    return host.environment.get(name) if host else None


def torch_of(member: Member) -> str:
    """The release of torch that the job will use there; "" = not known."""
    report = member.report
    if report is None:
        return ""
    result = report.collective.versions if report.collective else {}
    found = report.host.versions if report.host else {}
    return result.get("torch") or found.get("torch", "")


def odd_ones(case: Case, values: Mapping[int, str]) -> List[Tuple[str, Sequence[int], str]]:
    """(subject, members, the usual value): the minority where there is a majority, else the cluster."""
    if len(set(values.values())) < 2:
        return []
    (usual, most), *_ = Counter(values.values()).most_common(1)
    if most * 2 <= len(values):
        return [("cluster", sorted(values), "")]
    return [(case.subject(place), [place], usual) for place in sorted(values) if values[place] != usual]
