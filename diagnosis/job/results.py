"""Results and tasks side by side: wrong numbers, other worlds, other sizes, other variables."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from diagnosis.causes import finding
from diagnosis.claims import odd_ones, where
from diagnosis.job.ranks import Job, Rank
from diagnosis.report import Finding, Verdict

_ENV_EXPECTED = re.compile(r"environment variable (\w+) expected, but not set")


def judge_results(job: Job) -> List[Finding]:
    """collective-wrong-result, world-size-mismatch, collective-mismatch, env-missing."""
    return [*_wrong(job), *_other_world(job), *_other_size(job), *_env_missing(job)]


def _wrong(job: Job) -> List[Finding]:
    """At the ranks that got wrong numbers; at the cluster where all of them did."""
    values = {rank.place: rank.result.wrong_values for rank in job.ranks if rank.result.wrong_values}
    by_place = {rank.place: rank for rank in job.ranks}
    found = []
    for subject, places in where(job.case, sorted(values)) if values else ():
        who = "every rank" if subject == "cluster" else job.case.name(places[0])
        found.append(
            finding(
                "collective-wrong-result",
                subject,
                summary=f"the all_reduce on {who} is wrong: {values[places[0]]}",
                evidence=[f"{job.case.subject(place)}: {values[place]}" for place in places],
                fields=job.case.fields(places[0]),
                at_s=by_place[places[0]].at_s,
            )
        )
    return found


def _other_world(job: Job) -> List[Finding]:
    return [
        finding(
            "world-size-mismatch",
            job.case.subject(rank.place),
            summary=f"the all_reduce of {job.case.name(rank.place)} ran with {rank.result.world_size} ranks "
            f"instead of {_planned(job, rank.place)}",
            evidence=[
                f"world size of the collective: {rank.result.world_size}",
                f"planned: {_planned(job, rank.place)}",
            ],
            fields=job.case.fields(rank.place),
            at_s=rank.at_s,
        )
        for rank in job.ranks
        if rank.result.outcome is Verdict.PASS and rank.result.world_size != _planned(job, rank.place)
    ]


def _planned(job: Job, place: int) -> int:
    """How many ranks the all_reduce should have."""
    report = job.case.members[place].report
    return (report.processes if report else None) or job.case.expectation.nodes


def _other_size(job: Job) -> List[Finding]:
    """Ranks that were told to reduce different sizes, where that made the job fail."""
    sizes = {rank.place: str(rank.result.asked_bytes) for rank in job.ranks if rank.result.asked_bytes}
    if not job.failed:
        return []
    lines = [f"{job.case.subject(place)} all_reduces {size} bytes" for place, size in sorted(sizes.items())]
    return [
        finding(
            "collective-mismatch",
            subject,
            summary=f"ranks call all_reduce with different sizes: {sizes[places[0]]} bytes on "
            + (f"{job.case.name(places[0])}, {usual} on the others" if usual else "some"),
            evidence=lines,
            fields=job.case.fields(places[0]),
            at_s=_began(job, places),
        )
        for subject, places, usual in odd_ones(job.case, sizes)
    ]


def _began(job: Job, places: Sequence[int]) -> Optional[float]:
    times = [time for rank in job.ranks if rank.place in places for time in rank.result.steps.values()]
    return min(times, default=None)


def _env_missing(job: Job) -> List[Finding]:
    found = []
    for rank, name in _missing(job.failed):
        fields: Dict[str, object] = {**job.case.fields(rank.place), "name": name}
        found.append(
            finding(
                "env-missing",
                job.case.subject(rank.place),
                summary=f"{name} is not set on {job.case.name(rank.place)}",
                evidence=[rank.result.error or ""],
                fields=fields,
                at_s=rank.at_s,
            )
        )
    return found


def _missing(ranks: Sequence[Rank]) -> List[Tuple[Rank, str]]:
    found = ((rank, _ENV_EXPECTED.search(rank.result.error or "")) for rank in ranks)
    return [(rank, match.group(1)) for rank, match in found if match]
