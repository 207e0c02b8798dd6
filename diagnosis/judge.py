"""Rows in, Diagnosis out. Pure: gather once, judge as often as you like.

Any cause that breaks the mesh, or any proof that something is broken: FAIL. Else any
planned question without an answer: UNKNOWN. Else PASS.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from cluster.snapshot import ClusterSnapshot
from diagnosis.advertised import judge_advertised
from diagnosis.agreement import differences, judge_agreement
from diagnosis.answers import judge_answers
from diagnosis.bandwidth import judge_bandwidth, with_links
from diagnosis.beside_job import left_to_jobs
from diagnosis.builds import judge_builds
from diagnosis.case import Case
from diagnosis.causes import ORDER, cause, finding
from diagnosis.collective import slowest
from diagnosis.idle import judge_idle
from diagnosis.in_vain import judge_in_vain
from diagnosis.late import judge_late
from diagnosis.launch import judge_launch
from diagnosis.leftover import judge_leftover
from diagnosis.limits import judge_limits
from diagnosis.loss import judge_loss
from diagnosis.master import judge_master
from diagnosis.membership import Expectation, take_roll
from diagnosis.names import judge_names, unread_names
from diagnosis.nodes import judge_nodes
from diagnosis.opinion import Opinion, total
from diagnosis.own_host import judge_own_host
from diagnosis.ranks import judge_ranks
from diagnosis.report import Diagnosis, Finding, NodeReport, NodeVerdict, Verdict
from diagnosis.skew import judge_skew
from diagnosis.timeouts import judge_timeouts
from diagnosis.torchrun import judge_torchrun

__all__ = ["Expectation", "judge"]

T = TypeVar("T")

# What is told of a node, or of all nodes side by side, without a probe between them.
_AROUND = (
    judge_launch,
    judge_leftover,
    judge_master,
    judge_torchrun,
    judge_agreement,
    judge_in_vain,
    judge_late,
    judge_ranks,
    judge_names,
    judge_advertised,
    judge_builds,
    judge_bandwidth,
    judge_skew,
    judge_limits,
    judge_idle,
)


def judge(
    reports: Sequence[NodeReport],
    expectation: Expectation,
    snapshot: Optional[ClusterSnapshot] = None,
) -> Diagnosis:
    """What the rows mean.

    Args:
        reports: all rows there are; several of one member are merged.
        snapshot: the account's rules, where they could be read.
    """
    case = Case(take_roll(reports, expectation), expectation, snapshot)
    mesh = total((judge_own_host(case), judge_timeouts(case), judge_answers(case), judge_loss(case)))
    around = total(look(case) for look in _AROUND)
    nodes = judge_nodes(case)
    others = _unique((*around.causes, *nodes.causes))
    causes, echoes = _silence(_unique((*others, *mesh.causes)), others)
    deciding = [found for found in causes if cause(found.id).decides_verdict]
    advisory = [found for found in causes if not cause(found.id).decides_verdict]
    candidates, more_echoes = _open_candidates(mesh, nodes, deciding, others)
    unanswered = _unanswered(case, total((mesh, around, nodes)))
    exposed = case.static.exposed_lines() if case.static is not None else ()

    nothing_came = not reports and not deciding
    if nothing_came:
        candidates = _nobody_reported()
    if (deciding or candidates or exposed) and not nothing_came:
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.UNKNOWN if unanswered or nothing_came else Verdict.PASS
    if not deciding:  # of members that did not come nothing was seen to fail: that stays unknown
        candidates = [*candidates, *around.candidates]
    undetermined = bool(candidates) and not deciding
    return Diagnosis(
        verdict=verdict,
        causes=() if undetermined else (*deciding, *advisory),
        consequences=(*echoes, *more_echoes, *(advisory if undetermined else ())),
        candidates=tuple(candidates),
        next_command=_next_command(
            case, candidates, unanswered, total((mesh, around, nodes)), named=bool(deciding)
        ),
        unanswered=tuple(unanswered),
        exposed=exposed,
        differences=differences(case),
        skipped=left_to_jobs(case),
        nodes=_node_verdicts(case, deciding, candidates, unanswered),
        pairs=with_links(case, case.matrix.verdicts()),
        collective=slowest(case),
        timings_s=_timings(case),
    )


# --- first cause, not echo -------------------------------------------------------------------


def _unique(found: Iterable[Finding]) -> List[Finding]:
    """One finding a cause and subject, evidence and commands joined, first cause first."""
    by_key: Dict[Tuple[str, str], Finding] = {}
    for item in found:
        known = by_key.setdefault((item.id, item.subject), item)
        if known is not item:
            evidence = tuple(dict.fromkeys((*known.evidence, *item.evidence)))
            commands = tuple(dict.fromkeys((*known.commands, *item.commands)))
            by_key[item.id, item.subject] = dataclasses.replace(known, evidence=evidence, commands=commands)
    return sorted(by_key.values(), key=_first_first)


def _first_first(found: Finding) -> Tuple[float, int, str]:
    return (found.at_s if found.at_s is not None else float("inf"), ORDER[found.id], found.subject)


def _silence(found: Sequence[Finding], others: Sequence[Finding]) -> Tuple[List[Finding], List[Finding]]:
    """(causes, consequences): what a cause at the same subject explains is its consequence.

    others: causes that are not about probes. Each probe is explained once, so what two causes
    of the mesh explain is never the same, and none of them silences the other.
    """
    known = set(others)
    by_key = {(item.id, item.subject): item for item in found}
    ids = {item.id for item in found}

    def is_echo(item: Finding) -> bool:
        firsts = [by_key.get(key) for key in _explaining(item, ids)]
        return any(
            first is not None and first is not item and (first in known or item in known) for first in firsts
        )

    echoes = [item for item in found if is_echo(item)]
    told = {(item.id, item.subject) for item in echoes}
    return [item for item in found if (item.id, item.subject) not in told], echoes


def _explaining(item: Finding, ids: Iterable[str]) -> Iterator[Tuple[str, str]]:
    """(id, subject) of every finding with one of these ids that would explain the item.

    A scope covers the subjects within it: a node's pairs are the node's.
    """
    scopes = ("cluster", item.subject, *(f"node:{rank}" for rank in _ranks_of(item.subject)))
    for first in ids:
        if item.id in cause(first).explains:
            for scope in scopes:
                yield first, scope


def _ranks_of(subject: str) -> Tuple[str, ...]:
    return tuple(re.findall(r"\d+", subject))


def _open_candidates(
    mesh: Opinion, nodes: Opinion, deciding: Sequence[Finding], others: Sequence[Finding]
) -> Tuple[List[Finding], List[Finding]]:
    """(candidates, consequences). A failed collective over a named or broken mesh is its echo."""
    kept: List[Finding] = []
    echoes: List[Finding] = []
    keys = {(item.id, item.subject) for item in others}
    ids = {item.id for item in others}
    for group in _groups(mesh.candidates):
        if any(key in keys for key in _explaining(group[0], ids)):
            echoes.append(group[0])
        else:
            kept += group
    for group in _groups(nodes.candidates):
        if deciding or mesh.candidates:
            echoes.append(group[0])
        else:
            kept += group
    return kept, echoes


def _groups(candidates: Sequence[Finding]) -> List[List[Finding]]:
    """Candidates of one question share their summary."""
    by_question: Dict[str, List[Finding]] = {}
    for item in candidates:
        by_question.setdefault(item.summary, []).append(item)
    return list(by_question.values())


# --- what is open ------------------------------------------------------------------------------


def _unanswered(case: Case, opinion: Opinion) -> List[str]:
    expectation = case.expectation
    open_questions: List[str] = []
    if not case.members:
        open_questions.append(f"cluster: none of {expectation.nodes} nodes reported")
    elif case.roster.absent:
        came = f"{len(case.members)} of {expectation.nodes} members came"
        open_questions.append(f"cluster: {came}")
    if expectation.nodes < 2:
        open_questions.append("cluster: a mesh has at least 2 members")
    if "mesh" in expectation.stages:
        open_questions += case.matrix.unattempted
    elif case.members:
        open_questions += [
            f"{m.subject}: {m.name} ({m.address}) sent no row" for m in case.members if m.report is None
        ]
    for member in case.members:
        open_questions += unread_names(member)
    open_questions += _exposure_gaps(case)
    if not expectation.stages:
        open_questions.append("cluster: no stage was planned")
    return list(dict.fromkeys((*open_questions, *opinion.unanswered)))


def _exposure_gaps(case: Case) -> List[str]:
    """What keeps it open whether anybody else gets in, where that was to be told."""
    if not case.members:
        return []
    static = case.static
    if static is None:
        why = case.expectation.rules_problem or "no reason was given"
        words = f"cluster: whether others get in is not known, the account's rules were not read: {why}"
        return [words] if case.expectation.rules_expected else []
    if static.exposure_known:
        return []
    return [f"cluster: whether others get in is not known: {gap}" for gap in static.unanswered]


def _nobody_reported() -> List[Finding]:
    words = "no node sent a row"
    return [
        finding(cause_id, "cluster", summary=words, evidence=["no row was found"])
        for cause_id in ("launch-failed", "bootstrap-failed", "storage-unreachable")
    ]


def _next_command(
    case: Case, candidates: Sequence[Finding], unanswered: Sequence[str], opinion: Opinion, *, named: bool
) -> Optional[str]:
    """The deciding command, where something is open. named: a cause stands already."""
    if candidates and case.members:
        return opinion.next_command or next((c for item in candidates for c in item.commands), None)
    if not case.members:
        name = case.expectation.cluster or "CLUSTER"
        return (
            f"aws ec2 describe-instances --filters Name=tag:fullmesh:cluster,Values={name} --query "
            "'Reservations[].Instances[].[InstanceId,State.Name,StateReason.Message]' --output table"
        )
    silent = next((member for member in case.members if member.report is None), None)
    if unanswered and silent is not None and silent.member_id.startswith("i-"):
        return f"aws ec2 get-console-output --instance-id {silent.member_id} --latest --output text"
    if _exposure_gaps(case) and not named:
        return (case.static.next_command if case.static else None) or (
            f"aws ec2 describe-instances --instance-ids {case.members[0].member_id} --output json"
        )
    return None


def _node_verdicts(
    case: Case, causes: Sequence[Finding], candidates: Sequence[Finding], unanswered: Sequence[str]
) -> Tuple[NodeVerdict, ...]:
    named = _by_rank(case, causes, lambda item: item.subject)
    suspected = _by_rank(case, candidates, lambda item: item.subject)
    open_lines = _by_rank(case, unanswered, lambda line: line.split(": ")[0])
    found = []
    for place, member in enumerate(case.members):
        here, lines = named[member.rank], open_lines[member.rank]
        perhaps = bool(suspected[member.rank])
        notes = [item.id for item in here[:1]] + ["undetermined"] * perhaps
        notes += [line.partition(": ")[2] for line in lines[:1]]
        found.append(
            NodeVerdict(
                rank=member.rank,
                name=member.name,
                address=member.address,
                verdict=Verdict.FAIL if here or perhaps else Verdict.UNKNOWN if lines else Verdict.PASS,
                member_id=member.member_id,
                note=notes[0] if notes else "",
                clock_offset_s=case.clocks.offset_s(place),
            )
        )
    return tuple(found)


def _by_rank(case: Case, items: Sequence[T], subject: Callable[[T], str]) -> Dict[int, List[T]]:
    """What touches each member, in order: what is about the cluster touches all."""
    touching: Dict[int, List[T]] = {member.rank: [] for member in case.members}
    for item in items:
        about = subject(item)
        ranks = touching if about == "cluster" else dict.fromkeys(map(int, _ranks_of(about)))
        for rank in ranks:
            if rank in touching:
                touching[rank].append(item)
    return touching


def _timings(case: Case) -> Dict[str, float]:
    """The slowest node's time for each step, in seconds."""
    slow: Dict[str, float] = {}
    for member in case.members:
        for step, seconds in (member.report.timings_s if member.report else {}).items():
            slow[step] = max(seconds, slow.get(step, 0.0))
    return slow
