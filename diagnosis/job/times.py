"""Time-outs that were too short, and ranks that came too late for one that is long enough."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from diagnosis.case import NAMED_AT_MOST
from diagnosis.causes import finding
from diagnosis.job.ranks import Job, Rank
from diagnosis.job.words import Words
from diagnosis.logs.kinds import Kind
from diagnosis.report import CollectiveStep, Finding, Verdict

# The probe's own choice (probe/collective_stage.py): who comes later than that is late.
USUAL_TIMEOUT_S = 30.0
_WAITED = (Kind.OPERATION_TIMEOUT, Kind.BARRIER_RANKS, Kind.STORE_JOINED, Kind.STORE_KEY, Kind.STORE_WAIT)
_STEPS_THAT_WAIT = (CollectiveStep.STORE, CollectiveStep.CONNECT, CollectiveStep.BARRIER)


def judge_starts(job: Job) -> List[Finding]:
    """peer-late, timeout-too-short: by how far apart the members were ready, before any of them waited.

    In a job of their own nobody waits for the others' imports, so a time-out that was asked for has
    to outlast the difference.
    """
    ready = _times(job.ranks, CollectiveStep.READY)
    if len(ready) < 2:
        return []
    first = min(ready, key=lambda place: ready[place])
    gave_up = [
        at_s for rank in job.ranks if (at_s := _gave_up(job, rank)) is not None and rank.place in ready
    ]
    if gave_up:
        late = sorted(place for place, at_s in ready.items() if at_s > min(gave_up))
        return [_ready_late(job, place, ready[place] - ready[first]) for place in late]
    return _imports_apart(job)


def _times(ranks: Sequence[Rank], step: CollectiveStep) -> Dict[int, float]:
    return {r.place: r.result.steps[step.value] for r in ranks if step.value in r.result.steps}


def _gave_up(job: Job, rank: Rank) -> Optional[float]:
    """When a member stopped waiting for the others' imports."""
    report = job.case.members[rank.place].report
    came_no_further = rank.result.step is CollectiveStep.READY and rank.result.outcome is Verdict.UNKNOWN
    return report.finished_at if report is not None and came_no_further else None


def _ready_late(job: Job, place: int, behind_s: float) -> Finding:
    case = job.case
    return finding(
        "peer-late",
        case.subject(place),
        summary=f"{case.name(place)} was ready {behind_s:.1f} s after the first, and the others waited "
        "no longer",
        evidence=_import_lines(job),
        fields=case.fields(place),
        at_s=_times(job.ranks, CollectiveStep.READY)[place],
    )


def _imports_apart(job: Job) -> List[Finding]:
    taken = _imports(job)
    timeouts = [rank.result.timeout_s for rank in job.ranks if rank.result.timeout_s is not None]
    if len(taken) < 2 or not timeouts or min(timeouts) >= USUAL_TIMEOUT_S:
        return []
    apart_s = max(taken.values()) - min(taken.values())
    if apart_s <= min(timeouts):
        return []
    return [
        _too_short(job, job.ranks, _import_lines(job), f"importing torch took members {apart_s:.1f} s longer")
    ]


def _imports(job: Job) -> Dict[int, float]:
    """Seconds that each member took from its process's start until torch was imported."""
    began, ready = _times(job.ranks, CollectiveStep.IMPORT), _times(job.ranks, CollectiveStep.READY)
    return {place: at_s - began[place] for place, at_s in ready.items() if place in began}


def _import_lines(job: Job) -> List[str]:
    taken = sorted(_imports(job).items(), key=lambda item: -item[1])
    return [
        f"{job.case.subject(place)} imported torch in {seconds:.1f} s"
        for place, seconds in taken[:NAMED_AT_MOST]
    ]


def judge_times(job: Job, words: Words) -> List[Finding]:
    """timeout-too-short, peer-late: members that began a step after others' time-out of it had passed.

    A link that is merely slow shows elsewhere: Gloo's time-out is of each segment, not of the whole.
    """
    waited = [rank for rank in job.failed if words.said(rank.place, *_WAITED)]
    if not waited:
        return []
    case = job.case
    late: Dict[int, Tuple[float, CollectiveStep, Rank]] = {}
    for rank in job.ranks:
        for step in _STEPS_THAT_WAIT:
            began = rank.result.steps.get(step.value)
            firsts = [
                (other.result.steps[step.value], other)
                for other in waited
                if other is not rank and other.result.step is step and step.value in other.result.steps
            ]
            if began is None or not firsts:
                continue
            first, other = min(firsts, key=lambda item: item[0])
            if other.result.timeout_s is not None and began - first >= other.result.timeout_s:
                late.setdefault(rank.place, (began - first, step, other))
    if not late:
        return []
    short = [item for item in late.values() if (item[2].result.timeout_s or 0.0) < USUAL_TIMEOUT_S]
    lines = [
        f"{case.subject(place)} began step {step.value} {behind_s:.1f} s after {case.subject(other.place)}, "
        f"whose time-out was {other.result.timeout_s:g} s"
        for place, (behind_s, step, other) in sorted(late.items())
    ]
    if short:
        apart_s = max(behind_s for behind_s, _, _ in late.values())
        return [_too_short(job, waited, lines, f"members began up to {apart_s:.1f} s apart")]
    return [
        finding(
            "peer-late",
            case.subject(place),
            summary=f"{case.name(place)} came {behind_s:.1f} s after the others, whose time-out was "
            f"{other.result.timeout_s:g} s",
            evidence=[line],
            fields=case.fields(place),
            at_s=other.at_s,
        )
        for line, (place, (behind_s, _, other)) in zip(lines, sorted(late.items()))
    ]


def _too_short(job: Job, waited: Sequence[Rank], lines: List[str], why: str) -> Finding:
    timeout_s = min((rank.result.timeout_s or 0.0 for rank in waited), default=0.0)
    return finding(
        "timeout-too-short",
        "cluster",
        summary=f"the time-out of {timeout_s:g} s is below what this cluster needs: {why}",
        evidence=lines,
        fields=job.case.fields(),
        at_s=min((rank.at_s for rank in waited if rank.at_s is not None), default=None),
    )
