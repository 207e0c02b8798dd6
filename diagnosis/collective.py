"""What the all_reduce of all ranks came to: results that are wrong, or the one cause of a failed job.

What was seen of the processes comes first, then what the ranks printed; what stays open becomes
candidates. Echoes (ranks that lost or waited for another one) are never causes beside a cause.
"""

from __future__ import annotations

from typing import Optional

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.job.ends import judge_ends
from diagnosis.job.hangs import judge_hangs
from diagnosis.job.ranks import Job, Rank
from diagnosis.job.results import judge_results
from diagnosis.job.times import judge_starts, judge_times
from diagnosis.job.words import ECHOES, Words
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.report import CollectiveResult, Verdict

COLLECTIVE_LOG = "/var/log/fullmesh/collective.log"
"""Where userdata/bootstrap.sh keeps the output of its step `collective`."""

_CANDIDATES = ("peer-not-in-collective", "peer-died", "timeout-too-short")


def judge_collective(case: Case) -> Opinion:
    """Causes, candidates and open questions of the stage `collective`."""
    job = Job(case)
    open_ = [f"{case.subject(place)}: no result of the all_reduce" for place in job.silent]
    open_ += [
        f"{case.subject(rank.place)}: the all_reduce is {rank.result.outcome.value}"
        + (f" ({_first_line(rank)})" if rank.result.error else "")
        for rank in job.ranks
        if rank.result.outcome is not Verdict.PASS and not rank.failed
    ]
    return Opinion(unanswered=tuple(open_)) + _of_failure(job)


def _of_failure(job: Job) -> Opinion:
    results = [*judge_results(job), *judge_starts(job)]
    if not job.failed:
        return Opinion(causes=tuple(results))
    words = Words(job)
    seen = [*results, *judge_ends(job, words), *judge_hangs(job)]
    told = words.causes()
    if not seen:
        first = [item for item in told if item.id not in ECHOES]
        seen = [] if first else judge_times(job, words)
    known = {item.id for item in seen}
    told = [item for item in told if item.id not in known and not (seen and item.id in ECHOES)]
    if seen or told:
        return Opinion(causes=(*seen, *told))
    return _undecided(job, words)


def _undecided(job: Job, words: Words) -> Opinion:
    """What the text leaves open; where it leaves nothing, what any failed all_reduce may have."""
    case = job.case
    unnamed = [rank for rank in job.failed if not rank.result.wrong_values]
    if not unnamed:
        return NOTHING
    found = words.candidates()
    subject = "cluster" if len(unnamed) > 1 else case.subject(unnamed[0].place)
    why = f"the all_reduce failed on {len(unnamed)} of {len(case.members)} ranks: {_first_line(unnamed[0])}"
    evidence = [f"{case.subject(rank.place)}: {_first_line(rank)}" for rank in unnamed[:NAMED_AT_MOST]]
    looks = [line for rank in unnamed for line in job.look(rank) if rank.was_ended]
    options = [(item.id, item.subject) for item in found] or [(name, subject) for name in _CANDIDATES]
    candidates = tuple(
        finding(
            cause_id,
            subject if about == "cluster" else about,
            summary=why,
            evidence=[*evidence, *looks[: 2 * NAMED_AT_MOST]],
            fields=case.fields(unnamed[0].place),
            at_s=unnamed[0].at_s,
        )
        for cause_id, about in dict.fromkeys(options)
    )
    return Opinion(candidates=candidates, next_command=_read_log(case, unnamed[0].place))


def _first_line(rank: Rank) -> str:
    text = rank.result.error or ""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no error text")


def _read_log(case: Case, place: int) -> str:
    """What reads the torch log of a member: bootstrap.sh's own where it was deployed."""
    if case.members[place].member_id.startswith("i-"):
        return f"fullmesh explain {COLLECTIVE_LOG}  # on {case.name(place)}"
    return f"fullmesh check 2>check.log; fullmesh explain check.log  # on {case.name(place)}, as a job again"


def slowest(case: Case) -> Optional[CollectiveResult]:
    """The collective of the whole: a failed rank's, else the slowest's."""
    results = [m.report.collective for m in case.members if m.report and m.report.collective]
    if not results:
        return None
    order = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIPPED, Verdict.PASS)
    return min(results, key=lambda r: (order.index(r.outcome), r.busbw_gbit_per_s or 0.0))
