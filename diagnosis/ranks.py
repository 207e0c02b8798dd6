"""Sizes and ranks: how many there should be, who claims what, who never came."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import claims, odd_ones, started, variable
from diagnosis.membership import Member
from diagnosis.opinion import Opinion, total
from diagnosis.report import Finding


def judge_ranks(case: Case) -> Opinion:
    """world-size-mismatch, duplicate-rank, peer-missing."""
    certain = total(Opinion(causes=tuple(judge(case))) for judge in (_world_size, _duplicate_ranks))
    absent = tuple(_absent(case))
    hosts = {member.address for member in case.roster.members}
    if not absent or not case.expectation.met_on_a_port or len(hosts) > 1:
        return certain + Opinion(causes=absent)
    return certain + _kept_from_meeting(case, absent)


def _kept_from_meeting(case: Case, absent: Sequence[Finding]) -> Opinion:
    """To the only host that came, others who never came look like others who cannot reach it."""
    first = next((member for member in case.members if member.rank == 0), case.members[0])
    fields = {"master_address": first.address, "master_port": case.expectation.master_port}
    unreachable = [
        finding(
            "master-unreachable",
            item.subject,
            summary=f"{first.address}, where members meet, cannot be reached from there",
            evidence=item.evidence,
            fields=fields,
        )
        for item in absent
    ]
    return Opinion(
        candidates=tuple(one for both in zip(absent, unreachable) for one in both),
        next_command=unreachable[0].commands[0] + "  # on a node that did not come",
    )


def _world_size(case: Case) -> List[Finding]:
    """Sizes that differ between nodes or from the plan, ranks beyond the size, members beyond it."""
    nodes = case.expectation.nodes
    sizes = claims(case, _size)
    found = [
        _size_finding(case, subject, own, values=sizes, usual=usual)
        for subject, own, usual in odd_ones(case, sizes)
    ]
    claimed = claims(case, lambda member: _text(member.report.world_size) if member.report else None)
    if not found and claimed and set(claimed.values()) != {str(nodes)} and len(claimed) == len(case.members):
        found.append(_size_finding(case, "cluster", sorted(claimed), values=claimed, usual=str(nodes)))
    if not found and len(case.members) > nodes:
        found.append(_surplus(case))
    if not found:
        found += [
            _rank_beyond(case, place)
            for place, member in enumerate(case.members)
            if member.report is not None and member.report.rank is not None and member.rank >= nodes
        ]
    return found


def _text(number: Optional[int]) -> Optional[str]:
    return None if number is None else str(number)


def _size(member: Member) -> Optional[str]:
    if member.report is not None and member.report.world_size is not None:
        return str(member.report.world_size)
    value = variable(member, "WORLD_SIZE")
    return value if value and value.isdigit() else None


def _size_finding(
    case: Case, subject: str, own: Sequence[int], *, values: Mapping[int, str], usual: str
) -> Finding:
    here = values[own[0]]
    who = "nodes disagree on WORLD_SIZE" if subject == "cluster" and not usual else f"WORLD_SIZE is {here}"
    where = "" if subject == "cluster" else f" on {case.name(own[0])}"
    other = f", where {usual} is right" if usual else ""
    return finding(
        "world-size-mismatch",
        subject,
        summary=f"{who}{where}{other}",
        evidence=[f"{case.subject(place)} WORLD_SIZE={value}" for place, value in sorted(values.items())][
            :16
        ],
        fields=case.fields(own[0]),
        at_s=started(case, own),
    )


def _surplus(case: Case) -> Finding:
    nodes = case.expectation.nodes
    return finding(
        "world-size-mismatch",
        "cluster",
        summary=f"{len(case.members)} members came to a cluster of {nodes}",
        evidence=[f"{member.subject} {member.name} {member.address}" for member in case.members[:16]],
        fields=case.fields(),
        at_s=started(case, range(len(case.members))),
    )


def _rank_beyond(case: Case, place: int) -> Finding:
    nodes = case.expectation.nodes
    return finding(
        "world-size-mismatch",
        case.subject(place),
        summary=f"{case.name(place)} claims rank {case.members[place].rank} in a world of {nodes}",
        evidence=[f"ranks of {nodes} are 0 to {nodes - 1}"],
        fields=case.fields(place),
        at_s=started(case, [place]),
    )


def _duplicate_ranks(case: Case) -> List[Finding]:
    holders: Dict[int, List[int]] = {}
    for place, member in enumerate(case.members):
        holders.setdefault(member.rank, []).append(place)
    unclaimed = sorted(set(range(case.expectation.nodes)) - set(holders))
    found = []
    for rank, places in sorted(holders.items()):
        if len(places) > 1:
            names = " and ".join(
                f"{case.members[p].name} ({case.members[p].address})" for p in places[:NAMED_AT_MOST]
            )
            gone = f"; nobody claims rank {', '.join(map(str, unclaimed))}" if unclaimed else ""
            fields = {**case.fields(places[-1]), "other_rank": unclaimed[0] if unclaimed else None}
            found.append(
                finding(
                    "duplicate-rank",
                    f"node:{rank}",
                    summary=f"rank {rank} is claimed by {names}{gone}",
                    evidence=[f"{case.members[place].member_id} claims rank {rank}" for place in places],
                    fields=fields,
                    at_s=started(case, places),
                )
            )
    return found


def _absent(case: Case) -> List[Finding]:
    """peer-missing, once nobody is waited for any more."""
    roster, nodes = case.roster, case.expectation.nodes
    if not roster.absent or not case.expectation.deadline_passed or not case.members:
        return []
    came = f"{len(roster.members)} of {nodes} members came"
    evidence = [came, *(f"{m.subject} {m.name} {m.address} came" for m in roster.members[:NAMED_AT_MOST])]
    silent = case.unregistered()
    evidence += [f"{instance.id} runs and has not registered" for instance in silent[:NAMED_AT_MOST]]
    subjects = [f"node:{rank}" for rank in roster.absent_ranks] or ["cluster"]
    return [
        finding(
            "peer-missing",
            subject,
            summary=f"rank {subject.partition(':')[2]} never came ({came})" if subject != "cluster" else came,
            evidence=evidence,
            commands=None if case.expectation.cluster else (),
            fields={
                "cluster": case.expectation.cluster,
                "instance_id": silent[0].id if silent else None,
            },
        )
        for subject in subjects
    ]
