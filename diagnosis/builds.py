"""version-mismatch: torch and Python of all nodes side by side.

Compared is what a job would load: nodes whose Python has no torch say nothing of it. Two builds
of one commit (CPU and CUDA) have the same Gloo. Where a real all_reduce passed between the
builds, the difference is no fault.
"""

from __future__ import annotations

from typing import Dict, Optional, Sequence

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import odd_ones, started
from diagnosis.membership import Member
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.report import Finding, Verdict


def judge_builds(case: Case) -> Opinion:
    """One finding a node of the rarer build; the cluster where none is the usual one."""
    results = [member.report.collective for member in case.members if member.report]
    if results and all(result is not None and result.outcome is Verdict.PASS for result in results):
        return NOTHING
    told = {place: _versions(member) for place, member in enumerate(case.members)}
    builds = {place: _build(versions) for place, versions in told.items() if "torch" in versions}
    return Opinion(
        causes=tuple(
            _finding(case, subject, places, usual, told) for subject, places, usual in odd_ones(case, builds)
        )
    )


def _versions(member: Member) -> Dict[str, str]:
    """Of the Python that ran the all_reduce, else of the one that ran the probe."""
    report = member.report
    if report is None:
        return {}
    if report.collective is not None and "torch" in report.collective.versions:
        return dict(report.collective.versions)
    return dict(report.host.versions) if report.host else {}


def _build(versions: Dict[str, str]) -> str:
    """What has to be alike: torch's commit (its release where that is not told), Python's minor version."""
    torch = versions.get("torch_git") or versions["torch"].partition("+")[0]
    return f"{torch} {'.'.join(versions.get('python', '').split('.')[:2])}"


def _finding(
    case: Case, subject: str, places: Sequence[int], usual: str, told: Dict[int, Dict[str, str]]
) -> Finding:
    with_torch = [place for place, versions in sorted(told.items()) if "torch" in versions]
    own = places[0]
    other: Optional[int] = next((p for p in with_torch if usual and _build(told[p]) == usual), None)
    if subject == "cluster":
        summary = "nodes run different builds, and none of them is the usual one"
    else:
        against = f", the others {_words(told[other])}" if other is not None else ""
        summary = f"{case.name(own)} has {_words(told[own])}{against}"
    lines = [f"{case.subject(place)} {_words(told[place])}" for place in with_torch]
    return finding(
        "version-mismatch",
        subject,
        summary=summary,
        evidence=lines[: 4 * NAMED_AT_MOST],
        fields=case.fields(own),
        at_s=started(case, places),
    )


def _words(versions: Dict[str, str]) -> str:
    commit = f" ({versions['torch_git'][:9]})" if "torch_git" in versions else ""
    return f"torch {versions['torch']}{commit}, Python {versions.get('python', '?')}"
